"""Scripts of Relay's time, run as they are: ``python -m tvmlab.relay SCRIPT.py``."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

import tvmlab
from tests.forked import forked
from tests.oracles.networks import by_onnxruntime
from tests.short import long
from tvmlab import models
from tvmlab.relay import fromtext

DATA = Path(__file__).parents[1] / "data" / "relay"
SCRIPTS = DATA / "scripts"


def run(*arguments: object, folder: Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command; its package is imported before it begins, as ``python -m`` does."""
    how = {"folder": folder, "imported": ("tvmlab.relay",), "environment": {}}
    done = forked("-m", "tvmlab.relay", *arguments, **how)
    assert (done.returncode != 0) == fails, done.stderr
    return done


def script(folder: Path, text: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(text)
    return run(path, folder=folder, fails=fails)


@long
def test_a_network_from_onnx_to_its_classes(tmp_path: Path) -> None:
    picture = models.digits().x_test[:1]
    np.save(tmp_path / "picture.npy", picture)
    model = resources.files("tvmlab") / "assets" / "digits_resnet.onnx"
    paths = model, tmp_path / "picture.npy", tmp_path / "result.npy"
    printed = run(SCRIPTS / "classify.py", *paths, folder=tmp_path).stdout.splitlines()
    wanted = by_onnxruntime(models.digits_resnet(batch=1).proto, picture)
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), wanted, rtol=1e-4, atol=1e-5)
    kinds = [node.op_type for node in models.digits_resnet(batch=1).proto.graph.node]
    assert printed[0] == f"convolutions: {kinds.count('Conv')}"
    assert [line.split("'")[1] for line in printed[1:]] == [
        str(index) for index in np.argsort(wanted[0])[::-1][:5]
    ]


def test_the_customers_convolution_is_rewritten_and_cut_out(tmp_path: Path) -> None:
    """Relay's own modules before and after are what the script reads and has to make."""
    for name in ("torch", "tflite"):
        before = DATA / "rewrite" / f"{name}_before.relay"
        made = [tmp_path / f"{name}_{part}.relay" for part in ("after", "cut")]
        printed = run(SCRIPTS / "partition.py", before, *made, folder=tmp_path).stdout
        after = fromtext((DATA / "rewrite" / f"{name}_after.relay").read_text())
        assert tvm_ffi.structural_equal(fromtext(made[0].read_text()), after, map_free_vars=True)
        assert sorted(printed.splitlines()) == ["main -", "tvmgen_default_npu_main_0 npu"]
        cut = made[1].read_text()
        assert 'Composite="npu.qnn_conv2d"' in cut
        region = cut[cut.index("def @tvmgen_default_npu_main_0") :]
        assert "qnn.requantize" in region
        assert "qnn.quantize" not in region


def test_a_gone_name_is_said_where_the_script_uses_it(tmp_path: Path) -> None:
    done = run(SCRIPTS / "tune.py", "--trials", "10", folder=tmp_path, fails=True)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["__main__ ['--trials', '10'] 1 True tvm"]
    lines = done.stderr.splitlines()
    assert any("tune.py" in line and "line 17, in <module>" in line for line in lines)
    assert "tvm.autotvm.measure_option" in lines[-3]
    assert "tvmlab.tuning.Measure" in lines[-1]


@pytest.mark.parametrize(
    ("code", "status", "stdout", "stderr"),
    [
        ("import sys; print(sys.argv[1:], __name__); sys.exit(7)", 7, "[] __main__", ""),
        ("def f(:\n    pass", 1, "", "SyntaxError"),
    ],
)
def test_the_exit_code_is_the_scripts(
    tmp_path: Path, code: str, status: int, stdout: str, stderr: str
) -> None:
    done = script(tmp_path, code, fails=True)
    assert (done.returncode, done.stdout.strip()) == (status, stdout)
    assert stderr in done.stderr


