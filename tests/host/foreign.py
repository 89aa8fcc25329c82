"""Other people's kernels through `cutepy.compile`: do they compile, does a second process find them, is the PTX right?

    python -m tests.host.foreign FOLDER... ["SCRIPT ARGUMENT..."]...

Each script runs unmodified, in processes of its own, with the device `cuda` served from host memory. What it hands to
`cute.compile`, and what it calls as a `@cute.jit` function, goes to `cutepy.compile` with the very same arguments;
launches do nothing, nor do checks of results. The first process compiles, a second one, under another hash seed, must
find each program and its PTX, and a third compiles without the cache and must get that PTX too, and the same host code.
With `--copied`, a fourth runs a copy of the folder elsewhere, and must find all as well. What doesn't compile is handed
to the DSL itself, which tells whose limit that is.

Nothing of theirs is kept here: the scripts are yours to bring, with what they import on PYTHONPATH. Writes a line for
each script, a table of what does not compile, and with `--json FILE` all that was recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.sim.foreign.sources import file_and_arguments, is_script

_SECONDS = 600
_REST = 20
"""Seconds without anything to compile, after which a script that compiled something is taken to be done."""
_OURS = re.compile(r"--(enable-tvm-ffi|keep-\w+|generate-line-info|(gpu-arch|dump-dir)[ =]\S+)")
"""Options that cutepy decides itself."""
_THEIRS = ("is_experimental", "no_jit_engine", "no_cache", "compile_only")
"""Settings of the DSL, which are no examples."""
_FILES = re.compile(r"^\s*\.file\s.*$", re.MULTILINE)


class _Launchable:
    """Stands for what `cute.compile` gives: whatever is called or read, nothing happens."""

    def __call__(self, *_: object, **__: object) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self))


class _Recorder:
    """Compiles in the DSL's stead, and writes down what became of it."""

    def __init__(self, file: Path, *, cached: bool) -> None:
        self._file = file
        self._cached = cached
        self._inside = threading.local()
        self._resting: threading.Timer | None = None

    def write(self, **facts: object) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(facts) + "\n")
        self._resting = threading.Timer(_REST, self._leave)
        self._resting.start()

    def _leave(self) -> None:
        self.write(end=f"stopped, as it compiled nothing for {_REST} s")
        os._exit(0)

    def compile(self, own: Any, function: Any, arguments: Any, named: dict[str, Any], options: str) -> Any:
        """Compile by cutepy; where that fails, by the DSL's own way, to learn whether it would."""
        import cutepy

        named = {name: value for name, value in named.items() if name not in _THEIRS}
        name = getattr(function, "__qualname__", type(function).__qualname__)
        start = time.perf_counter()
        with self._busy():
            try:
                made = cutepy.compile(function, *arguments, options=options, cache=self._cached, **named)
            except Exception as error:
                ways = {"dsl": "", "packed": " --enable-tvm-ffi"}
                told = {way: self._by_the_dsl(own, function, arguments, named, o) for way, o in ways.items()}
                self.write(function=name, error=_told(error), **told)
                return _Launchable()
            seconds = time.perf_counter() - start
        self.write(
            function=name,
            key=made.metadata["traced"],
            ptx=_hash(_FILES.sub("", made.ptx).encode()),
            host=_hash(made.program.object),
            built=not made.cost().cached,
            seconds=round(seconds, 3),
        )
        return _Launchable()

    def _by_the_dsl(self, own: Any, function: Any, arguments: Any, named: dict[str, Any], options: str) -> str:
        try:
            own(function, *arguments, **named, options=f"--gpu-arch=sm_90a{options}", no_jit_engine=True)
        except Exception as error:
            return _told(error)
        return ""

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._inside.now = True
        if self._resting is not None:
            self._resting.cancel()
        try:
            yield
        finally:
            self._inside.now = False

    @property
    def is_busy(self) -> bool:
        return getattr(self._inside, "now", False)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _redirected(recorder: _Recorder) -> Iterator[None]:
    """Send what a script compiles, by `cute.compile` or by a plain call, to the recorder."""
    import cutlass.cute.testing as timing
    import numpy as np
    import torch
    from cutlass._mlir import ir
    from cutlass.base_dsl.compiler import CompileCallable
    from cutlass.base_dsl.dsl import BaseDSL

    compile_, call = CompileCallable._compile, BaseDSL._func_impl

    def compiled(callable_: Any, function: Any, *arguments: Any, **named: Any) -> Any:
        if recorder.is_busy:
            return compile_(callable_, function, *arguments, **named)
        options = named.pop("options", None) or " ".join(_spelled(callable_._compile_options))
        own = types.MethodType(compile_, callable_)
        return recorder.compile(own, function, arguments, named, " ".join(_OURS.sub("", options).split()))

    def called(dsl: Any, body: Any, *arguments: Any, **named: Any) -> Any:
        traced = ir.Context.current is not None and ir.InsertionPoint.current is not None
        if traced or recorder.is_busy:
            return call(dsl, body, *arguments, **named)
        function = body
        if next(iter(body.__code__.co_varnames[: body.__code__.co_argcount]), "") == "self":
            function, arguments = types.MethodType(body, arguments[0]), arguments[1:]
        own = types.MethodType(compile_, CompileCallable())
        recorder.compile(own, function, arguments, named, "")
        return None

    CompileCallable._compile, BaseDSL._func_impl = compiled, called
    torch.testing.assert_close = np.testing.assert_allclose = np.testing.assert_array_equal = _nothing
    torch.allclose = torch.equal = np.allclose = lambda *_, **__: True
    timing.benchmark = lambda *_, **__: 1.0
    yield


