"""Cache of the DSL preprocessor's output: functions are rewritten and compiled once, as Python caches modules.

Before the DSL traces a function it reads its source again, rewrites loops and branches, and has Python compile the
result: a quarter of a trace. The output depends on the text of the function's file, the DSL, Python, and the kinds of
the globals that the preprocessor looks up. So each look-up is stored beside the code with its answer, and repeated
before the code is used.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import marshal
import os
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from cutepy.dsl.patches import NoFingerprintError, told
from cutepy.dsl.shared_change import replaced
from cutepy.dsl.version import installed_parts, require

Functions = Mapping[str, bytes]
"""Rewritten functions of a file, by name and line."""


class FunctionStore(Protocol):
    """Storage of rewritten functions: key of a file's text -> its functions."""

    def load(self, key: str) -> Functions:
        """Return the stored functions; none if there are none."""

    def save(self, key: str, functions: Functions) -> None:
        """Store the functions of a file."""


@contextlib.contextmanager
def preprocessed_once(shelf: FunctionStore | None, settings: Any) -> Iterator[None]:  # noqa: ANN401
    """Let this thread's traces load rewritten functions from a shelf, and store new ones there.

    Parameters
    ----------
    shelf : FunctionStore, optional
        None keeps nothing.
    settings
        The tracer's, one of which prints what the preprocessor makes.
    """
    if shelf is None or getattr(settings, "print_after_preprocessor", False):
        yield
        return
    module = require("cutlass.base_dsl.ast_preprocessor", "DSLPreprocessor.transform", "DSLPreprocessor.exec")
    preprocessor, rules = module.DSLPreprocessor, _rules(module)
    if rules is None:
        yield
        return
    work = _Preprocessing(shelf, preprocessor, rules)
    with contextlib.ExitStack() as stack:
        for name, instead in (("transform", work.transform), ("exec", work.execute)):
            stack.enter_context(replaced(preprocessor, name, instead))
        if hasattr(preprocessor, "issue_deprecation_warning"):
            stack.enter_context(replaced(preprocessor, "issue_deprecation_warning", work.warn))
        try:
            yield
        finally:
            work.save()


