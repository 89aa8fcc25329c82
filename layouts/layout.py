"""Layout: a shape and a stride, the function from coordinates to indices that they define, and its constructors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import index as as_index
from typing import Any

from .basis import ScaledBasis, add_coordinates, as_coordinate, has_basis
from .coordinates import (
    compact_col_major,
    compact_order,
    compact_row_major,
    crd2idx,
    idx2crd,
    index_of,
    make_basis_like,
    slice_tuple,
)
from .errors import LayoutError, MismatchError, operation
from .int_tuple import (
    IntTuple,
    check_extents,
    congruent,
    flatten_to_tuple,
    has_none,
    product,
    repeat_like,
    shape_of,
    transform_leaf,
    tuple_rank,
)
from .modes import IndexFunction, LayoutBase, Tiler
from .shape_stride import (
    Pair,
    coalesce,
    coalesce_by_profile,
    coalesce_unbounded,
    complement as complement_pair,
    compose as compose_pairs,
    coprofile,
    filter as filter_pair,
)
from .writer import to_text


class Layout(LayoutBase):
    """A function from coordinates to indices: ``c -> inner_product(c, stride)``, domain ``shape``.

    Parameters
    ----------
    shape : IntTuple
        Extents of the modes, non-negative.
    stride : IntTuple, optional
        Congruent to `shape`: what one step in each mode adds to the index; integers of any sign, or scaled bases
        (``1@0``), which make the codomain coordinates. Default: compact, the leftmost mode fastest.

    Examples
    --------
    >>> layout = Layout((4, (2, 8)), (2, (1, 8)))
    >>> print(layout, layout.size(), layout.cosize())
    (4,(2,8)):(2,(1,8)) 64 64
    >>> layout(3, (1, 2)), layout(3, 5), layout(23)
    (23, 23, 23)
    >>> print(layout(None, 5), layout[1])
    (4):(2) (2,8):(1,8)

    Raises
    ------
    LayoutError
        If shape and stride are not congruent or an extent is negative.
    TypeError
        If either holds anything but integers (and scaled bases in the stride).

    References
    ----------
    CuTe ``layout.hpp``.
    """

    # Written by the constructors only; the public names are read-only. (A guard in __setattr__, as the rarer classes
    # have, would take a third of the time of the algebra.)
    __slots__ = ("_shape", "_stride")
    _shape: IntTuple
    _stride: IntTuple

    def __init__(self, shape: IntTuple, stride: IntTuple | None = None) -> None:
        self._shape = shape
        self._stride = stride
        if shape.__class__ is int and stride.__class__ is int:
            if shape >= 0:
                return
        elif shape.__class__ is tuple and stride.__class__ is tuple and len(shape) == len(stride):
            # Two loops over flat tuples take less time than one over zip().
            for s in shape:
                if s.__class__ is not int or s < 0:
                    break
            else:
                for d in stride:
                    if d.__class__ is not int:
                        break
                else:
                    return
            if _is_plain(shape, stride):
                return
        self._shape, self._stride = _checked(shape, stride)

    @property
    def shape(self) -> IntTuple:
        """Extents of the modes."""
        return self._shape

    @property
    def stride(self) -> IntTuple:
        """Increment of the index for a step in each mode; congruent to the shape."""
        return self._stride

    def __reduce__(self) -> tuple[object, ...]:
        return raw_layout, (self.shape, self.stride)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Layout):
            return bool(self.shape == other.shape and self.stride == other.stride)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.shape, self.stride))

    def __repr__(self) -> str:
        return f"Layout({self.shape!r},{self.stride!r})"

    def __str__(self) -> str:
        return f"{to_text(self._shape)}:{to_text(self._stride)}"

    def __call__(self, *crd: IntTuple) -> Any:  # noqa: ANN401 - int, coordinate or sliced Layout
        """Map a coordinate to its index; where it holds None, CuTe's ``_``, slice: keep those modes as a layout."""
        c = crd[0] if len(crd) == 1 else crd
        if c.__class__ is int or not has_none(c):
            return index_of(c, self._shape, self._stride)
        return self._sliced(c)

    def __getitem__(self, i: int | slice) -> Layout:
        """Return mode `i` as a layout, or a range of modes."""
        try:
            if isinstance(self._shape, tuple):
                return raw_layout(self._shape[i], self._stride[i])
            return (self,)[i]  # an integer shape is its own mode 0
        except IndexError:
            raise IndexError(f"mode {i} of {self}: it has rank {len(self)}") from None

    def __iter__(self) -> Iterator[Layout]:
        if isinstance(self.shape, tuple):
            return iter([raw_layout(s, d) for s, d in zip(self.shape, self.stride, strict=True)])
        return iter((self,))

    def size(self) -> int:
        """Return the number of coordinates of the domain."""
        return product(self._shape)

    def coshape(self) -> IntTuple:
        """Return the extents of the codomain: one more than the largest index; a coordinate for scaled bases."""
        return transform_leaf(lambda c: c + 1, _reach(self._shape, self._stride))

    def cosize(self) -> int:
        """Return the size of the codomain: the largest index plus one, with strides taken by magnitude."""
        reach = _reach(self._shape, self._stride)
        return reach + 1 if reach.__class__ is int else product(self.coshape())

    def get_hier_coord(self, idx: int) -> IntTuple:
        """Return the coordinate, congruent to the shape, of index `idx` of a compact layout."""
        return idx2crd(idx, self.shape, self.stride)

    def get_flat_coord(self, idx: int) -> IntTuple:
        """Return the coordinate of index `idx` of a compact layout, one integer for each mode."""
        coordinate = self.get_hier_coord(idx)
        if tuple_rank(self.shape) == 1:
            return crd2idx(coordinate, self.shape)
        return tuple(map(crd2idx, coordinate, self.shape))

    def get_1d_coord(self, idx: int) -> int:
        """Return the colexicographic integer coordinate of index `idx` of a compact layout."""
        return crd2idx(self.get_hier_coord(idx), self.shape)  # type: ignore[no-any-return]

    def _on_modes(self, function: Callable[..., IntTuple], *args: Any) -> Layout:  # noqa: ANN401 - the function's
        return raw_layout(function(self._shape, *args), function(self._stride, *args))

    def flatten(self) -> Layout:
        """Return ``flatten(self)``: no nesting."""
        flat = flatten_to_tuple(self._shape) if self._shape.__class__ is tuple else self._shape
        return self if flat is self._shape else raw_layout(flat, flatten_to_tuple(self._stride))

    def _joined(self, function: Callable[[IntTuple, IntTuple], IntTuple], other: Layout | None) -> Layout:
        shape, stride = (1, 0) if other is None else (other.shape, other.stride)
        return raw_layout(function(self._shape, shape), function(self._stride, stride))

    def _sliced(self, crd: IntTuple) -> Layout:
        return raw_layout(slice_tuple(crd, self._shape), slice_tuple(crd, self._stride))

    def _slice_and_offset(self, crd: IntTuple) -> tuple[Layout, Any]:
        return self._sliced(crd), crd2idx(crd, self._shape, self._stride)

    @operation
    def with_shape(self, *shape: IntTuple) -> Any:  # noqa: ANN401 - Layout
        """Return ``composition(self, make_layout(shape))``: this function on another domain, where that is exact."""
        return compose_layouts(self, Layout(shape[0] if len(shape) == 1 else shape))

    def _composed_with(self, tiler: Tiler) -> IndexFunction:
        if isinstance(tiler, Layout):
            return compose_layouts(self, tiler)
        if tiler is None:
            return self
        if isinstance(tiler, tuple):
            return by_mode("composition", Layout._composed_with, self, tiler, keep=False)
        if isinstance(tiler, int):
            return compose_layouts(self, Layout(tiler, 1))
        if isinstance(tiler, IndexFunction):
            return tiler._composed_after(self)
        raise TypeError(f"composition: cannot compose Layout with {type(tiler).__name__}")

    def _divided_by(self, tiler: Any) -> Any:  # noqa: ANN401 - layout or tiler
        if isinstance(tiler, int):
            tiler = Layout(tiler)
        if isinstance(tiler, Layout):
            return compose_layouts(self, with_rest(tiler, self))
        if tiler is None:
            return self
        if isinstance(tiler, tuple):
            return by_mode("logical_divide", Layout._divided_by, self, tiler, keep=True)
        raise TypeError(f"logical_divide: the tiler must be a Layout, int, None or tuple, got {type(tiler).__name__}")

    def _complement(self, max_idx: Any = None) -> Layout:  # noqa: ANN401 - int, shape or layout
        if max_idx is None:
            return complement_layout(self, None)
        cotarget = shape_of(max_idx)
        check_extents("complement", (self, max_idx), cotarget)
        return complement_layout(self, cotarget)


