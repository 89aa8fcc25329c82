"""Triton's encodings of tensors as linear layouts: blocked, MMA, operand, slice, linear and shared memory.

An encoding describes how a tensor of any shape is spread over registers, lanes, warps and blocks, or over offsets of
shared memory: it repeats its tile where the tensor is larger, and holds elements several times where it is smaller.
``to_linear(shape)`` is the layout of one tensor.

References
----------
Triton, ``lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp`` and ``python/triton/experimental/gluon/language``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..errors import LayoutError
from .bits import log2_size
from .layout import LinearLayout

Ints = tuple[int, ...]
Bases = tuple[Ints, ...]

HARDWARE = ("register", "lane", "warp")


class _Tile:
    """A tile that grows: each step appends the bits of an in-dimension along an out-dimension."""

    def __init__(self, rank: int, ins: Sequence[str]) -> None:
        self.sizes = [1] * rank
        self.bases: dict[str, list[Ints]] = {name: [] for name in ins}

    def add(self, name: str, dim: int, count: int, *, broadcast: bool = False) -> None:
        """Step `count` times along a dimension; with `broadcast` each step holds the same elements."""
        for bit in range(log2_size("to_linear", name, count)):
            step = 0 if broadcast else self.sizes[dim] << bit
            self.bases[name].append(tuple(step if i == dim else 0 for i in range(len(self.sizes))))
        if not broadcast:
            self.sizes[dim] *= count

    def add_all(self, name: str, counts: Sequence[int], order: Sequence[int], *, broadcast: int | None = None) -> None:
        """Step along each dimension, the fastest first; along `broadcast` elements repeat."""
        for dim in order:
            self.add(name, dim, counts[dim], broadcast=dim == broadcast)

    def fit(self, shape: Sequence[int], order: Sequence[int], *, repeat: bool = False) -> None:
        """Repeat the tile along dimensions in which `shape` is larger; hold elements again where it is smaller.

        Without `repeat`, registers that would only hold elements again are left out.
        """
        first = next(iter(self.bases))
        for dim in order:
            if self.sizes[dim] < shape[dim]:
                self.add(first, dim, shape[dim] // self.sizes[dim])
        within = {
            name: [tuple(x if x < size else 0 for x, size in zip(basis, shape, strict=True)) for basis in of_dim]
            for name, of_dim in self.bases.items()
        }
        if not repeat:
            was = self.bases[first]
            within[first] = [new for old, new in zip(was, within[first], strict=True) if any(new) or not any(old)]
        self.bases = within
        self.sizes = list(shape)

    def of_blocks(self, cga: Bases, shape: Sequence[int]) -> LinearLayout:
        """Return the layout of a tensor of which each block of a cluster holds one such tile."""
        own = _shape_per_cta(cga, shape)
        blocks = [
            tuple(
                step * size if step * size < whole else 0 for step, size, whole in zip(basis, own, shape, strict=True)
            )
            for basis in cga
        ]
        outs = {f"dim{i}": size for i, size in enumerate(shape)}
        return LinearLayout({**self.bases, "block": blocks}, outs)


def _shape_per_cta(cga: Bases, shape: Sequence[int]) -> Ints:
    """Return the shape of the part that one block of the cluster holds."""
    split = [max((2 * basis[i] for basis in cga), default=1) or 1 for i in range(len(shape))]
    return tuple(max(1, size // parts) for size, parts in zip(shape, split, strict=True))


def _row_major(rank: int) -> list[int]:
    return list(range(rank - 1, -1, -1))


def _without(values: Sequence[int], dim: int) -> Ints:
    return (*values[:dim], *values[dim + 1 :])


class Encoding:
    """An encoding of tensors: shape -> linear layout."""

    rank: int | None

    def to_linear(self, shape: Sequence[int] | None) -> LinearLayout:
        """Return the layout of a tensor.

        Parameters
        ----------
        shape : sequence of int, or None
            Extents of the tensor, powers of two; None where the encoding itself tells them.

        Raises
        ------
        LayoutError
            If the shape has another rank, an extent that is no power of two, or is too small for the encoding; or it
            is None and the encoding tells none.

        Examples
        --------
        >>> Swizzled(vec=2, per_phase=1, max_phase=2, order=(1, 0)).to_linear((2, 4))
        LinearLayout({'offset': [[0, 1], [0, 2], [1, 2]], 'block': []}, {'dim0': 2, 'dim1': 4})
        """
        if shape is None:
            shape = self._own_shape()
        if self.rank is not None and len(shape) != self.rank:
            what = "dimension" if self.rank == 1 else "dimensions"
            raise LayoutError(
                "to_linear", (tuple(shape),), f"the encoding has {self.rank} {what}, the shape {len(shape)}"
            )
        for i, size in enumerate(shape):
            log2_size("to_linear", f"dim{i}", size)
        return self._of_shape(tuple(shape))

    def _own_shape(self) -> Ints:
        raise LayoutError(
            "to_linear", (), "the encoding describes tensors of any shape, and none is told", "give shape=(64, 64), say"
        )

    def _of_shape(self, shape: Ints) -> LinearLayout:
        raise NotImplementedError


def _check(encoding: str, right: bool, condition: str) -> None:
    if not right:
        raise LayoutError(encoding, (), condition)


def _check_ranks(encoding: str, cga: Bases, order: Ints | None, **counts: Ints) -> int:
    """Require lists of one length, of powers of two, and an order that is a permutation; return that length."""
    name, first = next(iter(counts.items()))
    rank = len(first)
    _check(encoding, rank > 0, f"{name} must not be empty")
    for other, values in counts.items():
        _check(encoding, len(values) == rank, f"{name} has {rank} dimensions, {other} {len(values)}")
        for value in values:
            _check(encoding, value > 0 and not value & (value - 1), f"{other} must be powers of two, got {value}")
    if order is not None:
        _check_order(encoding, order, rank)
    _check_cga(encoding, cga, rank)
    return rank


def _check_order(encoding: str, order: Ints, rank: int) -> None:
    right = rank > 0 and sorted(order) == list(range(rank))
    _check(encoding, right, f"order must hold each of 0 to {max(rank, 1) - 1} once, got {list(order)}")


def _check_cga(encoding: str, cga: Bases, rank: int) -> None:
    for basis in cga:
        right = len(basis) == rank and all(step >= 0 and not step & (step - 1) for step in basis)
        _check(encoding, right, f"a basis of the cluster has {rank} steps, 0 or powers of two, got {list(basis)}")


@dataclass(frozen=True)
class Blocked(Encoding):
    """``#ttg.blocked``: each thread holds a box of elements, each warp a box of threads."""

    size_per_thread: Ints
    threads_per_warp: Ints
    warps_per_cta: Ints
    order: Ints
    cga: Bases = ()

    def __post_init__(self) -> None:
        counts = {
            "sizePerThread": self.size_per_thread,
            "threadsPerWarp": self.threads_per_warp,
            "warpsPerCTA": self.warps_per_cta,
        }
        _check_ranks("blocked", self.cga, self.order, **counts)
        _check("blocked", prod(self.threads_per_warp) == 32, f"a warp has 32 threads, got {self.threads_per_warp}")

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of dimensions."""
        return len(self.order)

    def _of_shape(self, shape: Ints) -> LinearLayout:
        tile = _Tile(self.rank, HARDWARE)
        for name, counts in zip(
            HARDWARE, (self.size_per_thread, self.threads_per_warp, self.warps_per_cta), strict=True
        ):
            tile.add_all(name, counts, self.order)
        tile.fit(_shape_per_cta(self.cga, shape), self.order)
        return tile.of_blocks(self.cga, shape)


def _add_mma(tile: _Tile, extents: Sequence[int], k_width: int, inner: int, outer: int) -> None:
    """Add one MMA's fragment: four lanes hold `k_width` neighbours each along the inner dimension, eight the outer."""
    _check("mma", extents[outer] % 8 == 0, f"an MMA has a multiple of 8 rows, got {extents[outer]}")
    _check(
        "mma", extents[inner] % (4 * k_width) == 0, f"need a multiple of {4 * k_width} columns, got {extents[inner]}"
    )
    tile.add("register", inner, k_width)
    tile.add("lane", inner, 4)
    tile.add("lane", outer, 8)
    tile.add("register", outer, extents[outer] // 8)
    tile.add("register", inner, extents[inner] // (4 * k_width))


@dataclass(frozen=True)
class Mma(Encoding):
    """``#ttg.nvidia_mma``: accumulators of mma (version 2) or of wgmma (version 3)."""

    version: Ints
    warps_per_cta: Ints
    instr_shape: Ints
    cga: Bases = ()

    def __post_init__(self) -> None:
        rank = _check_ranks("nvidia_mma", self.cga, None, warpsPerCTA=self.warps_per_cta)
        major = self.version[0] if self.version else 0
        _check(
            "nvidia_mma",
            major in (2, 3),
            f"versions 2 (mma) and 3 (wgmma) have accumulators in registers, got version {list(self.version)}",
        )
        _check("nvidia_mma", rank in (2, 3), f"need 2 dimensions, or 3 with batches, got {rank}")
        wanted = "M, N" if major == 2 else "M, N, K"
        count = rank if major == 2 else 3
        _check(
            "nvidia_mma",
            len(self.instr_shape) == count,
            f"instrShape of version {major} must be {count} integers ({wanted}), got {list(self.instr_shape)}",
        )
        _check("nvidia_mma", major == 2 or rank == 2, "wgmma has no batches: need 2 dimensions")

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of dimensions."""
        return len(self.warps_per_cta)

    @property
    def warp_order(self) -> list[int]:
        """Dimensions along which warps follow each other, the fastest first."""
        order = _row_major(self.rank)
        return [order[1], order[0], *order[2:]] if self.version[0] == 3 else order

    def _of_shape(self, shape: Ints) -> LinearLayout:
        extents = self.instr_shape if self.version[0] == 2 else self.instr_shape[:2]
        tile, order = _Tile(self.rank, HARDWARE), _row_major(self.rank)
        _add_mma(tile, extents, 2, order[0], order[1])
        tile.add_all("warp", self.warps_per_cta, self.warp_order)
        tile.fit(_shape_per_cta(self.cga, shape), order, repeat=True)
        return tile.of_blocks(self.cga, shape)


@dataclass(frozen=True)
class DotOperand(Encoding):
    """``#ttg.dot_op``: A or B of a product whose accumulators have the parent's encoding."""

    index: int
    parent: Encoding
    k_width: int = 0

    def __post_init__(self) -> None:
        _check("dot_op", self.index in (0, 1), f"opIdx is 0 for A or 1 for B, got {self.index}")
        parent = self.parent
        _check(
            "dot_op",
            isinstance(parent, Mma | Blocked),
            f"the parent must be nvidia_mma or blocked, got {type(parent).__name__}",
        )
        if isinstance(parent, Blocked):
            _check("dot_op", self.k_width == 0, f"kWidth is of MMAs; the parent is blocked, got kWidth {self.k_width}")
            _check("dot_op", parent.rank in (2, 3), f"need 2 dimensions, or 3 with batches, got {parent.rank}")
        elif isinstance(parent, Mma):
            right = self.k_width > 0 and not self.k_width & (self.k_width - 1)
            _check("dot_op", right, f"kWidth must be a power of two, got {self.k_width}")
            _check(
                "dot_op",
                parent.version[0] == 2 or self.index == 0,
                "wgmma reads B from shared memory; it has no dot_op",
            )

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of dimensions."""
        assert self.parent.rank is not None
        return self.parent.rank

    @property
    def k_dim(self) -> int:
        """The dimension along which products are summed."""
        return self.rank - 1 if self.index == 0 else self.rank - 2

    @property
    def cga(self) -> Bases:
        """Bases of the cluster's blocks, in units of one block's elements."""
        assert isinstance(self.parent, Mma | Blocked)
        return tuple(tuple(0 if i == self.k_dim else x for i, x in enumerate(basis)) for basis in self.parent.cga)

    def _of_shape(self, shape: Ints) -> LinearLayout:
        inner = self.k_dim
        outer = self.rank - 2 if self.index == 0 else self.rank - 1
        batches = [i for i in _row_major(self.rank) if i not in (inner, outer)]
        tile, own = _Tile(self.rank, HARDWARE), _shape_per_cta(self.cga, shape)
        if isinstance(self.parent, Blocked):
            order: Sequence[int] = self.parent.order
            counts = [own[i] if i == inner else x for i, x in enumerate(self.parent.size_per_thread)]
            tile.add_all("register", counts, order)
            tile.add_all("lane", self.parent.threads_per_warp, order, broadcast=inner)
            tile.add_all("warp", self.parent.warps_per_cta, order, broadcast=inner)
        else:
            assert isinstance(self.parent, Mma)
            order = [inner, outer, *batches]
            extents = [1] * self.rank
            extents[inner], extents[outer] = 8 * self.k_width, 16 if self.index == 0 else 8
            _add_mma(tile, extents, self.k_width, inner, outer)
            tile.add_all("warp", self.parent.warps_per_cta, self.parent.warp_order, broadcast=inner)
        tile.fit(own, order, repeat=True)
        return tile.of_blocks(self.cga, shape)


@dataclass(frozen=True)
class Slice(Encoding):
    """``#ttg.slice``: a tensor with one dimension less than its parent's; its elements repeat along that one."""

    dim: int
    parent: Encoding

    def __post_init__(self) -> None:
        rank = self.parent.rank
        _check("slice", isinstance(self.parent, Distributed), "shared memory has no slices: its layouts are subviews")
        _check(
            "slice", rank is None or 0 <= self.dim < rank, f"dim must be from 0 to {(rank or 1) - 1}, got {self.dim}"
        )
        _check("slice", rank is None or rank > 1, "the parent must have more than one dimension")

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of dimensions."""
        assert self.parent.rank is not None
        return self.parent.rank - 1

    def _of_shape(self, shape: Ints) -> LinearLayout:
        whole = self.parent.to_linear((*shape[: self.dim], 1, *shape[self.dim :]))
        bases = {name: [_without(basis, self.dim) for basis in of_dim] for name, of_dim in whole.bases.items()}
        bases["register"] = [basis for basis in bases["register"] if any(basis)]
        return LinearLayout(bases, {f"dim{i}": size for i, size in enumerate(shape)})


@dataclass(frozen=True)
class Linear(Encoding):
    """``#ttg.linear``: bases written out, of registers, lanes, warps and blocks."""

    layout: LinearLayout

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of dimensions."""
        return len(self.layout.out_dims)

    def _own_shape(self) -> Ints:
        return tuple(self.layout.out_dims.values())

    def _of_shape(self, shape: Ints) -> LinearLayout:
        own = self._own_shape()
        if shape == own:
            return self.layout
        tile = _Tile(self.rank, tuple(self.layout.in_dims))
        tile.bases = {name: [tuple(b) for b in of_dim] for name, of_dim in self.layout.bases.items()}
        tile.sizes = list(own)
        moved = [next(i for i, x in enumerate(basis) if x) for basis in tile.bases.get("register", ()) if any(basis)]
        tile.fit(shape, list(dict.fromkeys([*moved, *_row_major(self.rank)])))
        return LinearLayout(tile.bases, {f"dim{i}": size for i, size in enumerate(shape)})


@dataclass(frozen=True)
class Swizzled(Encoding):
    """``#ttg.swizzled_shared``: offset in shared memory -> element; rows exchange vectors of `vec` elements."""

    vec: int
    per_phase: int
    max_phase: int
    order: Ints
    cga: Bases = ()

    def __post_init__(self) -> None:
        _check_ranks(
            "swizzled_shared", (), None, vec=(self.vec,), perPhase=(self.per_phase,), maxPhase=(self.max_phase,)
        )
        _check_order("swizzled_shared", self.order, len(self.order))
        _check_cga("swizzled_shared", self.cga, len(self.order))

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of dimensions."""
        return len(self.order)

    def _of_shape(self, shape: Ints) -> LinearLayout:
        own = _shape_per_cta(self.cga, shape)
        tile = _Tile(self.rank, ("offset",))
        tile.add_all("offset", own, self.order)
        if self.rank > 1:
            column, row = self.order[:2]
            first = own[column].bit_length() - 1
            for bit in range(own[row].bit_length() - 1):
                basis = list(tile.bases["offset"][first + bit])
                basis[column] = self.vec * ((1 << bit) // self.per_phase % self.max_phase) % own[column]
                tile.bases["offset"][first + bit] = tuple(basis)
        return tile.of_blocks(self.cga, shape)


@dataclass(frozen=True)
class NvmmaShared(Encoding):
    """``#ttg.nvmma_shared``: offset in shared memory -> element, as TMA writes and wgmma reads it.

    TMA boxes lie one after another. Within a box, the swizzle permutes the 16-byte vectors of each row of
    `swizzle_bytes`.
    """

    swizzle_bytes: int
    bits: int
    transposed: bool = False
    cga: Bases = ()
    told_rank: int | None = None

    def __post_init__(self) -> None:
        widths = (0, 32, 64, 128)
        _check(
            "nvmma_shared",
            self.swizzle_bytes in widths,
            f"swizzlingByteWidth must be one of {widths}, got {self.swizzle_bytes}",
        )
        _check(
            "nvmma_shared", self.bits in (8, 16, 32, 64), f"elementBitWidth must be 8, 16, 32 or 64, got {self.bits}"
        )
        if self.cga:
            _check_cga("nvmma_shared", self.cga, len(self.cga[0]))
            right = self.told_rank in (None, len(self.cga[0]))
            _check("nvmma_shared", right, f"rank is {self.told_rank}, but the cluster's bases have {len(self.cga[0])}")

    @property
    def rank(self) -> int | None:  # type: ignore[override]
        """Number of dimensions."""
        return len(self.cga[0]) if self.cga else self.told_rank

    def _of_shape(self, shape: Ints) -> LinearLayout:
        rank, own = len(shape), _shape_per_cta(self.cga, shape)
        if self.transposed and rank != 2:
            raise LayoutError("nvmma_shared", (shape,), f"transposed is read with 2 dimensions, the shape has {rank}")
        order = [0, 1] if self.transposed else _row_major(rank)
        box = [min(size, 256) for size in own]
        width = 8 * self.swizzle_bytes // self.bits
        if self.swizzle_bytes:
            box[order[0]] = min(box[order[0]], width)
        tile = _Tile(rank, ("offset",))
        tile.add_all("offset", box, order)
        if self.swizzle_bytes:
            rows = prod(box[dim] for dim in order[1:])
            if box[order[0]] < width or rows < 8:
                condition = f"swizzling {self.swizzle_bytes} bytes needs 8 rows of {width} elements"
                raise LayoutError(
                    "nvmma_shared", (shape,), f"{condition}, a block holds {rows} of {box[order[0]]} elements"
                )
            first, phases = width.bit_length() - 1, self.swizzle_bytes // 16
            for bit in range(3):
                basis = list(tile.bases["offset"][first + bit])
                basis[order[0]] = 128 // self.bits * ((1 << bit) // (8 // phases) % phases)
                tile.bases["offset"][first + bit] = tuple(basis)
        tile.fit(own, range(rank) if self.swizzle_bytes else _row_major(rank))
        return tile.of_blocks(self.cga, shape)


Distributed = Blocked | Mma | DotOperand | Slice | Linear
"""Encodings of tensors in registers."""


def cga_of_counts(ctas: Ints, split: Ints, order: Ints) -> Bases:
    """Return the bases of a cluster's blocks from the counts that earlier versions of Triton write.

    >>> cga_of_counts((2, 2), (2, 1), (1, 0))
    ((0, 0), (1, 0))
    """
    _check_ranks("CTAsPerCGA", (), order, CTAsPerCGA=ctas, CTASplitNum=split)
    tile = _Tile(len(ctas), ("block",))
    for dim in order:
        _check("CTAsPerCGA", split[dim] <= ctas[dim], f"CTASplitNum {split} must divide CTAsPerCGA {ctas}")
        tile.add("block", dim, split[dim])
        tile.add("block", dim, ctas[dim] // split[dim], broadcast=True)
    return tuple(tile.bases["block"])
