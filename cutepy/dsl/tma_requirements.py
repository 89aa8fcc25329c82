"""Requirements of TMA on a tensor that types in traced code leave unproven: strides, contiguity, address.

References
----------
CUDA driver API, cuTensorMapEncodeTiled: its conditions on `globalAddress` and `globalStrides`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_UNIT_BITS = 128
_IM2COL = " o "
"""Marker of im2col mode in the type of coordinates: those of tiled mode are not composed of others."""
_LARGEST_BITS = 1 << 43
"""Bound on strides in bits: less than 2**40 bytes."""


@dataclass(frozen=True)
class Requirement:
    """Requirement of a tensor map on a number of its tensor: the bits in `mask` are as in `expected`.

    Attributes
    ----------
    leaf : int or None
        The mode, counted through nested ones; None for the address.
    factor : int
        Factor of the number: a stride in elements becomes one in bits.
    expected, mask : int
    text : str
        Error text, with places for the number and, of a stride, for the bytes.
    """

    leaf: int | None
    factor: int
    expected: int
    mask: int
    text: str


def requirements(tensor: str, coordinates: str) -> list[Requirement]:
    """List the requirements of TMA on a tensor that its type does not prove.

    Parameters
    ----------
    tensor : str
        The tensor's type in the traced code: element type, alignment and layout.
    coordinates : str
        The type of the coordinates that TMA takes for it: which of its modes each of the tensor's is.

    Examples
    --------
    >>> tensor = '!cute.memref<f16, gmem, align<16>, "(?,?):(?{i64},1)">'
    >>> [r.leaf for r in requirements(tensor, '!cute.coord_tensor<"(0,0)", "(?,?):(1@1,1@0)">')]
    [0]
    """
    bits = int(re.search(r"\d+", tensor.partition("<")[2])[0])  # type: ignore[index]
    strides = _leaves(tensor)
    steps = [_step(leaf) for leaf in _leaves(coordinates)]
    if _IM2COL in coordinates:
        # The tensor is ((w, h, d, n), c), whatever offsets its coordinates are composed of; c may have several modes.
        channels = len(_LEAF.findall(_last_mode(_strides(tensor))))
        outer = len(strides) - channels
        steps = [(Fraction(1), str(n + 1)) for n in range(outer)] + [(Fraction(1), "0")] * channels
    found = []
    contiguous = [(step, n) for n, (step, dimension) in enumerate(steps) if dimension == "0"]
    smallest = [n for step, n in contiguous if step == min(contiguous)[0]]
    # Modes within a larger element of TMA, such as the 4 factors of a row in 4 bytes, stay in place.
    inside = [n for n, (_, dimension) in enumerate(steps) if dimension == ""]
    if smallest and not any(strides[n] == "1" for n in (*smallest, *inside)):
        n = smallest[0]
        text = f"stride {n} is %lld elements, and TMA needs 1: it copies runs of neighbours along this mode"
        found.append(Requirement(n, 1, 1, -1, text))
    for n, (_, dimension) in enumerate(steps):
        if dimension not in ("", "0") and _divisor(strides[n]) * bits % _UNIT_BITS:
            text = f"stride {n} is %lld elements, %lld bytes, and TMA needs a multiple of 16 bytes (below 2**40)"
            found.append(Requirement(n, bits, 0, ~(_LARGEST_BITS - _UNIT_BITS), text))
    aligned = re.search(r"align<(\d+)>", tensor)
    if aligned is None or int(aligned[1]) % (_UNIT_BITS // 8):
        text = "it starts at address 0x%llx, and TMA needs a multiple of 16 bytes"
        found.append(Requirement(None, 1, 0, _UNIT_BITS // 8 - 1, text))
    return found


def _leaves(text: str) -> list[str]:
    """Split the strides of the last layout in a type: numbers, scaled bases, and divisors of unknown ones."""
    return _LEAF.findall(_strides(text))


_LEAF = re.compile(r"[^(),]+")


def _strides(text: str) -> str:
    """Return the strides of the last layout in a type."""
    return text.rpartition('"')[0].rpartition(":")[2]


def _last_mode(strides: str) -> str:
    """Return the last of the outermost modes.

    Examples
    --------
    >>> _last_mode("((128,1280),1)"), _last_mode("((128,1280),(1,2))")
    ('1', '(1,2)')
    """
    depth, start = 0, 1
    for n, letter in enumerate(strides):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 1:
            start = n + 1
    return strides[start:-1]


def _step(leaf: str) -> tuple[Fraction, str]:
    """Read a scaled basis vector: the step in elements of TMA, and the dimension, "" for a mode that stays in place.

    A tensor whose elements are moved in larger ones has steps below 1. A step that is not known counts as the largest.

    Examples
    --------
    >>> _step("1/2@0"), _step("8@1"), _step("0")
    ((Fraction(1, 2), '0'), (Fraction(8, 1), '1'), (Fraction(0, 1), ''))
    """
    step, _, dimension = leaf.strip().partition("@")
    known = re.fullmatch(r"\d+(?:/\d+)?", step)
    return Fraction(step) if known else Fraction(_LARGEST_BITS), dimension


def _divisor(stride: str) -> int:
    """Return the known divisor of a stride."""
    known = re.search(r"div=(\d+)|^(\d+)$", stride)
    return int(known[1] or known[2]) if known else 1


_STRIDE = re.compile(r"argument (.+): (?:stride \d+|a stride) is (\d+) elements, (\d+) bytes, and TMA needs")


def refused_stride(text: str) -> tuple[str, int, int] | None:
    """Parse an error of host code: the argument, its stride, and the required divisor, in elements.

    Compiled code makes the check as it makes the tensor map, so that a warm call pays nothing for it: only its text
    returns from there. It is written in this module (`Requirement.text`).

    Examples
    --------
    >>> refused_stride("argument a: stride 0 is 60 elements, 120 bytes, and TMA needs a multiple of 16 bytes")
    ('a', 60, 8)
    """
    found = _STRIDE.match(text)
    if found is None:
        return None
    elements, size_bytes = int(found[2]), int(found[3])
    return found[1], elements, _UNIT_BITS // 8 * elements // size_bytes
