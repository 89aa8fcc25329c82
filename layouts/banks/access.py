"""WarpAccess: the elements of a tile that each lane of a warp accesses with one instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

from ..arguments import one_of
from ..errors import LayoutError
from ..hardware import CORE_MATRIX_ROWS, UNIT_BITS, WARP_THREADS, Major
from ..int_tuple import IntTuple
from ..modes import LayoutBase, rank, size
from ..sm90.arch import DTYPE_BITS
from ..sm90.gmma import check_bits, check_major
from ..sm90.tma import TmaCopy
from .rule import KINDS, Kind

Where = Callable[[int], Any] | Iterable[Any]
"""Lane -> coordinate, or None for a lane that is off: a layout, another callable, or a list."""

_ROWS = {"ldmatrix": (8, 16, 32), "stmatrix": (8, 16, 32), "wgmma": (8,), "tma": (8,)}


@dataclass(frozen=True)
class WarpAccess:
    """One instruction of one warp on a tile in shared memory: lane -> the elements that it reads or writes.

    `warp_access`, `tv_accesses`, `wgmma_accesses` and `tma_accesses` make them.

    Parameters
    ----------
    kind : "ld", "st", "atom", "cas", "ldmatrix", "stmatrix", "wgmma" or "tma"
    elements : tuple
        For each lane the coordinates of its elements, in order of memory, or None for a lane that is off. A coordinate
        is what the tile's layout takes: a (nested) tuple, or an integer, which counts colexicographically. Of
        ldmatrix and stmatrix each entry is a row of a matrix: 8, 16 or 32 of them for x1, x2 and x4.

    Raises
    ------
    LayoutError
        If the kind is unknown, there are too many lanes or not whole matrices, or lanes have different numbers of
        elements.

    Examples
    --------
    >>> WarpAccess("st", (((0, 0), (0, 1)), None, ((1, 0), (1, 1)))).vector
    2
    """

    kind: Kind
    elements: tuple[tuple[IntTuple, ...] | None, ...]

    def __post_init__(self) -> None:
        one_of("WarpAccess", (self.kind,), "kind", self.kind, KINDS)
        if len(self.elements) > WARP_THREADS:
            raise LayoutError(
                "WarpAccess",
                (self.kind,),
                f"a warp has {WARP_THREADS} lanes, got {len(self.elements)}",
                "give one warp's, or take tv_accesses of a thread-value layout",
            )
        if self.kind in _ROWS and len(self.elements) not in _ROWS[self.kind]:
            choices = " or ".join(map(str, _ROWS[self.kind]))
            raise LayoutError(
                "WarpAccess",
                (self.kind,),
                f"need {choices} rows, eight for each matrix, got {len(self.elements)}",
                "each entry is a row of 16 bytes; of ldmatrix.x1 and .x2 the other lanes' addresses are not used",
            )
        vectors = sorted({len(elements) for elements in self.elements if elements is not None})
        if len(vectors) != 1 or vectors[0] == 0:
            found = " and ".join(map(str, vectors)) or "no active lane"
            raise LayoutError(
                "WarpAccess", (self.kind,), f"active lanes must touch equally many elements, 1 or more, got {found}"
            )

    @property
    def vector(self) -> int:
        """Elements of each lane."""
        return next(len(elements) for elements in self.elements if elements is not None)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The active lanes."""
        return tuple(lane for lane, elements in enumerate(self.elements) if elements is not None)