_new = object.__new__


def raw_layout(shape: IntTuple, stride: IntTuple) -> Layout:
    """Make a Layout of parts known to be congruent tuples of integers, without checking them again."""
    layout = _new(Layout)
    layout._shape = shape
    layout._stride = stride
    return layout


def _reach(shape: IntTuple, stride: IntTuple) -> IntTuple:
    """Return the index of the last coordinate, with strides taken by magnitude."""
    if shape.__class__ is int:
        return as_coordinate(abs(stride) * (shape - 1))
    total: IntTuple = 0
    for s, d in zip(shape, stride):  # noqa: B905 - hot; a layout is congruent
        if d.__class__ is int and total.__class__ is int:
            total += (s - 1) * (d if d >= 0 else -d)
        else:
            total = add_coordinates(total, _reach(s, d))
    return total


def _is_plain(shape: IntTuple, stride: IntTuple) -> bool:
    """Return whether shape and stride are congruent ints or tuples of ints, the extents non-negative."""
    if shape.__class__ is int:
        return stride.__class__ is int and shape >= 0
    if shape.__class__ is not tuple or stride.__class__ is not tuple or len(shape) != len(stride):
        return False
    for s, d in zip(shape, stride):  # noqa: B905 - hot; lengths are equal
        if s.__class__ is int and d.__class__ is int:
            if s < 0:
                return False
        elif not _is_plain(s, d):
            return False
    return True