class _Preprocessing:
    """Functions that one trace has rewritten or loaded."""

    def __init__(self, shelf: FunctionStore, preprocessor: type, rules: str) -> None:
        self._shelf = shelf
        self._preprocessor = preprocessor
        self._methods = frozenset(dir(preprocessor))
        self._rules = rules
        self._thread = threading.get_ident()
        self._texts: dict[str, tuple[list[str], str]] = {}
        self._files: dict[str, dict[str, bytes]] = {}
        self._grown: set[str] = set()
        self._found: CodeType | None = None
        self._asked: _RecordedGlobals | None = None
        self._new: tuple[str, str] | None = None

    def transform(self, original: Callable[..., Any], preprocessor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Rewrite a function, unless its code is stored: then the tree is empty, and `execute` has the code."""
        if not self._is_ours(preprocessor):
            return original(preprocessor, *arguments, **named)
        self._found = self._new = self._asked = None
        function, names = arguments
        file = self._file(function)
        if file is None:
            return original(preprocessor, *arguments, **named)
        if file not in self._files:
            self._files[file] = dict(self._shelf.load(file))
        key, asked = _key(function), _RecordedGlobals(names)
        self._asked = asked
        if kept := self._files[file].get(key):
            self._found = _unpacked(kept, asked)
            if self._found is not None:
                return ast.Module(body=[], type_ignores=[])
        tree = original(preprocessor, function, asked, **named)
        if self._file(function) == file:  # otherwise the text was edited meanwhile
            self._new = file, key
        return tree

    def execute(self, original: Callable[..., Any], preprocessor: Any, *arguments: Any) -> Any:  # noqa: ANN401
        """Define the rewritten function, from stored or new code."""
        if not self._is_ours(preprocessor):
            return original(preprocessor, *arguments)
        name, function, code, names = arguments
        defined = original(preprocessor, name, function, self._found or code, names)
        if self._new is not None and self._asked is not None and not self._asked.changed and not _warns(function):
            file, key = self._new
            self._files[file][key] = marshal.dumps((self._asked.answers, code))
            self._grown.add(file)
        return defined

    def warn(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Emit the warnings about a function at each trace: a function with warnings is not stored."""
        if threading.get_ident() == self._thread and self._asked is not None:
            self._asked.changed = True
        return original(*arguments, **named)

    def save(self) -> None:
        """Store the new functions."""
        for file in self._grown:
            self._shelf.save(file, self._files[file])

    def _file(self, function: Any) -> str | None:  # noqa: ANN401
        """Hash the text of a function's file, as the preprocessor would read it now; None if it can't be cached."""
        if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
            return None
        path = inspect.getsourcefile(function)
        try:
            lines, _ = inspect.findsource(function)
        except (OSError, IndexError):
            return None
        if path is None:
            return None
        met, digest = self._texts.get(path, (None, ""))
        if met is not lines:
            text = f"{self._rules}\n{path}\n{''.join(lines)}"
            digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
            self._texts[path] = lines, digest
        return digest

    def _is_ours(self, preprocessor: object) -> bool:
        if threading.get_ident() != self._thread or type(preprocessor) is not self._preprocessor:
            return False
        return self._methods.isdisjoint(vars(preprocessor))  # else one has a method of its own


class _RecordedGlobals:
    """Globals of a function, which record the look-ups."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self.answers: dict[str, str] = {}
        self.changed = False

    def answer(self, name: str) -> str:
        """Return the kind of a name as the preprocessor sees it: a module, of which package, other, nothing."""
        value = self._names.get(name, self)
        if isinstance(value, ModuleType):
            return f"a module of {vars(value).get('__package__')}"
        return "nothing" if value is self else "a value"

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401
        self.answers[name] = self.answer(name)
        return self._names.get(name, default)

    def __contains__(self, name: str) -> bool:
        self.answers[name] = self.answer(name)
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __setitem__(self, name: str, value: object) -> None:
        self.changed = True  # a default of a parameter, which differs for the next function of this text
        self._names[name] = value


def _key(function: FunctionType) -> str:
    """Return a function's key among those of its file; it has the parameters with defaults, which change look-ups."""
    code = function.__code__
    defaulted = [len(function.__defaults__ or ()), *sorted(function.__kwdefaults__ or ())]
    return f"{function.__name__} {code.co_firstlineno} {code.co_freevars} {defaulted}"


def _unpacked(kept: bytes, asked: _RecordedGlobals) -> CodeType | None:
    """Return the stored code if its look-ups have the same answers; None if not, or if it is damaged."""
    try:
        answers, code = marshal.loads(kept)
        fits = isinstance(code, CodeType) and all(asked.answer(name) == answer for name, answer in answers.items())
    except (AttributeError, EOFError, TypeError, ValueError):
        return None
    return code if fits else None


def _warns(function: FunctionType) -> bool:
    """Return whether Python warns about a function's text when it reads it, such as about an invalid escape."""
    lines, _ = inspect.getsourcelines(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(textwrap.dedent("".join(lines)), "<text>", "exec", dont_inherit=True)
        except (Warning, SyntaxError):  # syntax warnings become errors
            return True
    return False


def _rules(module: ModuleType) -> str | None:
    """Hash the preprocessor and Python, which determine the output; None where a part has no fingerprint.

    Preprocessors of older versions hand more than a tree from rewriting to defining: those do without.
    """
    preprocessor, path = module.DSLPreprocessor, module.__file__
    if path is None or hasattr(preprocessor, "exec_imports"):
        return None
    released = os.path.dirname(os.path.dirname(path)), os.path.dirname(contextlib.__file__)  # noqa: PTH120
    facts = []
    for name, part in [*vars(module).items(), *vars(preprocessor).items()]:
        held = getattr(part, "__func__", None) or getattr(part, "fget", None) or part
        if isinstance(held, FunctionType):
            if not held.__code__.co_filename.startswith(released):
                try:
                    facts.append(f"{name}={told(held, vars(preprocessor), released)}")
                except NoFingerprintError:
                    return None
        elif isinstance(held, (str, int, set, frozenset, tuple)) and not name.startswith("__"):
            facts.append(f"{name}={sorted(held) if isinstance(held, (set, frozenset)) else held!r}")
    # Compiled code, and so locations, may lack columns.
    columns = list(compile("0", "<text>", "eval").co_positions())
    return hashlib.sha256(f"{_released(path)} {facts} {columns}".encode()).hexdigest()


@cache
def _released(path: str) -> str:
    total = hashlib.sha256(Path(path).read_bytes())
    total.update(f"{installed_parts()} {sys.version} {sys.flags.optimize}".encode() + MAGIC_NUMBER)
    return total.hexdigest()
