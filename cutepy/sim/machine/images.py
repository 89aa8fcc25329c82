"""Textures and surfaces: what their objects say, which kernels know by a number.

References
----------
CUDA C++ Programming Guide, "Texture and Surface Memory", "Texture Fetching". CUDA Runtime API, "Texture Object
Management", "Surface Object Management".
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass, field
from typing import Literal

AddressMode = Literal["wrap", "clamp", "mirror", "border"]
Form = Literal["u", "s", "f"]

_numbers = itertools.count(1)
_objects: weakref.WeakValueDictionary[int, Texture | Surface] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Image:
    """Elements in memory, by up to three coordinates, x first, and a layer.

    Attributes
    ----------
    address : int
        Of the first element.
    extents : tuple of int
        Of x; of x and y; or of x, y and z.
    form : "u", "s" or "f"
        What the channels are: integers without or with a sign, or floats.
    bits : int
        Of each channel: 8, 16 or 32; floats have 16 or 32.
    channels : int
        1, 2 or 4.
    strides_bytes : tuple of int
        From one y to the next, and from one z to the next; as many as extents after the first.
    layers : int
        0 if it has none.
    layer_bytes : int
        From one layer to the next.
    is_linear : bool
        Whether this is memory as it is, of which elements outside read as zeros.

    Raises
    ------
    ValueError
        If there is no such format.
    """

    address: int
    extents: tuple[int, ...]
    form: Form
    bits: int
    channels: int
    strides_bytes: tuple[int, ...] = ()
    layers: int = 0
    layer_bytes: int = 0
    is_linear: bool = False

    def __post_init__(self) -> None:
        if self.bits not in (8, 16, 32) or self.channels not in (1, 2, 4) or (self.form == "f" and self.bits == 8):
            raise ValueError(
                "the channels of an image must be 1, 2 or 4 integers of 8, 16 or 32 bits, or floats of 16 or 32; "
                f"got {self.channels} of {self.form}{self.bits}"
            )
        if not 1 <= len(self.extents) <= 3 or len(self.strides_bytes) != len(self.extents) - 1:
            raise ValueError(f"expected 1 to 3 extents and strides of all but the first, got {self.extents}")

    @property
    def element_bytes(self) -> int:
        """Of all channels."""
        return self.bits // 8 * self.channels


@dataclass(eq=False)
class Texture:
    """How kernels read an image: by ``int(texture)``, the object that they are passed.

    It is known as long as it is referred to.

    Parameters
    ----------
    image : Image
    address_modes : tuple of str
        Of each coordinate: what is outside. "wrap" and "mirror" are for normalized coordinates, "clamp" without.
    filters : bool
        Whether to take the mean of the elements around, by their distance, or the nearest element.
    normalized : bool
        Whether coordinates go from 0 to 1, rather than to the extent.
    as_floats : bool
        Whether integers of 8 and 16 bits are read as floats from 0 or -1 to 1.
    border : tuple of float
        What "border" reads outside, by channel.

    Raises
    ------
    ValueError
        If it filters what is not read as floats.
    """

    image: Image
    address_modes: tuple[AddressMode, ...] = ("clamp", "clamp", "clamp")
    filters: bool = False
    normalized: bool = False
    as_floats: bool = False
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    number: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.as_floats and self.image.bits == 32:
            raise ValueError("integers of 32 bits are not read as normalized floats")
        if self.filters and not self.reads_floats:
            raise ValueError("linear filtering is for what is read as floats; take the nearest element of integers")
        self.number = next(_numbers)
        _objects[self.number] = self

    @property
    def reads_floats(self) -> bool:
        """Whether what is read are floats."""
        return self.image.form == "f" or self.as_floats

    def mode(self, n: int) -> AddressMode:
        """Return what is done about coordinate `n` outside."""
        mode = self.address_modes[n] if n < len(self.address_modes) else "clamp"
        return "clamp" if mode in ("wrap", "mirror") and not self.normalized else mode

    def __int__(self) -> int:
        return self.number

    __index__ = __int__


@dataclass(eq=False)
class Surface:
    """An image that kernels read and write as it is: by ``int(surface)``."""

    image: Image
    number: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.number = next(_numbers)
        _objects[self.number] = self

    def __int__(self) -> int:
        return self.number

    __index__ = __int__


def image_object(number: int) -> Texture | Surface | None:
    """Return the texture or surface of a number, None if there is none any more."""
    return _objects.get(number)
