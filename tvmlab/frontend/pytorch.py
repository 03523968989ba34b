"""PyTorch exported programs to Relax, through upstream's importer."""

from __future__ import annotations

import warnings
from typing import Any

from tvm.ir import IRModule

from ..errors import ModelError, UnsupportedOperatorError
from ..ir.indices import NormalizeIndices
from ..ir.signature import OUTPUT_NAMES
from ..support.wording import telling
from . import pt2e
from .torch_indices import CONVERTERS

__all__ = ["import_program"]


def import_program(program: Any, *, keep_params: bool = False) -> IRModule:
    """Import what ``torch.export.export`` returned; see `tvmlab.load`.

    Sizes declared dynamic stay symbolic. With `keep_params` weights are parameters of ``main``,
    after the inputs, and its attribute ``params`` holds their values.
    """
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = program.graph_signature.user_outputs  # before they are those of decompositions
            # As upstream would; the converters below name nodes of the decomposed program.
            program = program.run_decompositions()
            _refuse_state(program)
            mod = from_exported_program(
                program,
                keep_params_as_input=keep_params,
                unwrap_unit_return_tuple=True,
                custom_convert_map={**CONVERTERS, **pt2e.converters(program)},
                run_ep_decomposition=False,
            )
            normalize: Any = NormalizeIndices()
            mod = normalize(_bounded(mod))
            if all(isinstance(name, str) for name in names):  # else some are constants, or None
                mod["main"] = mod["main"].with_attr(OUTPUT_NAMES, list(names))
            return mod
    except ModelError:
        raise
    except Exception as error:  # upstream asserts, and raises many classes
        message = telling(error)
        if "Unsupported function type" in message:
            raise _unsupported(program, message) from error
        raise ModelError(
            f"TVM's importer failed: {message}",
            where="the exported program",
            fix="export the module in evaluation mode, and check that it runs in PyTorch",
        ) from error


def _bounded(mod: IRModule) -> IRModule:
    """Drop least sizes of 1: every size is as large, and there is nothing to know by them."""
    main, name = mod["main"], "tir_var_lower_bound"
    if main.attrs is not None and name in main.attrs:
        kept = {str(size): least for size, least in main.attrs[name].items() if least > 1}
        mod["main"] = main.with_attr(name, kept) if kept else main.without_attr(name)
    return mod


def _unsupported(program: Any, message: str) -> UnsupportedOperatorError:
    """Name the operators that the importer does not know, and their nodes."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    unknown = [node for node in nodes if f"'{node.target.__name__}'" in message]
    places = ", ".join(f"node {node.name!r} ({node.target})" for node in unknown[:5])
    fix = "express it in other operators, or decompose it with run_decompositions"
    if any(str(node.target).startswith(pt2e.LIBRARY) for node in unknown):
        fix = f"quantize the network statically; supported are {pt2e.SUPPORTED}"
    return UnsupportedOperatorError(
        f"TVM cannot import a PyTorch operator: {message}",
        where=f"the exported program: {places}" if places else "the exported program",
        fix=fix,
    )


def _refuse_state(program: Any) -> None:
    """Refuse a program that writes to its buffers or inputs.

    The importer would leave the write out, and later calls would differ from PyTorch's.
    """
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise ModelError(
            f"the program changes its own state when it runs: {', '.join(map(repr, changed))}",
            where="the exported program",
            fix="export the module in evaluation mode (module.eval()), and return new values "
            "instead of writing to buffers or inputs",
        )
