"""Reader of texts to draw: the notation, as its printer means it, and names of atoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..notation import parse
from ..notation.atoms import atom_named, names_atom
from ..notation.meaning import as_meant


def read(
    text: str, bits: int | None = None, given: Sequence[int] = (), shape: Sequence[int] | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Read the value to draw, and describe how it was read: as `parse` with the width does.

    Parameters
    ----------
    text : str
        Text of the notation; or an atom's name such as ``SM90_64x64x16_F16F16F16_SS``: see `atom_named`.
    bits : int, optional
        Width of an element.
    given : sequence of int, optional
        Values for numbers that the text leaves open; see `parse`.
    shape : sequence of int, optional
        Extents of the tensor whose encoding the text holds; see `parse`.

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
    if names_atom(text) and shape is None:
        return atom_named(text), ()
    value = parse(text, given=given, shape=shape)
    return as_meant(value, text, bits)
