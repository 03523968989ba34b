// QnnQuantizeConstFold: a relax.qnn.quantize of three constants becomes a constant.
//
// TVM ships no headers of its IR, and none are needed. All that TVM's Python can do, it does through
// functions with global names and through fields that objects describe themselves; both doors are
// tvm-ffi's, and open to C++ as well. So an expression here is an ObjectRef: we know what it is from
// where we found it, and ask it for its fields by name.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/rvalue_ref.h>

#include <array>

#include "fold.h"

namespace {

namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::AnyView;
using ffi::Array;
using ffi::Function;
using ffi::Map;
using ffi::ObjectRef;

// Relax's expressions, variables, patterns and passes. The name only says what is meant.
using Expr = ObjectRef;
using Var = ObjectRef;
using Pattern = ObjectRef;

// Calls one of TVM's functions by its global name.
template <typename T = ObjectRef, typename... Args>
T Tvm(const char* name, Args&&... args) {
  return Function::GetGlobalRequired(name)(std::forward<Args>(args)...).template cast<T>();
}

// Reads a field by reflection: any class of TVM's tells where its fields lie and how to get them.
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

// ---- the callback: what takes a match's place ----

using NodeMap = Map<Pattern, Expr>;

// The constant for a call that matched; nothing where the call stays.
ffi::Optional<Expr> Callback(const QuantizePattern& pattern, const Expr& call,
                             const NodeMap& node_map) {
  // The operator's attributes are an ir.DictAttrs, a dictionary in a field that Python calls by
  // the same name. It holds plain integers and strings.
  const auto attrs = Field<Map<ffi::String, Any>>(Field<ObjectRef>(call, "attrs"), "__dict__");
  const auto tensor = [&](const Pattern& part) {
    return Field<ffi::Tensor>(node_map.at(part), "value");
  };
  const auto folded = tvmlab::Fold(
      {tensor(pattern.data), tensor(pattern.scale), tensor(pattern.zero_point),
       attrs.at("axis").cast<int64_t>(), attrs.at("out_dtype").cast<ffi::String>()});
  if (!folded) return std::nullopt;
  // No type, no place in the source: TVM finds the first and does without the other.
  return Tvm("relax.MakeTensorConst", *folded, nullptr, nullptr);
}

// ---- the rewrite ----

// What variables stand for, in the order of their bindings.
using Constants = Map<Var, Expr>;

struct Found {
  Constants constants;   // every variable that stands for a constant, folded now or before
  bool changed = false;  // whether any was folded now
};

// Finds the matches among a function's bindings, and computes them.
//
// relax.dpl.rewrite_call would do this and the rest. But at each call it asks about, the matcher
// reads all the bindings that it is given to look through: with a function's, the time grows with
// the square of its length (8 s at 10,000 bindings). A match here ends at the call's own operands.
Found Find(const ObjectRef& function) {
  const QuantizePattern pattern;
  const auto match = Function::GetGlobalRequired("relax.dpl.extract_matched_expr");
  Found found;
  for (const auto& [var, value] : Tvm<Map<Var, Expr>>("relax.analysis.get_var2val", function)) {
    if (IsA(value, "ir.GenericConst")) found.constants.Set(var, value);
    if (const auto same = found.constants.Get(value)) found.constants.Set(var, *same);
    if (!IsA(value, "ir.Call")) continue;
    Constants near;
    for (const Expr& operand : Field<Array<Expr>>(value, "args")) {
      if (const auto constant = found.constants.Get(operand)) near.Set(operand, *constant);
    }
    const auto node_map = match(pattern.call, value, near).cast<ffi::Optional<NodeMap>>();
    if (!node_map) continue;
    if (const auto constant = Callback(pattern, value, *node_map)) {
      found.constants.Set(var, *constant);
      found.changed = true;
    }
  }
  return found;
}

// Puts the constants in the place of their variables, and drops the bindings. What the function
// returns keeps its name: `gv = constant; return gv`.
//
// relax.MakePyExprMutator is Python's PyExprMutator. It walks a function, rebuilds what changed and
// finds its types; for the kinds of nodes that it was given a callback for, it asks that first.
ObjectRef Replace(const ObjectRef& function, const Constants& constants) {
  const auto visit = Function::GetGlobalRequired("relax.ExprMutatorVisitExpr");
  const auto visit_binding = Function::GetGlobalRequired("relax.ExprMutatorVisitBinding");
  const auto result = Field<Expr>(Field<Expr>(function, "body"), "body");
  ObjectRef mutator;  // The callbacks need it, and it needs them: they hold no more than its place.
  const auto on_var = Function::FromTyped([&](const Var& var) {
    const auto constant = constants.Get(var);
    return constant && !var.same_as(result) ? *constant : visit(mutator, var).cast<Expr>();
  });
  const auto on_binding = Function::FromTyped([&](const ObjectRef& binding) {
    // Each class lists the fields that it adds; `var` lies in the base.
    const auto var = ffi::reflection::FieldGetter("relax.expr.Binding", "var")(binding).cast<Var>();
    const auto constant = constants.Get(var);
    if (!constant) {
      visit_binding(mutator, binding);
    } else if (var.same_as(result)) {
      visit_binding(mutator, Tvm("relax.VarBinding", var, *constant, nullptr));
    }
  });
  const auto builder = Tvm("relax.BlockBuilderCreate", nullptr);
  std::array<AnyView, 27> callbacks;     // None: the mutator's own way. Otherwise:
  callbacks[0] = builder;                // where it emits
  callbacks[4] = callbacks[5] = on_var;  // f_visit_var_, f_visit_dataflow_var_
  callbacks[18] = on_binding;            // f_visit_var_binding_
  Any made;
  Function::GetGlobalRequired("relax.MakePyExprMutator")
      .CallPacked(callbacks.data(), callbacks.size(), &made);
  mutator = made.cast<ObjectRef>();
  return Tvm("relax.PyExprMutatorVisitExpr", mutator, function);
}

// ---- the pass ----

// A pass owns the function that it is given: TVM moves it in.
ObjectRef Transform(ffi::RValueRef<ObjectRef> moved, const ObjectRef& /*module*/,
                    const ObjectRef& /*context*/) {
  const ObjectRef function = *std::move(moved);
  // All errors come from the first step, when nothing has been built yet.
  const Found found = Find(function);
  return found.changed ? Replace(function, found.constants) : function;
}

ObjectRef QnnQuantizeConstFold() {
  const auto info = Tvm("transform.PassInfo", /*opt_level=*/0, "QnnQuantizeConstFold",
                        /*required=*/Array<ffi::String>{}, /*traceable=*/false);
  return Tvm("relax.transform.MakeFunctionPass", Function::FromTyped(Transform), info);
}

}  // namespace

#pragma GCC diagnostic ignored "-Wunused-parameter"
TVM_FFI_DLL_EXPORT_TYPED_FUNC(qnn_quantize_const_fold, QnnQuantizeConstFold)
