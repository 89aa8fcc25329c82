"""C++ CuTe as a live oracle: compile the question against the CUTLASS headers on the host, run it, read the answer.

Needs g++ (C++17), the headers of the `nvidia-cutlass` package and CUDA's host headers; no GPU, no nvcc.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracle.cpp_types import value_of_spelling, value_of_type
from tests.oracle.statements import Operand, expression, statement

_PRELUDE = Path(__file__).with_name("prelude.hpp")
# Default template arguments belong to the value: `Layout<Shape>` and `Swizzle<3,4>` must be spelled in full.
_SPELL = "-fno-pretty-templates"
_DIAGNOSE = ("-ftemplate-backtrace-limit=0", "-fno-diagnostics-show-caret", "-fmax-errors=0")
_FLAGS = ("-std=c++17", "-O0", "-w", _SPELL, *_DIAGNOSE)
# g++ answers a question about a type with this error.
_INCOMPLETE = re.compile("aggregate \u2018Answer<(.*)> a(\\d+)\u2019 has incomplete type")
_RUN_TIME = "run time"
_EXTENDED = "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED"


class OracleUnavailableError(RuntimeError):
    """Something that the oracle needs is not installed; the message names it."""


@dataclass(frozen=True)
class Case:
    """One question: an operation and its operands, in the reference vectors' notation."""

    op: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Rejected:
    """CuTe's compiler refused the case; `reason` is the first diagnostic, usually a static_assert's text."""

    reason: str
    at: str = ""
    asserted: bool = False

    @property
    def unsupported(self) -> bool:
        """CuTe has no such overload, or no defined result: no judgement on the operands."""
        return self.at == _RUN_TIME or ("/batch_" in f"/{self.at}" and "no matching function" in self.reason)


Answer = Any  # a JSON value of the reference vectors, or Rejected


def find_headers() -> tuple[Path, ...]:
    """Include directories of CUTLASS and CUDA, or an error that names the packages to install."""
    missing = []
    cutlass = os.environ.get("CUTLASS_INCLUDE") or _package_dir("cutlass_library", "source/include")
    if not cutlass or not Path(cutlass, "cute/layout.hpp").exists():
        missing.append("CUTLASS headers: `pip install --no-deps nvidia-cutlass==4.2.0.0`, or set CUTLASS_INCLUDE")
    cuda = _find_cuda()
    if not cuda:
        missing.append(
            "CUDA host headers: `pip install nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-cccl-cu12`, "
            "or set CUDA_HOME"
        )
    if shutil.which("g++") is None:
        missing.append("a C++17 compiler: g++")
    if missing:
        raise OracleUnavailableError("the C++ oracle needs:\n  " + "\n  ".join(missing))
    return (Path(str(cutlass)), *cuda)


def _package_dir(package: str, below: str) -> str | None:
    spec = importlib.util.find_spec(package)
    return str(Path(spec.origin).parent / below) if spec is not None and spec.origin is not None else None


def _find_cuda() -> tuple[Path, ...]:
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for home in (*homes, Path("/usr/local/cuda")):
        include = home / "include"
        if (include / "cuda_runtime_api.h").exists():
            return tuple(p for p in (include, include / "cccl") if p.is_dir())
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    found = [
        include
        for root in roots
        for package in ("cuda_runtime", "cuda_nvcc", "cuda_cccl")
        if (include := root / package / "include").is_dir()
    ]
    complete = any((p / "cuda_runtime_api.h").exists() for p in found) and any((p / "cuda/std").is_dir() for p in found)
    return tuple(found) if complete else ()