def _nothing(*_: object, **__: object) -> None:
    pass


def _spelled(options: Any) -> Iterator[str]:
    """Spell what `cute.compile[...]` was given as a string of options, but what cutepy decides."""
    from cutlass.base_dsl.compiler import CompileOptions

    for kind, option in options.options.items():
        flag, default = kind._cli_flag, CompileOptions().options[kind].value
        if flag and option.value != default and not _OURS.match(f"--{flag} x"):
            yield f"--{flag}" if option.value is True else f"--{flag} {option.value}"


def _run_script(script: str, arguments: list[str], record: Path, *, cached: bool) -> None:
    """Be a process of one script."""
    from cutepy.frontends import torch_device

    torch_device.executing_on = (
        contextlib.nullcontext
    )  # nothing is launched, so nothing of the DSL need be changed for that
    recorder = _Recorder(record, cached=cached)
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
    with torch_device.serve_cuda(), _redirected(recorder):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as leaving:
            recorder.write(end="" if not leaving.code else f"left with {leaving.code}")
        except BaseException as error:
            recorder.write(end=_told(error))
        else:
            recorder.write(end="")
    os._exit(0)  # whatever threads and handlers the script left


def _process(script: Path, arguments: list[str], folder: Path, seed: int, *, cached: bool = True) -> list[Any]:
    """Run a script in a process, and give what it recorded."""
    with tempfile.TemporaryDirectory() as temporary:
        record = Path(temporary, "record")
        record.touch()
        command = [
            sys.executable,
            "-m",
            "tests.host.foreign",
            "--record",
            str(record),
            *([] if cached else ["--uncached"]),
        ]
        path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
        settings = {
            "CUTE_DSL_ARCH": "sm_90a",
            "PYTHONPATH": path,
            "PYTHONHASHSEED": str(seed),
            "CUTEPY_CACHE_DIR": str(folder),
            "MPLBACKEND": "agg",
        }
        try:
            done = subprocess.run(
                [*command, shlex.join([str(script), *arguments])],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
            )
            output = done.stderr
        except subprocess.TimeoutExpired:
            output = f"stopped after {_SECONDS} s"
        facts = [json.loads(line) for line in record.read_text().splitlines()]
    if not facts or "end" not in facts[-1]:
        facts.append({"end": (output.strip().splitlines() or ["died"])[-1]})
    return facts


