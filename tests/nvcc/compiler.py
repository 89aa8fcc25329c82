"""nvcc, as `make nvcc` finds it, and what it makes of the sources beside this file."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import cutepy

FOLDER = Path(__file__).parent
_HOST = "-shared -Xcompiler -fPIC -cudart none -gencode arch=compute_{0},code=compute_{0} -O1"
_DEVICE = "-ptx -arch=sm_{}"


@cache
def nvcc() -> str:
    """Return nvcc: that of the variable NVCC, on the path, or in /usr/local/cuda."""
    found = os.environ.get("NVCC") or shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if found is None:
        raise FileNotFoundError("there is no nvcc: set NVCC, or use `make nvcc`, which installs one")
    return found


@cache
def cutlass() -> tuple[Path, Path]:
    """Return the folders of CUTLASS's headers: those of its Python package."""
    found = importlib.util.find_spec("cutlass_library")
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).parent / "source"
    return source / "include", source / "tools" / "util" / "include"


@cache
def compiled(source: str, kind: str = "ptx", *options: str, arch: str = "sm_90a") -> Path:
    """Compile a source, once for the same text: to PTX, or to a shared library of its host code."""
    compiler = nvcc()
    path = FOLDER / source
    mode = (_DEVICE if kind == "ptx" else _HOST).format(arch.removeprefix("sm_")).split()
    text = path.read_bytes() + repr((mode, options, compiler)).encode()
    folder = Path(tempfile.gettempdir(), f"cutepy-nvcc-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    made = folder / f"{path.stem}-{hashlib.sha256(text).hexdigest()[:16]}.{kind}"
    if not made.exists():
        partial = made.with_suffix(".part")
        command = [compiler, *mode, "-std=c++17", *options, str(path), "-o", str(partial)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        partial.rename(made)
    return made


@cache
def module(source: str) -> cutepy.PtxModule:
    """Return the loaded PTX of a source."""
    return cutepy.load_ptx(compiled(source).read_text())
