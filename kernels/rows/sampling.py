"""Samples of the classes that rows of logits give probabilities, of the largest alone if asked (traced).

The sample is the class with the largest logit / temperature - log(-log(u)), which has the probability that softmax
gives it. u is a number of Philox4x32-10 by the seed, the offset, the row and the class alone: no tiling changes it.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32, Int64, Uint32, Uint64

from cutepy.device import reduce, rules
from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import HeldRows, make_held_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import LOG2_E, select
from cutepy.kernels.rows.config import PHILOX_FACTORS, PHILOX_STEPS, SampleConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows
from cutepy.kernels.rows.ordering import ALL, SIGN

BARRIERS = rules.named_barriers(rows=1)
ROUNDS = 10


def philox(counter, key):
    """Return four random numbers of 32 bits, of a counter of four words and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(ROUNDS):
        first, second = (Uint64(c) * Uint64(f) for c, f in zip((c0, c2), PHILOX_FACTORS, strict=True))
        high = [(each >> Uint64(32)).to(Uint32) for each in (first, second)]
        c0, c1, c2, c3 = high[1] ^ c1 ^ k0, second.to(Uint32), high[0] ^ c3 ^ k1, first.to(Uint32)
        if number < ROUNDS - 1:
            k0, k1 = (k + Uint32(step) for k, step in zip((k0, k1), PHILOX_STEPS, strict=True))
    return c0, c1, c2, c3


def noise(number):
    """Return -log(-log(u)), u of 23 bits of a random number, from 2^-24 to 1 - 2^-24."""
    u = (Float32((number >> Uint32(9)).to(Int32)) + 0.5) * 2.0**-23
    return -cute.math.log(-cute.math.log(u))


def key_of(value, bits: int):
    """Return the key of a number that is not NaN: larger for larger ones.

    No key is 0. Zeros have one key. The low bits, which the number's type hasn't, are 0.
    """
    shift = 32 - bits
    pattern = select(value == Float32(0.0), Float32(0.0), value).bitcast(Uint32)
    key = pattern ^ select(pattern >= Uint32(SIGN), Uint32(ALL), Uint32(SIGN))
    return key & Uint32(ALL << shift & ALL)


def count(keys: cute.Tensor, holds):
    """Count the registers for which `holds(n)`."""
    found = Int32(0)
    for n in range(cute.size(keys)):
        found = found + select(holds(n), Int32(1), Int32(0))
    return Float32(found)


@cute.jit
def kth_largest(rows: HeldRows, keys: cute.Tensor, bits: cutlass.Constexpr, k: cutlass.Constexpr, turn):
    """Return the k-th largest key of a row, 0 if it has fewer, and the turn of the next reduction."""
    found = Uint32(0)
    for bit in cutlass.range(bits, unroll=1):
        candidate = found | (Uint32(SIGN) >> Uint32(bit))
        above = rows.reduce(count(keys, lambda n, least=candidate: keys[n] >= least), reduce.add, turn)
        found = select(above >= Float32(k), candidate, found)
        turn = 1 - turn
    return found, turn


