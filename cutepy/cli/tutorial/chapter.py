"""Chapter of the tutorial: a text file whose expressions are evaluated when it is read.

The file is Markdown with blocks of four kinds between fences, evaluated from top to bottom in one namespace:

- ``python``: statements, shown as a session with what they print; ``python raises`` ends with an error, which is shown;
- ``show``: the arguments of `show`; the picture is drawn;
- ``check``: assertions that hold what the text around it claims; not shown;
- ``question``: ``ask``, ``answer``, ``hint`` and ``because``, where the answer is an expression.

Elsewhere an expression in braces stands for its value. A test refuses numbers that are written out.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from cutepy.layouts import to_text
from cutepy.layouts.grids.grid import Grid, Picture
from cutepy.layouts.modes import LayoutBase
from cutepy.layouts.render.drawing import picture_of

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_FIELDS = ("ask", "answer", "hint", "because")
_FIELD = re.compile(rf"^({'|'.join(_FIELDS)}):", re.MULTILINE)


@dataclass(frozen=True)
class Heading:
    """A heading within a chapter."""

    text: str


@dataclass(frozen=True)
class Prose:
    """A paragraph, or an item of a list, on one line."""

    text: str
    item: bool = False


@dataclass(frozen=True)
class Session:
    """Statements, each with its output."""

    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Drawing:
    """Picture, with the arguments of `show` that give it."""

    arguments: str
    picture: Grid | Picture


@dataclass(frozen=True)
class Question:
    """Question to the reader.

    Attributes
    ----------
    number : str
        ``"3.2"`` is the second of chapter 3.
    ask, hint, because : str
        Question, hint, and explanation of the answer.
    answer : object
        Answer that the library computed: a number, a layout, a tuple, a word, or a truth.
    """

    number: str
    ask: str
    answer: Any
    hint: str
    because: str

    @property
    def answer_text(self) -> str:
        """Answer as shown: an address in hexadecimal, if that was asked for."""
        return hex(self.answer) if "hexadecimal" in self.ask else written(self.answer)


Part = Heading | Prose | Session | Drawing | Question


@dataclass(frozen=True)
class Chapter:
    """Chapter with evaluated expressions."""

    number: int
    title: str
    parts: tuple[Part, ...]

    @property
    def questions(self) -> list[Question]:
        """List the questions, in order."""
        return [part for part in self.parts if isinstance(part, Question)]


@dataclass
class _Evaluation:
    """Namespace and questions of one chapter."""

    number: int
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__tutorial__"})
    asked: int = 0

    def value(self, expression: str) -> Any:  # noqa: ANN401 - whatever the text names
        try:
            return eval(compile(expression.strip(), f"<chapter {self.number}>", "eval"), self.namespace)
        except Exception as error:
            error.add_note(f"chapter {self.number} of the tutorial: {{{expression}}}")
            raise

    def prose(self, text: str) -> str:
        """Replace expressions by their values, and join all lines."""
        return _EXPRESSION.sub(lambda found: written(self.value(found[1])), " ".join(text.split()))

    def session(self, source: str, raises: bool) -> Session:
        """Run statements, and keep the output of each, or the last one's error."""
        statements = ast.parse(source).body
        steps = [self.step(statement, source) for statement in (statements[:-1] if raises else statements)]
        if raises:
            steps.append(self.failing_step(statements[-1], source))
        return Session(tuple(steps))

    def step(self, statement: ast.stmt, source: str) -> tuple[str, str]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), "<tutorial>", "eval"), self.namespace)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([statement], []), "<tutorial>", "exec"), self.namespace)
        return _source(statement, source), printed.getvalue().rstrip("\n")

    def failing_step(self, statement: ast.stmt, source: str) -> tuple[str, str]:
        try:
            self.step(statement, source)
        except Exception as error:
            return _source(statement, source), f"{type(error).__name__}: {error}"
        raise AssertionError(f"chapter {self.number} of the tutorial: {_source(statement, source)} raises nothing")

    def question(self, body: str) -> Question:
        pieces = _FIELD.split(body)[1:]
        told = dict(zip(pieces[::2], pieces[1::2], strict=True))
        if tuple(told) != _FIELDS:
            raise ValueError(f"a question needs {', '.join(_FIELDS)}, in this order, got {', '.join(told)}")
        self.asked += 1
        ask, hint, because = (self.prose(told[name]) for name in ("ask", "hint", "because"))
        return Question(f"{self.number}.{self.asked}", ask, self.value(told["answer"]), hint, because)


