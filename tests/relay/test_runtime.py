"""What scripts do with a built module besides setting, running and getting: times, parts, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from tests.relay.test_standin import script
from tvmlab import relay
from tvmlab.errors import InputError, RelayError
from tvmlab.relay import graph_executor

DATA = np.array([[1.0, 2.0]], "float32")


@pytest.fixture(scope="module")
def library() -> Any:
    x, w = relay.var("x", shape=(1, 2)), relay.var("w", shape=(1, 2))
    mod = relay.from_expr(relay.Function([x, w], relay.exp(x) + w))
    return relay.build(mod, "llvm", params={"w": DATA})


def test_a_time_evaluator(library: Any) -> None:
    dev = tvm.cpu()
    module = graph_executor.GraphModule(library["default"](dev))
    module.set_input("x", DATA)
    for part in (module.module, library["default"](dev)):
        result = part.time_evaluator("run", dev, number=1, repeat=3)()
        assert len(result.results) == 3
        assert result.mean > 0
    with pytest.raises(RelayError, match="function 'load'"):
        module.module.time_evaluator("load", dev)


def test_packed_functions(library: Any) -> None:
    session = library["default"](tvm.cpu())
    session["set_input"]("x", DATA)
    session["run"]()
    assert session["get_num_outputs"]() == 1
    np.testing.assert_allclose(session["get_output"](0).numpy(), np.exp(DATA) + DATA, rtol=1e-6)


def test_the_parts_of_a_library(library: Any) -> None:
    module = graph_executor.create(library.graph_json, library.lib, tvm.cpu())
    module.set_input(**library.params)
    module.run(x=DATA)
    np.testing.assert_allclose(module.get_output(0).numpy(), np.exp(DATA) + DATA, rtol=1e-6)
    assert library.lib["default"]


def test_text_in_bytes() -> None:
    text = "def @main() { 1f /* \N{GREEK SMALL LETTER PI} */ }"
    tvm.ir.assert_structural_equal(relay.fromtext(text.encode()), relay.fromtext(text))


@pytest.mark.parametrize(
    ("text", "what"),
    [(None, "not a NoneType"), (3, "not a int"), (b"\xff\xfe", "not UTF-8"), ([], "not a list")],
)
def test_what_is_no_text(text: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        relay.fromtext(text)


def test_a_target_is_a_devices_name(tmp_path: Any) -> None:
    printed = script(
        tmp_path,
        "import tvm\n"
        "from tvm import relay\n"
        "target = tvm.target.Target('llvm -mcpu=core2')\n"
        "print(tvm.device(str(target), 0) == tvm.device(target) == tvm.cpu(0))\n",
    ).stdout
    assert printed == "True\n"


def test_options_that_do_nothing_now(tmp_path: Any) -> None:
    from tvmlab.relay.backend import Executor, Runtime

    with pytest.warns(UserWarning, match="'link-params' of the executor does nothing"):
        Executor("graph", {"link-params": True})
    with pytest.warns(UserWarning, match="interface-api"):
        Executor("aot", {"interface-api": "packed", "unpacked-api": False})
    with pytest.raises(RelayError, match="no option 'interface-api'"):
        Executor("aot", {"interface-api": "c"})
    with pytest.raises(RelayError, match="no option 'system-lib'"):
        Runtime("cpp", {"system-lib": True})
    done = script(
        tmp_path,
        "import tvm\n"
        "config = {'relay.FuseOps.max_depth': 1, 'relay.backend.use_auto_scheduler': True}\n"
        "with tvm.transform.PassContext(opt_level=3, config=config) as ctx:\n"
        "    print(ctx.opt_level)\n"
        "try:\n"
        "    tvm.transform.PassContext(config={'relay.ext.ethos-u.options': 1})\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n",
    )
    assert done.stdout.splitlines() == ["3", "RelayError"]
    assert done.stderr.count("does nothing today") == 2


def test_modules_of_scripts_that_are_not_there(tmp_path: Any) -> None:
    printed = script(
        tmp_path,
        "for line in ('from tvm.relay.frontend.common import infer_shape',\n"
        "             'from tvm.relay.testing import check_grad'):\n"
        "    try:\n"
        "        exec(line)\n"
        "    except ImportError as error:\n"
        "        print('does not carry' in str(error))\n",
    ).stdout
    assert printed.splitlines() == ["True", "True"]
