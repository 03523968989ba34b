"""Relay's own tests, unchanged: tests/python/relay of TVM 0.18, where the sources are beside us.

The failing tests are listed: those that `tvmlab.errors` refuses, and those whose result differs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from tests.forked import forked
from tests.short import beside, long


class Results(NamedTuple):
    """The number of tests in a file, and those that fail, without ``test_``."""

    count: int
    refused: str = ""
    differ: str = ""


SHORT = {
    # Algebraic data types; a reshape of unknown shape.
    "dataflow_pattern": Results(90, "match_match match_dominator2"),
    "pass_merge_composite": Results(13),
    # Algebraic data types, references, and attributes made for the test.
    "ir_parser": Results(
        53,
        "ref adt_defn adt_any empty_adt_defn multiple_cons_defn multiple_type_param_defn match "
        "adt_cons_expr extern_adt_defn import_grad tuple_return_value load_prelude call_attrs",
    ),
    # C and oneDNN code generators, algebraic data types.
    "pass_partition_graph": Results(
        23, "multi_node_compiler dnnl_fuse not_bind_constant preserve_type_import"
    ),
}
LONG = {
    # A zero point beyond int8. A module that has no types yet; a constant that is not folded.
    "pass_fake_quantization_to_integer": Results(
        107, "fake_quantize_conv_per_channel", "fq_qat_negative_all fq_qat_intermediate_infertype"
    ),
    "op_qnn_add": Results(4),
    "op_qnn_concatenate": Results(5),
    "op_qnn_conv2d": Results(17),
    "op_qnn_dense": Results(4),
    "op_qnn_dequantize": Results(9),
    "op_qnn_mul": Results(3),
    "op_qnn_quantize": Results(7),
    "op_qnn_requantize": Results(14),
    "op_qnn_subtract": Results(3),
}
RANDOM = {"test_fake_quantize_conv_per_channel"}  # it fails where a random zero point is not int8


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(name, marks=long) for name in LONG)])
def test_relays_own_tests_pass_or_are_refused(name: str, tmp_path: Path) -> None:
    source, report = beside("relay-tests") / f"test_{name}.py", tmp_path / "report.xml"
    plugins = ["-p", "no:cacheprovider", "-p", "no:nbval", "--noconftest"]
    options = ["-m", "pytest", *plugins, f"--rootdir={tmp_path}", f"--junit-xml={report}"]
    # Exporting a library runs a compiler.
    how = {"folder": tmp_path, "environment": {"PATH": os.environ["PATH"]}}
    forked("-m", "tvmlab.relay", *options, source, imported=("tvmlab.relay",), **how)
    results = (SHORT | LONG)[name]
    cases = list(ElementTree.parse(report).iter("testcase"))
    found = {
        str(case.get("name")): str(case[0].get("message"))
        for case in cases
        if len(case) and case[0].tag in ("failure", "error")
    }
    refused, differ = ({f"test_{each}" for each in part.split()} for part in results[1:])
    assert len(cases) == results.count
    assert found.keys() - RANDOM == (refused | differ) - RANDOM
    in_words = {each for each, message in found.items() if message.startswith("tvmlab.")}
    assert in_words - RANDOM == refused - RANDOM
