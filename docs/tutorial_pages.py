"""mkdocs hook: the chapters of `cutepy tutorial` as pages, evaluated and drawn when the site is built."""

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from cutepy.cli.tutorial.chapter import Chapter, Drawing, Heading, Part, Prose, Question, Session, load, titles
from cutepy.layouts.render import Picture, render_svg

CONTENTS = """# Tutorial

Layouts, swizzles, `wgmma`, TMA and a main loop, from zero. These pages are the text of the command `cutepy tutorial`,
which asks the questions and judges your answers in a terminal: `cutepy tutorial 4` begins with chapter 4,
`cutepy tutorial --list` lists all. Every number in them is computed by the library while the page is made.

"""


def markdown_of(chapter: Chapter) -> tuple[str, dict[str, str]]:
    """Write a chapter as Markdown, and its pictures as SVG by their files' names."""
    lines, pictures = [f"# {chapter.number}. {chapter.title}"], {}
    for part in chapter.parts:
        if isinstance(part, Drawing):
            name = f"{chapter.number}-{len(pictures) + 1}.svg"
            pictures[name] = render_svg(part.picture)
            grids = part.picture.grids if isinstance(part.picture, Picture) else (part.picture,)
            described = "; ".join(title for title in (part.picture.title, *(grid.title for grid in grids)) if title)
            lines.append(f"```python\nshow({part.arguments})\n```\n\n![{described.replace(']', ')')}]({name})")
        else:
            lines.append(_text(part))
    return "\n\n".join(lines) + "\n", pictures


def _text(part: Part) -> str:
    if isinstance(part, Heading):
        return f"## {part.text}"
    if isinstance(part, Prose):
        return f"- {part.text}" if part.item else part.text
    if isinstance(part, Session):
        return f"```pycon\n{_session(part)}\n```"
    assert isinstance(part, Question)
    return "\n".join(
        [
            f'!!! question "Question {part.number}"',
            f"    {part.ask}",
            "",
            f'    ??? tip "Hint"\n        {part.hint}',
            "",
            f'    ??? success "Answer"\n        **{part.answer_text}**. {part.because}',
        ]
    )


def _session(session: Session) -> str:
    lines = []
    for source, printed in session.steps:
        first, *later = source.splitlines()
        lines += [f">>> {first}", *(f"... {line}" for line in later), *printed.splitlines()]
    return "\n".join(lines)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the chapters into the navigation, where it says Tutorial."""
    pages: list[Any] = [{f"{number}. {title}": f"tutorial/{number}.md"} for number, title in enumerate(titles(), 1)]
    for entry in config.nav or []:
        if "Tutorial" in entry:
            entry["Tutorial"] = ["tutorial/index.md", *pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each chapter, its pictures, and the list of them."""
    listed = "".join(f"{number}. [{title}]({number}.md)\n" for number, title in enumerate(titles(), 1))
    files.append(File.generated(config, "tutorial/index.md", content=CONTENTS + listed))
    for number in range(1, len(titles()) + 1):
        page, pictures = markdown_of(load(number))
        files.append(File.generated(config, f"tutorial/{number}.md", content=page))
        for name, svg in pictures.items():
            files.append(File.generated(config, f"tutorial/{name}", content=svg))
    return files
