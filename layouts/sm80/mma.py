"""Traits of a warp's mma atoms, by CuTe's names: shape, threads, and thread-value layouts of A, B and C.

References
----------
CuTe ``arch/mma_sm80.hpp``, ``mma_sm89.hpp``, ``mma_sm90.hpp`` and the traits of each in ``atom/``.
PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64 floating point type" to "... for mma.m16n8k32".
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from ..arguments import text
from ..errors import LayoutError
from ..hardware import WARP_THREADS
from ..layout import Layout
from ..sm90.arch import DTYPE_BITS
from ..sm90.traits import MmaTraits


@dataclass(frozen=True)
class WarpMmaTraits(MmaTraits):
    """CuTe's ``MMA_Traits`` of one instruction of a warp; fields as of `MmaTraits`.

    Parameters
    ----------
    saturate : bool
        Integer results are clamped to s32.
    """

    saturate: bool = False

    @property
    def ptx(self) -> str:
        """PTX instruction of the atom.

        Examples
        --------
        >>> mma_traits("SM80_16x8x32_S32S8U8S32_TN_SATURATE").ptx
        'mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32'
        """
        m, n, k = self.shape_mnk
        saturate = ".satfinite" if self.saturate else ""
        types = f"{self.c_dtype}.{self.a_dtype}.{self.b_dtype}.{self.c_dtype}"
        return f"mma.sync.aligned.m{m}n{n}k{k}.row.col{saturate}.{types}"


_8x8, _16x8 = (8, 8), (16, 8)
_INT8, _FLOAT8 = ("S8", "U8"), ("E4M3", "E5M2")

# (architecture, accumulator, A, B) -> the shapes (M, N, K) that CuTe has
_SHAPES: dict[tuple[str, str, str, str], tuple[tuple[int, int, int], ...]] = {
    ("SM80", "F16", "F16", "F16"): ((*_16x8, 8), (*_16x8, 16)),
    ("SM80", "F32", "F16", "F16"): ((*_16x8, 8), (*_16x8, 16)),
    ("SM80", "F32", "BF16", "BF16"): ((*_16x8, 8), (*_16x8, 16)),
    ("SM80", "F32", "TF32", "TF32"): ((*_16x8, 4), (*_16x8, 8)),
    ("SM80", "F64", "F64", "F64"): ((*_8x8, 4),),
    **{("SM80", "S32", a, b): ((*_8x8, 16), (*_16x8, 16), (*_16x8, 32)) for a in _INT8 for b in _INT8},
    **{("SM89", d, a, b): ((*_16x8, 32),) for d in ("F32", "F16") for a in _FLOAT8 for b in _FLOAT8},
    ("SM90", "F64", "F64", "F64"): ((*_16x8, 4), (*_16x8, 8), (*_16x8, 16)),
}

_NAMES: dict[str, tuple[tuple[int, int, int], tuple[str, str, str]]] = {
    f"{arch}_{m}x{n}x{k}_{d}{a}{b}{d}_TN{saturate}": ((m, n, k), (d, a, b))
    for (arch, d, a, b), shapes in _SHAPES.items()
    for m, n, k in shapes
    for saturate in (("", "_SATURATE") if d == "S32" else ("",))
}


def mma_traits(name: str) -> WarpMmaTraits:
    """Return the traits of a warp's mma atom by CuTe's name.

    Names read ``SM80_16x8xK_DABC_TN``: M, N and K; the element types of D, A, B and C, of which D's and C's are one;
    integer ones may end in ``_SATURATE``. The 8-bit floats came with SM89, other shapes of f64 with SM90.

    Parameters
    ----------
    name : str
        For example ``"SM80_16x8x16_F32F16F16F32_TN"``.

    Raises
    ------
    LayoutError
        If there is no such atom: the message says which is nearest.

    Examples
    --------
    >>> traits = mma_traits("SM80_16x8x16_F32F16F16F32_TN")
    >>> print(traits.shape_mnk, traits.a_layout)
    (16, 8, 16) ((4,8),(2,2,2)):((32,1),(16,8,128))
    >>> print(traits.b_layout, traits.c_layout)
    ((4,8),(2,2)):((16,1),(8,64)) ((4,8),(2,2)):((32,1),(16,8))
    """
    if text("mma_traits", "name", name) not in _NAMES:
        near = difflib.get_close_matches(re.sub(r"_[NT]{2}\b", "_TN", name.upper()), _NAMES, n=1, cutoff=0)
        raise LayoutError("mma_traits", (name,), "no warp's mma of CuTe has this name", f"nearest is {near[0]}")
    (m, n, k), (d, a, b) = _NAMES[name]
    return WarpMmaTraits(
        name,
        (m, n, k),
        Layout(WARP_THREADS),
        fragment_layout(m, k, _packed(a)),
        fragment_layout(n, k, _packed(b)),
        fragment_layout(m, n, 2),
        a.lower(),
        b.lower(),
        d.lower(),
        name.endswith("_SATURATE"),
    )


def mma_names() -> list[str]:
    """Return the name of every warp's mma atom known.

    Examples
    --------
    >>> len(mma_names()), mma_names()[0]
    (44, 'SM80_16x8x8_F16F16F16F16_TN')
    """
    return list(_NAMES)


def fragment_layout(rows: int, columns: int, packed: int) -> Layout:
    """Return (thread, value) -> colexicographic index in a fragment of (rows, columns).

    Eight groups of four lanes hold a row each, a lane `packed` neighbours of it; then the rows 8 further down, then
    the columns to the right.

    Examples
    --------
    >>> print(fragment_layout(16, 8, 2))
    ((4,8),(2,2)):((32,1),(16,8))
    """
    modes = ((packed, rows), (rows // 8, 8), (columns // (4 * packed), 4 * packed * rows))
    shape = tuple(extent for extent, _ in modes if extent > 1)
    stride = tuple(step for extent, step in modes if extent > 1)
    values = (shape, stride) if len(shape) > 1 else (shape[0], stride[0]) if shape else (1, 0)
    return Layout(((4, 8), values[0]), ((packed * rows, 1), values[1]))


def _packed(dtype: str) -> int:
    """Return the neighbours of a row in a 32-bit register; an f64 takes two registers."""
    return max(1, 32 // DTYPE_BITS[dtype.lower()])
