"""Names and operators that are not there: errors that Python understands, with words that help."""

from __future__ import annotations

from typing import Any

import pytest

from tests.relay.test_standin import script
from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir import gone


@pytest.mark.parametrize(
    ("module", "name"),
    [(relay, "vm"), (relay.transform, "ToMixedPrecision"), (relay.nn, "fifo_buffer"),
     (relay.vision, "roi_pool"), (relay.op, "register_legalize"), (relay, "never")],
)  # fmt: skip
def test_python_understands_that_a_name_is_not_there(module: Any, name: str) -> None:
    assert not hasattr(module, name)
    assert getattr(module, name, 3) == 3
    with pytest.raises(RelayError) as caught:
        getattr(module, name)
    assert isinstance(caught.value, AttributeError)
    assert not isinstance(caught.value, ImportError)


def test_an_import_of_such_a_name_keeps_the_words() -> None:
    with pytest.raises(ImportError, match="does not carry") as caught:
        from tvmlab.relay.transform import ToMixedPrecision  # noqa: F401
    assert "tvm.relax.transform.ToMixedPrecision" in str(caught.value)
    with pytest.raises(ImportError, match="does not carry"):
        from tvmlab.relay import vm  # noqa: F401
    with pytest.raises(ImportError, match=r"did you mean relay\.transform\.FuseOps\?"):
        from tvmlab.relay.transform import FuseOpz  # type: ignore[attr-defined]  # noqa: F401
    from tvmlab.relay import standin  # a module that is no attribute before it is imported

    assert standin.install


def test_a_script_falls_back(tmp_path: Any) -> None:
    printed = script(
        tmp_path,
        "from tvm import relay\n"
        "print(getattr(relay.transform, 'ToMixedPrecision', None), hasattr(relay, 'vm'))\n"
        "for name in ('from tvm.relay.quantize import quantize', 'from tvm.relay import vm',\n"
        "             'from tvm.relay.nn import fifo_buffer', 'from tvm.te import gradient'):\n"
        "    try:\n"
        "        exec(name)\n"
        "    except ImportError as error:\n"
        "        print('fallback', 'carry' in str(error))\n",
    ).stdout
    assert printed.splitlines() == ["None False", *["fallback True"] * 4]


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda: relay.nn.con2d, "nn.conv2d"),
        (lambda: relay.transform.FuseOpz, "relay.transform.FuseOps"),
        (lambda: relay.ExprMutatr, "relay.ExprMutator"),
        (lambda: relay.frontend.from_onx, "relay.frontend.from_onnx"),
        (lambda: relay.bild, "relay.build"),
        (lambda: relay.multipy, "relay.multiply"),
        (lambda: relay.testing.resne, "relay.testing.resnet"),
    ],
)
def test_a_slip_of_the_pen_is_told_the_name(ask: Any, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        ask()
    assert name in str(caught.value).splitlines()[-1]
    assert "operator" not in str(caught.value) or "con2d" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "what", "fix"),
    [
        ("meshgrid((%x, %x))", "does not carry", "tvm.relax.op.meshgrid"),
        ("segment_sum(%x, %x)", "does not carry", "no counterpart"),
        ("vision.roi_align(%x, %x)", "does not carry", "tvm.relax.op.vision.roi_align"),
        ("ref(%x)", "values do not change", "give the new one"),
        ("nn.con2d(%x, %x)", "not known here", "did you mean nn.conv2d"),
        ("lrn(%x)", "not known here", "did you mean nn.lrn"),
    ],
)
def test_an_operator_of_relays_that_is_not_carried(call: str, what: str, fix: str) -> None:
    with pytest.raises(RelayError, match=what) as caught:
        relay.fromtext(f"def @main(%x: Tensor[(2, 3), float32]) {{ {call} }}")
    assert fix in str(caught.value.fix)
    assert "line 1, column" in str(caught.value)


def test_counterparts_with_another_name_exist() -> None:
    for name in gone._RENAMED:
        assert gone.is_operator(name)
        found: Any = __import__("tvm")
        for part in str(gone.operator(name)).split(".")[1:]:
            found = getattr(found, part)