def _checked(shape: IntTuple, stride: IntTuple | None) -> tuple[IntTuple, IntTuple]:
    """Convert shape and stride to plain ints and tuples (and scaled bases), or raise the reason why not."""
    shape = _integers(shape, "shape")
    check_extents("Layout", (shape,) if stride is None else (shape, stride), shape)
    if stride is None:
        return shape, compact_col_major(shape)
    stride = _integers(stride, "stride")
    if not congruent(shape, stride):
        raise LayoutError("Layout", (shape, stride), "shape and stride must have the same nesting")
    return shape, stride


def _integers(t: Any, what: str) -> IntTuple:  # noqa: ANN401 - unchecked input
    if isinstance(t, tuple):
        return tuple([_integers(x, what) for x in t])
    if isinstance(t, ScaledBasis) and what == "stride":
        return t
    if hasattr(t, "__index__") and not isinstance(t, bool):
        return as_index(t)
    raise TypeError(f"Layout: {what} must be an int or a nested tuple of ints, got {t!r} of type {type(t).__name__}")


# ---------------------------------------------------------------------------------------------------------------------
# The algebra of plain layouts
# ---------------------------------------------------------------------------------------------------------------------


def compose_layouts(a: Layout, b: Layout) -> Layout:
    """Compose two plain layouts."""
    shape, stride = b._shape, b._stride
    try:
        if has_basis(stride):
            shapes, strides = coalesce_by_profile(a._shape, a._stride, coprofile(stride))
        else:
            shapes, strides = coalesce_unbounded(a._shape, a._stride)
        return raw_layout(*compose_pairs(shapes, strides, shape, stride))
    except MismatchError as error:
        condition, *leaf = error.args
        raise LayoutError("composition", (a, raw_layout(*leaf) if leaf else b), condition) from None


