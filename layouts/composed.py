"""ComposedLayout: a layout followed by an offset and another function, usually a swizzle.

References
----------
CuTe ``layout_composed.hpp``, ``swizzle_layout.hpp`` and ``pointer_flagged.hpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .basis import ScaledBasis, add_coordinates
from .coordinates import dice_tuple, slice_tuple
from .errors import LayoutError, operation
from .int_tuple import IntTuple, has_none
from .layout import Layout, LayoutBase, raw_layout
from .swizzle import Swizzle


class SmemPtr:
    """The offset of a layout whose swizzle acts on the BYTE address of a shared-memory pointer.

    Parameters
    ----------
    bits : int
        Width of the pointer's elements, > 0.
    address : int, optional
        Address in bytes; None while no pointer is set.

    Examples
    --------
    >>> print(SmemPtr(16), SmemPtr(8, 0x400))
    smem_ptr[16b](unset) smem_ptr[8b](0x400)
    """

    __slots__ = ("address", "bits")
    bits: int
    address: int | None

    def __init__(self, bits: int, address: int | None = None) -> None:
        if isinstance(bits, bool) or not isinstance(bits, int) or bits <= 0:
            raise LayoutError("SmemPtr", (bits, address), f"bits must be a positive int, got {bits!r}")
        if address is not None and (isinstance(address, bool) or not isinstance(address, int) or address < 0):
            raise LayoutError("SmemPtr", (bits, address), f"address must be an int >= 0 or None, got {address!r}")
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "address", address)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"SmemPtr is immutable; cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"SmemPtr is immutable; cannot delete {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return SmemPtr, (self.bits, self.address)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SmemPtr):
            return (self.bits, self.address) == (other.bits, other.address)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((SmemPtr, self.bits, self.address))

    def __repr__(self) -> str:
        return f"SmemPtr({self.bits})" if self.address is None else f"SmemPtr({self.bits}, {self.address:#x})"

    def __str__(self) -> str:
        return f"smem_ptr[{self.bits}b]({'unset' if self.address is None else hex(self.address)})"


class ComposedLayout(LayoutBase):
    """A function from coordinates to indices: ``c -> layoutB(offset + layoutA(c))``, domain that of `layoutA`.

    Parameters
    ----------
    layoutB : Swizzle, Layout or ComposedLayout
        Applied last.
    offset : int, IntTuple or SmemPtr
        Added before `layoutB`. A SmemPtr says that a swizzle acts on byte addresses; the layout then still maps
        coordinates to ELEMENT indices relative to the pointer, by the swizzle recast to elements.
    layoutA : Layout or ComposedLayout
        Applied first; its shape is the domain. (pycute's order and names; C++ calls the outer one ``layout_a``.)

    Examples
    --------
    >>> layout = ComposedLayout(Swizzle(2, 0, 3), 0, Layout((8, 4), (1, 8)))
    >>> print(layout, [layout(i, 1) for i in range(8)])
    Sw<2,0,3> o 0 o (8,4):(1,8) [9, 8, 11, 10, 13, 12, 15, 14]
    """

    __slots__ = ("layoutA", "layoutB", "offset")
    layoutA: Any
    layoutB: Any
    offset: Any

    def __init__(self, layoutB: Any, offset: Any, layoutA: Any) -> None:  # noqa: ANN401 - pycute's names
        if not isinstance(layoutB, (Swizzle, LayoutBase)):
            raise TypeError(f"ComposedLayout: layoutB must be a Swizzle or a layout, got {type(layoutB).__name__}")
        if not isinstance(layoutA, (LayoutBase, Swizzle)):
            raise TypeError(f"ComposedLayout: layoutA must be a layout, got {type(layoutA).__name__}")
        if isinstance(offset, bool) or not isinstance(offset, (int, tuple, SmemPtr, ScaledBasis)):
            raise TypeError(f"ComposedLayout: offset must be an int, IntTuple or SmemPtr, got {type(offset).__name__}")
        object.__setattr__(self, "layoutA", layoutA)
        object.__setattr__(self, "layoutB", layoutB)
        object.__setattr__(self, "offset", offset)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ComposedLayout is immutable; cannot set {name}: make a new ComposedLayout")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ComposedLayout is immutable; cannot delete {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return ComposedLayout, (self.layoutB, self.offset, self.layoutA)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ComposedLayout):
            return bool(
                self.layoutB == other.layoutB
                and type(self.offset) is type(other.offset)
                and self.offset == other.offset
                and self.layoutA == other.layoutA
            )
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.layoutB, self.offset, self.layoutA))

    def __repr__(self) -> str:
        return f"ComposedLayout({self.layoutB!r},{self.offset!r},{self.layoutA!r})"

    @property
    def shape(self) -> IntTuple:
        """Shape of the domain: that of `layoutA`."""
        return self.layoutA.size() if isinstance(self.layoutA, Swizzle) else self.layoutA.shape

    def __call__(self, *crd: IntTuple) -> Any:  # noqa: ANN401 - int, coordinate or sliced layout
        """Map a coordinate to its index; where it holds None, CuTe's ``_``, slice."""
        c = crd[0] if len(crd) == 1 else crd
        if has_none(c):
            return slice_composed(c, self)[0]
        if isinstance(self.offset, SmemPtr):
            return self.position_independent()(c)
        return self.layoutB(add_coordinates(self.offset, self.layoutA(c)))

    def __getitem__(self, i: int | slice) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return mode `i`, or a range of modes, under the same offset and outer function."""
        return self.on_domain(lambda layout: layout[i])

    def __iter__(self) -> Iterator[Any]:
        return (compose(self.layoutB, self.offset, mode) for mode in self.layoutA)

    def cosize(self) -> int:
        """Return the cosize of `layoutA`, as CuTe defines it."""
        return self.layoutA.cosize()  # type: ignore[no-any-return]

    def on_domain(self, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Apply a function on layouts to `layoutA`, keeping offset and outer function."""
        return compose(self.layoutB, self.offset, function(self.layoutA, *args))

    def position_independent(self) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return the same function with the byte-address swizzle of a SmemPtr recast to element indices.

        Right where the pointer is aligned to the swizzle's period, as CuTe demands of it.

        >>> print(ComposedLayout(Swizzle(3, 4, 3), SmemPtr(16), Layout((64, 8))).position_independent())
        Sw<3,3,3> o 0 o (64,8):(1,64)
        """
        if not isinstance(self.offset, SmemPtr):
            return self
        from .recast import recast_layout

        return compose(recast_layout(self.layoutB, 8, self.offset.bits), 0, self.layoutA)


def compose(outer: Any, offset: Any, inner: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
    """Return ``outer o offset o inner``: CuTe's three-operand composition. An identity swizzle at offset 0 vanishes."""
    if outer.__class__ is Swizzle and outer.bits == 0 and offset.__class__ is int and offset == 0:
        if isinstance(inner, Layout):
            return inner
    return ComposedLayout(outer, offset, inner)


@operation
def make_composed_layout(outer: Any, offset: Any, inner: Any) -> ComposedLayout:  # noqa: ANN401 - layouts
    """Return ComposedLayout(outer, offset, inner); CuTe C++'s name.

    >>> print(make_composed_layout(Swizzle(2, 0, 3), 0, Layout((8, 4))))
    Sw<2,0,3> o 0 o (8,4):(1,8)
    """
    return ComposedLayout(outer, offset, inner)


@operation
def get_swizzle_portion(layout: Any) -> Swizzle:  # noqa: ANN401 - Layout or ComposedLayout
    """Return the swizzle of a composed layout; of a plain Layout the identity ``Sw<0,4,3>``.

    >>> print(get_swizzle_portion(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64)))), get_swizzle_portion(Layout(4)))
    Sw<3,3,3> Sw<0,4,3>
    """
    if isinstance(layout, Layout):
        return Swizzle(0, 4, 3)
    if isinstance(layout, ComposedLayout) and isinstance(layout.layoutB, Swizzle):
        return layout.layoutB
    raise LayoutError("get_swizzle_portion", (layout,), "the outer function must be a swizzle")


@operation
def get_nonswizzle_portion(layout: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
    """Return the layout under the swizzle: `layoutA`; a plain Layout itself.

    >>> print(get_nonswizzle_portion(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64)))))
    (8,64):(1,8)
    """
    return layout.layoutA if isinstance(layout, ComposedLayout) else layout


# ---------------------------------------------------------------------------------------------------------------------
# Slicing
# ---------------------------------------------------------------------------------------------------------------------


def slice_composed(crd: IntTuple, layout: ComposedLayout) -> tuple[Any, Any]:
    """Slice a composed layout at `crd`: (the layout of the kept modes, the offset that it leaves).

    Under a swizzle the kept modes become a plain layout, with signed strides, wherever no two of their index bits
    meet in the swizzle; else the fixed part of the index moves into the offset before the swizzle.
    """
    if crd is None or (isinstance(crd, tuple) and _all_none(crd)) or isinstance(layout.offset, SmemPtr):
        if isinstance(layout.offset, SmemPtr) and not _all_none(crd):
            raise LayoutError(
                "slice_and_offset",
                (crd, layout),
                "a layout of byte addresses cannot be sliced at an index",
                "take position_independent() of it first",
            )
        return compose(layout.layoutB, layout.offset, _slice_layout(crd, layout.layoutA)), 0
    if isinstance(layout.layoutB, Swizzle) and isinstance(layout.layoutA, Layout):
        return _slice_swizzled(crd, layout)
    if isinstance(layout.layoutA, ComposedLayout):
        inner, offset = slice_composed(crd, layout.layoutA)
    else:
        inner, offset = _slice_layout(crd, layout.layoutA), layout.layoutA(_zero_none(crd))
    return ComposedLayout(layout.layoutB, add_coordinates(layout.offset, offset), inner), 0


def _slice_swizzled(crd: IntTuple, layout: ComposedLayout) -> tuple[Any, Any]:
    from .algebra import composition

    swizzle: Swizzle = layout.layoutB
    bits, base, gap = swizzle.bits, swizzle.base, abs(swizzle.shift) - swizzle.bits
    fields = (1 << base, 1 << bits, 1 << gap, 1 << bits, 1)
    starts = (1, 1 << base, 1 << (base + bits), 1 << (base + bits + gap), 1 << (base + 2 * bits + gap))
    outside = Layout(fields, (starts[0], 0, starts[2], 0, starts[4]))  # projects an index to the bits the swizzle keeps
    inside = Layout(fields, (0, starts[1], 0, starts[3], 0))  # and to the bits it reads or changes

    kept = _slice_layout(crd, layout.layoutA)
    fixed = raw_layout(dice_tuple(crd, layout.layoutA.shape), dice_tuple(crd, layout.layoutA.stride))
    fixed_crd = dice_tuple(crd, crd)
    offset_inside = layout.offset ^ _xor_offset(composition(inside, fixed), fixed_crd)
    offset_outside = composition(outside, fixed)(fixed_crd)

    active = composition(inside, kept)
    last = active(active.size() - 1)
    if last & ~swizzle(last):
        return ComposedLayout(swizzle, offset_inside, kept), offset_outside
    z, y = swizzle.zzz_msk & -swizzle.zzz_msk, swizzle.yyy_msk & -swizzle.yyy_msk
    steps = (
        _bit_strides(offset_inside, z, y, bits, moves_z=True),
        _bit_strides(offset_inside, z, y, bits, moves_z=False),
    )
    low, high = steps if z < y else steps[::-1]
    twos = (2,) * bits if bits != 1 else 2
    unfolded = raw_layout((fields[0], twos, fields[2], twos, 1), (1, low, starts[2], high, starts[4]))
    return composition(unfolded, kept), swizzle(offset_inside) + offset_outside


def _bit_strides(offset: int, z: int, y: int, bits: int, *, moves_z: bool) -> Any:  # noqa: ANN401 - IntTuple
    """Return what each index bit adds after the swizzle, given the bits of `offset`: Y bits carry their Z along."""
    if moves_z:
        strides = [z << i if not offset & (y << i) else -(z << i) for i in range(bits)]
    else:
        strides = [(y + z) << i if not offset & (z << i) else (y - z) << i for i in range(bits)]
    return strides[0] if bits == 1 else tuple(strides)


def _xor_offset(layout: Layout, crd: IntTuple) -> int:
    """Return the exclusive or of the modes' contributions: their sum, as they are disjoint powers of two."""
    from .coordinates import idx2crd

    def mode(s: IntTuple, d: IntTuple, c: IntTuple) -> IntTuple:
        if isinstance(s, tuple):
            result = 0
            for row in zip(s, d, c, strict=True):
                result ^= mode(*row)
            return result
        extent = s * d
        if extent < 0 or extent & (extent - 1):
            raise LayoutError(
                "slice_and_offset", (crd, layout), f"shape times stride of {s}:{d} must be a power of two"
            )
        return int(c * d) & ((s - 1) * d)

    return int(mode(layout.shape, layout.stride, idx2crd(crd, layout.shape)))


def _slice_layout(crd: IntTuple, layout: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
    if isinstance(layout, ComposedLayout):
        return slice_composed(crd, layout)[0]
    return raw_layout(slice_tuple(crd, layout.shape), slice_tuple(crd, layout.stride))


def _all_none(crd: IntTuple) -> bool:
    return all(map(_all_none, crd)) if isinstance(crd, tuple) else crd is None


def _zero_none(crd: IntTuple) -> IntTuple:
    return tuple(map(_zero_none, crd)) if isinstance(crd, tuple) else (0 if crd is None else crd)


@operation
def domain_offset(crd: IntTuple, layout: Any) -> tuple[Any, Any]:  # noqa: ANN401 - Layout or ComposedLayout
    """Move the origin of `layout` to `crd`: (layout, offset); a composed layout takes the offset in itself.

    >>> print(*domain_offset((1, 2), Layout((4, 8))))
    (4,8):(1,4) 9
    """
    if isinstance(layout, ComposedLayout):
        if isinstance(layout.offset, SmemPtr):
            raise LayoutError(
                "domain_offset",
                (crd, layout),
                "a layout of byte addresses cannot be moved by elements",
                "take position_independent() of it first",
            )
        moved = add_coordinates(layout.offset, layout.layoutA(crd))
        return ComposedLayout(layout.layoutB, moved, layout.layoutA), 0
    return layout, layout(crd)
