"""Output folder of an export: written from templates, atomically."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import cutepy
from cutepy.aot.objects import SERVED, CompiledVariant, compile_variants
from cutepy.aot.spec import Extension, Op
from cutepy.aot.tables import form_text, limits
from cutepy.aot.variant import Variant, order_of
from cutepy.dsl.version import installed
from cutepy.host.output import check_is_or_may_be_folder
from cutepy.runtime.devices import DEVICES
from cutepy.runtime.host_abi import MINIMUM_DRIVER
from cutepy.runtime.program import HOPPER

_DEFAULT_EXTENT = 256
_MARK = "objects/kernels.json"
"""File that marks an export, so that it may be overwritten."""


class EarlierExportError(FileExistsError):
    """Error of a folder with an earlier export, without permission to replace it.

    Parameters
    ----------
    folder : Path
    how : str
        The option that replaces it, as the caller writes it.
    """

    def __init__(self, folder: Path, how: str = "overwrite=True") -> None:
        super().__init__(
            f"{folder} must be a new or empty folder, and holds an earlier export; replace that with {how}, or choose "
            "another"
        )
        self.folder = folder


class Tree:
    """Temporary folder in a `with` statement: `finish` moves it into place, else it is removed.

    Parameters
    ----------
    out : Path
        Final path of the folder.
    overwrite : bool
        True if an earlier export that is there is replaced.
    sources : iterable of Path
        Files that must not be in the folder: the export is made from them.

    Raises
    ------
    FileExistsError
        If something is there that is not to be replaced.
    NotADirectoryError
        If a file stands in the folder's path.
    """

    def __init__(self, out: Path, *, overwrite: bool, sources: Iterable[Path] = ()) -> None:
        from jinja2 import Environment, PackageLoader, StrictUndefined

        self._out = out = out.resolve()
        if out.exists():
            _check_replaceable(out, overwrite, sources)
        check_is_or_may_be_folder(out.parent)
        out.parent.mkdir(parents=True, exist_ok=True)
        self._making = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        self._templates = Environment(
            loader=PackageLoader("cutepy.aot"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._templates.filters["valued"] = lambda name: f"Value::of({name})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._making, ignore_errors=True)

    def render(self, path: str, template: str, context: Mapping[str, Any]) -> None:
        """Write a file from a template."""
        self.write(path, self._templates.get_template(template).render(context).encode())

    def write(self, path: str, content: bytes) -> None:
        """Write a file."""
        file = self._making / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def write_objects(self, compiled: Mapping[str, Sequence[CompiledVariant]], arch: str = HOPPER) -> None:
        """Write the objects, with a list that marks the folder as an export."""
        listed = []
        for op, items in compiled.items():
            for item in items:
                self.write(f"objects/{item.symbol}.o", item.image)
                listed.append(
                    {
                        "op": op,
                        "object": f"{item.symbol}.o",
                        "sha256": sha256(item.image).hexdigest(),
                        "arguments": [form_text(*tensor) for tensor in item.variant.tensors.items()],
                        "choices": dict(item.variant.choices),
                    }
                )
        made = {"arch": arch, "cutepy": cutepy.__version__, "dsl": installed(), "kernels": listed}
        self.write(_MARK, (json.dumps(made, indent=2) + "\n").encode())

    def finish(self) -> Path:
        """Move the folder into place."""
        self._making.chmod(0o755)
        if not self._out.exists():
            self._making.rename(self._out)
            return self._out
        old = Path(tempfile.mkdtemp(prefix=f".{self._out.name}-old-", dir=self._out.parent))
        self._out.rename(old)
        try:
            self._making.rename(self._out)
        except OSError:
            old.rename(self._out)
            raise
        shutil.rmtree(old)
        return self._out


def _check_replaceable(out: Path, overwrite: bool, sources: Iterable[Path]) -> None:
    """Refuse to replace anything other than an empty folder, or an export that may be overwritten."""
    if not out.is_dir():
        raise FileExistsError(f"{out} must be a new or empty folder, and is no folder; remove it, or choose another")
    if Path.cwd().is_relative_to(out):
        raise FileExistsError(f"{out} must not be or hold the current folder; choose a new folder in it")
    if not any(out.iterdir()):
        return
    if not (out / _MARK).is_file():
        raise FileExistsError(
            f"{out} must be a new or empty folder, or an earlier export to be overwritten: it has no {_MARK}; "
            "remove it, or choose another"
        )
    if not overwrite:
        raise EarlierExportError(out)
    for source in sources:
        if source.resolve().is_relative_to(out):
            raise FileExistsError(
                f"{out} must not hold {source}, which this export is made from; move that, or choose another folder"
            )


@dataclass(frozen=True)
class Form:
    """Files around the objects in one form of export.

    Attributes
    ----------
    sources : str
        Folder of the C++ sources.
    parts : tuple of str
        Sources that have a template of their name.
    files : mapping of str to str or None
        Path, in which {name} is the extension's, and the template; None for an empty file.
    """

    sources: str
    parts: tuple[str, ...]
    files: Mapping[str, str | None]


def write_tree(
    form: Form,
    described: Extension,
    out: Path,
    *,
    op_context: Callable[[Op, Sequence[CompiledVariant]], Mapping[str, Any]],
    dtypes: Sequence[tuple[str, int, int]],
    overwrite: bool,
    progress: Callable[[str], None],
) -> Path:
    """Compile the kernels of an extension, and write a tree around them; return the folder.

    Parameters
    ----------
    form : Form
        Files to write.
    described : Extension
        The operations.
    out : Path
        The folder to write to.
    op_context : callable
        Gives the templates their names for an operation.
    dtypes : sequence of (str, int, int)
        Dtypes as the sources spell them, with DLPack's code and bits.
    overwrite, progress
        As `extension` and `c` take them.
    """
    with Tree(out, overwrite=overwrite, sources=described.sources) as tree:
        compiled = compile_variants(described, progress)
        ops = [op_context(op, compiled[op.name]) for op in described.ops]
        common = {
            "name": described.name,
            "version": described.version,
            "description": described.description,
            "arch": described.arch,
            "gpu": DEVICES[described.arch].family,
            "capability": DEVICES[described.arch].capability,
            "generated": f"Generated by cutepy {cutepy.__version__}.",
            "isa": max(item.isa for items in compiled.values() for item in items),
            **limits(described.ops, compiled),
            "served": SERVED,
            "driver_version": MINIMUM_DRIVER,
            "ops": ops,
            "dtypes": dtypes,
            "object_count": sum(map(len, compiled.values())),
        }
        for name in form.parts:
            tree.render(f"{form.sources}/{name}", f"{name}.jinja", common)
        for op in ops:
            tree.render(f"{form.sources}/{op['name']}_kernels.h", "kernels.h.jinja", {**common, "op": op})
        for path, template in form.files.items():
            file = path.format(name=described.name)
            if template is None:
                tree.write(file, b"")
            else:
                tree.render(file, template, common)
        tree.write_objects(compiled, described.arch)
        return tree.finish()


def test_cases(op: Op) -> list[list[Any]]:
    """Make arguments of the exported tests: for each set of forms and each choice of extents.

    A tensor is (dtype, shape, dimensions from that of the largest stride), a number or text itself.
    """
    forms: dict[tuple[Any, ...], Variant] = {}
    for variant in op.variants:
        forms.setdefault(op.key_of(variant), variant)
    cases: list[list[Any]] = []
    for variant in forms.values():
        for extents in op.test_extents or ({},):
            case = [_test_value(op, variant, name, extents) for name in op.parameters]
            if case not in cases:
                cases.append(case)
    return cases


def _test_value(op: Op, variant: Variant, name: str, extents: Mapping[str, int]) -> Any:  # noqa: ANN401
    if name in op.choices:
        return variant.choices.get(name)
    if name in op.numbers:
        value = op.test_numbers.get(name, 1)
        return {"int": int, "float": float, "bool": bool}[op.numbers[name]](value)
    spec = variant.tensors.get(name)
    if spec is None:
        return None
    shape = tuple(x if isinstance(x, int) else _extent(variant, x, extents) for x in spec.shape)
    return spec.dtype, shape, order_of(spec)[::-1]


def example_extents(op: Op, variant: Variant) -> dict[str, int]:
    """Return a value for each name of an extent, from the first test."""
    first = op.test_extents[0] if op.test_extents else {}
    return {name: _extent(variant, name, first) for spec in variant.tensors.values() for name in spec.names}


def _extent(variant: Variant, name: str, extents: Mapping[str, int]) -> int:
    divisor = variant.divisibility.get(name, 1)
    return math.ceil(extents.get(name, _DEFAULT_EXTENT) / divisor) * divisor