def warp_access(kind: Kind, where: Where, *, vector: int = 1, along: int | None = None) -> WarpAccess:
    """Return the access of a warp whose lanes access `vector` elements each, from the coordinates `where` on.

    Parameters
    ----------
    kind : "ld", "st", "atom", "cas", "ldmatrix" or "stmatrix"
    where : layout, callable or iterable
        Lane -> coordinate of the lane's first element, or None for a lane that is off. A layout's size is the number of
        lanes; another callable is asked for all 32. For an access by offsets, let the tile be ``Layout(n)``.
    vector : int
        Elements of each lane, contiguous in memory: 4 for a ``float4``, 8 for a row of ldmatrix with 16-bit elements.
    along : int, optional
        The mode of the tile along which they run. Needed with a vector of tuple coordinates.

    Raises
    ------
    LayoutError
        If there are more than 32 lanes, or `along` is no mode of the coordinates.

    Examples
    --------
    >>> column = warp_access("ld", lambda lane: (lane, 0))
    >>> column.elements[:2]
    (((0, 0),), ((1, 0),))
    >>> rows = warp_access("ldmatrix", lambda lane: (lane % 16, lane // 16 * 8), vector=8, along=1)
    >>> rows.elements[17][:2]
    ((1, 8), (1, 9))
    """
    if vector.__class__ is not int or vector < 1:
        raise LayoutError("warp_access", (kind,), f"vector must be a positive int, got {vector!r}")
    starts = _starts(kind, where)
    return WarpAccess(kind, tuple(None if c is None else tuple(_run(kind, c, vector, along)) for c in starts))


def _starts(kind: Kind, where: Where) -> list[Any]:
    if isinstance(where, LayoutBase):
        if where.size() > WARP_THREADS:
            raise LayoutError(
                "warp_access",
                (kind, where),
                f"a warp has {WARP_THREADS} lanes, got {where.size()}",
                "take tv_accesses of a thread-value layout",
            )
        return [where(lane) for lane in range(where.size())]
    if callable(where):
        return [where(lane) for lane in range(WARP_THREADS)]
    return list(where)


def _run(kind: Kind, start: IntTuple, vector: int, along: int | None) -> Iterator[IntTuple]:
    """Step from a coordinate along a mode."""
    if vector == 1:
        yield start
        return
    if isinstance(start, int):
        yield from range(start, start + vector)
        return
    if along is None or not 0 <= along < len(start) or not isinstance(start[along], int):
        raise LayoutError(
            "warp_access",
            (kind, start),
            f"along must name the mode along which the {vector} elements of a lane run, got {along!r}",
            f"it is an integer mode of the coordinate: 0 to {len(start) - 1}",
        )
    for i in range(vector):
        yield (*start[:along], start[along] + i, *start[along + 1 :])


def tv_accesses(kind: Kind, tv: Any, *, vector: int = 1) -> tuple[WarpAccess, ...]:  # noqa: ANN401 - any layout
    """Return the accesses of a thread-value layout: for each warp, one for every `vector` values.

    Parameters
    ----------
    kind : "ld", "st", "atom" or "cas"
    tv : Layout or ComposedLayout
        (thread, value) -> coordinate in the tile, or its colexicographic index.
    vector : int
        Values that one instruction moves.

    Raises
    ------
    LayoutError
        If the layout has not rank 2, or its values are no whole number of vectors.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> rows = tv_accesses("ld", Layout((64, 4), (4, 1)), vector=4)
    >>> len(rows), rows[1].elements[0]
    (2, (128, 129, 130, 131))
    """
    if not isinstance(tv, LayoutBase) or rank(tv) != 2:
        raise LayoutError("tv_accesses", (kind, tv), "need a layout of rank 2, (thread, value)")
    threads, values = size(tv, 0), size(tv, 1)
    if vector < 1 or values % vector:
        raise LayoutError("tv_accesses", (kind, tv), f"{values} values are no whole number of vectors of {vector}")
    return tuple(
        WarpAccess(
            kind,
            tuple(
                tuple(tv(thread, value + i) for i in range(vector))
                for thread in range(warp, min(warp + WARP_THREADS, threads))
            ),
        )
        for warp in range(0, threads, WARP_THREADS)
        for value in range(0, values, vector)
    )


