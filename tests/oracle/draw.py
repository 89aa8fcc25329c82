"""Random operands in the vectors' notation: IntTuples, layouts, tilers, swizzles, coordinates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

Tree = int | tuple["Tree", ...]

_EXTENTS = (1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 8, 16)
_STRIDES = (0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_SWIZZLES = ("Sw<3,4,3>", "Sw<2,4,3>", "Sw<1,4,3>", "Sw<0,4,3>", "Sw<3,3,3>", "Sw<2,3,3>", "Sw<1,3,3>", "Sw<2,1,3>")
_SWIZZLES += ("Sw<2,3,4>", "Sw<3,2,3>", "Sw<1,0,3>", "Sw<2,0,3>", "Sw<3,0,3>", "Sw<3,0,-3>", "Sw<2,0,-3>", "Sw<2,1,-2>")


def write(tree: Tree) -> str:
    """An IntTuple in the notation; a rank-1 tuple is `(4)`."""
    return str(tree) if isinstance(tree, int) else f"({','.join(map(write, tree))})"


def flat(tree: Tree) -> list[int]:
    """The leaves of an IntTuple."""
    return [tree] if isinstance(tree, int) else [leaf for branch in tree for leaf in flat(branch)]


def shaped(leaves: Sequence[int], profile: Tree) -> Tree:
    """The leaves arranged like `profile`."""
    remaining = list(leaves)

    def build(node: Tree) -> Tree:
        return remaining.pop(0) if isinstance(node, int) else tuple(build(branch) for branch in node)

    return build(profile)


def size(tree: Tree) -> int:
    """The product of the leaves."""
    total = 1
    for leaf in flat(tree):
        total *= leaf
    return total


@dataclass(frozen=True)
class Drawn:
    """A drawn layout: its trees, and its text."""

    shape: Tree
    stride: Tree

    def __str__(self) -> str:
        return f"{write(self.shape)}:{write(self.stride)}"


@dataclass
class Draw:
    """A seeded source of operands.

    Parameters
    ----------
    seed : int
        Draws with one seed are the same on every machine.
    limit : int
        Largest size of a drawn shape.
    """

    seed: int
    limit: int = 4096
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random.random() < probability

    # ---------------------------------------------------------------------------------------------------------------
    # Shapes and layouts

    def shape(self, *, rank: int | None = None, depth: int = 2, extents: Sequence[int] = _EXTENTS) -> Tree:
        """A shape, mostly a flat tuple, sometimes nested, rarely an integer or a rank-1 tuple."""
        if rank is None and self.chance(0.1):
            return self.random.choice(extents)
        while True:
            modes = rank or self.random.choice((1, 2, 2, 2, 3, 3, 4, 4, 5))
            drawn = tuple(self._mode(depth - 1, extents) for _ in range(modes))
            if size(drawn) <= self.limit:
                return drawn

    def _mode(self, depth: int, extents: Sequence[int]) -> Tree:
        if depth <= 0 or self.chance(0.75):
            return self.random.choice(extents)
        return tuple(self._mode(depth - 1, extents) for _ in range(self.random.choice((1, 2, 2, 2, 3))))

    def compact(self, shape: Tree, order: Sequence[int], *, scale: int = 1) -> Tree:
        """Strides that count through the leaves in the given order; size-1 leaves count too."""
        leaves, strides, step = flat(shape), [0] * len(flat(shape)), scale
        for i in order:
            strides[i] = step
            step *= leaves[i]
        return shaped(strides, shape)

    def stride(self, shape: Tree) -> Tree:
        """Strides for a shape: compact in some order (often), scaled, broadcast, arbitrary or negative (rarely)."""
        leaves = flat(shape)
        order = list(range(len(leaves)))
        style = self.random.random()
        if style < 0.25:
            return self.compact(shape, order)
        if style < 0.40:
            return self.compact(shape, order[::-1])
        self.random.shuffle(order)
        if style < 0.65:
            return self.compact(shape, order)
        if style < 0.75:
            return self.compact(shape, order, scale=self.random.choice((2, 3, 4, 8)))
        strides = flat(self.compact(shape, order))
        if style < 0.85:
            return shaped([0 if self.chance(0.3) else d for d in strides], shape)
        if style < 0.89:
            return shaped([-d if self.chance(0.4) else d for d in strides], shape)
        if style < 0.93:
            return shaped([d * self.random.choice((1, 1, 2, 3)) for d in strides], shape)
        return shaped([self.random.choice(_STRIDES) for _ in leaves], shape)

    def layout(self, shape: Tree | None = None, **shape_options: object) -> Drawn:
        """A layout over a drawn or given shape."""
        shape = self.shape(**shape_options) if shape is None else shape  # type: ignore[arg-type]
        return Drawn(shape, self.stride(shape))

    def bijection(self) -> Drawn:
        """A compact layout in a random order over powers of two and others."""
        shape = self.shape()
        order = list(range(len(flat(shape))))
        self.random.shuffle(order)
        return Drawn(shape, self.compact(shape, order))

    def pow2_layout(self) -> Drawn:
        """A compact layout whose extents and strides are powers of two, as swizzles and recasts want them."""
        shape = self.shape(extents=(1, 2, 2, 4, 4, 8, 8, 16, 32, 64))
        order = list(range(len(flat(shape))))
        if self.chance(0.5):
            self.random.shuffle(order)
        return Drawn(shape, self.compact(shape, order))

    # ---------------------------------------------------------------------------------------------------------------
    # Swizzles and composed layouts

    def swizzle(self) -> str:
        """A swizzle: usually one in common use, else any small valid one."""
        if self.chance(0.7):
            return self.random.choice(_SWIZZLES)
        bits = self.random.randint(0, 3)
        shift = self.random.choice((-1, 1, 1)) * self.random.randint(max(bits, 1), 4)
        return f"Sw<{bits},{self.random.randint(0, 5)},{shift}>"

    def composed(self, layout: Drawn | None = None) -> str:
        """A swizzled layout, at offset 0 nine times in ten."""
        layout = layout or (self.pow2_layout() if self.chance(0.85) else self.layout())
        offset = 0 if self.chance(0.9) else self.random.choice((1, 2, 4, 8, 16, 24, 64, 72, 128))
        return f"{self.swizzle()} o {offset} o {layout}"

    # ---------------------------------------------------------------------------------------------------------------
    # Tilers, targets and coordinates

    def divisors(self, n: int) -> list[int]:
        """Divisors of n."""
        return [d for d in range(1, n + 1) if n % d == 0]

    def tile_extent(self, extent: int) -> int:
        """Extent of a tile of a mode: mostly a divisor, sometimes not."""
        return self.random.choice(self.divisors(extent)) if self.chance(0.8) else self.random.choice(_EXTENTS)

    def tile_layout(self, extent: int) -> Drawn:
        """A layout to tile a mode with: an extent and a stride that mostly divide."""
        tile = self.tile_extent(extent)
        if self.chance(0.6):
            return Drawn(tile, 1)
        if self.chance(0.5):
            rest = self.divisors(max(1, extent // tile))
            return Drawn(tile, self.random.choice(rest))
        parts = self.divisors(tile)
        inner = self.random.choice(parts)
        shape = (inner, tile // inner)
        return Drawn(shape, self.stride(shape))

    def tiler_entry(self, extent: int, *, underscore: float) -> str:
        """One entry of a by-mode tiler: an extent, a layout or `_`."""
        if self.chance(underscore):
            return "_"
        return str(self.tile_extent(extent) if self.chance(0.45) else self.tile_layout(extent))

    def tiler(self, shape: Tree, *, underscore: float = 0.08) -> int | str:
        """A tiler for a shape: an integer, a layout over the whole, a shape tuple, or entries by mode."""
        kind = self.random.random()
        if kind < 0.15:
            return self.tile_extent(min(size(shape), 512))
        if kind < 0.45:
            return str(self.tile_layout(min(size(shape), 512)))
        if kind < 0.60:
            return str(self.layout())
        modes = [size(m) for m in shape] if isinstance(shape, tuple) else [shape]
        if len(modes) > 1 and self.chance(0.35):
            modes = modes[: self.random.randint(1, len(modes))]
        if kind < 0.72:
            return write(tuple(self.tile_extent(m) for m in modes))
        entries = [self.tiler_entry(m, underscore=underscore) for m in modes]
        tiled = any(":" in e or e == "_" for e in entries)
        return f"<{','.join(entries)}>" if tiled else f"({','.join(entries)})"

    def coordinate(self, shape: Tree) -> Tree:
        """A coordinate of a shape: nested like it, or an integer for any of its modes."""
        if isinstance(shape, int) or self.chance(0.2):
            return self.random.randrange(max(1, size(shape)))
        return tuple(self.coordinate(branch) for branch in shape)

    def slicer(self, shape: Tree) -> str:
        """A slice coordinate that keeps at least one mode."""
        while True:
            text = self._slicer(shape, top=True)
            if "_" in text:
                return text

    def _slicer(self, shape: Tree, *, top: bool = False) -> str:
        if not isinstance(shape, tuple):
            return "_" if self.chance(0.5) else str(self.random.randrange(shape))
        if not top and self.chance(0.6):
            return "_" if self.chance(0.5) else write(self.coordinate(shape))
        parts = [self._slicer(branch) for branch in shape]
        return f"<{','.join(parts)}>" if any("_" in p for p in parts) else f"({','.join(parts)})"

    def target(self, total: int) -> int | str:
        """A cotarget: an integer or a tuple around the given size."""
        if self.chance(0.6):
            return max(1, total * self.random.choice((1, 1, 2, 3, 4)) + self.random.choice((0, 0, 0, 1, -1, 5)))
        return write(tuple(self.random.choice((1, 2, 3, 4, 5, 8, 16, 32)) for _ in range(self.random.randint(1, 3))))
