"""The first import of a process server: TVM without PyTorch, with LLVM initialized."""

import os

from .importing import leave_pytorch_out


def _compile_something() -> None:
    """Compile a kernel, so that LLVM starts once and not in each forked process."""
    import tvm
    from tvm import te

    x = te.placeholder((4,), name="x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0)])
    tvm.tirx.build(function, target=tvm.target.Target("llvm")).get_function("main")


# A process that forks should have no threads, because the child would lack them.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
leave_pytorch_out()
_compile_something()
