"""ptxas, the assembler of PTX: search, run, and advisories in its output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

from cutepy.binaries.cubin import KernelResources, read_resources
from cutepy.binaries.sass import DisassemblyError
from cutepy.binaries.spills import Spill, spills

_TOOL = "ptxas"
_PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu13", "nvidia-cuda-nvcc-cu12", "triton")
"""Packages of PyPI that include it."""
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_ADVICE = re.compile(r"^ptxas (?P<level>info|warning)\s*:\s*\((?P<code>C\d+)\)\s*(?P<text>.*)$", re.MULTILINE)
_FUNCTION = re.compile(r"function '([^']+)'")
_LINE = re.compile(r"\bline (\d+)")
_SECONDS = 120


class AssemblyError(RuntimeError):
    """Error of a missing ptxas, or of PTX that it refuses."""


@dataclass(frozen=True)
class Advice:
    """Numbered remark of ptxas.

    Attributes
    ----------
    code : str
        Such as "C7510".
    text : str
        As ptxas words it.
    function : str or None
        The kernel that it names.
    line : int or None
        The line of the PTX that it names.
    """

    code: str
    text: str
    function: str | None
    line: int | None


@dataclass(frozen=True)
class Assembly:
    """Result of assembling a module.

    Attributes
    ----------
    version : str
        Of ptxas.
    resources : tuple of KernelResources
    advice : tuple of Advice
    image : bytes
        The cubin, with lines of the PTX.
    """

    version: str
    resources: tuple[KernelResources, ...]
    advice: tuple[Advice, ...]
    image: bytes = field(default=b"", repr=False)

    def spills(self, kernel: str) -> tuple[Spill, ...] | None:
        """Return the places where a kernel spills registers; None without a suitable disassembler."""
        try:
            return spills(self.image, kernel)
        except DisassemblyError:
            return None


def find_ptxas(cuda_home: Path | None = None) -> list[Path]:
    """Find assemblers: on PATH, in the bin of a CUDA toolkit, and in packages that include one.

    Raises
    ------
    AssemblyError
        If no assembler is found.
    """
    places = [shutil.which(_TOOL), cuda_home / "bin" / _TOOL if cuda_home else None, *_packaged(_PACKAGES)]
    found = [Path(place) for place in places if place is not None and os.access(place, os.X_OK)]
    if found:
        return list(dict.fromkeys(found))
    raise AssemblyError(
        f"{_TOOL} is needed for registers, spills and advisories, and was found neither on PATH, nor in CUDA_HOME's "
        "bin, nor in a package: pip install nvidia-cuda-nvcc"
    )


@cache
def _packaged(packages: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the assemblers of packages; to read their lists of files takes 10 ms, and each kernel's PTX asks."""
    found: list[Path] = []
    for package in packages:
        try:
            files = metadata.files(package) or ()
        except metadata.PackageNotFoundError:
            continue
        found += (Path(str(file.locate())) for file in files if file.name == _TOOL)
    return tuple(found)


def assemble(ptx: str, target: str = "sm_90a", cuda_home: Path | None = None) -> Assembly:
    """Assemble a module, and read its resources and advisories: with the first ptxas that is new enough for it.

    Parameters
    ----------
    ptx : str
    target : str
        The architecture, as `.target` names it.
    cuda_home : Path, optional
        A CUDA toolkit to look in.

    Raises
    ------
    AssemblyError
        If there is no ptxas, or ptxas refuses the text: the error has its message.
    """
    refused = []
    for tool in find_ptxas(cuda_home):
        try:
            return _assembled(tool, ptx, target)
        except AssemblyError as error:
            refused.append(error)
    raise refused[0]


def _assembled(tool: Path, ptx: str, target: str) -> Assembly:
    version = _VERSION.search(_run([str(tool), "--version"]).stdout)
    with tempfile.TemporaryDirectory(prefix="cutepy-") as folder:
        source, image = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_text(ptx.rstrip("\0"), encoding="utf-8")
        done = _run([str(tool), "-v", f"-arch={target}", str(source), "-o", str(image), "-lineinfo"])
        said = (done.stderr + done.stdout).replace(f"{source}, ", "")
        if done.returncode:
            errors = [line.strip() for line in said.splitlines() if "error" in line or "fatal" in line]
            raise AssemblyError(f"{tool} refused the PTX: {'; '.join(errors[:3]) or said.strip()[:200]}")
        if not image.is_file():  # of a virtual architecture, such as compute_90
            raise AssemblyError(f"{tool} makes no cubin for {target}: name a GPU, such as sm_90a")
        cubin = image.read_bytes()
        try:
            resources = read_resources(cubin)
        except ValueError:  # a module without kernels
            resources = ()
    return Assembly(version[1] if version else "", resources, read_advice(said), cubin)


def read_advice(said: str) -> tuple[Advice, ...]:
    """Read the numbered remarks in ptxas's output, each once.

    Examples
    --------
    >>> read_advice("ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; ...")[0].code
    'C7508'
    """
    found = []
    for match in _ADVICE.finditer(said):
        text = match["text"].strip()
        function, line = _FUNCTION.search(text), _LINE.search(text)
        found.append(Advice(match["code"], text, function[1] if function else None, int(line[1]) if line else None))
    return tuple(dict.fromkeys(found))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssemblyError(f"{command[0]} could not be run: {error}") from error
