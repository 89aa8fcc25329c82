"""Texts to draw: the notation, as who printed it means it, and names of atoms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..notation import parse
from .atoms import atom_named, names_atom

_DSL_SWIZZLE = re.compile(r"(?<![A-Za-z])S(?:<|&lt;)", re.IGNORECASE)


def read(text: str, bits: int | None = None, given: Sequence[int] = ()) -> tuple[Any, tuple[str, ...]]:
    """Read what is to be drawn.

    The CuTe DSL prints the swizzle of a GMMA atom as ``S<3,4,3>`` and means byte addresses; C++ CuTe prints
    ``Sw<3,3,3>`` for 16 bits, and means offsets of elements. So ``S<>`` is read as bytes once the width is known.

    Parameters
    ----------
    text : str
        Of the notation; or an atom's name such as ``SM90_64x64x16_F16F16F16_SS``: see `atom_named`.
    bits : int, optional
        Width of an element.
    given : sequence of int, optional
        Values for what the text leaves open; see `parse`.

    Returns
    -------
    (value, remarks)
        Remarks say how a swizzle was read, where there is a doubt.

    Examples
    --------
    >>> print(read("S<3,4,3> o 0 o (64,8):(1,64)", 16)[0])
    Sw<3,3,3> o 0 o (64,8):(1,64)
    >>> print(read("Sw<3,4,3> o 0 o (64,8):(1,64)", 16)[0])
    Sw<3,4,3> o 0 o (64,8):(1,64)
    """
    name = text.strip()
    if names_atom(name):
        return atom_named(name), ()
    value = parse(text, given=given)
    return as_meant(value, text, bits)


def as_meant(value: Any, text: str, bits: int | None) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401 - any value
    """Return a value read from a text as who printed it means it, and remarks where there is a doubt; see `read`."""
    if (
        not _DSL_SWIZZLE.search(text)
        or not isinstance(value, ComposedLayout)
        or not isinstance(value.layoutB, Swizzle)
        or isinstance(value.offset, SmemPtr)
    ):
        return value, ()
    printed = str(value.layoutB).replace("Sw", "S")
    if bits is None:
        return value, (f"{printed} is drawn on offsets; where the DSL means bytes, tell the width of an element",)
    on_elements = value.layoutB.downcast(8).upcast(bits)
    read_as = ComposedLayout(on_elements, value.offset, value.layoutA)
    return read_as, (f"{printed} is read as the DSL means it, on byte addresses: {on_elements} on {bits}-bit elements",)
