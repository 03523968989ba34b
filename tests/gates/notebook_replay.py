"""A kernel that computes nothing: it puts out what a notebook's cells have put out before.

nbval asks it as it asks any other, so what nbval sees in a notebook's outputs can be tried in
seconds on all of them, and a spoilt output is all that differs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

NAME = "replay"


def install(folder: Path, notebook: Path) -> dict[str, str]:
    """Write a kernel specification for the outputs of a notebook.

    Parameters
    ----------
    folder : Path
        Where to write it.
    notebook : Path
        What it puts out; read when the kernel starts.

    Returns
    -------
    dict of str to str
        The changes to the environment by which Jupyter finds it as `NAME`.
    """
    there = folder / "kernels" / NAME
    there.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, __file__, str(notebook), "-f", "{connection_file}"],
        "env": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        "display_name": NAME,
        "language": "python",
    }
    (there / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    return {"JUPYTER_PATH": str(folder)}


class Replay(Kernel):
    """The cells must come in the notebook's order, as its own."""

    implementation = banner = NAME
    implementation_version = "1"
    language_info: ClassVar = {
        "name": "python",
        "mimetype": "text/x-python",
        "file_extension": ".py",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        cells = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]
        self._cells = iter([cell for cell in cells if cell["cell_type"] == "code"])

    def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, Any] | None = None,
        allow_stdin: bool = False,
        **_: Any,
    ) -> dict[str, Any]:
        """Put out what the next cell of the notebook has."""
        reply = {"status": "ok", "execution_count": self.execution_count, "user_expressions": {}}
        if silent or not code.strip():
            return reply
        cell = next(self._cells)
        assert "".join(cell["source"]).strip() == code.strip(), f"{cell['id']} is the next one"
        for output in cell["outputs"]:
            content = {key: _joined(value) for key, value in output.items()}
            if "data" in content:
                content["data"] = {mime: _joined(value) for mime, value in content["data"].items()}
            self.send_response(self.iopub_socket, content.pop("output_type"), content)
        return reply


def _joined(value: Any) -> Any:
    """Join what a notebook's file holds line by line; `nbformat` does it, but takes a second."""
    lines = isinstance(value, list) and all(str(line).endswith("\n") for line in value[:-1])
    return "".join(value) if lines else value


if __name__ == "__main__":
    IPKernelApp.launch_instance(argv=sys.argv[2:], kernel_class=Replay)