class CppOracle:
    """Answers cases with what C++ CuTe computes; batches share one precompiled header.

    Static answers are read from their C++ type in a compiler diagnostic, which needs neither code generation nor a
    run; the few answers known only at run time (descriptors, offsets, evaluations) come from a program.

    Parameters
    ----------
    workdir : Path, optional
        Where programs and the precompiled header go; a temporary directory when absent.
    batch_size : int
        Cases per compiler run.
    """

    def __init__(self, workdir: Path | None = None, *, batch_size: int = 200) -> None:
        self._includes = find_headers()
        self._batch_size = batch_size
        self._workdir = workdir or Path(tempfile.mkdtemp(prefix="cute-oracle-"))
        self._workdir.mkdir(parents=True, exist_ok=True)

    def answer(self, cases: Sequence[Case]) -> list[Answer]:
        """Answer every case: its value, or `Rejected` where CuTe does not compile it."""
        answers: list[Answer] = [None] * len(cases)
        expressions = [expression(case.op, case.operands) for case in cases]
        for flags in ((), (_EXTENDED,)):
            chosen = [i for i, case in enumerate(cases) if _needs_extended_shapes(case) == bool(flags)]
            to_run = [i for i in chosen if expressions[i] is None]
            for batch in self._batches([i for i in chosen if expressions[i] is not None]):
                to_run += self._read_types(batch, expressions, flags, answers)
            for batch in self._batches(to_run):
                self._run_programs(batch, cases, flags, answers)
        return answers

    def printed(self, statements: Sequence[str]) -> list[str]:
        """Output of each statement.

        Raises
        ------
        subprocess.CalledProcessError
            If g++ refuses one, or the program fails.
        """
        functions = [f"static void c{i}() {{ {text} }}" for i, text in enumerate(statements)]
        calls = " ".join(f'printf("\\n@@@ {i}\\n"); c{i}();' for i in range(len(statements)))
        source = self._write([*functions, f"int main() {{ {calls} }}"], ())
        binary = source.with_suffix("")
        self._compile(["-include", str(self._precompiled(())), str(source), "-o", str(binary)], ()).check_returncode()
        text = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout
        return re.split(r"^@@@ \d+$", text, flags=re.MULTILINE)[1:]

    def _batches(self, indices: list[int]) -> list[list[int]]:
        return [indices[i : i + self._batch_size] for i in range(0, len(indices), self._batch_size)]

    def _read_types(
        self, batch: list[int], expressions: list[str | None], flags: tuple[str, ...], answers: list[Answer]
    ) -> list[int]:
        """Answer what types can; return the cases whose answer is a run-time value.

        One failed instantiation is diagnosed only once however many cases share it, so the batch is compiled again
        without the blamed cases until no case is blamed.
        """
        pending, to_run = list(batch), []
        while pending:
            lines = [f"Answer<decltype({expressions[i]})> a{i};" for i in pending]
            source = self._write(["template <class T> struct Answer;", *lines], flags)
            done = self._compile(["-include", str(self._precompiled(flags)), str(source), "-fsyntax-only"], flags)
            blamed = _blame(done.stderr, source.name, pending, first_line=2)
            for index, why in blamed.items():
                answers[index] = why
            if blamed:
                pending = [i for i in pending if i not in blamed]
                continue
            found = _INCOMPLETE.findall(done.stderr)
            spelled = {int(index): spelling.strip() for spelling, index in found}
            for i in pending:
                if i not in spelled:
                    raise RuntimeError(f"g++ said nothing about {expressions[i]}:\n{done.stderr[:4000]}")
                answers[i] = value_of_type(spelled[i])
                if answers[i] is None:
                    to_run.append(i)
            break
        return to_run

    def _run_programs(
        self, batch: list[int], cases: Sequence[Case], flags: tuple[str, ...], answers: list[Answer]
    ) -> None:
        pending = list(batch)
        while pending:
            lines = [f"static void c{i}() {{ {statement(i, cases[i].op, cases[i].operands)} }}" for i in pending]
            calls = " ".join(f"c{i}();" for i in pending)
            main = f"int main() {{ setvbuf(stdout, nullptr, _IOLBF, 0); {calls} }}"
            source = self._write([*lines, main], flags)
            binary = source.with_suffix("")
            done = self._compile(["-include", str(self._precompiled(flags)), str(source), "-o", str(binary)], flags)
            if done.returncode == 0:
                ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
                for line in ran.stdout.splitlines():
                    index, _, value = line.partition("\t")
                    answers[int(index)] = json.loads(value, object_hook=value_of_spelling)
                pending = [i for i in pending if answers[i] is None]
                if pending:  # the first without an answer killed the program
                    answers[pending.pop(0)] = Rejected(f"died at run time with {-ran.returncode}", _RUN_TIME)
                continue
            blamed = _blame(done.stderr, source.name, pending, first_line=1)
            if not blamed:
                raise RuntimeError(f"g++ failed without naming a case:\n{done.stderr[:4000]}")
            for index, why in blamed.items():
                answers[index] = why
            pending = [i for i in pending if i not in blamed]

    def _write(self, lines: list[str], flags: tuple[str, ...]) -> Path:
        source = self._workdir / f"batch_{os.getpid()}{'_extended' if flags else ''}.cpp"
        source.write_text("\n".join(lines) + "\n")
        return source

    def _precompiled(self, flags: tuple[str, ...]) -> Path:
        """The prelude, copied beside the batches and precompiled once."""
        header = self._workdir / ("prelude_extended.hpp" if flags else "prelude.hpp")
        compiled = header.with_suffix(".hpp.gch")
        if not compiled.exists() or compiled.stat().st_mtime < _PRELUDE.stat().st_mtime:
            shutil.copyfile(_PRELUDE, header)
            done = self._compile(["-x", "c++-header", str(header), "-o", str(compiled)], flags)
            if done.returncode != 0:
                compiled.unlink(missing_ok=True)
                raise OracleUnavailableError(f"CuTe's headers do not compile here:\n{done.stderr[:4000]}")
        return header

    def _compile(self, arguments: list[str], flags: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        includes = [f"-I{path}" for path in self._includes]
        command = ["g++", *_FLAGS, *flags, *includes, *arguments]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}  # the quotes around types are matched below
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def _needs_extended_shapes(case: Case) -> bool:
    atom = re.match(r"SM90_64x(\d+)x", str(case.operands[0])) if case.operands else None
    return atom is not None and int(atom[1]) not in (8, 16, 32, 64, 96, 128, 192, 256)


def _blame(stderr: str, source: str, pending: list[int], *, first_line: int) -> dict[int, Rejected]:
    """Case -> diagnostic, for every case that g++ blames directly or through instantiations.

    A static_assert says why CuTe refuses; other errors that come with it (a missing member further on) do not.
    """
    blamed: dict[int, Rejected] = {}
    current = 0
    for text in stderr.splitlines():
        here = re.search(rf"{re.escape(source)}:(\d+):", text)
        if here is not None:
            current = int(here[1])
        error = re.match(r"(\S+?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)", text)
        if error is None or _INCOMPLETE.search(text) or not 0 <= current - first_line < len(pending):
            continue
        case = pending[current - first_line]
        asserted = error[3].startswith("static assertion failed")
        message = re.sub(r"^static assertion failed: ", "", error[3])
        where = f"{error[1].rpartition('include/')[2]}:{error[2]}"
        if case not in blamed or (asserted and not blamed[case].asserted):
            blamed[case] = Rejected(message, where, asserted)
    return blamed
