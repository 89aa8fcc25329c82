"""`cutepy cache`: list the compiled programs on disk, remove them, and make them ahead of time."""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutepy.cli.commands import Commands
from cutepy.cli.failure import fail
from cutepy.cli.script_options import simulated_gpu
from cutepy.cli.scripts import run_as_main

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cutepy.host.store import Entry, EntryInfo, Store

app = typer.Typer(
    cls=Commands, help="List, show, remove and make the compiled programs kept on the disk.", no_args_is_help=True
)

# Enough of a key to tell it from thousands.
_SHORT = 12


@app.command("list")
def list_programs() -> None:
    """List the programs, the last used first."""
    from rich.table import Table
    from rich.text import Text

    with _told():
        store = _store()
        programs = store.entries()[::-1]
        unreadable = store.unreadable()
        limit_bytes = store.limit_bytes
    table = Table("key", "function", "arch", box=None, pad_edge=False, header_style="bold")
    table.columns[1].overflow = "fold"
    for column in ("size", "age", "uses"):
        table.add_column(column, justify="right", no_wrap=True)
    for program in programs:
        known = (str(program.metadata.get(name, "")) for name in ("function", "arch"))
        measured = (_size(program.size_bytes), _duration(time.time() - program.created), str(program.uses))
        table.add_row(program.key[:_SHORT], *map(Text, known), *measured)
    if programs:
        _print(table)
    total = sum(program.size_bytes for program in programs)
    typer.echo(f"{_count(len(programs))}, {_size(total)} of {_size(limit_bytes)}, in {store.folder}")
    if unreadable:
        typer.echo(
            f"{_count(len(unreadable))} cannot be read, being damaged or of another version of cutepy, and "
            f"`cutepy cache prune` removes them: {', '.join(path.name for path in unreadable[:3])}"
            f"{', ...' if unreadable[3:] else ''}"
        )


@app.command()
def prune() -> None:
    """Remove the programs that can't be read: damaged ones, and those of other versions of cutepy."""
    with _told():
        removed = [path for store in (*_others(), _store()) for path in store.prune()]
    typer.echo(f"removed {_count(len(removed))}")


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="A program's key, or how it begins.")],
    ptx: Annotated[bool, typer.Option("--ptx", help="Print the program's PTX, and nothing else.")] = False,
) -> None:
    """Show the sources and the contents of a program."""
    from cutepy.host.entry import DamagedEntryError

    with _told():
        store = _store()
        program = _find(store, key)
        try:
            entry = store.peek(program.key)
        except DamagedEntryError as error:
            fail(f"{store.folder / program.key}.program is damaged: {error}")
        if entry is None:
            fail(f"{program.key} was removed just now")
        if ptx and "ptx" not in entry.sections:
            fail(f"no PTX is kept of {program.key}; its sections are {', '.join(entry.sections) or 'none'}")
    if ptx:
        typer.echo(entry.sections["ptx"].decode(), nl=False)
    else:
        _print_entry(store, program, entry)


@app.command()
def clear(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="Keys, or how they begin. Default: all.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove programs; they are compiled anew when they are needed."""
    with _told():
        store = _store()
        chosen = store.entries()
        if keys:
            named = {_find(store, key).key for key in keys}
            chosen = [program for program in chosen if program.key in named]
        total = _size(sum(program.size_bytes for program in chosen))
        if not yes:
            typer.confirm(
                f"Remove {'' if keys else 'all of '}{_count(len(chosen))} ({total}) from {store.folder}?", abort=True
            )
        if not keys:
            for other in _others():
                other.clear()
        removed = sum(store.remove(program.key) for program in chosen) if keys else store.clear()
    typer.echo(f"removed {_count(removed)}")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def warm(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FILE.py|MODULE", help="A script, with the arguments that follow, or a module.")
    ],
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="sm_90a|sm_100a|sm_103a|sm_120a",
            help="Architecture that cutepy.compile compiles for by default. Default: CUTE_DSL_ARCH.",
        ),
    ] = None,
) -> None:
    """Compile the programs of a script or a module into the cache, by running or importing it."""
    from cutepy.host import environment

    with _told():
        if not environment.cache_enabled():
            fail(f"{environment.CACHE.name} is off, and so nothing would be kept; unset it")
        store = _store()
        before = {program.key: program for program in store.entries()}
    no_gpu = None
    with simulated_gpu(arch):
        try:
            code = _run(target, context.args)
        except Exception as error:
            if not _is_of_a_missing_gpu(error):
                raise
            no_gpu = error
    # Counted in the folder, not in this process: a script may compile in processes of its own.
    built = used = 0
    for program in store.entries():
        earlier = before.get(program.key)
        if earlier is None or earlier.created != program.created:
            built += 1
        elif program.uses > earlier.uses:
            used += 1
    typer.echo(f"{_count(built)} built, {used} already there, in {store.folder}")
    if no_gpu is not None:
        fail(
            f"{_place(no_gpu, target)} uses a GPU, and this machine has no driver for one; "
            "warm a script or a module that compiles and does not launch"
        )
    raise typer.Exit(code)