def complement_layout(layout: Layout, cotarget: IntTuple | None) -> Layout:
    """Complement of a plain layout in a shape; None stands for its own cosize."""
    shape, stride = filter_pair(layout._shape, layout._stride)
    if has_basis(stride):
        raise LayoutError("complement", (layout, cotarget), "strides must be integers, not scaled bases")
    if cotarget is None:
        cotarget = raw_layout(shape, stride).cosize()
    try:
        return raw_layout(*complement_pair(shape, stride, cotarget))
    except MismatchError as error:
        raise LayoutError("complement", (layout, cotarget), str(error)) from None


def with_rest(tile: Layout, layout: Layout) -> Layout:
    """Return (tile, rest), the operands of `layout`'s divide by `tile`: its complement in the coalesced shape."""
    rest = complement_layout(tile, coalesce(layout._shape, layout._stride)[0])
    return raw_layout((tile._shape, rest._shape), (tile._stride, rest._stride))


def by_pair(name: str, function: Callable[[IntTuple, IntTuple], Pair], layout: Layout) -> Layout:
    """Apply a function on (shape, stride); a MismatchError becomes an error of operation `name`."""
    try:
        return raw_layout(*function(layout._shape, layout._stride))
    except MismatchError as error:
        raise LayoutError(name, (layout,), str(error)) from None


def by_mode(name: str, function: Any, layout: Layout, tilers: tuple[Any, ...], *, keep: bool) -> Layout:  # noqa: ANN401
    """Apply `function(mode, tiler)` mode by mode; modes beyond the tilers are kept or dropped."""
    modes = list(layout)
    if len(tilers) > len(modes):
        raise LayoutError(name, (layout, tilers), f"too many modes: rank must be <= {len(modes)}, got {len(tilers)}")
    done = [function(mode, tiler) for mode, tiler in zip(modes, tilers, strict=False)]
    return concat_layouts(tuple(done + modes[len(tilers) :] if keep else done))


def is_layout(x: object) -> bool:
    """Return whether `x` is a Layout or a ComposedLayout.

    >>> is_layout(Layout(4)), is_layout((4, 8))
    (True, False)
    """
    return isinstance(x, LayoutBase)


# ---------------------------------------------------------------------------------------------------------------------
# Construction
# ---------------------------------------------------------------------------------------------------------------------


@operation
def make_layout(*args: Any, stride: IntTuple | None = None) -> Any:  # noqa: ANN401 - overloaded as in CuTe
    """Make a layout of a shape (and a stride), or of layouts, each of which becomes a mode.

    Parameters
    ----------
    *args
        ``make_layout(shape)``, ``make_layout(shape, stride)``, ``make_layout(layout, ...)`` or, as in pycute,
        ``make_layout(iterable of layouts)``; ``make_layout(swizzle)`` is the swizzle on its domain.
    stride : IntTuple, optional
        The stride by keyword.

    Examples
    --------
    >>> print(make_layout((4, 8)), make_layout((4, 8), (8, 1)))
    (4,8):(1,4) (4,8):(8,1)
    >>> print(make_layout(Layout(4, 2), Layout((2, 3))))
    (4,(2,3)):(2,(1,2))
    """
    if not args:
        raise LayoutError("make_layout", args, "a shape or at least one layout is required, got nothing")
    first = args[0]
    if isinstance(first, LayoutBase):
        return concat_layouts(args)
    if isinstance(first, IndexFunction):  # a swizzle
        return first._composed_with(Layout(first.size()))
    if not isinstance(first, tuple) and isinstance(first, Iterable):
        return concat_layouts(tuple(first))
    if isinstance(first, tuple) and first and all(isinstance(mode, LayoutBase) for mode in first):
        return concat_layouts(first)
    if len(args) > 2 or (len(args) == 2 and stride is not None):
        raise LayoutError("make_layout", args, f"a shape and a stride are required, got {len(args)} arguments")
    return Layout(first, args[1] if len(args) == 2 else stride)


