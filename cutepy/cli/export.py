"""`cutepy export`: write the sources of a PyTorch extension or a C library around kernels compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutepy.cli.commands import Commands
from cutepy.cli.failure import fail_by

if TYPE_CHECKING:
    from cutepy.aot import Extension

app = typer.Typer(
    cls=Commands,
    help="Write the sources of a PyTorch extension or a C library that needs no DSL.",
    no_args_is_help=True,
)

_Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="Export: gemm, attention, or MODULE:NAME or FILE.py:NAME of a cutepy.aot.Extension of your own.",
    ),
]
_Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace the folder, if an export wrote it.")]
_Name = Annotated[
    str | None,
    typer.Option(help="For gemm and attention: name of the package. Default: cutepy_gemm, cutepy_attention."),
]
_Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        help="For gemm, of A and B, and attention; may be given again. Default: float16 and bfloat16; bfloat16.",
    ),
]
_Majors = Annotated[
    list[str] | None,
    typer.Option(help="For gemm: contiguous extents of A and B, kk, kn, mk or mn; may be given again. Default: kk."),
]
_OutDtype = Annotated[str | None, typer.Option(help="For gemm: of the result. Default: that of A.")]
_C = Annotated[bool, typer.Option("--c", help="For gemm: with a matrix C that is added, where callers pass it.")]
_Bias = Annotated[bool, typer.Option("--bias", help="For gemm: with a bias, where callers pass it.")]
_Activations = Annotated[
    list[str] | None,
    typer.Option("--activation", help="For gemm: relu, gelu, gelu_tanh or silu to ask for; may be given again."),
]
_Batches = Annotated[
    list[int] | None,
    typer.Option("--batch", help="For gemm: dimensions of a batch, 0 to 3; may be given again. Default: 0."),
]
_Heads = Annotated[
    list[int] | None,
    typer.Option("--head", help="For attention: extents of a row; may be given again. Default: 64 and 128."),
]
_Backward = Annotated[bool, typer.Option("--backward", help="For attention: its gradients too.")]
_Tiles = Annotated[
    list[str] | None, typer.Option("--tile", help="For gemm: such as 128x256; may be given again. Default: all.")
]
_Arch = Annotated[
    str | None,
    typer.Option(
        metavar="sm_90a|sm_100a|sm_103a|sm_120a",
        help="The GPU: an H200, a B200, a B300 or an RTX 5090. Default: what the description says, or sm_90a.",
    ),
]


_OPTIONS = {
    "name": "name",
    "dtypes": "dtype",
    "majors": "majors",
    "out_dtype": "out-dtype",
    "c": "c",
    "bias": "bias",
    "activations": "activation",
    "batch_modes": "batch",
    "tiles": "tile",
    "heads": "head",
    "backward": "backward",
}
"""Options of the families' functions, and of the command line."""
_FORMS = {
    "extension": "Write a PyTorch extension, which builds with pip where torch and CUDA's headers are.",
    "c": "Write a C library, with a CMake file and an example.",
}


def _exporter(form: str) -> Callable[..., None]:
    """Make the command of one form of export: the functions of `cutepy.aot` have its name."""

    def export(
        spec: _Spec,
        out: _Out,
        name: _Name = None,
        dtype: _Dtypes = None,
        majors: _Majors = None,
        out_dtype: _OutDtype = None,
        c: _C = False,
        bias: _Bias = False,
        activation: _Activations = None,
        batch: _Batches = None,
        tile: _Tiles = None,
        head: _Heads = None,
        backward: _Backward = False,
        arch: _Arch = None,
        force: _Force = False,
    ) -> None:
        from cutepy import aot
        from cutepy.aot.tree import EarlierExportError

        chosen = {
            "name": name,
            "dtypes": dtype,
            "majors": majors,
            "out_dtype": out_dtype,
            "c": c,
            "bias": bias,
            "activations": activation,
            "batch_modes": batch,
            "tiles": tile,
            "heads": head,
            "backward": backward,
        }
        try:
            described = _describe(spec, {option: value for option, value in chosen.items() if value}, arch)
            folder = getattr(aot, form)(
                described, out, overwrite=force, progress=lambda line: typer.echo(line, err=True)
            )
        except EarlierExportError as error:
            fail_by(EarlierExportError(error.folder, "--force"))
        except (ValueError, TypeError, OSError, ImportError) as error:
            fail_by(error)
        typer.echo(f"wrote {folder}; its README.md says how to build it")

    return export


for _form, _help in _FORMS.items():
    app.command(_form, help=_help)(_exporter(_form))


def _describe(spec: str, chosen: Mapping[str, Any], arch: str | None) -> Extension:
    """Import a description, or describe a family by the options, whose kernels are for Hopper."""
    from cutepy import aot
    from cutepy.runtime.program import HOPPER

    families: dict[str, Callable[..., Any]] = {"gemm": aot.gemm_extension, "attention": aot.attention_extension}
    takes = {family: signature(function).parameters for family, function in families.items()}
    if others := [option for option in chosen if option not in takes.get(spec, ())]:
        names = ", ".join(f"--{_OPTIONS[option]}" for option in others)
        of = [family for family, options in takes.items() if all(option in options for option in others)]
        raise ValueError(f"{names} are for {' and '.join(of) or 'other families'}; {spec} says such things itself")
    if spec in families and arch not in (None, HOPPER):
        raise ValueError(
            f"{spec} is for Hopper ({HOPPER}), got --arch {arch}; export a cutepy.aot.Extension of your own"
        )
    if spec == "attention":
        return aot.attention_extension(**chosen)
    if spec != "gemm":
        described = aot.load(spec)
        return described if arch is None else replace(described, arch=arch)
    tiles = {"tiles": list(map(_tile, chosen["tiles"]))} if "tiles" in chosen else {}
    return aot.gemm_extension(**{**chosen, **tiles})


def _tile(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise ValueError(f"--tile must be such as 128x256, got {text!r}")
    return int(rows), int(columns)
