"""What the texture unit does: coordinates become elements, and these a value.

Channels that an image lacks read as 0, and an image of one dimension is a row of one of two, which is sampled at y = 0:
in border mode half of what is filtered there is the border. An H200 does both.

References
----------
PTX ISA, "Texture Instructions", "Surface Instructions". CUDA C++ Programming Guide, "Texture Fetching".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.machine.images import Image, Surface, Texture, image_object
from cutepy.sim.machine.lanes import Array
from cutepy.sim.mechanisms.filtering import filtered, split

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction

_CHANNELS = 4
_COORDINATE_ONE = 1 << 21
"""A normalized coordinate is cut off at this fraction, downwards: measured on an H200, where no other bit gives it."""


class Textures:
    """Fetches of textures, and accesses of surfaces."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    # What translated code asks for.

    def fetch(
        self, g: Group, i: Instruction, number: Array, at: Sequence[Array], layer: Array | None, kind: str
    ) -> list[Array]:
        """Return the four channels of each lane's element, of a kind, at its coordinates."""

        def one(texture: Texture, mine: Array) -> Array:
            self._check(g, i, texture.image, len(at), layer)
            return _Fetch(self._memory, g, i, texture, layer).sample(self._shaped(g, at))

        return self._converted(g, i, self._by_object(g, i, number, Texture, one), number, kind)

    def gather(
        self, g: Group, i: Instruction, number: Array, at: Sequence[Array], channel: int, kind: str
    ) -> list[Array]:
        """Return one channel of the four elements around each lane's coordinates, as tld4 orders them."""

        def one(texture: Texture, mine: Array) -> Array:
            self._check(g, i, texture.image, 2, None)
            fetch = _Fetch(self._memory, g, i, texture, None)
            return np.stack([corner[..., channel] for corner in fetch.corners(self._shaped(g, at))], axis=-1)

        return self._converted(g, i, self._by_object(g, i, number, Texture, one), number, kind)

    def load(
        self,
        g: Group,
        i: Instruction,
        number: Array,
        at: Sequence[Array],
        layer: Array | None,
        kind: str,
        count: int,
        outside: str,
    ) -> list[Array]:
        """Return `count` numbers of a kind at each lane's place of a surface, x in bytes."""
        dtype = np.dtype(kind)

        def one(surface: Surface, mine: Array) -> Array:
            place, is_inside = self._place(g, i, surface.image, at, layer, dtype.itemsize * count, outside, mine)
            values = self._memory.load(g, i, "global", place, dtype, count)
            found = np.stack(values if count > 1 else [values], axis=-1)
            return np.where(is_inside[..., None], found, dtype.type(0))

        values = self._by_object(g, i, number, Surface, one)
        return [values[..., n] for n in range(count)]

    def store(
        self,
        g: Group,
        i: Instruction,
        number: Array,
        at: Sequence[Array],
        layer: Array | None,
        values: tuple[Array, ...],
        outside: str,
    ) -> None:
        """Store numbers at each lane's place of a surface, x in bytes."""
        shape = (g.ctas.count, g.threads.count)
        numbers = np.broadcast_to(number, shape)
        for one in np.unique(numbers).tolist():
            surface = self._object(g, i, one, Surface)
            size = values[0].itemsize * len(values)
            mine = numbers == one
            place, is_inside = self._place(g, i, surface.image, at, layer, size, outside, mine)
            writes = is_inside & mine
            if not writes.any():
                continue
            # Lanes that do not write do as the last one that does: of lanes at one place the last wins.
            row, column = (int(x[-1]) for x in np.nonzero(writes))
            given = tuple(np.broadcast_to(v, shape) for v in values)
            given = tuple(np.where(writes, v, v[row, column]) for v in given)
            self._memory.store(g, i, "global", np.where(writes, place, place[row, column]), given)

    def query(self, g: Group, i: Instruction, number: Array, what: str) -> Array:
        """Return what a texture or surface says of itself."""

        def one(found: Texture | Surface, mine: Array) -> Array:
            image = found.image
            extents = (*image.extents, 0, 0)
            answers = {
                "width": extents[0],
                "height": extents[1],
                "depth": extents[2],
                "array_size": image.layers,
                "num_mipmap_levels": 1,
                "normalized_coords": int(isinstance(found, Texture) and found.normalized),
            }
            return np.full((1, 1, 1), answers[what], np.uint32)

        result: Array = self._by_object(g, i, number, (Texture, Surface), one)[..., 0]
        return result

    def is_kind(self, number: Array, kind: str) -> Array:
        """Tell whether numbers are of textures ("texref") or surfaces ("surfref"); samplers are not apart."""
        wanted = {"texref": Texture, "surfref": Surface}.get(kind, ())
        flat = [isinstance(image_object(int(n)), wanted) for n in number.flat]
        return np.array(flat).reshape(number.shape)

    # Objects.

    def _object(self, g: Group, i: Instruction, number: int, kinds: type | tuple[type, ...]) -> Texture | Surface:
        found = image_object(number)
        if found is None or not isinstance(found, kinds):
            what = "is none" if found is None else f"is a {type(found).__name__.lower()}"
            raise DescriptorError(f"{i.opcode} is given the object {number:#x}, which {what}", i, g.describe())
        return found

    def _by_object(
        self, g: Group, i: Instruction, number: Array, kinds: type | tuple[type, ...], one: Callable[..., Array]
    ) -> Array:
        """Return what a function gives of each lane's object."""
        first, *others = np.unique(number).tolist()
        result = one(self._object(g, i, first, kinds), number == first)
        for other in others:
            mine = number == other
            result = np.where(mine[..., None], one(self._object(g, i, other, kinds), mine), result)
        return result

    def _check(self, g: Group, i: Instruction, image: Image, dimensions: int, layer: Array | None) -> None:
        if len(image.extents) != dimensions or bool(image.layers) != (layer is not None):
            layered = f" in {image.layers} layers" if image.layers else ""
            raise DescriptorError(
                f"{i.opcode} is given an image of {len(image.extents)} dimensions{layered}", i, g.describe()
            )

    def _shaped(self, g: Group, at: Sequence[Array]) -> list[Array]:
        shape = (g.ctas.count, g.threads.count)
        return [np.broadcast_to(x, shape) for x in at]

    def _converted(self, g: Group, i: Instruction, values: Array, number: Array, kind: str) -> list[Array]:
        is_float = values.dtype == np.float32
        if is_float != (kind == "f4"):
            raise DescriptorError(
                f"{i.opcode} reads {'integers' if kind != 'f4' else 'floats'} of the object {int(number.flat[0]):#x}, "
                f"which gives {'floats' if is_float else 'integers'}",
                i,
                g.describe(),
            )
        whole = np.ascontiguousarray(values if is_float else values.astype(np.int64).astype(kind))
        return [whole[..., n] for n in range(_CHANNELS)]

    def _place(
        self,
        g: Group,
        i: Instruction,
        image: Image,
        at: Sequence[Array],
        layer: Array | None,
        size: int,
        outside: str,
        mine: Array,
    ) -> tuple[Array, Array]:
        """Return the address of each lane's place, and whether it is inside, or counts so; `mine` are those meant."""
        self._check(g, i, image, len(at), layer)
        limits = [image.extents[0] * image.element_bytes - size, *(extent - 1 for extent in image.extents[1:])]
        steps = [1, *image.strides_bytes]
        indices = [x.astype(np.int64) for x in self._shaped(g, at)]
        if layer is not None:
            indices.append(np.broadcast_to(layer, indices[0].shape).astype(np.int64))
            limits.append(image.layers - 1)
            steps.append(image.layer_bytes)
        is_inside = np.ones(indices[0].shape, bool)
        address = np.full(indices[0].shape, image.address, np.uint64)
        for index, limit, step in zip(indices, limits, steps, strict=True):
            is_inside = is_inside & (index >= 0) & (index <= limit)
            address = address + (np.clip(index, 0, limit) * step).astype(np.uint64)
        stray = ~is_inside & mine
        if outside == "trap" and stray.any():
            row, column = (int(x[0]) for x in np.nonzero(stray))
            where = tuple(int(index[row, column]) for index in indices)
            raise MemoryAccessError(
                f"{where} is outside of the surface of {image.extents} elements of {image.element_bytes} bytes; "
                "x counts bytes",
                i,
                g.lane(row, column),
            )
        return address, is_inside | (outside == "clamp")


