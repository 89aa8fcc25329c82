"""Rotary embedding of new tokens, whose keys and values are written to a cache (traced).

Queries are rotated as by `rotary`; so are keys, to their places in the cache, where values are copied.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32

from cutepy.device.global_copies import load_vector, store_vector
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.kernels.rows.config import HEADS
from cutepy.kernels.rows.rotary import Rotary


class RotaryCached(Rotary):
    """Rotary embedding into a cache, of one configuration: a callable that the DSL compiles.

    A thread has the same piece of some heads of a token's queries, keys or values.
    """

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        cos: cute.Tensor,
        sin: cute.Tensor,
        lengths: cute.Tensor,
        table: cute.Tensor | None,
        y: cute.Tensor,
        keys: cute.Tensor,
        values: cute.Tensor,
        stream: CUstream,
    ):
        """Launch on q, y (batch, tokens, heads, head), k, v (batch, tokens, kv heads, head), and tables of angles.

        `keys` and `values` are (batch, room, kv heads, head); with a table (batch, places), (pages, tokens of a page,
        kv heads, head). A token's position is its index and the length (batch,).
        """
        config = self.config
        name = f"cutepy_rotary_cached_{config.name}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        groups = cute.ceil_div(cute.size(q, mode=[2]), HEADS) + 2 * cute.ceil_div(cute.size(k, mode=[2]), HEADS)
        units = cute.size(q, mode=[0]) * cute.size(q, mode=[1]) * groups
        self.kernel(q, k, v, cos, sin, lengths, table, y, keys, values).launch(
            grid=(cute.ceil_div(units, config.slots), 1, 1), block=(config.threads, 1, 1), stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        cos: cute.Tensor,
        sin: cute.Tensor,
        lengths: cute.Tensor,
        table: cute.Tensor | None,
        y: cute.Tensor,
        keys: cute.Tensor,
        values: cute.Tensor,
    ):
        """Rotate some heads of a token, or copy them."""
        config = self.config
        tidx, tokens = cute.arch.thread_idx()[0], cute.size(q, mode=[1])
        piece = tidx % config.lanes
        unit = cute.arch.block_idx()[0] * config.slots + tidx // config.lanes
        of_q, of_k = (cute.ceil_div(cute.size(each, mode=[2]), HEADS) for each in (q, k))
        row, group = unit // (of_q + 2 * of_k), unit % (of_q + 2 * of_k)
        batch, token = row // tokens, row % tokens
        follow_launch(True)
        position, outer, inner = Int32(-1), Int32(-1), Int32(-1)
        if batch < cute.size(q, mode=[0]):
            position = lengths[batch].to(Int32) + token
            outer, inner = self.place(table, keys, batch, position)
        exists, has_room = batch < cute.size(q, mode=[0]), outer >= 0
        within = has_room & (position >= 0) & (position < cute.size(cos, mode=[0]))
        # Rows that the tables don't have, and tokens that the cache has no place for, give NaN.
        place = select(within, position, Int32(-1))
        cosines, sines = self.angles(cos, place, piece), self.angles(sin, place, piece)
        cosines.store(cosines.load() + select(within, Float32(0.0), Float32(math.nan)))
        if group < of_q:
            self.move(q, y, (batch, token), (batch, token), group * HEADS, piece, exists, (cosines, sines))
        elif group < of_q + of_k:
            first = (group - of_q) * HEADS
            self.move(k, keys, (batch, token), (outer, inner), first, piece, exists & has_room, (cosines, sines))
        else:
            first = (group - of_q - of_k) * HEADS
            self.move(v, values, (batch, token), (outer, inner), first, piece, exists & has_room, None)

    @cute.jit
    def place(self, table: cute.Tensor | None, keys: cute.Tensor, batch, position):
        """Return the place of a position in the cache, (sequence or page, place in it); -1 if there is none."""
        room = cute.size(keys, mode=[1])
        outer, inner = batch, position
        if cutlass.const_expr(table is None):
            outer = select((position >= 0) & (position < room), batch, Int32(-1))
        else:
            page, inner, outer = position // room, position % room, Int32(-1)
            if (position >= 0) & (page < cute.size(table, mode=[1])):
                outer = table[batch, page]
                outer = select(outer < cute.size(keys, mode=[0]), outer, Int32(-1))
        return outer, inner

    @cute.jit
    def move(self, source: cute.Tensor, target: cute.Tensor, begin, end, first_head, piece, exists, angles):
        """Rotate heads by angles from a place to another; copy them without."""
        config, elems = self.config, self.config.elems
        rotates, stays = piece < config.rotated, 2 * config.width + (piece - config.rotated) * elems
        exists = exists & (stays < config.head)
        first, second = self.columns(piece, rotates, stays)
        firsts, seconds = [], []
        for n in cutlass.range_constexpr(HEADS):
            head = first_head + n
            here = exists & (head < cute.size(source, mode=[2]))
            firsts.append(load_vector(self.start(source, *begin, head, first), elems, here, True))
            seconds.append(load_vector(self.start(source, *begin, head, second), elems, here & rotates, True))
        for n in cutlass.range_constexpr(HEADS):
            head = first_head + n
            here = exists & (head < cute.size(source, mode=[2]))
            if cutlass.const_expr(angles is not None):
                if rotates:
                    self.rotate(firsts[n], seconds[n], *angles)
            store_vector(firsts[n], self.start(target, *end, head, first), here)
            store_vector(seconds[n], self.start(target, *end, head, second), here & rotates)