def _is_of_a_missing_gpu(error: BaseException) -> bool:
    """Return whether this machine has no CUDA driver, and an error says so or asks for a GPU."""
    from cutepy.host.arguments import NotOnGpuError
    from cutepy.runtime.cuda import CudaError, driver

    try:
        driver()
    except CudaError:
        pass
    else:
        return False
    if isinstance(error, (CudaError, NotOnGpuError)) or type(error).__name__ == "DSLCudaRuntimeError":
        return True
    return any(text in str(error) for text in _TORCH_WITHOUT_GPU)


_TORCH_WITHOUT_GPU = "Torch not compiled with CUDA enabled", "Found no NVIDIA driver on your system"
"""Words of torch's errors where there is no GPU."""


def _place(error: BaseException, target: str) -> str:
    """Return a script or a module with the last of its lines that an error came through."""
    stem = Path(target).stem if target.endswith(".py") else target.rpartition(".")[2]
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).stem == stem]
    return f"{target}:{lines[-1]}" if lines else target


def _run(target: str, arguments: list[str]) -> int:
    """Run a script as `__main__`, or import a module under its name; return the exit code."""
    import importlib
    import sys

    file, path = Path(target), sys.path[:]
    try:
        if file.is_file():
            run_as_main(target, arguments)
        else:
            sys.path.insert(0, str(Path.cwd()))
            if file.suffix == ".py" or not _is_module(target):
                fail(f"there is no file {target}, and no module of that name")
            if arguments:
                fail(f"a module takes no arguments, got {' '.join(arguments)}; give the path of a script instead")
            importlib.import_module(target)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        typer.echo(str(leaving.code), err=True)
        return 1
    finally:
        sys.path[:] = path
    return 0


def _is_module(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _store() -> Store:
    from cutepy.host.store import default_store

    return default_store()


def _others() -> tuple[Store, ...]:
    """Open the other stores, which are not listed: rewritten functions, simulated machine code, remarks of ptxas."""
    from cutepy.host.store import assembler_store, function_store, machine_code_store

    return function_store(), machine_code_store(), assembler_store()


def _find(store: Store, key: str) -> EntryInfo:
    """Return the one program whose key is `key`, or begins with it."""
    found = [program for program in store.entries() if program.key.startswith(key)]
    exact = [program for program in found if program.key == key]
    if len(found) > 1 and not exact:
        fail(f"{len(found)} keys begin with {key!r}: {', '.join(program.key for program in found)}")
    if not found:
        fail(f"no program's key begins with {key!r} in {store.folder}; `cutepy cache list` names them")
    return (exact or found)[0]


def _print_entry(store: Store, program: EntryInfo, entry: Entry) -> None:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(rows: list[tuple[str, str]]) -> Table:
        grid = Table.grid(padding=(0, 2))
        for name, value in rows:
            grid.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
        return grid

    metadata = dict(entry.metadata)
    metadata.pop("created", None)  # the file's own time is shown
    facts = [
        ("key", program.key),
        ("folder", str(store.folder)),
        ("size", _size(program.size_bytes)),
        ("created", _moment(program.created)),
        ("last used", _moment(program.last_used)),
        ("uses", str(program.uses)),
    ]
    facts += [(name, _text(value)) for name, value in metadata.items()]
    parts: list[tuple[str, RenderableType]] = [("program", table(facts))]
    sections = [(name, f"{len(section)} bytes") for name, section in entry.sections.items()]
    parts.append(("sections", table(sections)))
    for title, part in parts:
        _print(Group(Text(title, style="bold underline"), part))


def _text(value: Any) -> str:  # noqa: ANN401
    """Format a value of the metadata: texts as they are, others as JSON, a list with one item a line."""
    if isinstance(value, list) and value:
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _print(what: RenderableType) -> None:
    import sys

    from rich.console import Console

    # A pipe has no width: its reader gets each row in one line, without padding.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as captured:
        console.print(what)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Convert an error that a user can fix to a line on standard error."""
    from cutepy.host.folder import CacheFolderError

    try:
        yield
    except (CacheFolderError, ModuleNotFoundError, OSError, ValueError) as error:
        fail(str(error))


def _count(number: int) -> str:
    return f"{number} program{'' if number == 1 else 's'}"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
