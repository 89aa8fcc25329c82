"""Snapshots of texts: `messages.txt` in a folder of tests holds every text that the tests of this folder pin.

`refuses` asserts the kind of an error and pins the error's text; `pins` pins any other text, such as a report.
`make messages` rewrites the files. Paths, line numbers of Python sources and addresses of objects are replaced, since
they differ from run to run. Tests under hypothesis, whose texts differ with the example, assert values instead.
"""

from __future__ import annotations

import difflib
import re
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest
from hypothesis import currently_in_test_context
from hypothesis.internal.detection import is_hypothesis_test

OPTION = "--rewrite-messages"
NAME = "messages.txt"
ROOT = Path(__file__).parent.parent
_REPLACED = (
    (rf"{re.escape(tempfile.gettempdir())}/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[\w.-]+", "TMP"),
    (rf"{re.escape(sysconfig.get_path('purelib'))}/", "SITE/"),
    (rf"{re.escape(tempfile.gettempdir())}/cutepy-[\w-]+", "TMP"),
    (rf"{re.escape(str(ROOT))}/", ""),
    (rf"{re.escape(str(ROOT))}\b", "ROOT"),
    (r"(\.py:|\.py\"?, line )\d+(:\d+)?", r"\1LINE"),
    (r"\b0x[0-9a-f]{12}\b", "0xADDRESS"),
    (
        r"(\d+ bytes (before the start|past the end) of the kernel's parameters|\d{5,} bytes (before|past) the [^\n]*?)"
        r" of \d+ bytes at 0xADDRESS",
        "N bytes from other memory",
    ),
    (r"(TensorMap\.decode)\(\d{5,}", r"\1(ADDRESS"),
    (r"(ThreadPoolExecutor)-\d+_\d+", r"\1"),
    (r"(nvidia-cutlass-dsl) \d[\w.]+", r"\1 VERSION"),
)
_REPLACED_OF_COMPILERS = (
    (r"\bline \d+ of the PTX", "line N of the PTX"),
    (r"%([a-z]+)\d+", r"%\1N"),
    (r"(?m)^ *\d+ \|", "   N |"),
    (r"\b(after|before) line \d+", r"\1 line N"),
)
"""In texts about kernels that the DSL compiled, whose PTX differs with the DSL's version."""


@contextmanager
def refuses(kinds: type[BaseException] | tuple[type[BaseException], ...]) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Require an error of one of the kinds, and pin the error's class and text."""
    with pytest.raises(kinds) as caught:
        yield caught
    pins("\n".join([f"{type(caught.value).__name__}: {caught.value}", *getattr(caught.value, "__notes__", ())]))


def pins(text: str) -> None:
    """Require the text to be the next of this test in the folder's snapshot."""
    if not _is_pinned:
        return
    assert not currently_in_test_context(), "a property has other texts with each example: assert values"
    is_compiled = _current.item.get_closest_marker("dsl") is not None
    for pattern, replacement in (*_REPLACED, *(_REPLACED_OF_COMPILERS if is_compiled else ())):
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"[^\n\x20-\x7e\u00a1-\ud7ff]", lambda found: ascii(found[0])[1:-1], text)
    _current.take("\n".join(line.rstrip() for line in text.split("\n")).strip("\n"))


class _Test:
    """One running test, and the texts that the test has pinned so far."""

    def __init__(self, item: pytest.Item) -> None:
        self.item, self.texts = item, list[str]()
        self.file = item.path.with_name(NAME)
        self.pinned = None if item.config.getoption(OPTION) else read(self.file).get(_key(item.nodeid), [])

    def take(self, text: str) -> None:
        self.texts.append(text)
        if self.pinned is not None:
            place = len(self.texts) - 1
            if self.pinned[place : place + 1] != [text]:
                old = self.pinned[place].split("\n") if place < len(self.pinned) else []
                lines = difflib.unified_diff(old, text.split("\n"), "pinned", "now", n=99, lineterm="")
                self.fail(f"text {place + 1} differs", *lines)

    def end(self) -> None:
        if self.pinned is not None and len(self.texts) < len(self.pinned):
            self.fail(f"{len(self.pinned)} texts are pinned, and the test has {len(self.texts)}")

    def fail(self, difference: str, *lines: str) -> NoReturn:
        folder = self.file.parent.relative_to(ROOT)
        remedy = f"if it is meant: make messages ARGS={folder}, then read the difference"
        pytest.fail("\n".join([f"{folder / NAME}: {difference}; {remedy}", *lines]), pytrace=False)


