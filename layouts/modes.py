"""Operations on the modes of IntTuples, layouts and composed layouts, as CuTe overloads them.

A layout is treated as a tuple of (shape, stride) pairs; a composed layout as its domain, under the same offset and
outer function. Both are recognised by their base class, `LayoutBase`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .coordinates import dice_tuple, slice_tuple
from .drawable import Drawable
from .errors import LayoutError, operation
from .int_tuple import (
    IntTuple,
    flatten_to_tuple,
    product,
    replace_at,
    shape_of,
    tuple_depth,
    tuple_get,
    tuple_rank,
    unflatten as unflatten_tuple,
    wrap,
)
from .shape_stride import coprofile as coprofile_of_stride
from .writer import NotationValue

# Operands and results of these functions: an IntTuple, a Layout or a ComposedLayout.
Modes = Any

Tiler: TypeAlias = "IndexFunction | int | tuple[Tiler, ...] | None"
"""Right-hand operand of a composition or a division: a function, a size, a tuple of one for each mode, None to keep."""

_MISSING: Any = object()


class IndexFunction(NotationValue, Drawable):
    """Base class of the operands of composition: layouts and swizzles.

    A plain layout knows no other functions: it asks the right-hand operand, ``tiler._composed_after(layout)``.
    """

    __slots__ = ()

    def _composed_with(self, tiler: Tiler) -> IndexFunction:
        """Return ``composition(self, tiler)``."""
        raise NotImplementedError

    def _composed_after(self, layout: Any) -> IndexFunction:  # noqa: ANN401 - a Layout, of a module above
        """Return ``composition(layout, self)`` for a plain layout."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the number of elements of the domain."""
        raise NotImplementedError

    def cosize(self) -> int:
        """Return the size of the codomain."""
        raise NotImplementedError


