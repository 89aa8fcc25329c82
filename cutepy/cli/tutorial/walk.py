"""Walk through the tutorial: chapters on a terminal, with questions, or in a pipe, with the answers at the end."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Callable

from cutepy.cli.tutorial.answers import judge
from cutepy.cli.tutorial.chapter import Chapter, Drawing, Heading, Part, Prose, Question, Session, load, titles
from cutepy.layouts.grids.grid import Grid, Picture
from cutepy.layouts.grids.text import render_text, wrapped
from cutepy.layouts.render.output import HEIGHT, terminal_width

PROSE_WIDTH = 88
"""Largest number of columns of prose."""

TRIES = 2
"""Number of wrong answers after which the hint is shown."""

HELP = "Answer, or: ? for a hint, Enter for the answer, q to leave."


class Screen:
    """Output of the walk: styled on a terminal, plain in a pipe, with NO_COLOR, and without rich.

    Parameters
    ----------
    width : int, optional
        Columns. Default: the terminal's.
    """

    def __init__(self, width: int | None = None) -> None:
        self.width = terminal_width() if width is None else width
        self._console = None
        if importlib.util.find_spec("rich") is not None:
            from rich.console import Console

            console = Console(highlight=False, soft_wrap=True)
            if console.is_terminal and not console.no_color:
                self._console = console

    def write(self, text: str = "", style: str = "") -> None:
        """Write lines as they are."""
        if self._console is not None and style:
            from rich.text import Text

            self._console.print(Text(text, style=style, no_wrap=True))
        else:
            print(text)

    def prose(self, text: str, *, item: bool = False, style: str = "") -> None:
        """Write a paragraph, wrapped between words."""
        first, later = ("- ", "  ") if item else ("", "")
        for line in textwrap.wrap(
            text,
            min(self.width, PROSE_WIDTH),
            initial_indent=first,
            subsequent_indent=later,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self.write(line, style)

    def draw(self, picture: Grid | Picture) -> None:
        """Draw a picture."""
        if self._console is None:
            print(render_text(picture, width=self.width, height=HEIGHT))
        else:
            from cutepy.cli.show import paint

            paint(picture, self.width)


def run(
    number: int | None = None,
    *,
    screen: Screen | None = None,
    ask: Callable[[str], str] | None = None,
) -> int:
    """Walk through a chapter, or through all.

    Parameters
    ----------
    number : int, optional
        Of the chapter, from 1.
    screen : Screen, optional
    ask : callable, optional
        Takes a prompt, returns what the reader types; raises EOFError or KeyboardInterrupt when they leave. Default:
        `input` on a terminal; elsewhere nothing is asked, and the answers follow each chapter.

    Returns
    -------
    int
        Exit status, 0.

    Raises
    ------
    ValueError
        If there is no such chapter.
    """
    screen = Screen() if screen is None else screen
    if ask is None and sys.stdin.isatty() and sys.stdout.isatty():
        ask = input
    numbers = range(1, len(titles()) + 1) if number is None else [number]
    for place, chosen in enumerate(numbers):
        chapter = load(chosen)
        if place:
            screen.write()
        if ask is None:
            _print(chapter, screen)
        elif not _walk(chapter, screen, ask, last=place == len(numbers) - 1):
            break
    return 0


def list_chapters(screen: Screen | None = None) -> None:
    """Write the chapters' numbers and titles."""
    screen = Screen() if screen is None else screen
    for number, title in enumerate(titles(), 1):
        screen.write(f"{number}  {title}")


def _print(chapter: Chapter, screen: Screen) -> None:
    """Write a chapter with its questions, and their answers below."""
    _title(chapter, screen)
    for part in chapter.parts:
        screen.write()
        if isinstance(part, Question):
            screen.prose(f"Question {part.number}: {part.ask}", style="bold")
        else:
            _part(part, screen)
    if chapter.questions:
        screen.write()
        screen.write(f"Answers to chapter {chapter.number}", "bold")
        for question in chapter.questions:
            screen.prose(f"{question.number}: {question.answer_text}. {question.because}", item=True)


def _walk(chapter: Chapter, screen: Screen, ask: Callable[[str], str], *, last: bool) -> bool:
    """Write a chapter and ask its questions; return False if the reader leaves."""
    _title(chapter, screen)
    at_once = 0
    try:
        for part in chapter.parts:
            screen.write()
            if isinstance(part, Question):
                at_once += _asked(part, screen, ask)
            else:
                _part(part, screen)
        screen.write()
        screen.write(f"End of chapter {chapter.number}: {at_once} of {len(chapter.questions)} right at the first try.")
        if last:
            if chapter.number < len(titles()):
                screen.write(f"Next: cutepy tutorial {chapter.number + 1}")
            return True
        leaves = ask("Enter for the next chapter, q to leave: ").strip().casefold() in ("q", "quit")
    except (EOFError, KeyboardInterrupt):
        screen.write()
        leaves = True
    if leaves:
        screen.write(f"Until next time: cutepy tutorial {chapter.number} begins this chapter again.")
    return not leaves


def _asked(question: Question, screen: Screen, ask: Callable[[str], str]) -> bool:
    """Ask until the answer is right or given up; return True if it was right at once."""
    screen.prose(f"Question {question.number}: {question.ask}", style="bold")
    if question.number.endswith(".1"):
        screen.write(HELP, "dim")
    tries = 0
    while True:
        given = ask("> ").strip()
        if given.casefold() in ("q", "quit"):
            raise EOFError
        if given.casefold() in ("?", "hint"):
            screen.prose(f"Hint: {question.hint}")
            continue
        if not given:
            screen.prose(f"It is {question.answer_text}. {question.because}")
            return False
        verdict = judge(given, question.answer)
        for line in verdict.remark.splitlines():
            screen.write(line)
        if verdict.right is None:
            continue
        if verdict.right:
            screen.prose(f"Right. {question.because}", style="green")
            return tries == 0
        tries += 1
        screen.prose("Not that." if tries < TRIES else f"Not that. Hint: {question.hint}")


def _title(chapter: Chapter, screen: Screen) -> None:
    text = f"{chapter.number}. {chapter.title}"
    screen.write(text, "bold")
    screen.write("=" * len(text), "bold")


def _part(part: Part, screen: Screen) -> None:
    if isinstance(part, Heading):
        screen.write(part.text, "bold")
        screen.write("-" * len(part.text), "bold")
    elif isinstance(part, Prose):
        screen.prose(part.text, item=part.item)
    elif isinstance(part, Session):
        for source, printed in part.steps:
            _source(source, screen)
            for line in printed.splitlines():
                for piece in wrapped(line, screen.width):
                    screen.write(piece)
    elif isinstance(part, Drawing):
        _source(f"show({part.arguments})", screen)
        screen.draw(part.picture)


def _source(source: str, screen: Screen) -> None:
    for number, line in enumerate(source.splitlines()):
        screen.write(f"{'...' if number else '>>>'} {line}", "cyan")
