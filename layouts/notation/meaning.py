"""Meaning of a printed swizzle: on bytes or on elements, depending on the printer.

The CuTe DSL prints the swizzle of a GMMA atom as ``S<3,4,3>`` and means byte addresses; C++ CuTe prints ``Sw<3,3,3>``
for 16 bits, and means offsets of elements. So ``S<>`` is read as bytes once the width is known.
"""

from __future__ import annotations

import re
from typing import Any

from ..composed import ComposedLayout, SmemPtr, Swizzle

_DSL_SWIZZLE = re.compile(r"(?<![A-Za-z])S(?:<|&lt;)", re.IGNORECASE)


def as_meant(value: Any, text: str, bits: int | None) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401 - any value
    """Return a value read from a text as its printer means it, with remarks where that is ambiguous.

    Parameters
    ----------
    value : object
        Value of the text as it stands.
    text : str
    bits : int or None
        Width of an element.

    Returns
    -------
    (value, remarks)

    Examples
    --------
    >>> from cutepy.layouts import Swizzle
    >>> as_meant(Swizzle(3, 4, 3), "S<3,4,3>", 16)
    (Swizzle(3,3,3), ('S<3,4,3> is read as the DSL means it, on byte addresses: Sw<3,3,3> on 16-bit elements',))
    >>> as_meant(Swizzle(3, 4, 3), "Sw<3,4,3>", 16)
    (Swizzle(3,4,3), ())
    """
    swizzle = value.layoutB if isinstance(value, ComposedLayout) else value
    if not isinstance(swizzle, Swizzle) or not _DSL_SWIZZLE.search(text):
        return value, ()
    if isinstance(value, ComposedLayout) and isinstance(value.offset, SmemPtr):
        return value, ()
    printed = str(swizzle).replace("Sw", "S")
    if bits is None:
        untold = f"{printed} is drawn on offsets; where the DSL means bytes, tell the width of an element"
        return value, (untold,) if isinstance(value, ComposedLayout) else ()
    on_elements = swizzle.downcast(8).upcast(bits)
    meant = ComposedLayout(on_elements, value.offset, value.layoutA) if swizzle is not value else on_elements
    return meant, (f"{printed} is read as the DSL means it, on byte addresses: {on_elements} on {bits}-bit elements",)
