"""Compilation of exported kernels to object files, each with one symbol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutepy.aot.names import SpecError
from cutepy.aot.spec import Extension, Op
from cutepy.aot.variant import Variant
from cutepy.dsl.program import compile_program
from cutepy.host.arguments import nonempty
from cutepy.host.examples import classes, to_dsl
from cutepy.runtime.host_abi import FUNCTIONS, is_host_function
from cutepy.runtime.objects import undefined_symbols
from cutepy.runtime.ptx_text import version_of

SERVED = {name: function for name, function in FUNCTIONS.items() if function.exported}
"""Functions that `templates/runtime.cpp.jinja` defines for compiled host code."""


@dataclass(frozen=True)
class CompiledVariant:
    """Variant with its object file.

    Attributes
    ----------
    variant : Variant
    symbol : str
        Its entry, in TVM-FFI's packed convention; also the stem of the object's file.
    image : bytes
        The object.
    parameters : tuple of str
        Parameters of the entry in order, by the function's names.
    isa : tuple of (int, int)
        The version of PTX that its kernels were compiled from.
    """

    variant: Variant
    symbol: str
    image: bytes
    parameters: tuple[str, ...]
    isa: tuple[int, int]


def compile_variants(
    extension: Extension, progress: Callable[[str], None] = lambda line: None
) -> dict[str, list[CompiledVariant]]:
    """Compile every variant for the architecture of an extension; needs no GPU.

    Parameters
    ----------
    extension : Extension
    progress : callable
        Receives a line before each compilation.

    Returns
    -------
    dict of str to list of CompiledVariant
        The variants of each operation, by its name.

    Raises
    ------
    SpecError
        If the DSL does not compile a kernel, or its host code needs a function that exported libraries do not have.
    """
    _check_symbols(extension)
    total, done = sum(len(op.variants) for op in extension.ops), 0
    compiled: dict[str, list[CompiledVariant]] = {}
    for op in extension.ops:
        compiled[op.name] = []
        for n, variant in enumerate(op.variants):
            done += 1
            symbol = _symbol(extension, op, n)
            progress(f"{done} of {total}: {symbol}")
            compiled[op.name].append(_compile(op, variant, symbol, extension.arch))
    return compiled


def _check_symbols(extension: Extension) -> None:
    """Refuse labels that give two kernels, or a kernel and a C function, the same symbol."""
    symbols = [f"{extension.name}_{op.name}" for op in extension.ops]
    symbols += [_symbol(extension, op, n) for op in extension.ops for n in range(len(op.variants))]
    if doubled := {symbol for symbol in symbols if symbols.count(symbol) > 1}:
        raise SpecError(f"labels of variants must differ, got {', '.join(sorted(doubled))} twice")


def _symbol(extension: Extension, op: Op, n: int) -> str:
    return f"{extension.name}_{op.name}_{op.variants[n].label or n}"


def _compile(op: Op, variant: Variant, symbol: str, arch: str) -> CompiledVariant:
    positional, named = to_dsl(variant.examples)
    try:
        program = compile_program(
            variant.function,
            positional,
            named,
            arch=arch,
            classes=classes(variant.examples),
            options=variant.options,
            nonempty=nonempty(variant.parameters),
            symbol=symbol,
            line_info=False,
        )
    except Exception as error:
        options = f" with the options {variant.options!r}" if variant.options else ""
        raise SpecError(f"{op.name}: the DSL can't compile {symbol}{options}: {_in_short(error)}") from error
    needed = [name for name in undefined_symbols(program.object) if is_host_function(name)]
    if missing := set(needed) - SERVED.keys():
        raise SpecError(
            f"{op.name}: the host code of {symbol} calls {', '.join(sorted(missing))}, which exported libraries do "
            f"not have; they serve {', '.join(sorted(SERVED))}"
        )
    return CompiledVariant(variant, symbol, program.object, program.parameters, version_of(program.ptx))


def _in_short(error: Exception) -> str:
    """Shorten an error of the DSL's: cause and remedy, without source excerpt and colours."""
    parts = [
        getattr(error, "message", "") or str(error) or type(error).__name__,
        *(getattr(error, "suggestion", ()) or ()),
    ]
    return " ".join(" ".join(map(str, parts)).split())
