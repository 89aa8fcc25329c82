"""mkdocs hook: an API page for each public module, so that the reference cannot drift from the code."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).parents[1] / "cutepy"
# Not a reader's API: the command line, and what its `bench` runs.
LEFT_OUT = ("cutepy.__main__", "cutepy.cli", "cutepy.suites")


def public_modules() -> list[str]:
    """List the dotted names of the package's public modules, packages before their modules."""
    names = []
    for path in sorted(_python_files(PACKAGE)):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.startswith(LEFT_OUT) and "._" not in name:
            names.append(name)
    return sorted(names)


def _python_files(folder: Path) -> list[Path]:
    # Path.rglob does not descend into the linked folders; iterdir does.
    found = []
    for path in folder.iterdir():
        if (path / "__init__.py").exists():
            found += _python_files(path)
        elif path.suffix == ".py":
            found.append(path)
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the API section to the navigation, one entry for each top-level room."""
    rooms: dict[str, list[Any]] = {}
    for name in public_modules():
        room = ".".join(name.split(".")[:2])
        rooms.setdefault(room, []).append({name: f"api/{name}.md"})
    if config.nav is not None:
        config.nav.append({"API": [{room: pages} if len(pages) > 1 else pages[0] for room, pages in rooms.items()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page that holds one mkdocstrings directive for each public module."""
    for name in public_modules():
        is_package = (PACKAGE.parent / Path(*name.split("."))).is_dir()
        options = "\n    options:\n      members: []\n" if is_package else "\n"
        files.append(File.generated(config, f"api/{name}.md", content=f"# {name}\n\n::: {name}{options}"))
    return files