def written(value: object) -> str:
    """Format a value as the tutorial does: layouts and tuples in the notation, booleans as yes and no.

    >>> written((8, (2, 4))), written(True), written(64)
    ('(8,(2,4))', 'yes', '64')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return to_text(value) if isinstance(value, LayoutBase | tuple) else str(value)


def _source(statement: ast.stmt, source: str) -> str:
    return ast.get_source_segment(source, statement) or ""


@cache
def sources() -> tuple[str, ...]:
    """Read the chapters' files, in order."""
    found = sorted(
        (file for file in files("cutepy.cli.tutorial").joinpath("chapters").iterdir() if file.name.endswith(".md")),
        key=lambda file: file.name,
    )
    return tuple(file.read_text(encoding="utf-8") for file in found)


def titles() -> list[str]:
    """List the chapters' titles, in order.

    >>> titles()[0]
    'Layouts from zero'
    """
    return [source.partition("\n")[0].removeprefix("# ") for source in sources()]


def load(number: int) -> Chapter:
    """Read a chapter and evaluate it.

    Parameters
    ----------
    number : int
        From 1.

    Raises
    ------
    ValueError
        If there is no such chapter.

    Examples
    --------
    >>> load(1).questions[0].number
    '1.1'
    """
    if not 1 <= number <= len(sources()):
        raise ValueError(f"the tutorial has chapters 1 to {len(sources())}, got {number}; --list names them")
    return evaluate(sources()[number - 1], number)


def evaluate(source: str, number: int) -> Chapter:
    r"""Evaluate the text of a chapter.

    Examples
    --------
    >>> evaluate("# Sums\n\nThree and four make {3 + 4}.", 1).parts
    (Prose(text='Three and four make 7.', item=False),)
    """
    first, _, body = source.partition("\n")
    evaluation = _Evaluation(number)
    return Chapter(number, first.removeprefix("# ").strip(), tuple(_parts(body, evaluation)))


def _parts(body: str, evaluation: _Evaluation) -> Iterator[Part]:
    at = 0
    for block in _FENCE.finditer(body):
        yield from _paragraphs(body[at : block.start()], evaluation)
        yield from _block(block[1], block[2].strip(), block[3], evaluation)
        at = block.end()
    yield from _paragraphs(body[at:], evaluation)


def _paragraphs(text: str, evaluation: _Evaluation) -> Iterator[Part]:
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", text):
        if not paragraph.strip():
            continue
        line = paragraph.strip()
        if line.startswith("## "):
            yield Heading(evaluation.prose(line[3:]))
        elif line.startswith("- "):
            yield Prose(evaluation.prose(line[2:]), item=True)
        else:
            yield Prose(evaluation.prose(line))


def _block(kind: str, option: str, body: str, evaluation: _Evaluation) -> Iterator[Part]:
    if kind == "python":
        yield evaluation.session(body, raises=option == "raises")
    elif kind == "show":
        arguments = " ".join(body.split())
        evaluation.namespace["_picture_of"] = picture_of
        yield Drawing(arguments, evaluation.value(f"_picture_of({arguments})"))
    elif kind == "check":
        # asserts run even under Python's -O
        exec(compile(body, f"<chapter {evaluation.number}>", "exec", optimize=0), evaluation.namespace)
    elif kind == "question":
        yield evaluation.question(body)
    else:
        raise ValueError(f"a chapter's blocks are python, show, check and question, got {kind!r}")
