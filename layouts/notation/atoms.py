"""Atoms by the names of C++ CuTe: MMAs, ldmatrix and stmatrix, copies of tensor memory, plain copies and cp.async."""

from __future__ import annotations

import re
from typing import Any, cast

from ..errors import LayoutError, ParseError

_MATRIX_COPY = re.compile(r"SM(75|90)_U(32|16)x([1248])_(LDSM|STSM)_(N|T)")
_VECTOR_COPY = re.compile(
    r"(UniversalCopy|SM80_CP_ASYNC_CACHE(?P<cache>ALWAYS|GLOBAL))<(?:cute::)?uint(?P<bits>\d+)_t>"
)
_ANY = re.compile(r"(?:SM\d+_\w*|UniversalCopy)(?:\s*<.*>?)?", re.IGNORECASE)
_WARP_MMA = re.compile(r"SM(80|89)_|SM90_16x8x")
_BLACKWELL = re.compile(r"SM100_(MMA|TMEM|UTCCP)_")


def names_atom(text: str) -> bool:
    """Return whether a text has the form of an atom's name, in any case.

    >>> names_atom("SM80_16x8x16_F32F16F16F32_TN"), names_atom("sm90_64x8x16"), names_atom("(4,8):(8,1)")
    (True, True, False)
    """
    return _ANY.fullmatch(text.strip()) is not None


def canonical(name: str) -> str:
    """Spell an atom's name as C++ CuTe does.

    >>> canonical("sm90_64X8x16_f32bf16bf16_ss"), canonical("universalcopy<UINT128_t>")
    ('SM90_64x8x16_F32BF16BF16_SS', 'UniversalCopy<uint128_t>')
    """
    head, bracket, argument = name.strip().partition("<")
    head = re.sub(r"(?<=\d)X(?=\d)", "x", head.upper())
    return ("UniversalCopy" if head == "UNIVERSALCOPY" else head) + bracket + argument.lower()


def atom_named(name: str) -> Any:  # noqa: ANN401 - MmaTraits or CopyTraits
    """Return the traits of the atom with this name.

    Parameters
    ----------
    name : str
        ``SM90_64x64x16_F16F16F16_SS``, ``SM80_16x8x16_F32F16F16F32_TN``, ``SM75_U32x4_LDSM_N``,
        ``UniversalCopy<uint128_t>``, ``SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>``, ``SM100_TMEM_LOAD_32dp32b8x``,
        ``SM100_MMA_F16BF16_SS<half_t,half_t,float,128,256,K,K>``, ...; in any case.

    Raises
    ------
    LayoutError
        If there is no such atom.

    Examples
    --------
    >>> atom_named("SM75_U16x8_LDSM_T").num_matrices
    4
    >>> print(atom_named("UniversalCopy<uint64_t>").src_layout)
    (1,64):(0,1)
    """
    # Loaded when a name is drawn: drawing a layout must not load the hardware's tables.
    from ..sm80.cp_async import cp_async
    from ..sm80.mma import mma_traits
    from ..sm90.copy_atom import universal_copy
    from ..sm90.stmatrix import ldmatrix_traits, stmatrix_traits
    from ..sm90.wgmma import wgmma_traits
    from ..sm100.atoms import traits_named

    name = canonical(name)
    if _BLACKWELL.match(name):
        return traits_named(name)
    if parts := _MATRIX_COPY.fullmatch(name):
        traits = ldmatrix_traits if parts[4] == "LDSM" else stmatrix_traits
        transpose = parts[5] == "T"
        return traits(int(parts[3]) // (2 if transpose else 1), transpose=transpose)
    if parts := _VECTOR_COPY.fullmatch(name):
        bits, cache = int(parts["bits"]), parts["cache"]
        return universal_copy(bits) if cache is None else cp_async(bits, cache=cast(Any, cache.lower()))
    return mma_traits(name) if _WARP_MMA.match(name) else wgmma_traits(name)


def atom_in(text: str) -> Any:  # noqa: ANN401 - MmaTraits or CopyTraits
    """Return the traits of the atom that a text names; raise a ParseError at the name if there is none."""
    try:
        return atom_named(text)
    except LayoutError as error:
        raise ParseError(text, len(text) - len(text.lstrip()), str(error)) from None
