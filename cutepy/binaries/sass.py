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
from typing import NamedTuple

_PACKAGE = "nvidia-cuda-nvdisasm"
_TOOL = "nvdisasm"
_LINE = re.compile(r'^(\s*//## )File "(.*)", line (\d+).*$', re.MULTILINE)
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_LABEL = re.compile(r"^(\.L\w+):")
_PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[\w.]+)(?P<rest>.*?)(?:;\s*/\* 0x[0-9a-f]+ \*/|$)"
)
_HIGH_WORD = re.compile(r"^\s*/\* 0x([0-9a-f]+) \*/")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_SPILL = '(*"SpillRefill"*)'


class DisassemblyError(RuntimeError):
    """Error of a missing disassembler, or of a cubin that it can't read."""


def find_nvdisasm(cuda_home: Path | None = None) -> Path:
    """Find the disassembler: in the package of that name, on PATH, or in the bin of a CUDA toolkit.

    The package comes first, so that to install it helps where an old toolkit does not know what the DSL's assembler
    writes.

    Raises
    ------
    DisassemblyError
        If no disassembler is found.
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
        True to print the 128 bits of each instruction too.

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


class Row(NamedTuple):
    """Row of `nvdisasm` for one instruction.

    Attributes
    ----------
    opcode, operands : str
        As printed; the operands with the end of the row.
    line : int or None
        Line of the PTX that the instruction was made of.
    label : str
        Target of a branch; empty without one.
    is_guarded : bool
    is_spill : bool
        True if it spills a register, or fills one.
    """

    opcode: str
    operands: str
    line: int | None
    label: str
    is_guarded: bool
    is_spill: bool


class Listing(NamedTuple):
    """Listing of one kernel: rows, row numbers of labels, and the upper 64 bits of each instruction, if printed."""

    rows: list[Row]
    labels: dict[str, int]
    high_words: list[int]


def list_kernel(text: str, kernel: str) -> Listing:
    """Read a kernel's instructions from the output of `print_code`, with lines of the PTX.

    Parameters
    ----------
    text : str
    kernel : str
        The mangled name.
    """
    rows: list[Row] = []
    labels: dict[str, int] = {}
    high_words: list[int] = []
    line, inside = None, False
    for row in text.splitlines():
        if section := _SECTION.match(row):
            inside, line = section[1] == kernel, None
        elif not inside:
            continue
        elif label := _LABEL.match(row):
            labels[label[1]] = len(rows)
        elif named := _PTX_LINE.match(row):
            line = int(named[1])
        elif found := _INSTRUCTION.match(row):
            target = _TARGET.search(found["rest"])
            name = target[1] if target else ""
            operands = found["rest"].strip()
            rows.append(Row(found["opcode"], operands, line, name, bool(found["guard"]), _SPILL in row))
        elif len(high_words) < len(rows) and (high := _HIGH_WORD.match(row)):
            high_words.append(int(high[1], 16))
    return Listing(rows, labels, high_words)
