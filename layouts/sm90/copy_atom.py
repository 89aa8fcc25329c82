"""Copy atoms: a copy instruction and the elements that it moves.

References
----------
CuTe ``atom/copy_atom.hpp``, ``Copy_Atom``; ``atom/copy_traits.hpp``, ``UniversalCopy``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import integer, wrong_type
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Picture
from ..layout import Layout
from ..modes import rank, size
from .gmma import check_bits
from .traits import CopyTraits

VECTOR_BITS = (8, 16, 32, 64, 128)
"""Widths of a single thread's copy instruction."""


@dataclass(frozen=True)
class CopyAtom(Drawable):
    """One copy instruction on elements of one width, with the thread-value layouts of both sides.

    Parameters
    ----------
    name : str
        Name of the operation, CuTe's where it has one.
    bits : int
        Width of an element.
    thr_id : Layout
        Index within the threads that issue it together -> thread.
    src_layout, dst_layout : Layout
        (thread, value) -> element, of the side that is read and the side that is written; their order is arbitrary.
    ref_layout : Layout
        The one of them after which a `TiledCopy` is laid out: the registers'.

    Raises
    ------
    LayoutError
        If a layout is not one of (thread, value) for the threads of `thr_id`.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import ldmatrix_traits
    >>> atom = make_copy_atom(ldmatrix_traits(4), 16)
    >>> print(atom.src_layout, atom.dst_layout)
    (32,8):(8,1) (32,(2,4)):(2,(1,64))
    """

    name: str
    bits: int
    thr_id: Layout
    src_layout: Layout
    dst_layout: Layout
    ref_layout: Layout

    def __post_init__(self) -> None:
        check_bits("CopyAtom", (self.name, self.bits), self.bits)
        threads = self.thr_id.size()
        for name in ("src_layout", "dst_layout", "ref_layout"):
            layout = getattr(self, name)
            if not isinstance(layout, Layout):
                raise wrong_type("CopyAtom", name, "a Layout", layout)
            if rank(layout) != 2 or size(layout, 0) != threads:
                raise LayoutError(
                    "CopyAtom",
                    (self.name, layout),
                    f"{name} must be of (thread, value), with the {threads} threads of thr_id; got {layout}",
                )

    def __str__(self) -> str:
        return f"CopyAtom({self.name}, {self.bits})"

    def _picture_(self) -> Picture:
        """Draw the elements that each thread reads and writes."""
        from .copy_pictures import copy_picture

        return copy_picture(self, self.bits)

    @property
    def num_val_src(self) -> int:
        """Values that a thread has on the side that is read."""
        return size(self.src_layout, 1)

    @property
    def num_val_dst(self) -> int:
        """Values that a thread has on the side that is written."""
        return size(self.dst_layout, 1)


def make_copy_atom(traits: CopyTraits, bits: int) -> CopyAtom:
    """Make a copy atom: an instruction, and the width of the elements that it moves.

    Parameters
    ----------
    traits : CopyTraits
        From `ldmatrix_traits`, `stmatrix_traits`, `universal_copy`, or `cutepy.layouts.sm80.cp_async`.
    bits : int
        Width of an element: CuTe's ``ValType``, the DSL's ``copy_internal_type``.

    Raises
    ------
    LayoutError
        If the instruction moves no whole number of such elements a thread.

    Examples
    --------
    >>> print(make_copy_atom(universal_copy(128), 16).src_layout)
    (1,8):(0,1)
    >>> make_copy_atom(universal_copy(8), 16)
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.LayoutError: make_copy_atom('UniversalCopy<uint8_t>', 16): a thread's 8 bits hold no whole \
number of elements of 16 bits
    """
    if not isinstance(traits, CopyTraits):
        raise TypeError(
            f"{wrong_type('make_copy_atom', 'traits', 'a CopyTraits', traits)}; take them from universal_copy, "
            "ldmatrix_traits or stmatrix_traits"
        )
    check_bits("make_copy_atom", (traits.name, bits), bits)
    held = size(traits.ref_layout, 1)
    if held % bits:
        raise LayoutError(
            "make_copy_atom",
            (traits.name, bits),
            f"a thread's {held} bits hold no whole number of elements of {bits} bits",
        )
    found = traits.in_elements(bits)
    return CopyAtom(traits.name, bits, traits.thr_id, found.src_layout, found.dst_layout, found.ref_layout)


def universal_copy(copy_bits: int) -> CopyTraits:
    """Return the traits of a plain load and store of one thread: CuTe's ``UniversalCopy<uint_bit_t<copy_bits>>``.

    Parameters
    ----------
    copy_bits : int
        8, 16, 32, 64 or 128: the vector that one instruction moves.

    Raises
    ------
    LayoutError
        If the width is another.

    Examples
    --------
    >>> universal_copy(128).name
    'UniversalCopy<uint128_t>'
    """
    return one_thread_copy("universal_copy", "UniversalCopy", copy_bits, VECTOR_BITS)


def one_thread_copy(operation: str, name: str, copy_bits: int, choices: tuple[int, ...]) -> CopyTraits:
    """Return the traits of an instruction that moves a vector for one thread."""
    copy_bits = integer(operation, "copy_bits", copy_bits)
    if copy_bits not in choices:
        raise LayoutError(
            operation, (copy_bits,), f"copy_bits must be one of {', '.join(map(str, choices))}, got {copy_bits}"
        )
    vector = Layout((1, copy_bits))
    return CopyTraits(f"{name}<uint{copy_bits}_t>", Layout(1), vector, vector, vector)
