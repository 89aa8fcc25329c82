"""Swizzle: the exclusive-or permutation of indices that spreads a tile over the banks of shared memory.

References
----------
CuTe ``swizzle.hpp``; pycute ``swizzle.py`` for names.
"""

from __future__ import annotations

from operator import index as as_index

from .errors import LayoutError, operation


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


class Swizzle:
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

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Swizzle is immutable; cannot set {name}: make a new Swizzle")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Swizzle is immutable; cannot delete {name}")

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