def _examined(script: Path, arguments: list[str], copied: Path | None) -> dict[str, Any]:
    """Run a script in all its processes, and compare what they recorded."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {"first": _process(script, arguments, folder, 1)}
        if any("key" in fact for fact in runs["first"]):
            runs["second"] = _process(script, arguments, folder, 2)
            if copied is not None:
                runs["copied"] = _process(copied, arguments, folder, 3)
            runs["uncached"] = _process(script, arguments, folder, 4, cached=False)
    return {"script": str(script), "arguments": arguments, "runs": runs, "wrong": list(differences(runs))}


def differences(runs: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Tell in what the processes of a script differ: what each recorded, by the process's name, "first" the first."""
    made = {run: [fact for fact in facts if "function" in fact] for run, facts in runs.items()}
    known: set[str] = set()
    for at, first in enumerate(made["first"]):
        for run in runs.keys() - {"first"}:
            other = made[run][at] if at < len(made[run]) else {}
            changed = [name for name in ("function", "key", "ptx", "host") if first.get(name) != other.get(name)]
            if changed:
                yield f"{first['function']}: another {', '.join(changed)} in the {run} process"
            if "key" in first and run != "uncached" and other.get("built", True):
                yield f"{first['function']}: built again in the {run} process"
        if first.get("built") and first["key"] in known:
            yield f"{first['function']}: built twice in the first process"
        known.add(first.get("key", ""))


def _line(found: dict[str, Any]) -> str:
    """Say in a line what became of a script."""
    facts = found["runs"]["first"]
    made = [fact for fact in facts if "key" in fact]
    failed = [fact for fact in facts if "error" in fact]
    parts = [f"{len(made)} compiled"] if made else []
    parts += [f"{len(failed)} not ({failed[0]['error'][:150]!r}; DSL: {failed[0]['dsl'][:150]!r})"] if failed else []
    parts += [] if made or failed else [f"nothing compiled ({facts[-1]['end'][:200]})"]
    if made:
        warm = [fact["seconds"] for fact in found["runs"]["second"] if "key" in fact]
        parts.append("; ".join(found["wrong"]) or f"found, equal, {max(warm, default=0):.2f} s at most")
    return f"{'FAIL' if found['wrong'] else 'ok  ' if made else 'none'} {found['script']}: {', '.join(parts)}"


def _scripts(given: str) -> Iterator[tuple[Path, Path, list[str]]]:
    """Give (root, script, arguments) of a folder's scripts, or of one with its arguments."""
    path, arguments = file_and_arguments(given)
    if path.is_file():
        yield path.parent, path, arguments
    for script in sorted(path.rglob("*.py")) if path.is_dir() else ():
        if is_script(script):
            yield path, script, arguments


def main() -> int:
    """Examine scripts, or be a process of one."""
    parser = argparse.ArgumentParser(prog="python -m tests.host.foreign", description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="+", help="folders, and scripts with their arguments, each as one word")
    parser.add_argument("--copied", action="store_true", help="run a copy of each folder too")
    parser.add_argument("--json", type=Path, help="where to write all that was recorded, a line for each script")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--uncached", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record is not None:
        script, *arguments = shlex.split(given.scripts[0])
        _run_script(script, arguments, given.record, cached=not given.uncached)
    failed = False
    for root, script, arguments in (found for text in given.scripts for found in _scripts(text)):
        with tempfile.TemporaryDirectory() as temporary:
            copied = None
            if given.copied:
                shutil.copytree(root, Path(temporary, root.name))
                copied = Path(temporary, root.name, script.relative_to(root))
            found = _examined(script, arguments, copied)
        failed |= bool(found["wrong"])
        print(_line(found), flush=True)
        if given.json is not None:
            with given.json.open("a") as file:
                file.write(json.dumps(found) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
