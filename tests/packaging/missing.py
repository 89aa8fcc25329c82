"""Run all commands, and touch all public attributes, where some packages can't be found; print what came as JSON.

Run: python -m tests.packaging.missing numpy,torch... [COMMAND;COMMAND...]
"""

import importlib
import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

SCRIPT = "import cutepy\nwith cutepy.simulate():\n    pass\n"
PTX = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"
COMMANDS = (
    "--version",
    "tutorial --list",
    "tutorial 1",
    "demo",
    "parse (4,8):(8,1)",
    "show (4,8):(8,1)",
    "show SM90_64x64x16_F32F16F16_SS",
    "desc 0x4000004000010000",
    "explore --no-open missing.cutepy",
    "explore --no-open",
    "simulate script.py",
    "simulate --inspect script.py",
    "sanitize script.py",
    "sanitize --schedules 2 script.py",
    "sanitize --ctas 0 script.py",
    "explain kernel.ptx",
    "explain --json kernel.ptx",
    "explain --html page.html kernel.ptx",
    "explain script.py",
    "bench gemm 256x256x256",
    "bench grouped",
    "bench scaled",
    "bench fused",
    "bench rows",
    "bench loss",
    "bench layer",
    "bench accuracy",
    "bench sim --no-large",
    "bench launch",
    "bench compile --rounds 1",
    "new kernel fresh",
    "tune gemm 256x256x256",
    "tune list",
    "cache list",
    "cache show 00",
    "cache clear",
    "cache warm 256x256x256",
    "export c cutepy.aot:gemm_extension -o out",
    "export extension gemm -o out",
)
ATTRIBUTES = (
    "cutepy.Deferred",
    "cutepy.PointerSpec",
    "cutepy.PtxModule",
    "cutepy.TensorSpec",
    "cutepy.compile",
    "cutepy.compile_many",
    "cutepy.epilogue",
    "cutepy.explain",
    "cutepy.load_ptx",
    "cutepy.load_run",
    "cutepy.save",
    "cutepy.show",
    "cutepy.simulate",
    "cutepy.testing.strategies",
    "cutepy.testing.numerics",
)


class Hidden:
    """A finder that finds some packages nowhere."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def run_command(arguments):
    from typer.testing import CliRunner

    from cutepy.cli.app import app

    result = CliRunner().invoke(app, arguments.split(" "), input="")
    raised = result.exception
    kind = "" if raised is None or isinstance(raised, SystemExit) else type(raised).__name__
    trace = "".join(traceback.format_exception(raised)) if kind else ""
    return result.exit_code, kind, result.output + trace


def touch(name):
    package, _, attribute = name.rpartition(".")
    try:
        getattr(importlib.import_module(package), attribute)
    except Exception as error:
        return 1, type(error).__name__, str(error)
    return 0, "", ""


def main():
    sys.meta_path.insert(0, Hidden(set(sys.argv[1].split(","))))
    Path("script.py").write_text(SCRIPT)
    Path("kernel.ptx").write_text(PTX)
    import cutepy

    rooms = [f"cutepy.{name}" for name in cutepy._rooms()]
    said = {}
    commands = [name for name in COMMANDS if len(sys.argv) < 3 or name in sys.argv[2].split(";")]
    for names, way in (((*ATTRIBUTES, *rooms), touch), (commands, run_command)):
        for name in names:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                said[name] = way(name)
    for name in _submodules(Path(cutepy.__file__).parent):
        said[f"import {name}"] = _imported(name)
        for attribute in getattr(sys.modules.get(name), "__all__", ()):
            said[f"from {name} import {attribute}"] = touch(f"{name}.{attribute}")
    # As `import cutepy.ops` and `from cutepy.ops import gemm` do, which ask for no attribute.
    for name in rooms:
        said[f"import {name}"] = _imported(name)
    json.dump(said, sys.stdout)


def _submodules(folder):
    """Name all modules of the package, but those that run when they are imported, and templates."""
    found = (Path(place, name) for place, _, names in os.walk(folder, followlinks=True) for name in names)
    for path in sorted(path for path in found if path.suffix == ".py"):
        parts = ("cutepy", *path.relative_to(folder).with_suffix("").parts)
        if parts[-1] != "__main__" and all(part.isidentifier() for part in parts) and "templates" not in parts:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name):
    try:
        importlib.import_module(name)
    except Exception as error:
        return 1, type(error).__name__, str(error)
    return 0, "", ""


if __name__ == "__main__":
    main()
