"""CUDA arrays, textures and surfaces, as host code of CUDA C++ makes them.

References
----------
CUDA Runtime API, "Memory Management", "Texture Object Management", "Surface Object Management"; the structs are those
of ``driver_types.h`` and ``texture_types.h``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from cutepy.sim.machine.images import AddressMode, Form, Image, Surface, Texture
from cutepy.sim.machine.lanes import Array

_INVALID_VALUE = 1
_LAYERED, _CUBEMAP = 1, 4
_FORMS: tuple[Form, ...] = ("s", "u", "f")
_MODES: tuple[AddressMode, ...] = ("wrap", "clamp", "mirror", "border")
_ARRAY, _LINEAR, _PITCH = 0, 2, 3
_PITCH_BYTES = 512
_ALIGNMENT = 256
_WORD_BITS = 32


class Extent(ctypes.Structure):
    """cudaExtent, and cudaPos."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("width", "height", "depth")]


class Channels(ctypes.Structure):
    """cudaChannelFormatDesc."""

    _fields_ = [*((name, ctypes.c_int) for name in "xyzw"), ("form", ctypes.c_int)]


class _Pitched(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), *((n, ctypes.c_size_t) for n in ("pitch", "width", "height"))]


class _Copy(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = [
        ("source_array", ctypes.c_uint64),
        ("source_at", Extent),
        ("source", _Pitched),
        ("target_array", ctypes.c_uint64),
        ("target_at", Extent),
        ("target", _Pitched),
        ("extent", Extent),
        ("kind", ctypes.c_int),
    ]


class _Resource(ctypes.Structure):
    """cudaResourceDesc: an array's handle, or the address of linear or pitched memory."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("channels", Channels),
        ("size_or_width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
    ]


class _Sampling(ctypes.Structure):
    """cudaTextureDesc, as far as it matters here."""

    _fields_ = [
        ("modes", ctypes.c_int * 3),
        ("filter", ctypes.c_int),
        ("read", ctypes.c_int),
        ("srgb", ctypes.c_int),
        ("border", ctypes.c_float * 4),
        ("normalized", ctypes.c_int),
    ]


@dataclass(frozen=True)
class CudaArray:
    """A CUDA array: its memory, and how its elements are there."""

    data: Array
    image: Image

    @property
    def slices(self) -> int:
        """How many planes of rows there are, along z or as layers."""
        return self.image.layers or (self.image.extents[2] if len(self.image.extents) == 3 else 1)

    @property
    def rows(self) -> int:
        """How many rows a plane has."""
        return self.image.extents[1] if len(self.image.extents) > 1 else 1

    @property
    def row_bytes(self) -> int:
        """Of one row: arrays have no padding."""
        return self.image.extents[0] * self.image.element_bytes

    def bytes(self) -> Array:
        """Return a view of its memory by (slice, row, byte)."""
        start = self.image.address - self.data.ctypes.data
        whole = self.data[start : start + self.slices * self.rows * self.row_bytes]
        return whole.reshape(self.slices, self.rows, self.row_bytes)


IMAGE_SIGNATURES = {
    "cudaCreateChannelDesc": "piiiii",
    "cudaMallocArray": "pplli",
    "cudaMalloc3DArray": "ppei",
    "cudaFreeArray": "p",
    "cudaMallocPitch": "ppll",
    "cudaMemcpy2DToArray": "pllpllli",
    "cudaMemcpy2DToArrayAsync": "pllplllip",
    "cudaMemcpy2DFromArray": "plplllli",
    "cudaMemcpy2DFromArrayAsync": "plpllllip",
    "cudaMemcpy3D": "p",
    "cudaMemcpy3DAsync": "pp",
    "cudaCreateTextureObject": "pppp",
    "cudaDestroyTextureObject": "l",
    "cudaCreateSurfaceObject": "pp",
    "cudaDestroySurfaceObject": "l",
}
"""The parameters of each function: as in `signatures.SIGNATURES`, and e for a cudaExtent."""


class ImageCalls:
    """The calls of the runtime that make arrays, textures and surfaces, and copy to arrays and from them."""

    _memory: dict[int, Array]

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self._arrays: dict[int, CudaArray] = {}
        self._objects: dict[int, Texture | Surface] = {}

    def do_cudaCreateChannelDesc(self, result: int, x: int, y: int, z: int, w: int, form: int) -> int:
        """Give a format, where the caller of a function that returns a struct wants it."""
        made = Channels.from_address(result)
        made.x, made.y, made.z, made.w, made.form = x, y, z, w, form
        return result

    # Arrays.

    def do_cudaMallocArray(self, pointer: int, channels: int, width: int, height: int, flags: int) -> int:
        """Make an array of one or two dimensions."""
        return self.do_cudaMalloc3DArray(pointer, channels, Extent(width, height, 0), flags)

    def do_cudaMalloc3DArray(self, pointer: int, channels: int, extent: Extent, flags: int) -> int:
        """Make an array of one to three dimensions, or of layers of one or two."""
        form, bits, count = _format(Channels.from_address(channels))
        layers = extent.depth if flags & _LAYERED else 0
        extents = tuple(n for n in (extent.width, extent.height, 0 if layers else extent.depth) if n)
        if flags & _CUBEMAP:
            raise NotImplementedError("cudaMalloc3DArray: cubemaps are not simulated")
        row = extents[0] * bits // 8 * count
        plane = row * (extents[1] if len(extents) > 1 else 1)
        size = plane * (layers or (extents[2] if len(extents) > 2 else 1))
        data = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -data.ctypes.data % _ALIGNMENT
        address = data.ctypes.data + start
        strides = (row, plane)[: len(extents) - 1]
        image = Image(address, extents, form, bits, count, strides, layers, plane if layers else 0)
        self._arrays[address] = CudaArray(data, image)
        self._memory[address] = data[start : start + size]
        ctypes.c_uint64.from_address(pointer).value = address
        return 0

    def do_cudaFreeArray(self, array: int | None) -> int:
        """Let an array go."""
        if array and self._arrays.pop(array, None) is None:
            return _INVALID_VALUE
        self._memory.pop(array or 0, None)
        return 0

    # Copies, all at once.

    def do_cudaMallocPitch(self, pointer: int, pitch: int, width: int, height: int) -> int:
        """Give memory of rows that start at multiples of what the device likes."""
        row = -(-width // _PITCH_BYTES) * _PITCH_BYTES
        ctypes.c_uint64.from_address(pitch).value = row
        result: int = self.do_cudaMalloc(pointer, row * height)  # type: ignore[attr-defined]
        return result

    def do_cudaMemcpy2DToArray(
        self, array: int, x: int, y: int, source: int, pitch: int, width: int, height: int, *_: object
    ) -> int:
        """Copy rows to an array; x and width count bytes."""
        to = self._arrays[array].bytes()[0]
        to[y : y + height, x : x + width] = _rows(source, pitch, width, height)
        return 0

    do_cudaMemcpy2DToArrayAsync = do_cudaMemcpy2DToArray

    def do_cudaMemcpy2DFromArray(
        self, target: int, pitch: int, array: int, x: int, y: int, width: int, height: int, *_: object
    ) -> int:
        """Copy rows from an array; x and width count bytes."""
        _rows(target, pitch, width, height)[...] = self._arrays[array].bytes()[0, y : y + height, x : x + width]
        return 0

    do_cudaMemcpy2DFromArrayAsync = do_cudaMemcpy2DFromArray

    def do_cudaMemcpy3D(self, parameters: int, *_: object) -> int:
        """Copy a box; where an array takes part, x and the width count its elements."""
        how = _Copy.from_address(parameters)
        array = how.source_array or how.target_array
        unit = self._arrays[array].image.element_bytes if array else 1
        extent = how.extent.depth, how.extent.height, how.extent.width * unit
        source = self._box(how.source_array, how.source, how.source_at, unit, extent)
        self._box(how.target_array, how.target, how.target_at, unit, extent)[...] = source
        return 0

    do_cudaMemcpy3DAsync = do_cudaMemcpy3D

    def _box(self, array: int, pitched: _Pitched, at: Extent, unit: int, extent: tuple[int, int, int]) -> Array:
        """Return a view of a part of an array or of pitched memory, by (z, y, byte)."""
        if array:
            whole = self._arrays[array].bytes()
        else:
            planes = at.depth + extent[0]
            rows = _rows(pitched.address, pitched.pitch, pitched.pitch, planes * pitched.height)
            whole = rows.reshape(planes, pitched.height, pitched.pitch)
        x = at.width * (unit if array else 1)
        found = whole[at.depth :, at.height :, x:]
        return found[: extent[0], : extent[1], : extent[2]]

    # Objects.

    def do_cudaCreateTextureObject(self, pointer: int, resource: int, sampling: int, view: int | None) -> int:
        """Make a texture of an array, of linear or of pitched memory."""
        if view:
            raise NotImplementedError("cudaCreateTextureObject: a resource view is not simulated")
        how = _Sampling.from_address(sampling)
        image = self._image(_Resource.from_address(resource))
        texture = Texture(
            image,
            tuple(_MODES[n] for n in how.modes),
            bool(how.filter) and not image.is_linear,
            bool(how.normalized) and not image.is_linear,
            bool(how.read) and image.form != "f" and image.bits < _WORD_BITS,
            (how.border[0], how.border[1], how.border[2], how.border[3]),
        )
        return self._give(pointer, texture)

    def do_cudaCreateSurfaceObject(self, pointer: int, resource: int) -> int:
        """Make a surface of an array."""
        return self._give(pointer, Surface(self._image(_Resource.from_address(resource))))

    def _image(self, resource: _Resource) -> Image:
        if resource.kind == _ARRAY:
            return self._arrays[resource.address].image
        if resource.kind not in (_LINEAR, _PITCH):
            raise NotImplementedError("textures and surfaces of mipmapped arrays are not simulated")
        form, bits, count = _format(resource.channels)
        if resource.kind == _LINEAR:
            elements = resource.size_or_width // (bits // 8 * count)
            return Image(resource.address, (elements,), form, bits, count, is_linear=True)
        extents = resource.size_or_width, resource.height
        return Image(resource.address, extents, form, bits, count, (resource.pitch,))

    def _give(self, pointer: int, made: Texture | Surface) -> int:
        self._objects[made.number] = made
        ctypes.c_uint64.from_address(pointer).value = made.number
        return 0

    def do_cudaDestroyTextureObject(self, number: int) -> int:
        """Let a texture or surface go."""
        return 0 if self._objects.pop(number, None) is not None else _INVALID_VALUE

    do_cudaDestroySurfaceObject = do_cudaDestroyTextureObject


def _format(channels: Channels) -> tuple[Form, int, int]:
    """Return form, bits and number of the channels of a format."""
    count = sum(bits > 0 for bits in (channels.x, channels.y, channels.z, channels.w))
    if channels.form >= len(_FORMS):
        raise NotImplementedError(f"the format {channels.form} of textures and surfaces is not simulated")
    return _FORMS[channels.form], channels.x, count


def _rows(address: int, pitch: int, width: int, height: int) -> Array:
    """Return a view of rows in memory."""
    if not height:
        return np.zeros((0, width), np.uint8)
    whole = np.ctypeslib.as_array((ctypes.c_uint8 * ((height - 1) * pitch + width)).from_address(address))
    return np.lib.stride_tricks.as_strided(whole, (height, width), (pitch, 1))
