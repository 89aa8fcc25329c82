"""Rotary embedding: rotate pairs of a head's columns by the angles of a token's position (traced).

y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin. Pairs are columns that are `width` apart, or neighbours. Columns behind the
first 2 `width` stay as they are.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32, Int64

from cutepy.device.global_copies import load_vector, make_row_vectors, store_vector
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.kernels.rows.config import HEADS, RotaryConfig


class Rotary:
    """Rotary embedding of one configuration: a callable that the DSL compiles.

    A thread has the same piece of some heads of a token, for which it reads cosines and sines once.
    """

    def __init__(self, config: RotaryConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        cos: cute.Tensor,
        sin: cute.Tensor,
        positions: cute.Tensor | None,
        y: cute.Tensor,
        offset: Int32,
        sign: Float32,
        stream: CUstream,
    ):
        """Launch on x, y (batch, tokens, heads, head), cos, sin (rows, width), positions (batch, tokens).

        Without positions, a token's is its index and an offset. `sign` is 1, or -1 for the inverse rotation.
        """
        config = self.config
        name = f"cutepy_rotary_{config.name}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        units = cute.size(x, mode=[0]) * cute.size(x, mode=[1]) * cute.ceil_div(cute.size(x, mode=[2]), HEADS)
        self.kernel(x, cos, sin, positions, y, offset, sign).launch(
            grid=(cute.ceil_div(units, config.slots), 1, 1), block=(config.threads, 1, 1), stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(
        self,
        x: cute.Tensor,
        cos: cute.Tensor,
        sin: cute.Tensor,
        positions: cute.Tensor | None,
        y: cute.Tensor,
        offset: Int32,
        sign: Float32,
    ):
        """Rotate some heads of a token."""
        config, elems = self.config, self.config.elems
        tidx, tokens, heads = cute.arch.thread_idx()[0], cute.size(x, mode=[1]), cute.size(x, mode=[2])
        piece = tidx % config.lanes
        unit = cute.arch.block_idx()[0] * config.slots + tidx // config.lanes
        groups = cute.ceil_div(heads, HEADS)
        row, first_head = unit // groups, unit % groups * HEADS
        batch, token = row // tokens, row % tokens
        rotates, stays = piece < config.rotated, 2 * config.width + (piece - config.rotated) * elems
        exists = (batch < cute.size(x, mode=[0])) & (stays < config.head)
        first, second = self.columns(piece, rotates, stays)
        follow_launch(True)
        position = Int64(token) + Int64(offset)
        if cutlass.const_expr(positions is not None):
            position = Int64(-1)
            if exists:
                position = positions[batch, token].to(Int64)
        within = (position >= 0) & (position < Int64(cute.size(cos, mode=[0])))
        place = Int32(select(within, position.to(Int32), Int32(-1)))
        firsts, seconds = [], []
        for n in cutlass.range_constexpr(HEADS):
            here = exists & (first_head + n < heads)
            firsts.append(load_vector(self.start(x, batch, token, first_head + n, first), elems, here, True))
            start = self.start(x, batch, token, first_head + n, second)
            seconds.append(load_vector(start, elems, here & rotates, True))
        # Rows that the tables don't have give NaN.
        cosines, sines = self.angles(cos, place, piece), self.angles(sin, place, piece)
        cosines.store(cosines.load() + select(within, Float32(0.0), Float32(math.nan)))
        sines.store(sines.load() * sign)
        for n in cutlass.range_constexpr(HEADS):
            here = exists & (first_head + n < heads)
            if rotates:
                self.rotate(firsts[n], seconds[n], cosines, sines)
            store_vector(firsts[n], self.start(y, batch, token, first_head + n, first), here)
            store_vector(seconds[n], self.start(y, batch, token, first_head + n, second), here & rotates)

    def columns(self, piece, rotates, stays):
        """Return the columns of a piece's two vectors, of which one that stays has the first alone."""
        elems = self.config.elems
        if self.config.interleaved:
            first = select(rotates, 2 * elems * piece, stays)
            return first, first + elems
        first = select(rotates, elems * piece, stays)
        return first, first + self.config.width

    def start(self, tensor: cute.Tensor, batch, token, head, column):
        """Return the address of a vector."""
        strides = tensor.stride
        offset = Int64(batch) * Int64(strides[0]) + Int64(token) * Int64(strides[1])
        offset = offset + Int64(head) * Int64(strides[2]) + Int64(column)
        return tensor.iterator + cute.assume(offset, divby=self.config.elems)

    def angles(self, table: cute.Tensor, row, piece):
        """Load a piece's cosines or sines as fp32; zeros where the table has none."""
        vectors = make_row_vectors(table, self.config.elems)
        narrower = self.config.elems // vectors.elems
        found = cute.make_rmem_tensor(self.config.elems, Float32)
        for part in range(narrower):
            values = vectors.load(row, piece * narrower + part)
            for slot in range(vectors.elems):
                found[part * vectors.elems + slot] = values[slot].to(Float32)
        return found

    @cute.jit
    def rotate(self, first, second, cosines, sines):
        """Rotate the elements of two vectors."""
        elems, kind = self.config.elems, first.element_type
        columns = [(vector, slot) for vector in (first, second) for slot in range(elems)]
        if self.config.interleaved:
            columns = columns[::2] + columns[1::2]
        for n in cutlass.range_constexpr(elems):
            (one, i), (other, j) = columns[n], columns[elems + n]
            x1, x2 = one[i].to(Float32), other[j].to(Float32)
            one[i] = (x1 * cosines[n] - x2 * sines[n]).to(kind)
            other[j] = (x2 * cosines[n] + x1 * sines[n]).to(kind)