class Sample:
    """Samples of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: SampleConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        logits: cute.Tensor,
        seeds: cute.Tensor | None,
        classes: cute.Tensor,
        seed: Int64,
        offset: Int64,
        inverse: Float32,
        p: Float32,
        stream: CUstream,
    ):
        """Launch on logits (rows, columns) and classes (rows,), int64: -1 of rows without a number above -inf.

        The seed is a number, or that of `seeds` (1,). `inverse` is that of the temperature.
        """
        tiling, name = self.config.tiling, f"sample_{self.config.name}"
        given = logits, seeds, classes, seed, offset, inverse, p
        launch_rows(self.kernel, name, tiling, groups_of(logits, tiling), stream, *given)

    @cute.kernel
    def kernel(
        self,
        logits: cute.Tensor,
        seeds: cute.Tensor | None,
        classes: cute.Tensor,
        seed: Int64,
        offset: Int64,
        inverse: Float32,
        p: Float32,
    ):
        """Draw a class for each row of a CTA."""
        config, tiling = self.config, self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"])
        columns = cute.size(logits, mode=[1])
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        if cutlass.const_expr(seeds is not None):
            seed = seeds[0].to(Int64)
        held = rows.load(make_row_vectors(logits, tiling.elems), row, streams=True)
        rows.fill_beyond(held, columns, -math.inf)
        for n in cutlass.range_constexpr(cute.size(held)):
            held[n] = select(held[n] == held[n], held[n], Float32(-math.inf))
        least, turn = Uint32(0), Int32(0)
        if cutlass.const_expr(config.k > 0 or config.cuts):
            keys = cute.make_rmem_tensor(cute.size(held), Uint32)
            for n in cutlass.range_constexpr(cute.size(held)):
                keys[n] = select(held[n] == -math.inf, Uint32(0), key_of(held[n], config.bits))
            if cutlass.const_expr(config.k > 0):
                least, turn = kth_largest(rows, keys, config.bits, config.k, turn)
            if cutlass.const_expr(config.cuts):
                least, turn = self.nucleus(rows, held, keys, least, inverse, p, turn)
            for n in cutlass.range_constexpr(cute.size(held)):
                held[n] = select(keys[n] >= least, held[n], Float32(-math.inf))
        score, column = self.best(rows, held, row, seed, offset, inverse)
        largest = rows.reduce(score, reduce.maximum, turn)
        # Of equal scores, the first class.
        place = select((score == largest) & (score > -math.inf), -Float32(column), Float32(-math.inf))
        place = rows.reduce(place, reduce.maximum, 1 - turn)
        if row < cute.size(classes) and rows.thread == 0 and rows.rank == 0:
            classes[row] = select(place == -math.inf, Int32(-1), Int32(-place)).to(Int64)

    @cute.jit
    def nucleus(self, rows: HeldRows, held: cute.Tensor, keys: cute.Tensor, least, inverse, p, turn):
        """Return the largest key, `least` at least, of which, and above, classes have probability p in all."""
        most = rows.reduce(rows.fold(held, reduce.maximum), reduce.maximum, turn)
        turn = 1 - turn
        weights = rows.empty()
        for n in cutlass.range_constexpr(cute.size(held)):
            weight = cute.math.exp2((held[n] - most) * inverse * LOG2_E, fastmath=True)
            weights[n] = select((keys[n] >= least) & (held[n] > -math.inf), weight, Float32(0.0))
        total = rows.total(weights, turn)
        turn, found = 1 - turn, Uint32(0)
        for bit in cutlass.range(self.config.bits, unroll=1):
            candidate = found | (Uint32(SIGN) >> Uint32(bit))
            above = rows.empty()
            for n in cutlass.range_constexpr(cute.size(keys)):
                above[n] = select(keys[n] >= candidate, weights[n], Float32(0.0))
            found = select(rows.total(above, turn) >= p * total, candidate, found)
            turn = 1 - turn
        return select(found > least, found, least), turn

    def best(self, rows: HeldRows, held: cute.Tensor, row, seed, offset, inverse):
        """Return this thread's largest score, and the first class that has it."""
        elems = self.config.tiling.elems
        score, best = Float32(-math.inf), Int32(0)
        key = seed.to(Uint32), (seed >> Int64(32)).to(Uint32)
        of_row = Uint32(row), offset.to(Uint32), (offset >> Int64(32)).to(Uint32)
        numbers = [Uint32(0)] * 4
        for n in range(cute.size(held)):
            column = rows.vector(n // elems) * elems + n % elems
            value = held[n] * inverse
            if not self.config.greedy:
                if n % min(4, elems) == 0:
                    numbers = philox((Uint32(column) >> Uint32(2), *of_row), key)
                place = n % 4 if elems >= 4 else Uint32(column) & Uint32(3)
                value = value + noise(self.picked(numbers, place))
            is_better = value > score
            score, best = select(is_better, value, score), select(is_better, column, best)
        return score, best

    def picked(self, numbers, place):
        """Return one of four numbers, by a place that is known or not."""
        if isinstance(place, int):
            return numbers[place]
        found = numbers[3]
        for n in range(3):
            found = select(place == Uint32(n), numbers[n], found)
        return found
