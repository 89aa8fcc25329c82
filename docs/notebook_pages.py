"""mkdocs hook: the notebooks as pages, run when the site is built; the files themselves are there to download.

A cell shows what it prints, and the picture or the repr of the expression that it ends with, as in Jupyter.
"""

import ast
import contextlib
import importlib.util
import io
import json
import linecache
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from cutepy.layouts.render import picture_of

FOLDER = Path(__file__).with_name("notebooks")
NEEDS = {"4_read_your_kernel": ("cutlass", "torch")}
"""Notebook -> what it imports beyond the standard library and cutepy."""


def notebooks() -> list[Path]:
    """List the notebooks, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path) -> list[tuple[str, str]]:
    """Read a notebook: (kind, source) of each cell."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return [(cell["cell_type"], "".join(cell["source"])) for cell in read["cells"]]


def title(path: Path) -> str:
    """Return a notebook's first heading."""
    return cells(path)[0][1].partition("\n")[0].removeprefix("# ")


def run_cell(source: str, namespace: dict[str, Any], name: str) -> tuple[str, object]:
    """Run a cell; give what it printed, and the value of its last expression or None."""
    # The DSL traces kernels from their source, for which inspect asks linecache.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(_drawn(last.value, namespace)), name, "eval"), namespace)
    return printed.getvalue(), value


def _drawn(expression: ast.expr, namespace: dict[str, Any]) -> ast.expr:
    """Have `show(x)` give a picture, as it does in Jupyter; elsewhere it prints text."""
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "show":
        namespace["_picture_of"] = picture_of
        expression.func = ast.copy_location(ast.Name("_picture_of", ast.Load()), expression.func)
    return expression


def markdown_of(path: Path) -> str:
    """Write a notebook as Markdown, with what its cells give, if what it needs is installed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    runs = all(importlib.util.find_spec(name) for name in NEEDS.get(path.stem, ()))
    parts = []
    for number, (kind, source) in enumerate(cells(path), 1):
        if kind == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if runs:
            with patch.object(sys, "argv", [path.name]):  # the DSL reads the command's arguments as its own
                parts += _outputs(*run_cell(source, namespace, f"<{path.name}, cell {number}>"))
    first, _, rest = "\n\n".join(parts).partition("\n")
    return f"{first}\n\n[This notebook]({path.name}) opens in Jupyter.\n{rest}\n"


def _outputs(printed: str, value: Any) -> list[str]:  # noqa: ANN401 - what a cell ends with
    outputs = [f"```text\n{printed.rstrip()}\n```"] if printed else []
    # Not the HTML that Jupyter shows: tables have the site's style.
    svg = value._repr_svg_() if hasattr(value, "_repr_svg_") else None
    if svg is not None:
        # Not one for the search: it would list every offset.
        outputs.append(f"<div data-search-exclude>{svg}</div>")
    elif value is not None:
        outputs.append(f"```text\n{value!r}\n```")
    return outputs


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the notebooks into the navigation, where it says Notebooks."""
    for entry in config.nav or []:
        if "Notebooks" in entry:
            entry["Notebooks"] = [{title(path): f"notebooks/{path.stem}.md"} for path in notebooks()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for path in notebooks():
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown_of(path)))
    return files