class _Fetch:
    """One fetch of all lanes from one texture."""

    def __init__(self, memory: Memory, g: Group, i: Instruction, texture: Texture, layer: Array | None) -> None:
        self._memory, self._g, self._i = memory, g, i
        self._texture, self._image = texture, texture.image
        if len(self._image.extents) == 1:
            self._image = replace(self._image, extents=(*self._image.extents, 1), strides_bytes=(0,))
        self._layer = layer

    def sample(self, at: list[Array]) -> Array:
        """Return the four channels at coordinates: floats, or integers of 64 bits."""
        at = [*at, *[np.zeros_like(at[0])] * (len(self._image.extents) - len(at))]
        if at[0].dtype != np.float32:
            return self._element([x.astype(np.int64) for x in at])
        positions = [self._position(n, x) for n, x in enumerate(at)]
        if self._texture.filters:
            return filtered([self._between(n, x) for n, x in enumerate(positions)], self._element)
        return self._element([np.floor(x).astype(np.int64) for x in positions])

    def corners(self, at: list[Array]) -> list[Array]:
        """Return the elements around coordinates, as tld4 orders them: (0, 1), (1, 1), (1, 0), (0, 0) in x and y."""
        lows = [split(self._position(n, x))[0] for n, x in enumerate(at)]
        return [self._element([lows[0] + x, lows[1] + y]) for x, y in ((0, 1), (1, 1), (1, 0), (0, 0))]

    def _position(self, n: int, x: Array) -> Array:
        """Return a coordinate in elements; a periodic one in the first period of mirrors, which is two of wraps."""
        x = np.clip(np.where(np.isnan(x), np.float32(0), x), np.float32(-(2.0**30)), np.float32(2.0**30))
        extent, mode, position = self._image.extents[n], self._texture.mode(n), x.astype(np.float64)
        if self._texture.normalized:
            position = np.floor(position * _COORDINATE_ONE) / _COORDINATE_ONE
            position = extent * (position % 2 if mode in ("wrap", "mirror") else position)
        return np.asarray(position)

    def _between(self, n: int, position: Array) -> Array:
        """Return a position to filter at: where clamping leaves one element, that has the whole weight."""
        within = self._image.extents[n] - 0.5
        return np.clip(position, 0.5, within) if self._texture.mode(n) == "clamp" else position

    def _element(self, indices: list[Array]) -> Array:
        """Return the channels of elements, and what is read outside."""
        image, texture = self._image, self._texture
        is_inside = np.ones(indices[0].shape, bool)
        address = np.full(indices[0].shape, image.address, np.uint64)
        steps = (image.element_bytes, *image.strides_bytes)
        for n, (index, extent, step) in enumerate(zip(indices, image.extents, steps, strict=True)):
            mode = texture.mode(n)
            if mode == "wrap":
                index = index % extent
            elif mode == "mirror":
                index = index % (2 * extent)
                index = np.minimum(index, 2 * extent - 1 - index)
            elif mode == "border" or image.is_linear:
                is_inside = is_inside & (index >= 0) & (index < extent)
            address = address + (np.clip(index, 0, extent - 1) * step).astype(np.uint64)
        if self._layer is not None:
            layer = np.clip(self._layer.astype(np.int64), 0, image.layers - 1)
            address = address + (layer * image.layer_bytes).astype(np.uint64)
        bits = np.dtype(f"{image.form if image.form != 's' else 'i'}{image.bits // 8}")
        values = self._memory.load(self._g, self._i, "global", address, bits, image.channels)
        found = values if image.channels > 1 else [values]
        channels = [self._channel(np.broadcast_to(v, indices[0].shape)) for v in found]
        channels += [np.zeros_like(channels[0])] * (_CHANNELS - len(channels))
        border = np.array(texture.border if not image.is_linear else (0, 0, 0, 0)).astype(channels[0].dtype)
        return np.where(is_inside[..., None], np.stack(channels, axis=-1), border)

    def _channel(self, values: Array) -> Array:
        image = self._image
        if image.form == "f":
            return values.astype(np.float32)
        if not self._texture.as_floats:
            return values.astype(np.int64)
        largest = (1 << image.bits - (image.form == "s")) - 1
        scaled = values.astype(np.float32) / np.float32(largest)
        return np.asarray(np.maximum(scaled, np.float32(-1)))
