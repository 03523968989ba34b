"""Other runtimes to compare with, with the call interface of an executable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelError
from ..models import Model
from ..runtime.timing import (
    Comparison,
    Measurement,
    PeakLoop,
    compare,
    interleave,
    measure,
    peak_flops,
)
from ..support.extras import need
from ..support.host import core_of, host_target
from ..support.wording import telling

__all__ = ["Comparison", "Measurement", "OnnxRuntime", "PeakLoop", "Torch", "compare"]
__all__ += ["interleave", "measure", "onnxruntime_threads", "peak_flops", "peer_threads"]


class OnnxRuntime:
    """ONNX Runtime on the CPU, with the call interface of a tvmlab executable.

    Parameters
    ----------
    model : tvmlab.models.Model, onnx.ModelProto, bytes or path
        The model.
    threads : int, optional
        Threads inside an operator; by default, as many as TVM's (`peer_threads`). If this equals
        ONNX Runtime's default, the default is used, which also binds the worker threads to cores.
    exact : bool
        Whether sums of uint8 times int8 constants are exact on x86-64 without VNNI, too. The
        faster default kernels saturate at 16 bits there (``session.x64quantprecision``).

    Raises
    ------
    ModelError
        ONNX Runtime cannot read it.
    """

    def __init__(self, model: Any, threads: int | None = None, *, exact: bool = False) -> None:
        onnxruntime = need("onnxruntime", extra="peers")
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
        options.intra_op_num_threads = threads or onnxruntime_threads()
        options.log_severity_level = 3
        model = model.proto if isinstance(model, Model) else model
        source = model.SerializeToString() if hasattr(model, "SerializeToString") else model
        source = os.fspath(source) if isinstance(source, os.PathLike) else source
        try:
            providers = ["CPUExecutionProvider"]
            self._session = onnxruntime.InferenceSession(source, options, providers=providers)
        except Exception as error:  # ONNX Runtime has a class for each kind of failure
            what = f"ONNX Runtime cannot read the model: {telling(error)}"
            where = source if isinstance(source, str) else type(model).__name__
            fix = "pass an ONNX model whose operators ONNX Runtime supports"
            raise ModelError(what, where=where, fix=fix) from error
        self._names = [value.name for value in self._session.get_inputs()]

    def __call__(self, *inputs: Any) -> Any:
        """Run: arrays in, one array or a tuple of arrays out.

        Raises
        ------
        InputError
            The arrays do not match the model's inputs.
        """
        try:
            outputs = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        except Exception as error:
            what = f"the model does not run on these {len(inputs)} inputs: {telling(error)}"
            fix = f"it takes {', '.join(self._names) or 'no inputs'}"
            raise InputError(what, where="ONNX Runtime", fix=fix) from error
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


class Torch:
    """A PyTorch module on the CPU, with the call interface of an executable.

    Parameters
    ----------
    module : torch.nn.Module
        The module; it is switched to evaluation mode. PyTorch gets as many threads as TVM, for
        the whole process.
    """

    def __init__(self, module: Any) -> None:
        torch = need("torch", extra="torch")
        torch.set_num_threads(peer_threads())
        self._module = module.eval()

    def __call__(self, *inputs: Any) -> Any:
        """Run: arrays in, one array or a tuple of arrays out."""
        import torch

        # PyTorch has no read-only tensors: it warns, and a module could write to the array.
        owned = (value if value.flags.writeable else value.copy() for value in inputs)
        with torch.inference_mode():
            outputs = self._module(*map(torch.from_numpy, owned))
        if isinstance(outputs, (tuple, list)):
            return tuple(value.numpy() for value in outputs)
        return outputs.numpy()


def peer_threads() -> int:
    """Return the number of threads of a peer: as many as TVM's pool has."""
    return int(host_target().attrs["num-cores"])


def onnxruntime_threads() -> int:
    """Return the ``intra_op_num_threads`` for which ONNX Runtime has `peer_threads` threads.

    It is 0, ONNX Runtime's default, if that results in as many threads: one per physical core of
    the machine, including cores that this process must not use.
    """
    folders = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    cores = {core_of(int(folder.parent.name.removeprefix("cpu"))) for folder in folders}
    number = peer_threads()
    return 0 if number == len(cores) else number
