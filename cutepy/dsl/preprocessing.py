"""What the DSL's preprocessor makes of functions, kept as Python keeps modules: rewritten and compiled once.

Before the DSL traces a function it reads its source again, rewrites loops and branches, and has Python compile that:
a quarter of a trace. What comes out is decided by the text of the function's file, by the DSL, by Python, and by which
names of the function's globals the preprocessor looks up and finds to be what. So each answer is kept beside the code,
and asked again before the code is used.
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

from cutepy.dsl.patches import UntoldError, told
from cutepy.dsl.shared_change import replaced
from cutepy.dsl.version import installed_parts, require

Functions = Mapping[str, bytes]
"""The rewritten functions of a file, by name and line."""


class Shelf(Protocol):
    """Where rewritten functions are kept: key of a file's text -> its functions."""

    def load(self, key: str) -> Functions:
        """Give what is kept; nothing if there is nothing."""

    def save(self, key: str, functions: Functions) -> None:
        """Keep the functions of a file."""


@contextlib.contextmanager
def preprocessed_once(shelf: Shelf | None, settings: Any) -> Iterator[None]:  # noqa: ANN401
    """Let this thread's traces take rewritten functions from a shelf, and put there what they rewrite.

    Parameters
    ----------
    shelf : Shelf, optional
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
    """The functions that one trace has rewritten, or has found rewritten."""

    def __init__(self, shelf: Shelf, preprocessor: type, rules: str) -> None:
        self._shelf = shelf
        self._preprocessor = preprocessor
        self._methods = frozenset(dir(preprocessor))
        self._rules = rules
        self._thread = threading.get_ident()
        self._texts: dict[str, tuple[list[str], str]] = {}
        self._files: dict[str, dict[str, bytes]] = {}
        self._grown: set[str] = set()
        self._found: CodeType | None = None
        self._asked: _Asked | None = None
        self._new: tuple[str, str] | None = None

    def transform(self, original: Callable[..., Any], preprocessor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Rewrite a function, unless its code is there: then the tree is empty, and `execute` has the code."""
        if not self._is_ours(preprocessor):
            return original(preprocessor, *arguments, **named)
        self._found = self._new = self._asked = None
        function, names = arguments
        file = self._file(function)
        if file is None:
            return original(preprocessor, *arguments, **named)
        if file not in self._files:
            self._files[file] = dict(self._shelf.load(file))
        key, asked = _key(function), _Asked(names)
        self._asked = asked
        if kept := self._files[file].get(key):
            self._found = _unpacked(kept, asked)
            if self._found is not None:
                return ast.Module(body=[], type_ignores=[])
        tree = original(preprocessor, function, asked, **named)
        if self._file(function) == file:  # else the text was edited meanwhile
            self._new = file, key
        return tree

    def execute(self, original: Callable[..., Any], preprocessor: Any, *arguments: Any) -> Any:  # noqa: ANN401
        """Define the rewritten function, by the code that was found or is new."""
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
        """Warn of what a function uses, each time that it is traced: such a one is not kept."""
        if threading.get_ident() == self._thread and self._asked is not None:
            self._asked.changed = True
        return original(*arguments, **named)

    def save(self) -> None:
        """Keep what is new."""
        for file in self._grown:
            self._shelf.save(file, self._files[file])

    def _file(self, function: Any) -> str | None:  # noqa: ANN401
        """Digest the text of a function's file, as the preprocessor would read it now; None where it can't be kept."""
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


class _Asked:
    """A function's globals, that note what is asked of them."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self.answers: dict[str, str] = {}
        self.changed = False

    def answer(self, name: str) -> str:
        """Say what a name is, as far as the preprocessor cares: a module, of which package, something else, nothing."""
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
        self.changed = True  # the default of a parameter, which is another one for the next function of this text
        self._names[name] = value


def _key(function: FunctionType) -> str:
    """Name a function among those of its file; which of its parameters have defaults decides what is looked up."""
    code = function.__code__
    defaulted = [len(function.__defaults__ or ()), *sorted(function.__kwdefaults__ or ())]
    return f"{function.__name__} {code.co_firstlineno} {code.co_freevars} {defaulted}"


def _unpacked(kept: bytes, asked: _Asked) -> CodeType | None:
    """Give the code that is kept, if the answers are still those that led to it; None if not, or if it is damaged."""
    try:
        answers, code = marshal.loads(kept)
        fits = isinstance(code, CodeType) and all(asked.answer(name) == answer for name, answer in answers.items())
    except (AttributeError, EOFError, TypeError, ValueError):
        return None
    return code if fits else None


def _warns(function: FunctionType) -> bool:
    """Tell whether Python warns of a function's text when it reads it, as of an escape that is none: each time."""
    lines, _ = inspect.getsourcelines(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(textwrap.dedent("".join(lines)), "<text>", "exec", dont_inherit=True)
        except (Warning, SyntaxError):  # the parser's own are syntax errors, as errors
            return True
    return False


def _rules(module: ModuleType) -> str | None:
    """Digest what rewrites and compiles, the preprocessor and Python; None where a part can't be told.

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
                except UntoldError:
                    return None
        elif isinstance(held, (str, int, set, frozenset, tuple)) and not name.startswith("__"):
            facts.append(f"{name}={sorted(held) if isinstance(held, (set, frozenset)) else held!r}")
    # Columns of places may be left out of compiled code, and then are of locations.
    columns = list(compile("0", "<text>", "eval").co_positions())
    return hashlib.sha256(f"{_released(path)} {facts} {columns}".encode()).hexdigest()


@cache
def _released(path: str) -> str:
    total = hashlib.sha256(Path(path).read_bytes())
    total.update(f"{installed_parts()} {sys.version} {sys.flags.optimize}".encode() + MAGIC_NUMBER)
    return total.hexdigest()