def test_what_is_asked_of_the_command_itself(tmp_path: Path) -> None:
    assert run(folder=tmp_path, fails=True).returncode == 2
    command = [sys.executable, "-m", "tvmlab.relay", "--help"]
    where = {"PYTHONPATH": str(Path(tvmlab.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=where, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage" in done.stdout
    missing = run("no_such.py", folder=tmp_path, fails=True)
    assert missing.returncode == 2
    assert "no_such.py" in missing.stderr


IMPORTS = """
import tvm
import tvm.relay.testing
from tvm import relay, te, autotvm, auto_scheduler, tir, topi
from tvm.contrib import graph_executor, utils, cc
from tvm.contrib.download import download_testdata
from tvm.ir.container import Array
from tvm.relay import transform, expr as _expr, ty as _ty
from tvm.relay.backend import Executor, Runtime, te_compiler
from tvm.relay.frontend.onnx import from_onnx
from tvm.relay.op.nn import conv2d
from tvm.relay.qnn.op import requantize
from tvm.relay.testing import byoc, resnet, run_opt_pass
from tvm.relay.testing.temp_op_attr import TempOpAttr
from tvm.runtime.ndarray import NDArray
from tvm.script import tir as T
import tvm.relay.op as reg, tvm.relay.transform as _transform
import tvmlab.relay

assert tvm.relay is tvmlab.relay is relay
assert tvm.relay.expr.Call is _expr.Call is tvmlab.relay.Call
assert relay.op.nn.conv2d is conv2d and _transform is transform
assert tvm.relay.qnn.add is relay.qnn.op.add is not relay.add
assert T.prim_func and te_compiler.get().clear() is None
assert tvm.nd.NDArray is NDArray is tvm.runtime.Tensor
assert tvm.tir.Schedule is tvm.s_tir.Schedule and tvm.tir.IntImm is tvm.tirx.IntImm
assert isinstance(relay.var("x"), tvm.ir.RelayExpr)
assert isinstance(relay.TensorType((relay.Any(), 1)).shape[0], tvm.tir.Any)
assert tvm.target.create("llvm -mcpu=core-avx2").attrs["mcpu"] == "core-avx2"
assert tvm.nd.array([1.0, 2.0]).asnumpy().tolist() == [1, 2]
config = {"tir.disable_vectorize": True, "relay.FuseOps.max_depth": 1}
with tvm.transform.PassContext(opt_level=3, config=config):
    pass
for bad in (
    lambda: tvm.transform.PassContext(config={"relay.ext.cutlass.options": 1}),
    lambda: te.create_schedule, lambda: tvm.lower, lambda: relay.ScopeBuilder,
    lambda: te_compiler.get().lower, lambda: byoc.CcompilerAnnotator,
    lambda: TempOpAttr("add", "FTVMLegalize", 2), lambda: tvm.parser.parse("def @main( {"),
    lambda: tvm.ir.register_op_attr("add", "FTVMLegalize", print),
    lambda: tvm.IRModule().import_from_std("prelude.rly"), lambda: tvm.ir.make_node("attrs.No"),
    lambda: relay.op.contrib.get_pattern_table("dnnl"),
):
    try:
        bad()
    except tvm.error.DiagnosticError as error:
        print(error.fix)
    else:
        raise AssertionError(bad)
try:
    tvm.no_such_name
except AttributeError as error:
    print(error)
"""

OBJECTS = """
import numpy as np, tvm
from tvm import relay

x = relay.var("x", shape=(1, 3, 8, 8))
y = relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32")), padding=(1, 1))
func = relay.Function([x], relay.reshape(relay.nn.relu(y), (1, -1)))
mod = tvm.IRModule.from_expr(func)
main = mod["main"]
conv = main.body.args[0].args[0]
assert main.body is not None and main.body.same_as(mod["main"].body)
assert (main.body.op.name, conv.op.name, len(main.body.args)) == ("reshape", "nn.conv2d", 1)
assert conv.op == relay.op.get("nn.conv2d") == tvm.ir.Op.get("nn.conv2d")
assert list(conv.attrs.padding) == [1, 1, 1, 1] and conv.attrs["data_layout"] == "NCHW"
assert conv.checked_type.concrete_shape == (1, 4, 8, 8) and conv.checked_type.dtype == "float32"
assert main.params[0].name_hint == "x" and main.ret_type.concrete_shape == (1, 256)
assert conv.args[1].data.asnumpy().sum() == 108
again = relay.Call(main.body.op, [relay.tanh(conv)], main.body.attrs)
assert again.checked_type.concrete_shape == (1, 256)
assert tvm.ir.structural_equal(mod["main"], func) and not tvm.ir.structural_equal(func, again)
tvm.ir.assert_structural_equal(mod, tvm.parser.parse(mod.astext()), map_free_vars=True)
assert str(main).startswith("fn (%x") and str(mod).startswith("def @main")
fused = relay.transform.FuseOps()(mod)
assert "Primitive=1" in str(fused)

class Names(relay.ExprVisitor):
    found = []
    def visit_call(self, call):
        super().visit_call(call)
        self.found.append(call.op.name)

Names().visit(main)
assert Names.found == ["nn.conv2d", "nn.relu", "reshape"], Names.found

kind = conv.checked_type
assert np.zeros(2, kind.dtype).dtype == kind.dtype and kind.dtype.startswith("float")
assert relay.cast(x, kind.dtype).checked_type.dtype in {"float32": 1}
assert relay.zeros(kind.shape, kind.dtype).checked_type == kind
assert relay.TensorType(kind.shape, kind.dtype) == kind
try:
    relay.var("y").checked_type
except ValueError:
    print("ok")
"""


def test_imports_and_names(tmp_path: Path) -> None:
    lines = script(tmp_path, IMPORTS).stdout.splitlines()
    assert "no_such_name" in lines[-1]
    assert "tvm.s_tir.Schedule" in "".join(lines)
    assert len(lines) == 13


def test_objects_have_what_they_had(tmp_path: Path) -> None:
    assert script(tmp_path, OBJECTS).stdout == "ok\n"


def test_tests_of_relays_time_run_under_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_then.py").write_text(
        "import tvm\nimport tvm.testing\nfrom tvm import relay\n\n"
        "@tvm.testing.requires_llvm\n@tvm.testing.uses_gpu\n"
        "def test_it():\n    x = relay.var('x', shape=(2,))\n"
        "    made = relay.create_executor('graph', device=tvm.cpu())\n"
        "    got = made.evaluate(relay.Function([x], x + x))(tvm.nd.array([1.0, 2.0]))\n"
        "    tvm.testing.assert_allclose(got.numpy(), [2.0, 4.0])\n"
    )
    # Without the plugin for notebooks, whose import is long.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:nbval"]
    done = run("-m", "pytest", *options, "test_then.py", folder=tmp_path)
    assert "1 passed" in done.stdout


MACHINE = """
import numpy as np, tvm, tvm.testing
from tvm import relay
from tvm.relay import vm as _vm
from tvm.relay.testing.temp_op_attr import TempOpAttr
from tvm.runtime.vm import Executable, VirtualMachine

x = relay.var("x", shape=(2, 3))
mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([relay.abs(x), x + x])))
with relay.build_config(opt_level=3):
    exe = _vm.compile(mod, target="llvm")
code, lib = exe.save()
machine = VirtualMachine(Executable.load_exec(code, lib), tvm.cpu())
data = -np.ones((2, 3), "float32")
found = machine.run(x=data)
assert isinstance(found, tvm.runtime.container.ADT) and len(machine.get_outputs()) == 2
assert [part.numpy().sum() for part in found] == [6, -12]
today = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.abs(x))), "llvm")
assert VirtualMachine(today, tvm.cpu())["main"](tvm.nd.array(data)).numpy().sum() == 6

q = relay.var("q", shape=(2, 3), dtype="int8")
one, zero = relay.const(0.5), relay.const(0)
real = relay.Function([q], relay.qnn.dequantize(q, one, zero))
def legalize(attrs, inputs, types):
    assert attrs.axis == -1 and types[1].dtype == "float32" == types[-1].dtype
    return relay.multiply(relay.cast(inputs[0], "float32"), relay.const(3.0))
def evaluate():
    return relay.create_executor("graph").evaluate(real)(np.ones((2, 3), "int8")).numpy().sum()
with TempOpAttr("qnn.dequantize", "FTVMQnnLegalize", legalize):
    with TempOpAttr("qnn.dequantize", "FTVMQnnLegalize", lambda *_: None):
        assert evaluate() == 3
    assert evaluate() == 18
    made = relay.qnn.transform.Legalize()(tvm.IRModule.from_expr(real))
assert made["main"].body.op.name == "multiply" and evaluate() == 3
kept = relay.qnn.transform.CanonicalizeOps()(tvm.IRModule.from_expr(real))
assert kept["main"].body.op.name == "qnn.dequantize"

f = tvm.parser.fromtext('#[version = "0.0.5"] def @f(%y: Tensor[(2, 3), float32]) { abs(%y) }')
f["f"] = f["f"].with_attr("Inline", 1)
table = {"relay.Constant": [relay.const(data)]}
text = "def @main(%x: Tensor[(2, 3), float32]) { add(@f(%x), meta[relay.Constant][0]) }"
whole = tvm.parser.parse(text, "from_string", relay.transform.InferType()(f), table)
spanned = relay.transform.AnnotateSpans()(whole)
tvm.ir.assert_structural_equal(spanned, whole)
inlined = relay.transform.AlterOpLayout()(relay.transform.Inline()(whole))
assert [var.name_hint for var in inlined.get_global_vars()] == ["main"]
for one in whole, inlined:
    made = relay.create_executor("vm", mod=one).evaluate()(data)
    assert made.numpy().sum() == 0
assert type(whole["main"].body) == relay.Call != relay.Tuple
loose = relay.var("loose")
relay.Let(loose, relay.const(1), loose + loose)
assert loose.type_annotation is None
"""


def test_the_machine_legalizations_and_texts_of_relays_time(tmp_path: Path) -> None:
    script(tmp_path, MACHINE)