class LayoutBase(IndexFunction):
    """Base class of Layout and ComposedLayout, which `is_layout` recognises.

    ``_on_modes(function, *args)`` applies a function on IntTuples alike to shape and stride, and to what they are made
    of in a composed layout; ``_joined(function, other)`` one on two IntTuples to the shapes and the strides of two
    layouts, None being ``1:0``. ``_sliced(crd)``, ``_slice_and_offset(crd)``, ``_divided_by(tiler)`` and
    ``_complement(max_idx)`` are `slice_`, `slice_and_offset`, `logical_divide` and `complement`.
    """

    __slots__ = ()
    _on_modes: Any
    _joined: Any
    _sliced: Any
    _divided_by: Any
    _complement: Any
    flatten: Any

    @property
    def shape(self) -> IntTuple:
        """Shape of the domain."""
        raise NotImplementedError

    def __call__(self, *crd: IntTuple) -> Any:  # noqa: ANN401 - int, coordinate or sliced layout
        """Map a coordinate to an index, or slice."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the number of coordinates of the domain."""
        return product(self.shape)

    def rank(self) -> int:
        """Return the number of modes."""
        return tuple_rank(self.shape)

    def depth(self) -> int:
        """Return the levels of nesting of the shape: 0 for an integer."""
        return tuple_depth(self.shape)

    def __len__(self) -> int:
        return tuple_rank(self.shape)

    @operation
    def compose(self, *tilers: Any) -> Any:  # noqa: ANN401 - layouts or tilers
        """Return ``composition(self, tiler)``; several tilers act mode by mode."""
        return self._composed_with(tilers[0] if len(tilers) == 1 else tilers)

    @operation
    def tile(self, *tilers: Any) -> Any:  # noqa: ANN401 - layouts or tilers
        """Return ``tiled_divide(self, tiler)``; several tilers act mode by mode."""
        tiler = tilers[0] if len(tilers) == 1 else tilers
        return self._divided_by(tiler)._on_modes(gather_tiles, tiler)

    def take(self, begin: int, end: int) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``take(self, begin, end)``: a range of modes."""
        return take(self, begin, end)

    def select(self, *indices: int) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``select(self, indices)``: the modes of these indices, in this order."""
        return select(self, *indices)

    def group(self, begin: int, end: int) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``group(self, begin, end)``: a range of modes nested into one."""
        return group(self, begin, end)

    def append(self, *n_and_elem: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``append(self, elem)`` or ``append(self, n, elem)``: modes added at the end."""
        return append(self, *n_and_elem)

    def prepend(self, *n_and_elem: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``prepend(self, elem)`` or ``prepend(self, n, elem)``: modes added in front."""
        return prepend(self, *n_and_elem)


def require_layout(name: str, x: object) -> None:
    """Raise the TypeError of public function `name` for an operand that is no layout."""
    if not isinstance(x, LayoutBase):
        raise TypeError(f"{name}: a layout is required, got {x!r} of type {type(x).__name__}")


def _map(function: Callable[..., IntTuple], x: Modes, *args: object) -> Modes:
    return x._on_modes(function, *args) if isinstance(x, LayoutBase) else function(x, *args)


def _shape(x: Modes) -> IntTuple:
    return x.shape if isinstance(x, LayoutBase) else x


@operation
def rank(x: Modes, *path: int) -> int:
    """Return the number of modes of `x`, or of its mode at `path`: 1 for an integer.

    >>> rank((4, (2, 8))), rank((4, (2, 8)), 1), rank(5)
    (2, 2, 1)
    """
    return tuple_rank(tuple_get(_shape(x), *path))


@operation
def depth(x: Modes, *path: int) -> int:
    """Return the levels of nesting of `x`, or of its mode at `path`: 0 for an integer.

    >>> from cutepy.layouts import Layout
    >>> depth((4, (2, 8))), depth(Layout(4))
    (2, 0)
    """
    return tuple_depth(tuple_get(_shape(x), *path))


@operation
def shape(x: Modes, *path: int) -> IntTuple:
    """Return the shape of `x` (an IntTuple is its own), or of its mode at `path`.

    >>> from cutepy.layouts import Layout
    >>> shape(Layout((4, (2, 8))), 1)
    (2, 8)
    """
    return tuple_get(shape_of(x), *path)


@operation
def stride(x: Any, *path: int) -> IntTuple:  # noqa: ANN401 - Layout
    """Return the stride of a Layout, or of its mode at `path`. A composed layout has none.

    >>> from cutepy.layouts import Layout
    >>> stride(Layout((4, (2, 8)), (2, (1, 8))), 1)
    (1, 8)
    """
    if not _has_strides(x):
        raise LayoutError("stride", (x, *path), "only a plain Layout has strides")
    return tuple_get(x.stride, *path)


def _has_strides(x: object) -> bool:
    return isinstance(x, LayoutBase) and hasattr(x, "stride")


@operation
def size(layout: Any, *path: int) -> int:  # noqa: ANN401 - IntTuple, layout or swizzle
    """Return the number of elements of `layout`, or of its mode at `path`.

    >>> from cutepy.layouts import Layout
    >>> size((4, (2, 8))), size(Layout((4, 8)), 1)
    (64, 8)
    """
    if path:
        return product(tuple_get(_shape(layout), *path))
    if isinstance(layout, (int, tuple)):
        return product(layout)
    if isinstance(layout, IndexFunction):
        return layout.size()
    raise TypeError(f"size: a shape, a layout or a swizzle is required, got {layout!r}")


@operation
def coshape(x: Modes, *path: int) -> IntTuple:
    """Return the extents of the codomain of a layout, or of its mode at `path`.

    >>> from cutepy.layouts import Layout
    >>> coshape(Layout((4, 8), (8, 1)))
    32
    """
    return get(x, *path).coshape()


@operation
def cosize(layout: Modes, *path: int) -> int:
    """Return the size of the codomain: the largest index plus one, strides taken by magnitude.

    >>> from cutepy.layouts import Layout
    >>> cosize(Layout((8, 8, 2), (256, 4, 1)))
    1822
    """
    if not isinstance(layout, IndexFunction):
        raise TypeError(f"cosize: a layout or a swizzle is required, got {layout!r}")
    return product(coshape(layout, *path)) if path else layout.cosize()


@operation
def coprofile(x: Any) -> IntTuple:  # noqa: ANN401 - Layout
    """Return the profile of the codomain, as zeros: 0 for integer strides, a tuple for scaled bases.

    >>> from cutepy.layouts import Layout, make_identity_layout
    >>> coprofile(Layout((4, 8))), coprofile(make_identity_layout((4, 8)))
    (0, (0, 0))
    """
    return coprofile_of_stride(x.stride)


@operation
def get(x: Modes, *path: int) -> Modes:
    """Return the mode at `path`: ``get(x, 1, 0)`` is mode 0 of mode 1.

    >>> from cutepy.layouts import Layout
    >>> print(get(Layout((4, (2, 8)), (2, (1, 8))), 1, 0))
    2:1
    """
    return _map(tuple_get, x, *path) if path else x


@operation
def flatten(t: Modes) -> Modes:
    """Remove all nesting; an integer, or a layout of integer shape, stays as it is.

    >>> flatten((4, (2, 8))), flatten(4)
    ((4, 2, 8), 4)
    """
    if t.__class__ is tuple:
        return flatten_to_tuple(t)
    return t.flatten() if isinstance(t, LayoutBase) else t


@operation
def unflatten(x: Modes, profile: IntTuple) -> Modes:
    """Nest the flat `x` as in `profile`.

    >>> unflatten((4, 2, 8), (0, (0, 0)))
    (4, (2, 8))
    """
    return _map(unflatten_tuple, x, profile)


@operation
def take(x: Modes, begin: int, end: int) -> Modes:
    """Return modes `begin` to `end` (exclusive; -1 means all, for tuples).

    >>> take((4, 2, 8), 1, 3)
    (2, 8)
    """
    n = tuple_rank(_shape(x))
    stop = n if end == -1 and not isinstance(x, LayoutBase) else end
    if not 0 <= begin <= stop <= n or (begin == stop and isinstance(x, LayoutBase)):
        raise LayoutError("take", (x, begin, end), f"need 0 <= begin < end <= rank {n}, got {begin} and {end}")
    return _map(lambda t: wrap(t)[begin:stop], x)


@operation
def select(x: Modes, indices: tuple[int, ...] | int, *more: int) -> Modes:
    """Return the modes with the given indices, in that order.

    >>> from cutepy.layouts import Layout
    >>> print(select(Layout((4, 2, 8), (2, 1, 8)), (2, 0)))
    (8,4):(8,2)
    """
    chosen = (*wrap(indices), *more)
    return _map(lambda t: tuple(tuple_get(t, i) for i in chosen), x)


@operation
def group(x: Modes, begin: int, end: int) -> Modes:
    """Nest modes `begin` to `end` (exclusive; -1 means all) into one mode.

    >>> group((4, 2, 8, 3), 1, 3)
    (4, (2, 8), 3)
    """
    n = tuple_rank(_shape(x))
    stop = n if end == -1 else end
    if not 0 <= begin <= stop <= n:
        raise LayoutError("group", (x, begin, end), f"need 0 <= begin <= end <= rank {n}, got {begin} and {end}")
    if begin == stop:
        return _map(wrap, x)
    return _map(lambda t: (*wrap(t)[:begin], wrap(t)[begin:stop], *wrap(t)[stop:]), x)


@operation
def append(x: Modes, n_or_elem: Modes = _MISSING, elem: Modes = _MISSING) -> Modes:
    """Add a mode at the end: ``append(x, elem)``; or modes up to rank n: ``append(x, n, elem)``.

    For layouts `elem` is a layout, by default ``1:0``, and ``append(layout, n)`` pads to rank n.

    >>> from cutepy.layouts import Layout
    >>> print(append(Layout(8), Layout(4, 2)), append(Layout(8), 3), append((4, 8), 2))
    (8,4):(1,2) (8,1,1):(1,0,0) (4, 8, 2)
    """
    return _extend("append", x, n_or_elem, elem, at_end=True)


@operation
def prepend(x: Modes, n_or_elem: Modes = _MISSING, elem: Modes = _MISSING) -> Modes:
    """Add a mode in front: ``prepend(x, elem)``; or modes up to rank n: ``prepend(x, n, elem)``.

    >>> from cutepy.layouts import Layout
    >>> print(prepend(Layout(8), Layout(4, 2)), prepend(Layout(5, 8), 2))
    (4,8):(2,1) (1,5):(0,8)
    """
    return _extend("prepend", x, n_or_elem, elem, at_end=False)


def _extend(name: str, x: Modes, n: Modes, elem: Modes, *, at_end: bool) -> Modes:
    operands = (x, *(o for o in (n, elem) if o is not _MISSING))
    is_layout = isinstance(x, LayoutBase)
    if elem is _MISSING and not (is_layout and n.__class__ is int):
        n, elem = None, n
    if elem is _MISSING:
        if not is_layout:
            raise LayoutError(name, operands, "an element to add is required")
        elem = None  # 1:0
    elif is_layout != _has_strides(elem):
        raise TypeError(f"{name}: the element must be {'a Layout' if is_layout else 'an IntTuple'}, got {elem!r}")
    rank_x = tuple_rank(_shape(x))
    count = 1 if n is None else n - rank_x
    if count < 0:
        raise LayoutError(name, operands, f"target rank must be >= rank {rank_x}, got {n}")

    def extend(t: IntTuple, e: IntTuple) -> IntTuple:
        if not count:
            return t
        return wrap(t) + (e,) * count if at_end else (e,) * count + wrap(t)

    return x._joined(extend, elem) if is_layout else extend(x, elem)


@operation
def replace(x: Modes, n: int, elem: Modes) -> Modes:
    """Return `x` with mode `n` replaced by `elem`.

    >>> from cutepy.layouts import Layout
    >>> print(replace(Layout((4, 8)), 1, Layout(2, 64)))
    (4,2):(1,64)
    """
    if isinstance(x, LayoutBase) or isinstance(elem, LayoutBase):
        if not (_has_strides(x) and _has_strides(elem)):
            raise TypeError(f"replace: a mode of a Layout is replaced by a Layout, got {x!r} and {elem!r}")
        return x._joined(lambda t, e: replace_at(t, n, e), elem)
    return replace_at(x, n, elem)


@operation
def zip_modes(a: Modes, b: Modes = _MISSING) -> Modes:
    """Transpose the two outer levels of nesting: ``((a,b),(x,y))`` becomes ``((a,x),(b,y))``; CuTe's ``zip``.

    >>> zip_modes(((1, 2), (3, 4)))
    ((1, 3), (2, 4))
    """
    if b is _MISSING:
        return _map(_zip, a)
    return a._joined(lambda s, t: _zip((s, t)), b) if isinstance(a, LayoutBase) else _zip((a, b))


def _zip(t: IntTuple) -> IntTuple:
    if not isinstance(t, tuple) or not t:
        return t
    if not isinstance(t[0], tuple):
        return (t,)
    if any(tuple_rank(mode) != len(t[0]) or not isinstance(mode, tuple) for mode in t):
        raise LayoutError("zip", (t,), f"all modes must have rank {len(t[0])}")
    return tuple(zip(*t, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Slicing
# ---------------------------------------------------------------------------------------------------------------------


@operation
def slice_(crd: IntTuple, trg: Modes) -> Modes:
    """Keep the modes of `trg` at the places of None, CuTe's ``_``, in `crd`.

    Under a swizzle the result is a plain layout with signed strides where that is possible; see `slice_and_offset`.

    >>> from cutepy.layouts import Layout
    >>> print(slice_((2, None), Layout((4, 8))), slice_((None, (0, None)), (4, (2, 8))))
    (8):(4) (4, 8)
    """
    return trg._sliced(crd) if isinstance(trg, LayoutBase) else slice_tuple(crd, trg)


@operation
def slice_and_offset(crd: IntTuple, layout: Modes) -> tuple[Modes, Any]:
    """Slice a layout: the layout of the kept modes and the offset of the fixed ones, ``kept(c) + offset``.

    Under a swizzle that is the layout's value if extents and strides are powers of two whose bits, and those of the
    offset, are disjoint, as in shared-memory tiles. Of others the result is C++ CuTe's, which may be another function.

    >>> from cutepy.layouts import Layout
    >>> kept, offset = slice_and_offset((2, None), Layout((4, 8)))
    >>> print(kept, offset)
    (8):(4) 2
    """
    return layout._slice_and_offset(crd)  # type: ignore[no-any-return]


@operation
def dice(crd: IntTuple, trg: Modes) -> Modes:
    """Keep the modes of `trg` at the places of integers in `crd`.

    >>> dice((2, None), (4, 8))
    (4,)
    """
    return _map(lambda t: dice_tuple(crd, t), trg)


# ---------------------------------------------------------------------------------------------------------------------
# Tiles and rests
# ---------------------------------------------------------------------------------------------------------------------


def unzip(t: IntTuple, guide: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a tiler
    """Gather the (tile, rest) modes of `t`, following the nesting of `guide`: ``((tiles), (rests))``."""
    if isinstance(guide, tuple):
        if not isinstance(t, tuple) or len(t) < len(guide):
            raise LayoutError("tile_unzip", (t, guide), f"rank must be >= {len(guide)}, got {tuple_rank(t)}")
        split = [unzip(mode, g) for mode, g in zip(t, guide, strict=False)]
        return tuple([s[0] for s in split]), tuple([s[1] for s in split]) + t[len(guide) :]
    if not isinstance(t, tuple) or len(t) != 2:
        raise LayoutError(
            "tile_unzip",
            (t, guide),
            f"a mode without a tile must have rank 2 already to be gathered, got rank {tuple_rank(t)}",
            "give the tiler an int or a layout in place of _",
        )
    return t


def gather_tiles(t: IntTuple, guide: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a tiler
    """Gather the tiles of `t`: ``((tiles), rest, rest, ...)``."""
    tiles, rests = unzip(t, guide)
    return (tiles, *wrap(rests)) if tuple_rank(rests) > 1 else (tiles, rests)


def gather_flat(t: IntTuple, guide: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a tiler
    """Gather tiles and rests into one list: ``(tile, tile, ..., rest, rest, ...)``."""
    tiles, *rests = gather_tiles(t, guide)
    return (*tiles, *rests) if tuple_rank(tiles) > 1 else (tiles, *rests)
