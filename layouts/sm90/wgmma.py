"""Traits of every dense SM90 wgmma atom, by CuTe's names: shape, threads, and thread-value layouts of A, B and C.

References
----------
CuTe ``arch/mma_sm90_gmma.hpp``, ``arch/mma_sm90_gmma_ext.hpp``, ``atom/mma_traits_sm90_gmma.hpp``.
PTX ISA, "wgmma.mma_async" and "Register Fragments and Shared Memory Matrix Layouts".
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import NoReturn

from ..arguments import integer, text
from ..errors import LayoutError
from ..layout import Layout
from .arch import DTYPE_BITS, WARPGROUP_THREADS, WGMMA_M, Major
from .traits import MmaTraits, Operand, Source

_FLOAT8 = ("E4M3", "E5M2")
_INT8 = ("S8", "U8")
_DTYPES: dict[str, tuple[str, str, str]] = {
    d + a + b: (d, a, b)
    for d, a, b in [
        ("F16", "F16", "F16"),
        ("F32", "F16", "F16"),
        ("F32", "BF16", "BF16"),
        ("F32", "TF32", "TF32"),
        *((d, a, b) for d in ("F16", "F32") for a in _FLOAT8 for b in _FLOAT8),
        *(("S32", a, b) for a in _INT8 for b in _INT8),
    ]
}

_N = tuple(range(8, 257, 8))
_N_INTEGER = tuple(n for n in _N if n <= 32 or n % 16 == 0)
"""PTX: n of the integer wgmma is 8, 24, or a multiple of 16."""

_NAME = re.compile(
    r"SM90_(?P<m>0|[1-9][0-9]*)x(?P<n>0|[1-9][0-9]*)x(?P<k>0|[1-9][0-9]*)_(?P<dtypes>[A-Z0-9]+)_(?P<source>[A-Z]+)(?P<tn>_TN)?(?P<saturate>_SATURATE)?"
)


@dataclass(frozen=True)
class WgmmaTraits(MmaTraits):
    """CuTe's ``MMA_Traits`` of one wgmma instruction.

    Parameters
    ----------
    name : str
        CuTe's name of the atom.
    shape_mnk : (int, int, int)
        Extents of the MMA.
    thr_id : Layout
        Index within the warpgroup -> thread.
    a_layout, b_layout, c_layout : Layout
        (thread, value) -> colexicographic index in (M, K), (N, K), (M, N). An operand in shared memory is seen whole
        by all threads: their mode has stride 0.
    a_dtype, b_dtype, c_dtype : str
        Element types by PTX's names; C and D are one tensor.
    a_source : "smem" or "rmem"
        SS or RS: where A comes from. B always comes from shared memory.
    a_majors, b_majors : tuple of str
        Majors that the hardware takes: MN only for 16-bit elements in shared memory.
    saturate : bool
        Integer results are clamped to s32.
    """

    a_source: Source
    a_majors: tuple[Major, ...]
    b_majors: tuple[Major, ...]
    saturate: bool

    def source(self, operand: Operand) -> Source:
        """Return an operand's source: shared memory for B, registers for C, either for A."""
        return {"A": self.a_source, "B": "smem", "C": "rmem"}[operand]

    @property
    def ptx(self) -> str:
        """PTX instruction of the atom.

        Examples
        --------
        >>> wgmma_traits("SM90_64x64x16_F16F16F16_SS").ptx
        'wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16'
        """
        m, n, k = self.shape_mnk
        saturate = ".satfinite" if self.saturate else ""
        return f"wgmma.mma_async.sync.aligned.m{m}n{n}k{k}{saturate}.{self.c_dtype}.{self.a_dtype}.{self.b_dtype}"


