// QnnQuantizeConstFold folds a relax.qnn.quantize of three constants into a constant.
//
// TVM's wheels contain no headers of its IR. Like TVM's Python, this pass calls functions by their
// global names and reads the fields of objects by reflection, so an expression is an ObjectRef.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/rvalue_ref.h>

#include <array>

namespace tvmlab {

namespace ffi = tvm::ffi;

// Defined in ../quantizer/module.cc; checks its arguments.
void QuantizeInto(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView zero_point,
                  int64_t axis, ffi::TensorView out);

namespace {

struct QuantizeCall {
  ffi::Tensor data, output_scale, output_zero_point;
  int64_t axis;
  ffi::String out_dtype;
};

// Returns the quantized tensor, or nothing if the quantizer does not support the operands' dtypes.
// Throws tvmlab.errors.InputError, which the package has registered under this name.
ffi::Optional<ffi::Tensor> Fold(const QuantizeCall& call) {
  constexpr DLDataType kFloat32{kDLFloat, 32, 1}, kInt32{kDLInt, 32, 1};
  if (call.data.dtype() != kFloat32 || call.output_scale.dtype() != kFloat32 ||
      call.output_zero_point.dtype() != kInt32) {
    return std::nullopt;
  }
  const DLDataType dtype = ffi::StringToDLDataType(call.out_dtype);
  // Allocate with TVM, because a constant can outlive the library that contains this code.
  const auto allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  auto out = allocate(ffi::Shape(call.data.shape()), dtype, DLDevice{kDLCPU, 0}, nullptr)
                 .cast<ffi::Tensor>();
  try {
    QuantizeInto(call.data, call.output_scale, call.output_zero_point, call.axis, out);
  } catch (const ffi::Error& error) {
    TVM_FFI_THROW(tvmlab.InputError) << error.message() << "\n  where: qnn.quantize";
  }
  const int64_t low = dtype.code == kDLInt ? -(int64_t{1} << (dtype.bits - 1)) : 0;
  const int64_t high = low + (int64_t{1} << dtype.bits) - 1;
  const auto* zeros = static_cast<const int32_t*>(call.output_zero_point.data_ptr());
  for (int64_t c = 0; c < call.output_zero_point.numel(); ++c) {
    if (low <= zeros[c] && zeros[c] <= high) continue;
    TVM_FFI_THROW(tvmlab.InputError)
        << "zero_point[" << c << "] is " << zeros[c] << "; values of " << call.out_dtype
        << " lie in " << low << " to " << high << "\n  where: qnn.quantize";
  }
  return out;
}

using ffi::Any, ffi::AnyView, ffi::Array, ffi::Function, ffi::Map, ffi::ObjectRef;

using Expr = ObjectRef;
using Var = ObjectRef;
using Pattern = ObjectRef;
using NodeMap = Map<Pattern, Expr>;  // what each part of a pattern matched
using Constants = Map<Var, Expr>;    // the values of variables

template <typename T = ObjectRef, typename... Args>
T Tvm(const char* name, Args&&... args) {
  return Function::GetGlobalRequired(name)(std::forward<Args>(args)...).template cast<T>();
}

template <typename T>
T Field(const ObjectRef& object, const char* name) {
  return ffi::reflection::FieldGetter(object->GetTypeKey(), name)(object).cast<T>();
}

bool IsA(const ObjectRef& object, std::string_view type) { return object->GetTypeKey() == type; }

// ---- the pattern: is_op("relax.qnn.quantize")(is_const(), is_const(), is_const()) ----

struct QuantizePattern {
  Pattern data = Tvm("relax.dpl.ConstantPattern");
  Pattern scale = Tvm("relax.dpl.ConstantPattern");
  Pattern zero_point = Tvm("relax.dpl.ConstantPattern");
  Pattern call = Tvm("relax.dpl.CallPattern",
                     Tvm("relax.dpl.ExprPattern", Tvm("ir.GetOp", "relax.qnn.quantize")),
                     Array<Pattern>{data, scale, zero_point}, /*varg_default_wildcard=*/false);
};

// ---- the callback: returns the replacement of a match ----

// Reads an attribute from an ir.DictAttrs: a dictionary, in a field with a Python name.
template <typename T>
T Attribute(const Expr& call, const char* name) {
  using Dictionary = Map<ffi::String, Any>;
  const auto attrs = Field<ffi::Optional<ObjectRef>>(call, "attrs");
  if (attrs && IsA(*attrs, "ir.DictAttrs")) {
    const auto found = Field<Dictionary>(*attrs, "__dict__").Get(name);
    if (found && found->try_cast<T>()) return found->cast<T>();
  }
  TVM_FFI_THROW(tvmlab.InputError) << "the call has no such attribute, or one of another type"
                                   << "\n  where: qnn.quantize, attribute " << name;
}

// Whether a call rounds half-way cases to even, which Relay does not support.
bool RoundsAsOnnx(const Expr& call) {
  const auto attrs = Field<ffi::Optional<ObjectRef>>(call, "attrs");
  if (!attrs || !IsA(*attrs, "ir.DictAttrs")) return false;
  const auto found = Field<Map<ffi::String, Any>>(*attrs, "__dict__").Get("rounding");
  return found && found->try_cast<ffi::String>() == "ONNX";
}

// Returns the constant for a call that matched, or nothing if the call stays.
ffi::Optional<Expr> Callback(const QuantizePattern& pattern, const Expr& call,
                             const NodeMap& node_map) {
  const auto tensor = [&](const Pattern& part) {
    return Field<ffi::Tensor>(node_map.at(part), "value");
  };
  if (RoundsAsOnnx(call)) return std::nullopt;
  const auto folded =
      tvmlab::Fold({tensor(pattern.data), tensor(pattern.scale), tensor(pattern.zero_point),
                    Attribute<int64_t>(call, "axis"), Attribute<ffi::String>(call, "out_dtype")});
  if (!folded) return std::nullopt;
  // None for the type, which is derived from the tensor, and for the source location.
  return Tvm("relax.MakeTensorConst", *folded, nullptr, nullptr);
}

// ---- the rewrite ----

// Folds the calls that match among a function's bindings. Returns the constants of all variables
// that are bound to one, or nothing if no call matches.
//
// The matcher gets only the bindings of a call's own operands. With those of the whole function, as
// in relax.dpl.rewrite_call, its time grows with the square of the function's length.
ffi::Optional<Constants> Find(const ObjectRef& function) {
  const QuantizePattern pattern;
  const auto match = Function::GetGlobalRequired("relax.dpl.extract_matched_expr");
  Constants constants;
  bool changed = false;
  for (const auto& [var, value] : Tvm<Map<Var, Expr>>("relax.analysis.get_var2val", function)) {
    if (IsA(value, "ir.GenericConst")) constants.Set(var, value);
    if (const auto same = constants.Get(value)) constants.Set(var, *same);
    if (!IsA(value, "ir.Call")) continue;
    Constants behind;
    for (const Expr& operand : Field<Array<Expr>>(value, "args")) {
      if (const auto constant = constants.Get(operand)) behind.Set(operand, *constant);
    }
    const auto node_map = match(pattern.call, value, behind).cast<ffi::Optional<NodeMap>>();
    if (!node_map) continue;
    if (const auto constant = Callback(pattern, value, *node_map)) {
      constants.Set(var, *constant);
      changed = true;
    }
  }
  if (!changed) return std::nullopt;
  return constants;
}

// Replaces variables by their constants and drops the bindings, with Python's PyExprMutator.
// The function's result keeps its name: `gv = constant; return gv`.
ObjectRef Replace(const ObjectRef& function, const Constants& constants) {
  const auto visit = Function::GetGlobalRequired("relax.ExprMutatorVisitExpr");
  const auto visit_binding = Function::GetGlobalRequired("relax.ExprMutatorVisitBinding");
  const auto result = Field<Expr>(Field<Expr>(function, "body"), "body");
  ObjectRef mutator;  // It and the callbacks need each other: the callbacks refer to it.
  const auto on_var = Function::FromTyped([&](const Var& var) {
    const auto constant = constants.Get(var);
    return constant && !var.same_as(result) ? *constant : visit(mutator, var).cast<Expr>();
  });
  const auto on_binding = Function::FromTyped([&](const ObjectRef& binding) {
    // Each class lists only the fields that it adds; `var` is a field of the base class.
    const auto var = ffi::reflection::FieldGetter("relax.expr.Binding", "var")(binding).cast<Var>();
    const auto constant = constants.Get(var);
    if (!constant) {
      visit_binding(mutator, binding);
    } else if (var.same_as(result)) {
      visit_binding(mutator, Tvm("relax.VarBinding", var, *constant, nullptr));
    }
  });
  const auto builder = Tvm("relax.BlockBuilderCreate", nullptr);
  std::array<AnyView, 27> arguments;     // of PyExprMutator, in order; most stay None
  arguments[0] = builder;                // builder
  arguments[4] = arguments[5] = on_var;  // f_visit_var_, f_visit_dataflow_var_
  arguments[18] = on_binding;            // f_visit_var_binding_
  Any made;
  Function::GetGlobalRequired("relax.MakePyExprMutator")
      .CallPacked(arguments.data(), arguments.size(), &made);
  mutator = made.cast<ObjectRef>();
  return Tvm("relax.PyExprMutatorVisitExpr", mutator, function);
}

// ---- the pass ----

ObjectRef Transform(ffi::RValueRef<ObjectRef> moved, const ObjectRef& /*module*/,
                    const ObjectRef& /*context*/) {
  const ObjectRef function = *std::move(moved);
  const auto constants = Find(function);
  return constants ? Replace(function, *constants) : function;
}

ObjectRef QnnQuantizeConstFold() {
  const auto info = Tvm("transform.PassInfo", /*opt_level=*/0, "QnnQuantizeConstFold",
                        /*required=*/Array<ffi::String>{}, /*traceable=*/false);
  return Tvm("relax.transform.MakeFunctionPass", Function::FromTyped(Transform), info);
}

}  // namespace
}  // namespace tvmlab

using tvmlab::QnnQuantizeConstFold;

// The macro's function has an unused parameter.
#pragma GCC diagnostic ignored "-Wunused-parameter"
TVM_FFI_DLL_EXPORT_TYPED_FUNC(qnn_quantize_const_fold, QnnQuantizeConstFold)
