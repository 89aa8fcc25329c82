"""Changed texts of real kernels: each is a module, or an error that names its line, column and statement."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from cutepy.binaries.ptxas import find_ptxas
from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.translate import Kernel

HANDWRITTEN = Path(__file__).parents[1] / "mutants" / "handwritten.ptx"
_TOKEN = re.compile(r'"[^"\n]*"|[%$.]?\w[\w$.:]*|\s+|.', re.S)
_MARKS = [*'{}[](),;|!@_-:"', "/*", "//", "\x01", "\u0667", "\0"]
_WORDS = "%r0 %nosuch %tid.x 0 -1 99999999999999999999 0f3F800000 1.5 .u32 .v4 .reg $L".split()
_SECONDS = 20.0
"""That reading a text of some thousand lines may take."""


class RawError(AssertionError):
    """A text whose outcome is neither a module nor an error with its place."""


def kernels(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of kernels that the DSL compiles, and of those written by hand.

    Parameters
    ----------
    names : list of str
        Of `tests.sim.mutants.kernels`.
    """
    from cutepy.sim.machine import loaded_module
    from tests.sim.mutants.kernels import KERNELS

    yield "handwritten", HANDWRITTEN.read_text()
    for name in names:
        found: list[str] = []
        load = loaded_module.load_module

        def noted(text: str, file: str = "", found: list[str] = found, load: object = load) -> object:
            found.append(text)
            raise _Noted

        with mock.patch.object(loaded_module, "load_module", noted):
            try:
                KERNELS[name]()
            except _Noted:
                pass
        yield from ((f"{name} {n}", text) for n, text in enumerate(dict.fromkeys(found)))


class _Noted(Exception):
    """A launch whose text has been noted."""


def changed(rng: random.Random, text: str) -> str:
    """Change a text in one to three places."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = _changed_once(rng, text)
    return text


def _changed_once(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    n = rng.randrange(len(lines))
    tokens = _TOKEN.findall(lines[n])
    kind = rng.randrange(10)
    if kind == 0 or not tokens:
        lines.insert(n, lines[rng.randrange(len(lines))])
    elif kind == 1:
        del lines[n]
    elif kind == 2:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(("", "}", "\n", "/*", '"')) + (text[at:] if rng.random() < 0.5 else "")
    else:
        at = rng.randrange(len(tokens))
        other = _TOKEN.findall(lines[rng.randrange(len(lines))]) or [""]
        if kind == 3:
            del tokens[at]
        elif kind == 4:
            tokens.insert(at, tokens[at])
        elif kind == 5:
            tokens[at] = rng.choice(other)
        elif kind == 6:
            tokens[at] = rng.choice(_MARKS)
        elif kind == 7:
            tokens.insert(at, rng.choice(_WORDS))
        elif kind == 8:
            tokens[at] = re.sub(
                r"\d+", lambda found: str(rng.choice((0, 1, int(found[0][:9]) + 1, 123456))), tokens[at]
            )
        else:
            second = rng.randrange(len(tokens))
            tokens[at], tokens[second] = tokens[second], tokens[at]
        lines[n] = "".join(tokens)
    return "\n".join(lines)


def outcome(text: str, translates: bool = True) -> str:
    """Return what is said of a text: nothing if it is a module.

    Raises
    ------
    RawError
        If it ends otherwise, or takes long.
    """
    start = time.monotonic()
    lines = text.count("\n") + 1
    try:
        module = LoadedModule(text)
        if translates:
            for name in module.module.functions:
                Kernel(text, name).program()
    except PtxSyntaxError as error:
        if not (1 <= error.line <= lines and error.column >= 1 and str(error.line) in str(error)):
            raise RawError(f"no place in {error}") from error
        said = error.reason
    except SimulationError as error:
        said = str(error)
    except Exception as error:
        raise RawError(repr(error)) from error
    else:
        said = ""
    seconds = time.monotonic() - start
    if seconds > _SECONDS:
        raise RawError(f"it took {seconds:.0f} s")
    return said


def refusal_of_ptxas(text: str) -> str:
    """Return what the newest ptxas says of a text that it refuses; nothing of one that it takes."""
    tool = find_ptxas()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(text, encoding="utf-8")
        command = [str(tool), "-arch=sm_90a", str(path), "-o", str(path.with_suffix(".cubin"))]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=120)
        except subprocess.TimeoutExpired:
            return ""
    said = (done.stdout + done.stderr).decode(errors="replace")
    return said.replace(str(path), "").strip() or "refused" if done.returncode else ""