_current: _Test
_is_pinned = True


@contextmanager
def unpinned() -> Iterator[None]:
    """Pin no text: for a test that runs functions of other tests, which have their own snapshots."""
    global _is_pinned
    kept, _is_pinned = _is_pinned, False
    try:
        yield
    finally:
        _is_pinned = kept


class Plugin:
    """Compare the texts of each test, or write the texts of the tests that pass."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.rewrites = config, config.getoption(OPTION)
        self.told: dict[str, list[str]] = {}
        self.collected: set[str] = set()
        self.modules: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Let a run that rewrites have only the tests that pin texts."""
        if self.rewrites:
            if not any("::" in arg for arg in self.config.args):
                self.modules.update(str(_module(item.nodeid)) for item in items)
            items[:] = [item for item in items if _may_pin(getattr(item, "function", None))]
            self.collected.update(item.nodeid for item in items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        global _current
        _current = _Test(item)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        _current.end()
        self.told[item.nodeid] = _current.texts
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the texts that a process of xdist has."""
        told, collected, modules = getattr(node, "workeroutput", {}).get("messages", ({}, [], []))
        self.told.update(told)
        self.collected.update(collected)
        self.modules.update(modules)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.rewrites:
            return
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["messages"] = self.told, sorted(self.collected), sorted(self.modules)
        else:
            rewrite(self.told, self.collected, self.modules)


def rewrite(told: dict[str, list[str]], collected: set[str], modules: set[str]) -> None:
    """Write the texts of the tests that passed, and keep those of other tests.

    Of the modules that were collected as a whole, tests that are not among the collected ones lose their texts.
    """
    for folder in {Path(module).parent for module in modules} | {_module(test).parent for test in collected}:
        file = ROOT / folder / NAME
        entries = {
            test: texts
            for test, texts in ((f"{folder}/{key}", texts) for key, texts in read(file).items())
            if (ROOT / _module(test)).exists() and (test in collected or str(_module(test)) not in modules)
        } | {test: texts for test, texts in told.items() if _module(test).parent == folder}
        lines = []
        for test, texts in sorted(entries.items(), key=_by_number):
            if texts:
                marked = ("  - " + text.replace("\n", "\n    ") for text in texts)
                lines += [_key(test), *(line.rstrip() for text in marked for line in text.split("\n")), ""]
        if lines:
            file.write_text("\n".join(lines), encoding="utf-8", newline="\n")
        else:
            file.unlink(missing_ok=True)


@cache
def read(file: Path) -> dict[str, list[str]]:
    """Give the texts of each test of a snapshot, by the test's identifier within the folder."""
    entries: dict[str, list[str]] = {}
    if file.exists():
        for entry in re.split(r"\n\n?(?=\S)", file.read_text(encoding="utf-8").rstrip("\n")):
            test, _, texts = entry.partition("\n  - ")
            entries[test] = [re.sub("\n    ", "\n", text) for text in texts.split("\n  - ")]
    return entries


def _may_pin(function: Any) -> bool:
    """Tell whether a function names `refuses` or `pins`, or calls a function of a module that does."""
    todo, seen = [function], set[FunctionType]()
    for called in todo:
        if isinstance(called, FunctionType) and called not in seen:
            seen.add(called)
            codes = [called.__code__]
            for code in codes:
                codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))
            names = {name for code in codes for name in code.co_names}
            if names & {"refuses", "pins"}:
                return not is_hypothesis_test(function)
            todo += (called.__globals__.get(name) for name in names)
    return False


def _module(test: str) -> Path:
    return Path(test.partition("::")[0])


def _by_number(entry: tuple[str, list[str]]) -> str:
    return re.sub(r"\d+", lambda number: number[0].zfill(9), entry[0])


def _key(test: str) -> str:
    return f"{_module(test).name}::{test.partition('::')[2]}"
