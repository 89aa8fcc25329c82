"""SASS, the machine code of kernels, as `nvdisasm` prints it, with source lines."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

_PACKAGE = "nvidia-cuda-nvdisasm"
_TOOL = "nvdisasm"
_LINE = re.compile(r'^(\s*//## )File "(.*)", line (\d+).*$', re.MULTILINE)


class DisassemblyError(RuntimeError):
    """Error of a missing disassembler, or of a cubin that it can't read."""


def find_nvdisasm(cuda_home: Path | None = None) -> Path:
    """Find the disassembler: in the package of that name, on PATH, or in the bin of a CUDA toolkit.

    The package comes first, so that to install it helps where an old toolkit does not know what the DSL's assembler
    writes.

    Raises
    ------
    DisassemblyError
        If there is none.
    """
    candidates = [_packaged(), shutil.which(_TOOL), cuda_home / "bin" / _TOOL if cuda_home else None]
    for candidate in candidates:
        if candidate is not None and Path(candidate).is_file():
            return Path(candidate)
    raise DisassemblyError(
        f"{_TOOL} is needed to read machine code, and was found neither as the package {_PACKAGE}, nor on PATH, nor in "
        "CUDA_HOME's bin: pip install 'cutepy[inspect]'"
    )


def _packaged() -> Path | None:
    try:
        files = metadata.files(_PACKAGE) or ()
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == _TOOL), None)


def disassemble(cubin: bytes, cuda_home: Path | None = None, moved: Mapping[str, str] = MappingProxyType({})) -> str:
    """Disassemble a cubin, with source lines: ELF image -> text.

    The source is read as it is now: where a file has changed since it was compiled, only the numbers are right.

    Parameters
    ----------
    cubin : bytes
    cuda_home : Path, optional
        A CUDA toolkit to look for the disassembler in.
    moved : mapping of str to str
        Where source files are that were elsewhere when they were compiled.

    Raises
    ------
    DisassemblyError
        If there is no disassembler, or it can't read the cubin.
    """
    text = print_code(cubin, "--print-line-info", cuda_home)
    linecache.checkcache()
    for old, new in moved.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return _LINE.sub(_with_source, text)


def print_code(cubin: bytes, lines: str, cuda_home: Path | None = None, *, encodings: bool = False) -> str:
    """Disassemble a cubin with the disassembler's own line annotations.

    Parameters
    ----------
    cubin : bytes
    lines : str
        The option that says which lines to print: of the source, or of the PTX.
    cuda_home : Path, optional
        A CUDA toolkit to look for the disassembler in.
    encodings : bool
        Whether to print the 128 bits of each instruction too.

    Raises
    ------
    DisassemblyError
        If there is no disassembler, or it can't read the cubin.
    """
    tool = find_nvdisasm(cuda_home)
    with tempfile.TemporaryDirectory(prefix="cutepy-") as folder:
        file = Path(folder, "kernels.cubin")
        file.write_bytes(cubin)
        command = [str(tool), "--print-code", lines, *(["-hex"] if encodings else []), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DisassemblyError(
            f"{tool} could not read the kernels: {done.stderr.strip() or f'it ended with {done.returncode}'}; "
            "a newer one may: pip install --upgrade 'cutepy[inspect]'"
        )
    return done.stdout


def _with_source(line: re.Match[str]) -> str:
    """Insert the text of each source line below its name."""
    text = linecache.getline(line[2], int(line[3])).rstrip()
    return f"{line[0]}\n{line[1]}{text}" if text else line[0]