def concat_layouts(layouts: tuple[Any, ...]) -> Layout:
    """Return the layout whose modes are `layouts`."""
    for layout in layouts:
        if layout.__class__ is not Layout:
            raise TypeError(f"make_layout: every mode must be a Layout, got {layout!r} of type {type(layout).__name__}")
    if not layouts:
        raise LayoutError("make_layout", (layouts,), "at least one layout is required, got none")
    return raw_layout(tuple([layout.shape for layout in layouts]), tuple([layout.stride for layout in layouts]))


@operation
def make_layout_left(shape: IntTuple) -> Layout:
    """Return the compact column-major layout of `shape`: the leftmost mode is the fastest.

    >>> print(make_layout_left((4, 1, 8)))
    (4,1,8):(1,0,4)
    """
    return Layout(shape)


@operation
def make_layout_right(shape: IntTuple) -> Layout:
    """Return the compact row-major layout of `shape`: the rightmost mode is the fastest.

    >>> print(make_layout_right((4, 1, 8)))
    (4,1,8):(8,0,1)
    """
    return Layout(shape, compact_row_major(shape))


@operation
def make_ordered_layout(shape: IntTuple, order: IntTuple) -> Layout:
    """Return the compact layout of `shape` whose modes are ordered by `order`, the smallest fastest.

    >>> print(make_ordered_layout((2, 3, 4), (1, 2, 0)))
    (2,3,4):(4,8,1)

    Raises
    ------
    LayoutError
        If `order` is not weakly congruent to `shape`.
    """
    if isinstance(order, tuple) and tuple_rank(shape) != len(order):
        raise LayoutError(
            "make_ordered_layout", (shape, order), f"need equal ranks, got {tuple_rank(shape)} and {len(order)}"
        )
    return Layout(shape, compact_order(shape, order))


@operation
def make_layout_like(layout: Layout) -> Layout:
    """Return the compact layout of the same shape whose modes are ordered as `layout`'s strides; 0 strides stay 0.

    >>> print(make_layout_like(Layout((2, 3, 4), (0, 100, 7))))
    (2,3,4):(0,4,1)
    """
    if not isinstance(layout, Layout):
        raise TypeError(f"make_layout_like: a plain Layout is required, got {layout!r}")
    kept = transform_leaf(lambda d, s: repeat_like(s, 1) if d == 0 else s, layout.stride, layout.shape)
    return raw_layout(layout.shape, compact_order(kept, layout.stride))


@operation
def make_identity_layout(shape: IntTuple) -> Layout:
    """Return the layout that maps every coordinate of `shape` to itself.

    >>> identity = make_identity_layout((8, (2, 2)))
    >>> print(identity)
    (8,(2,2)):(1@0,(1@0@1,1@1@1))
    >>> identity(11)
    (3, (1, 0))
    """
    return Layout(shape, make_basis_like(shape))


@operation
def get_hier_coord(layout: Layout, idx: int) -> IntTuple:
    """Return ``layout.get_hier_coord(idx)``.

    >>> get_hier_coord(Layout((4, (2, 4)), (8, (1, 2))), 11)
    (1, (1, 1))
    """
    return layout.get_hier_coord(idx)


@operation
def get_flat_coord(layout: Layout, idx: int) -> IntTuple:
    """Return ``layout.get_flat_coord(idx)``.

    >>> get_flat_coord(Layout((4, (2, 4)), (8, (1, 2))), 11)
    (1, 3)
    """
    return layout.get_flat_coord(idx)


@operation
def get_1d_coord(layout: Layout, idx: int) -> int:
    """Return ``layout.get_1d_coord(idx)``.

    >>> get_1d_coord(Layout((4, 8), (8, 1)), 9)
    5
    """
    return layout.get_1d_coord(idx)