def wgmma_traits(name: str) -> WgmmaTraits:
    """Return the traits of a dense wgmma atom by CuTe's name.

    Names read ``SM90_64xNxK_DAB_SS`` or ``..._RS``: N = 8, 16 ... 256; K of 32 bytes; D, A, B the element types of
    accumulator and operands; SS or RS: A in shared memory or registers. Types that must be K-major, all but the
    16-bit ones, end in ``_TN``; integer ones may end in ``_TN_SATURATE``.

    Parameters
    ----------
    name : str
        For example ``"SM90_64x128x16_F32F16F16_SS"``.

    Raises
    ------
    LayoutError
        If there is no such atom: the message names the wrong part and the nearest atom.

    Examples
    --------
    >>> traits = wgmma_traits("SM90_64x128x32_F32E4M3E4M3_RS_TN")
    >>> print(traits.shape_mnk, traits.a_layout)
    (64, 128, 32) ((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))
    >>> traits.b_majors
    ('K',)
    """
    parts = _NAME.fullmatch(text("wgmma_traits", "name", name))
    if parts is None:
        _reject(name, "not of the form SM90_64xNxK_DAB_SS, with _RS for A in registers", _nearest_name(name))
    dtypes = parts["dtypes"]
    if dtypes not in _DTYPES:
        known = ", ".join(_DTYPES)
        _reject(name, f"no wgmma has types {dtypes}: known are {known}", f"nearest is {_nearest_dtypes(dtypes)}")
    d, a, b = _DTYPES[dtypes]
    bits = DTYPE_BITS[a.lower()]
    n, k = int(parts["n"]), 256 // bits
    if int(parts["m"]) != WGMMA_M:
        _reject(name, f"M of wgmma is {WGMMA_M}, got {parts['m']}", "tile M with TiledMMA's atom_layout_mnk")
    if int(parts["k"]) != k:
        _reject(name, f"K of a wgmma with {a} operands is {k} (32 bytes), got {parts['k']}", f"nearest is K = {k}")
    choices = _N_INTEGER if d == "S32" else _N
    if n not in choices:
        near_n = min(choices, key=lambda choice: (abs(choice - n), choice))
        what = "8, 16, 24, 32 or a multiple of 16 up to 256" if d == "S32" else "a multiple of 8 from 8 to 256"
        _reject(name, f"N must be {what}, got {n}", f"nearest is N = {near_n}")
    if parts["source"] not in ("SS", "RS"):
        _reject(
            name, f"A comes from shared memory (SS) or registers (RS), got {parts['source']}; B never from registers"
        )
    if bool(parts["tn"]) != (bits != 16):
        rule = (
            "16-bit types take either major and bear no _TN"
            if bits == 16
            else f"{a} operands are K-major only: the name ends in _TN"
        )
        _reject(name, rule)
    if parts["saturate"] and d != "S32":
        _reject(name, "_SATURATE is for integer accumulators only")
    from_registers = parts["source"] == "RS"
    both: tuple[Major, ...] = ("MN", "K") if bits == 16 else ("K",)
    return WgmmaTraits(
        name,
        (WGMMA_M, n, k),
        Layout(WARPGROUP_THREADS, 1),
        _register_layout_a(bits) if from_registers else _shared_layout(WGMMA_M, k),
        _shared_layout(n, k),
        accumulator_layout(n),
        a.lower(),
        b.lower(),
        d.lower(),
        "rmem" if from_registers else "smem",
        ("K",) if from_registers else both,
        both,
        bool(parts["saturate"]),
    )


def wgmma_names() -> list[str]:
    """Return the name of every dense wgmma atom.

    Examples
    --------
    >>> len(wgmma_names()), wgmma_names()[0]
    (1056, 'SM90_64x8x16_F16F16F16_SS')
    """
    names = []
    for dtypes, (d, a, _) in _DTYPES.items():
        bits = DTYPE_BITS[a.lower()]
        suffixes = [""] if bits == 16 else ["_TN", "_TN_SATURATE"] if d == "S32" else ["_TN"]
        names += [
            f"SM90_{WGMMA_M}x{n}x{256 // bits}_{dtypes}_{source}{suffix}"
            for n in (_N_INTEGER if d == "S32" else _N)
            for source in ("SS", "RS")
            for suffix in suffixes
        ]
    return names


def accumulator_layout(n: int) -> Layout:
    """Return the accumulator's layout: (thread, value) -> colexicographic index in (64, n).

    A warp owns 16 rows; a thread a pair of neighbours in each 8x8 block: its row is ``lane // 4``, its columns are
    ``2 * (lane % 4)`` and the next.

    Raises
    ------
    LayoutError
        If n is not a multiple of 8 from 8 to 256.

    Examples
    --------
    >>> print(accumulator_layout(128))
    ((4,8,4),(2,2,16)):((128,1,16),(64,8,512))
    """
    n = integer("accumulator_layout", "n", n)
    if n not in _N:
        raise LayoutError("accumulator_layout", (n,), f"n must be a multiple of 8 from 8 to 256, got {n}")
    return Layout(((4, 8, 4), (2, 2, n // 8)), ((2 * WGMMA_M, 1, 16), (WGMMA_M, 8, 8 * WGMMA_M)))


def _register_layout_a(bits: int) -> Layout:
    """Return the layout of A in registers: the accumulator's, with 32 bits of K where that has two columns."""
    if bits == 32:
        return Layout(((4, 8, 4), (2, 2)), ((WGMMA_M, 1, 16), (8, 4 * WGMMA_M)))
    pack = 32 // bits
    return Layout(((4, 8, 4), (pack, 2, 2)), ((pack * WGMMA_M, 1, 16), (WGMMA_M, 8, 4 * pack * WGMMA_M)))


def _shared_layout(mn: int, k: int) -> Layout:
    """Return the layout of an operand in shared memory: every thread sees the whole tile."""
    return Layout((WARPGROUP_THREADS, (mn, k)), (0, (1, mn)))


def _nearest_dtypes(dtypes: str) -> str:
    """Return the known triple with most types in the same places, or else the one with the most similar spelling."""
    types = re.findall(r"BF16|TF32|F16|F32|S32|E4M3|E5M2|S8|U8", dtypes)
    if "".join(types) == dtypes and len(types) == 3:
        return max(_DTYPES, key=lambda known: sum(map(str.__eq__, _DTYPES[known], types)))
    return difflib.get_close_matches(dtypes, _DTYPES, n=1, cutoff=0)[0]


def _nearest_name(name: str) -> str:
    near = difflib.get_close_matches(name, wgmma_names(), n=1)
    return f"nearest is {near[0]}" if near else ""


def _reject(name: str, condition: str, hint: str = "") -> NoReturn:
    raise LayoutError("wgmma_traits", (name,), condition, hint)
