"""Swizzles, and layouts followed by one: ComposedLayout is a layout, then an offset, then another function.

A swizzle is the exclusive-or permutation of indices that spreads a tile over the banks of shared memory.

References
----------
CuTe ``swizzle.hpp``, ``layout_composed.hpp``, ``swizzle_layout.hpp`` and ``pointer_flagged.hpp``; pycute ``swizzle.py``
for names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from operator import index as as_index
from typing import Any

from .basis import ScaledBasis, add_coordinates
from .coordinates import dice_tuple, idx2crd
from .errors import LayoutError, operation
from .int_tuple import IntTuple, has_none
from .layout import Layout, compose_layouts, raw_layout
from .modes import IndexFunction, LayoutBase, Tiler
from .writer import FrozenValue, to_text


def shiftl(a: int, s: int) -> int:
    """Shift `a` left by `s` bits; right for negative `s`.

    >>> shiftl(0b0110, 1), shiftl(0b0110, -1)
    (12, 3)
    """
    return a << s if s > 0 else a >> -s


def shiftr(a: int, s: int) -> int:
    """Shift `a` right by `s` bits; left for negative `s`.

    >>> shiftr(0b0110, 1), shiftr(0b0110, -1)
    (3, 12)
    """
    return a >> s if s > 0 else a << -s


class Swizzle(IndexFunction, FrozenValue):
    """A permutation of the integers, its own inverse: ``i -> i ^ shiftr(i & yyy_msk, shift)``.

    In binary, with YYY and ZZZ `bits` wide and `shift` apart, ``xxYYYxxZZZxxxx`` becomes ``xxYYYxxAAAxxxx`` with
    AAA = ZZZ ^ YYY; the `base` lowest bits stay.

    Parameters
    ----------
    bits : int
        Width of the mask, >= 0.
    base : int
        Number of least significant bits kept constant, >= 0.
    shift : int
        Distance from ZZZ to YYY, ``abs(shift) >= bits``; negative puts YYY below ZZZ.

    Examples
    --------
    >>> sw = Swizzle(2, 0, 3)
    >>> print(sw, [sw(i) for i in (7, 8, 9, 16, 31)])
    Sw<2,0,3> [7, 9, 8, 18, 28]

    Raises
    ------
    LayoutError
        If `bits` or `base` is negative or ``abs(shift) < bits``.
    """

    __slots__ = ("base", "bits", "shift", "yyy_msk", "zzz_msk")
    bits: int
    base: int
    shift: int
    yyy_msk: int
    zzz_msk: int

    def __init__(self, bits: int, base: int, shift: int) -> None:
        if not (bits.__class__ is base.__class__ is shift.__class__ is int):
            bits, base, shift = _plain_int("bits", bits), _plain_int("base", base), _plain_int("shift", shift)
        if bits < 0 or base < 0:
            raise LayoutError("Swizzle", (bits, base, shift), f"bits and base must be >= 0, got {bits} and {base}")
        if abs(shift) < bits:
            condition = f"abs(shift) must be >= bits = {bits}, got {abs(shift)}"
            raise LayoutError("Swizzle", (bits, base, shift), condition)
        mask = ((1 << bits) - 1) << base
        write = object.__setattr__
        write(self, "bits", bits)
        write(self, "base", base)
        write(self, "shift", shift)
        write(self, "yyy_msk", mask << shift if shift > 0 else mask)
        write(self, "zzz_msk", mask if shift > 0 else mask << -shift)

    def __reduce__(self) -> tuple[object, ...]:
        return Swizzle, (self.bits, self.base, self.shift)

    def __call__(self, index: int) -> int:
        """Permute an index."""
        bits, shift = index & self.yyy_msk, self.shift
        return index ^ (bits >> shift if shift >= 0 else bits << -shift)

    def size(self) -> int:
        """Return the size of the domain on which the permutation closes: ``2**(bits + base + abs(shift))``."""
        return 1 << (self.bits + self.base + abs(self.shift))

    def cosize(self) -> int:
        """Return the size of the codomain, equal to that of the domain."""
        return self.size()

    def upcast(self, n: int) -> Swizzle:
        """Return the permutation of elements `n` times as wide, a power of two."""
        base = self.base - self._log2("upcast", n)
        return Swizzle(self.bits if base >= 0 else max(self.bits + base, 0), max(base, 0), self.shift)

    def downcast(self, n: int) -> Swizzle:
        """Return the permutation of elements `n` times as narrow, a power of two."""
        return Swizzle(self.bits, self.base + self._log2("downcast", n), self.shift)

    def _log2(self, name: str, n: int) -> int:
        if n & (n - 1):
            raise LayoutError(name, (self, n), f"the factor must be a power of two for a swizzle, got {n}")
        return n.bit_length() - 1

    def _composed_with(self, tiler: Tiler) -> IndexFunction:
        if isinstance(tiler, Layout):
            return compose(self, 0, tiler)  # type: ignore[no-any-return]
        if isinstance(tiler, Swizzle):
            if self.shift != tiler.shift:
                condition = f"swizzles must have one shift, got {self.shift} and {tiler.shift}"
                raise LayoutError("composition", (self, tiler), condition)
            return make_swizzle(self.yyy_msk ^ tiler.yyy_msk, self.zzz_msk ^ tiler.zzz_msk)
        if isinstance(tiler, ComposedLayout):
            return ComposedLayout(self, 0, tiler)
        raise TypeError(f"composition: cannot compose Swizzle with {type(tiler).__name__}")

    def _composed_after(self, layout: Layout) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        return compose(make_swizzle(layout(self.yyy_msk), layout(self.zzz_msk)), 0, layout)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Swizzle):
            return (self.bits, self.base, self.shift) == (other.bits, other.base, other.shift)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((Swizzle, self.bits, self.base, self.shift))

    def __repr__(self) -> str:
        return f"Swizzle({self.bits},{self.base},{self.shift})"

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


def _plain_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"Swizzle: {name} must be an int, got {value!r}")
    return as_index(value)


@operation
def make_swizzle(yyy: int, zzz: int) -> Swizzle:
    """Return the swizzle whose masks are the bits of `yyy` and `zzz`.

    >>> print(make_swizzle(0b11000000, 0b00000110))
    Sw<2,1,5>

    Raises
    ------
    LayoutError
        If the masks are not two runs of equally many bits, apart.
    """
    if not isinstance(yyy, int) or not isinstance(zzz, int):
        raise TypeError(f"make_swizzle: the masks must be ints, got {yyy!r} and {zzz!r}")
    bits = yyy.bit_count()
    if yyy < 0 or zzz < 0 or bits != zzz.bit_count():
        raise LayoutError("make_swizzle", (yyy, zzz), f"need equally many bits, got {bits} and {zzz.bit_count()}")
    if not bits:
        return Swizzle(0, 0, 0)
    low_y, low_z = (yyy & -yyy).bit_length() - 1, (zzz & -zzz).bit_length() - 1
    shift = low_y - low_z
    if abs(shift) >= bits:
        swizzle = Swizzle(bits, min(low_y, low_z), shift)
        if swizzle.yyy_msk == yyy and swizzle.zzz_msk == zzz:
            return swizzle
    raise LayoutError(
        "make_swizzle", (yyy, zzz), f"masks {yyy:#b} and {zzz:#b} must be runs of bits at least {bits} apart"
    )


class SmemPtr(FrozenValue):
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


class ComposedLayout(LayoutBase, FrozenValue):
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
        if isinstance(offset, SmemPtr) and not isinstance(layoutB, Swizzle):
            raise TypeError(f"ComposedLayout: layoutB must be a Swizzle over a SmemPtr, got {type(layoutB).__name__}")
        if isinstance(offset, bool) or not isinstance(offset, (int, tuple, SmemPtr, ScaledBasis)):
            raise TypeError(f"ComposedLayout: offset must be an int, IntTuple or SmemPtr, got {type(offset).__name__}")
        object.__setattr__(self, "layoutA", layoutA)
        object.__setattr__(self, "layoutB", layoutB)
        object.__setattr__(self, "offset", offset)

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

    def __str__(self) -> str:
        outer = f"({self.layoutB})" if isinstance(self.layoutB, ComposedLayout) else self.layoutB
        return f"{outer} o {to_text(self.offset)} o {self.layoutA}"

    @property
    def shape(self) -> IntTuple:
        """Shape of the domain: that of `layoutA`."""
        return self.layoutA.size() if isinstance(self.layoutA, Swizzle) else self.layoutA.shape

    def __call__(self, *crd: IntTuple) -> Any:  # noqa: ANN401 - int, coordinate or sliced layout
        """Map a coordinate to its index; where it holds None, CuTe's ``_``, slice."""
        c = crd[0] if len(crd) == 1 else crd
        if has_none(c):
            return self._sliced(c)
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

    def coshape(self) -> IntTuple:
        """Return the coshape of `layoutA`, as CuTe defines it."""
        return self.layoutA.coshape()

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
        common = gcd(8, self.offset.bits)
        return compose(self.layoutB.upcast(self.offset.bits // common).downcast(8 // common), 0, self.layoutA)

    def _on_modes(self, function: Callable[..., IntTuple], *args: Any) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        return self.on_domain(lambda layout: layout._on_modes(function, *args))

    def flatten(self) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``flatten(self)``: no nesting."""
        return self.on_domain(lambda layout: layout.flatten())

    def _joined(self, function: Callable[[IntTuple, IntTuple], IntTuple], other: Layout | None) -> Any:  # noqa: ANN401
        return self.on_domain(lambda layout: layout._joined(function, other))

    def _sliced(self, crd: IntTuple) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        return self._slice_and_offset(crd)[0]

    def _slice_and_offset(self, crd: IntTuple) -> tuple[Any, Any]:
        # Under a swizzle the kept modes become a plain layout, with signed strides, wherever no two of their index bits
        # meet in the swizzle. Otherwise the fixed part of the index moves into the offset before the swizzle.
        if _all_none(crd):
            return compose(self.layoutB, self.offset, self.layoutA._sliced(crd)), 0
        if isinstance(self.offset, SmemPtr):
            raise _bytes_error("slice_and_offset", crd, self, "sliced at an index")
        if isinstance(self.layoutB, Swizzle) and isinstance(self.layoutA, Layout):
            return _slice_swizzled(crd, self)
        inner, offset = self.layoutA._slice_and_offset(crd)
        return ComposedLayout(self.layoutB, add_coordinates(self.offset, offset), inner), 0

    @operation
    def with_shape(self, *shape: IntTuple) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        """Return ``composition(self, make_layout(shape))``: this function on another domain, where that is exact."""
        return self.on_domain(lambda layout: layout.with_shape(*shape))

    def _composed_with(self, tiler: Tiler) -> IndexFunction:
        return self.on_domain(lambda layout: layout._composed_with(tiler))  # type: ignore[no-any-return]

    def _composed_after(self, layout: Layout) -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        if self.offset != 0:
            condition = f"the offset of the right operand must be 0, got {self.offset}"
            raise LayoutError("composition", (layout, self), condition)
        return layout._composed_with(self.layoutB)._composed_with(self.layoutA)

    def _divided_by(self, tiler: Any) -> Any:  # noqa: ANN401 - layout or tiler
        return self.on_domain(lambda layout: layout._divided_by(tiler))

    def _complement(self, max_idx: Any = None) -> Layout:  # noqa: ANN401 - int, shape or layout
        return self.layoutA._complement(self.cosize() if max_idx is None else max_idx)  # type: ignore[no-any-return]


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


def _slice_swizzled(crd: IntTuple, layout: ComposedLayout) -> tuple[Any, Any]:
    swizzle: Swizzle = layout.layoutB
    bits, base, gap = swizzle.bits, swizzle.base, abs(swizzle.shift) - swizzle.bits
    fields = (1 << base, 1 << bits, 1 << gap, 1 << bits, 1)
    starts = (1, 1 << base, 1 << (base + bits), 1 << (base + bits + gap), 1 << (base + 2 * bits + gap))
    outside = Layout(fields, (starts[0], 0, starts[2], 0, starts[4]))  # projects an index to the bits the swizzle keeps
    inside = Layout(fields, (0, starts[1], 0, starts[3], 0))  # and to the bits it reads or changes

    kept = layout.layoutA._sliced(crd)
    fixed = raw_layout(dice_tuple(crd, layout.layoutA.shape), dice_tuple(crd, layout.layoutA.stride))
    fixed_crd = dice_tuple(crd, crd)
    offset_inside = layout.offset ^ _xor_offset(compose_layouts(inside, fixed), fixed_crd)
    offset_outside = compose_layouts(outside, fixed)(fixed_crd)

    active = compose_layouts(inside, kept)
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
    return compose_layouts(unfolded, kept), swizzle(offset_inside) + offset_outside


def _bit_strides(offset: int, z: int, y: int, bits: int, *, moves_z: bool) -> Any:  # noqa: ANN401 - IntTuple
    """Return the value of each index bit after the swizzle, given the bits of `offset`: Y bits also change their Z."""
    if moves_z:
        strides = [z << i if not offset & (y << i) else -(z << i) for i in range(bits)]
    else:
        strides = [(y + z) << i if not offset & (z << i) else (y - z) << i for i in range(bits)]
    return strides[0] if bits == 1 else tuple(strides)


def _xor_offset(layout: Layout, crd: IntTuple) -> int:
    """Return the exclusive or of the modes' contributions: their sum, as they are disjoint powers of two."""

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


def _all_none(crd: IntTuple) -> bool:
    return all(map(_all_none, crd)) if isinstance(crd, tuple) else crd is None


def _bytes_error(name: str, crd: IntTuple, layout: ComposedLayout, what: str) -> LayoutError:
    condition = f"a layout of byte addresses cannot be {what}"
    return LayoutError(name, (crd, layout), condition, "take position_independent() of it first")


@operation
def domain_offset(crd: IntTuple, layout: Any) -> tuple[Any, Any]:  # noqa: ANN401 - Layout or ComposedLayout
    """Move the origin of `layout` to `crd`: (layout, offset); a composed layout takes the offset in itself.

    >>> print(*domain_offset((1, 2), Layout((4, 8))))
    (4,8):(1,4) 9
    """
    if isinstance(layout, ComposedLayout):
        if isinstance(layout.offset, SmemPtr):
            raise _bytes_error("domain_offset", crd, layout, "moved by elements")
        moved = add_coordinates(layout.offset, layout.layoutA(crd))
        return ComposedLayout(layout.layoutB, moved, layout.layoutA), 0
    return layout, layout(crd)
