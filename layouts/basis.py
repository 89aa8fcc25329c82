"""Scaled basis elements: strides that step along one mode of a coordinate instead of a linear index."""

from __future__ import annotations

from typing import Any

from .errors import LayoutError, operation
from .writer import FrozenValue


class ScaledBasis(FrozenValue):
    """A stride along one mode of a hierarchical coordinate: integers -> coordinates, ``c -> c * value * e_modes``.

    Parameters
    ----------
    value : int
        The scale: how far one step goes.
    modes : tuple of int
        Path to the mode, outermost first: ``(1, 0)`` is mode 0 of mode 1, CuTe's ``E<1,0>``.

    Examples
    --------
    Written as CuTe prints it, innermost mode first:

    >>> print(ScaledBasis(2, (1,)), ScaledBasis(1, (1, 0)))
    2@1 1@0@1
    >>> ScaledBasis(1, (1, 0)) * 4 + ScaledBasis(3, (0,))
    (3, (4,))

    References
    ----------
    CuTe ``numeric/arithmetic_tuple.hpp``.
    """

    __slots__ = ("modes", "value")
    modes: tuple[int, ...]
    value: int

    def __init__(self, value: int, modes: tuple[int, ...]) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"ScaledBasis: value must be an int, got {value!r}")
        if not isinstance(modes, tuple) or not modes or not all(type(mode) is int and mode >= 0 for mode in modes):
            raise TypeError(f"ScaledBasis: modes must be a non-empty tuple of non-negative ints, got {modes!r}")
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "modes", modes)

    def __reduce__(self) -> tuple[object, ...]:
        return ScaledBasis, (self.value, self.modes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScaledBasis):
            return self.value == other.value and self.modes == other.modes
        return NotImplemented

    def __hash__(self) -> int:
        return hash((ScaledBasis, self.value, self.modes))

    def __repr__(self) -> str:
        return f"ScaledBasis({self.value},{self.modes})"

    def __str__(self) -> str:
        return "@".join(map(str, (self.value, *reversed(self.modes))))

    def __mul__(self, factor: int) -> ScaledBasis:
        if not isinstance(factor, int):
            return NotImplemented
        return ScaledBasis(self.value * factor, self.modes)

    __rmul__ = __mul__

    def __neg__(self) -> ScaledBasis:
        return ScaledBasis(-self.value, self.modes)

    def __abs__(self) -> ScaledBasis:
        return ScaledBasis(abs(self.value), self.modes)

    def __add__(self, other: object) -> Any:  # noqa: ANN401 - a coordinate: nested tuples of ints
        return add_coordinates(self, other)

    __radd__ = __add__

    def as_coordinate(self) -> tuple[Any, ...]:
        """Return the coordinate with `value` at the mode and zeros before it: ``2@1`` is ``(0, 2)``."""
        result: Any = self.value
        for mode in reversed(self.modes):
            result = (0,) * mode + (result,)
        return result  # type: ignore[no-any-return]


def E(*modes: int) -> ScaledBasis | int:
    """Return the unit basis element of the mode at path `modes`; ``E()`` is 1, as in CuTe.

    >>> E(1, 0)
    ScaledBasis(1,(1, 0))
    """
    return ScaledBasis(1, modes) if modes else 1


def has_basis(stride: Any) -> bool:  # noqa: ANN401 - IntTuple
    """Return whether `stride` contains a scaled basis."""
    if stride.__class__ is not tuple:
        return stride.__class__ is not int
    for d in stride:
        if d.__class__ is not int and has_basis(d):
            return True
    return False


def as_coordinate(x: Any) -> Any:  # noqa: ANN401 - IntTuple in, IntTuple out
    """Return `x` with every scaled basis in it written out as a coordinate."""
    if isinstance(x, ScaledBasis):
        return x.as_coordinate()
    if isinstance(x, tuple):
        return tuple(map(as_coordinate, x))
    return x


@operation
def add_coordinates(a: Any, b: Any) -> Any:  # noqa: ANN401 - IntTuples
    """Add two coordinates mode by mode, the shorter padded with zeros; integer 0 is neutral.

    Examples
    --------
    >>> add_coordinates((1, 2), (10,))
    (11, 2)
    """
    return _add(as_coordinate(a), as_coordinate(b))


def _add(a: Any, b: Any) -> Any:  # noqa: ANN401 - coordinates
    if isinstance(a, tuple) and isinstance(b, tuple):
        rank = max(len(a), len(b))
        return tuple(map(_add, a + (0,) * (rank - len(a)), b + (0,) * (rank - len(b))))
    if isinstance(a, tuple) or isinstance(b, tuple):
        if a == 0 or b == 0:
            return b if a == 0 else a
        raise LayoutError("add_coordinates", (a, b), "a coordinate and a non-zero integer have no sum")
    return a + b


def basis_value(stride: Any) -> int:  # noqa: ANN401 - int or ScaledBasis
    """Return the scale of a scaled basis, or the integer itself.

    >>> basis_value(ScaledBasis(2, (1,))), basis_value(3)
    (2, 3)
    """
    return stride.value if isinstance(stride, ScaledBasis) else stride


@operation
def basis_get(stride: Any, t: Any) -> Any:  # noqa: ANN401 - IntTuples
    """Return the element of `t` at the path of the scaled basis `stride`; `t` itself for an integer stride.

    >>> basis_get(ScaledBasis(2, (1,)), (4, 8))
    8
    """
    if not isinstance(stride, ScaledBasis):
        return t
    element = t
    for mode in stride.modes:
        if not isinstance(element, tuple):
            if mode:
                raise LayoutError("basis_get", (stride, t), f"mode must be 0 for an integer, got {mode}")
        elif mode < len(element):
            element = element[mode]
        else:
            raise LayoutError("basis_get", (stride, t), f"mode must be < rank {len(element)}, got {mode}")
    return element