def wgmma_accesses(shape_mn_k: tuple[int, int], *, major: Major, bits: int) -> tuple[WarpAccess, ...]:
    """Return the accesses of wgmma to an operand's tile: core matrix by core matrix, eight rows of 16 bytes each.

    Parameters
    ----------
    shape_mn_k : (int, int)
        Extents of the tile along MN and K, in elements: whole core matrices.
    major : "MN" or "K"
        The contiguous mode.
    bits : int
        Width of an element.

    Examples
    --------
    >>> accesses = wgmma_accesses((64, 16), major="K", bits=16)
    >>> len(accesses), accesses[1].elements[1][0]
    (16, (9, 0))
    """
    operands = (shape_mn_k, major, bits)
    along = 0 if check_major("wgmma_accesses", operands, major) == "MN" else 1
    check_bits("wgmma_accesses", operands, bits)
    steps = [CORE_MATRIX_ROWS, CORE_MATRIX_ROWS]
    steps[along] = UNIT_BITS // bits
    for name, extent, step in zip(("MN", "K"), shape_mn_k, steps, strict=True):
        if extent < step or extent % step:
            raise LayoutError(
                "wgmma_accesses", operands, f"the {name} extent must be a multiple of {step}, got {extent}"
            )
    corners = product(range(0, shape_mn_k[1], steps[1]), range(0, shape_mn_k[0], steps[0]))
    return tuple(
        warp_access(
            "wgmma",
            [(mn + row * along, k + row * (1 - along)) for row in range(CORE_MATRIX_ROWS)],
            vector=UNIT_BITS // bits,
            along=along,
        )
        for k, mn in corners
    )


def tma_accesses(copy: TmaCopy) -> tuple[WarpAccess, ...]:
    """Return the accesses of TMA to the tile of a copy: box by box, 128 bytes at a time.

    Parameters
    ----------
    copy : TmaCopy
        From `make_tma_copy`, for its shared-memory layout.

    Raises
    ------
    LayoutError
        If the box's rows are no whole units of 16 bytes, or the box no whole lines of 128.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.sm90 import gmma_layout_atom, make_tma_copy
    >>> copy = make_tma_copy(Layout((64, 64), (64, 1)), gmma_layout_atom("K", "SW128", 16), dtype="f16")
    >>> accesses = tma_accesses(copy)
    >>> len(accesses), [row[0] for row in accesses[1].elements][:3]
    (8, [(1, 0), (1, 8), (1, 16)])
    """
    box = copy.tensor_map.box
    dims = copy.modes
    elements = UNIT_BITS // DTYPE_BITS[copy.tensor_map.dtype]
    units = [range(0, box[0], elements), *(range(extent) for extent in box[1:])]
    # The first dimension is the fastest.
    inner = [tuple(reversed(at)) for at in product(*reversed(units))]
    if box[0] % elements or len(inner) % 8:
        raise LayoutError(
            "tma_accesses", (copy.tensor_map.dims,), f"the box {box} is no whole number of lines of 128 bytes"
        )
    accesses = []
    for start in copy.boxes:
        for line in range(0, len(inner), 8):
            rows = []
            for at in inner[line : line + 8]:
                coordinate = list(start.coordinate)
                for dim, step in zip(dims, at, strict=True):
                    coordinate[dim] += step
                rows.append(tuple(coordinate))
            accesses.append(warp_access("tma", rows, vector=elements, along=dims[0]))
    return tuple(accesses)


def as_accesses(operation: str, access: object) -> tuple[WarpAccess, ...]:
    """Return one access, or several, as a tuple."""
    accesses = (access,) if isinstance(access, WarpAccess) else access
    if not isinstance(accesses, Sequence) or not accesses or not all(isinstance(a, WarpAccess) for a in accesses):
        raise TypeError(
            f"{operation}: need a WarpAccess, or several of them, got {access!r}; warp_access and tv_accesses make them"
        )
    return cast(tuple[WarpAccess, ...], tuple(accesses))
