"""Scales of 8-bit Q, K and V in attention forward: factors of scores and of sums of values (traced).

A tile of keys has one scale of K and one scale of V. The scale of K multiplies the scores of the tile. Sums of values
are kept divided by the scale of V of the next tile. They are converted to that unit in the same multiplication that
rescales them as the maxima grow.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32


class TileScales(NamedTuple):
    """Scales of K and V of a tile of keys; None for 1."""

    k: Float32 | None
    v: Float32 | None


@dataclass(frozen=True)
class Scales:
    """Scales of a head's Q, K and V, or of each of its blocks of tokens.

    Attributes
    ----------
    q, k, v : Tensor (batch, heads, blocks), fp32, or None
        Positive, of each of the batch or of each sequence. Heads are those of Q or of K, and of K; one block for all
        tokens if `block` is 0.
    heads, group : Int32
        Heads of Q, and of these, those that share one of K.
    block, tile_n : int
        Tokens of a block, and keys of a tile, one or more of which a block is.
    unit : Tensor (1,)
        Register with the scale of V that sums of values are in units of.
    place : (Int32, Int32)
        Batch, and head of K and V.
    """

    q: cute.Tensor | None
    k: cute.Tensor | None
    v: cute.Tensor | None
    heads: Int32
    group: Int32
    block: int
    tile_n: int
    unit: cute.Tensor
    place: tuple = ()

    def of(self, batch, head) -> "Scales":
        """Return the scales of a head of Q."""
        return replace(self, place=(batch, head // self.group))

    def within(self, batch):
        """Return the index of a sequence, or of the last one for rows that no sequence has."""
        given = next(each for each in (self.q, self.k, self.v) if each is not None)
        return cutlass.min(batch, cute.size(given, mode=[0]) - 1)

    def of_queries(self, batch, head, query):
        """Return the scale of the queries from one on, of a head of Q: 1 if there is none."""
        if self.q is None:
            return Float32(1.0)
        own = head * cute.size(self.q, mode=[1]) // self.heads
        at = 0 if not self.block else cutlass.min(query // self.block, cute.size(self.q, mode=[2]) - 1)
        return self.q[batch, own, at]

    def of_keys(self, tile=0) -> TileScales:
        """Return the scales of a tile of keys."""
        at = tile * self.tile_n // self.block if self.block else 0
        return TileScales(*(None if each is None else each[(*self.place, at)] for each in (self.k, self.v)))

    @cute.jit
    def begin(self, scales: TileScales):
        """Let sums of values, which are 0, have the units of a tile."""
        if cutlass.const_expr(scales.v is not None):
            self.unit[0] = scales.v

    @cute.jit
    def change(self, factors: cute.Tensor, scales: TileScales):
        """Multiply factors of the sums of values by the ratio of units to those of a tile."""
        if cutlass.const_expr(scales.v is not None):
            changes = self.unit[0] / scales.v
            self.unit[0] = scales.v
            self.multiply(factors, changes)

    @cute.jit
    def finish(self, factors: cute.Tensor):
        """Multiply factors of the sums of values by the unit that these are in."""
        if cutlass.const_expr(self.v is not None):
            self.multiply(factors, self.unit[0])

    @cute.jit
    def multiply(self, factors: cute.Tensor, by):
        """Multiply each of the factors."""
        for row in cutlass.range_constexpr(cute.size(factors)):
            factors[row] = factors[row] * by


def make_scales(scales: tuple | None, group: Int32, block: int, tile_n: int) -> Scales | None:
    """Make the scales of Q, K and V from their tensors, each of which may be None; None without any."""
    if scales is None:
        return None
    return Scales(*scales, group, block, tile_n, cute.make_rmem_tensor((1,), Float32))
