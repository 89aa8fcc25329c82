"""Keys of elements, numbers without a sign in their order, and sorting in registers and over threads (traced).

The sign of a number is flipped, and all bits of a negative one. NaN is larger than all numbers; zeros have one key. Of
elements that are equal, the first has the larger key: the complement of its column stands in the low bits.
"""

from collections.abc import Callable

import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Uint16, Uint32, Uint64

from cutepy.device.primitives import select
from cutepy.kernels.rows.networks import Network, merging_network, sorting_network

SIGN, ALL, HIGH, LOW = 0x80000000, 0xFFFFFFFF, 0xFFFF0000, 0xFFFF
INFINITY = {"Float16": 0x7C000000, "BFloat16": 0x7F800000, "Float32": 0x7F800000}
"""Bits of infinity, at the top of 32."""


def keys_of(held: cute.Tensor, largest: bool) -> list:
    """Return the keys of registers, larger for larger elements, or for smaller ones if not `largest`.

    Elements of 16 bits have keys in the lower or the upper half of a number that two share; `with_column` takes both.
    """
    size, kind = cute.size(held), held.element_type
    if kind.width == 32:
        words = cute.recast_tensor(held, Uint32)
        # A sum with 0.0 has one zero, and one NaN.
        summed = [(Uint32(words[n]).bitcast(Float32) + Float32(0.0)).bitcast(Uint32) for n in range(size)]
        signs = [(word.to(Int32) >> Int32(31)).to(Uint32) | Uint32(SIGN) for word in summed]
        if largest:
            return [word ^ sign for word, sign in zip(summed, signs, strict=True)]
        keys = [word ^ sign ^ Uint32(ALL) for word, sign in zip(summed, signs, strict=True)]
        return [select(key == Uint32(0), Uint32(1), key) for key in keys]  # that of NaN: 0 is no element's
    if size % 2:
        words = cute.recast_tensor(held, Uint16)
        return [(_pair_of_keys(Uint32(words[n]), kind, largest), 0) for n in range(size)]
    words = cute.recast_tensor(held, Uint32)
    pairs = [_pair_of_keys(Uint32(words[n]), kind, largest) for n in range(size // 2)]
    return [(pair, half) for pair in pairs for half in (0, 1)]


def _pair_of_keys(word, kind, largest: bool):
    """Return the keys of two elements of 16 bits."""
    multiply, ones = (
        (cute.arch.fma_packed_f16x2, 0x3C003C00) if kind is Float16 else (cute.arch.fma_packed_bf16x2, 0x3F803F80)
    )
    word = Uint32(multiply(word.to(Int32), Int32(ones), Int32(0)))  # a sum with 0.0 has one zero, and one NaN
    flipped = ((word >> Uint32(15)) & Uint32(0x10001)) * Uint32(0x7FFF) | Uint32(0x80008000)
    return word ^ (flipped if largest else flipped ^ Uint32(ALL))


def with_column(key, column, kind):
    """Join a key, as of `keys_of`, and a column: of 32 bits for types of 16, else of 64. No result is 0."""
    if kind.width == 16:
        pair, half = key
        low = Int32(LOW) - Int32(column)
        return Uint32(cute.arch.prmt(low, pair.to(Int32), Int32(0x5410 if half == 0 else 0x7610)))
    return (Uint64(key) << Uint64(32)) | Uint64(Uint32(ALL) - Uint32(column))


def parts_of(joined, kind, largest: bool):
    """Return the bits of the element, at the top of 32, and the column that were joined."""
    if kind.width == 16:
        key, column = joined & Uint32(HIGH), (Uint32(LOW) - (joined & Uint32(LOW))).to(Int32)
    else:
        key, column = (joined >> Uint64(32)).to(Uint32), (Uint32(ALL) - joined.to(Uint32)).to(Int32)
    key = key if largest else key ^ Uint32(HIGH if kind.width == 16 else ALL)
    flipped = select(key >= Uint32(SIGN), Uint32(SIGN), Uint32(HIGH if kind.width == 16 else ALL))
    return key ^ flipped, column


def has_one_pattern(word, kind):
    """Tell whether elements of a key have one pattern: neither zeros nor NaNs, of which there are several."""
    magnitude = word & Uint32(ALL ^ SIGN)
    return (magnitude != Uint32(0)) & (magnitude <= Uint32(INFINITY[kind.__name__]))


def compared(values: list, network: Network) -> list:
    """Compare registers by a network."""
    values = list(values)
    for i, j in network:
        x, y = values[i], values[j]
        is_less = x < y
        values[i], values[j] = select(is_less, y, x), select(is_less, x, y)
    return values


def largest_of(values: list, count: int) -> list:
    """Return the largest of a thread's registers, the largest first: a power of 2; zeros where there are fewer."""
    zero = type(values[0])(0)
    blocks = [values[n : n + count] for n in range(0, len(values), count)]
    blocks[-1] = blocks[-1] + [zero] * (count - len(blocks[-1]))
    found = compared(blocks[0], sorting_network(count))
    for block in blocks[1:]:
        found = _largest_of_both(found, compared(block, sorting_network(count)))
    return found


def _largest_of_both(values: list, others: list) -> list:
    """Return the largest of two lists of one length, each the largest first."""
    joined = [select(x < y, y, x) for x, y in zip(values, reversed(others), strict=True)]
    return compared(joined, merging_network(len(joined)))


def largest_over_lanes(values: list, lanes: int) -> list:
    """Return the largest of the lists of so many neighbouring lanes, each the largest first; all lanes get them."""
    for step in range(lanes.bit_length() - 1):
        values = _largest_of_both(values, [cute.arch.shuffle_sync_bfly(each, offset=1 << step) for each in values])
    return values


def sorted_over_threads(values: list, thread, threads: int, fetch: Callable) -> list:
    """Sort the registers of so many threads, the largest first; thread t gets those from t times their number on.

    Runs of 2, 4 and more threads are sorted, and merged with the next, which is sorted the other way round: the bits of
    its keys are flipped meanwhile.

    Parameters
    ----------
    values : list
        Keys, a power of 2.
    thread : Int32
        Index of the thread.
    threads : int
        A power of 2.
    fetch : callable
        (values, distance) -> those of the thread whose index differs by that bit.
    """
    kind, was, span = type(values[0]), None, 1
    while span <= threads:
        flip = kind(0)
        if span < threads:
            flip = select((thread & Int32(span)) != Int32(0), kind(2**kind.width - 1), kind(0))
        change = flip if was is None else flip ^ was
        values, was = [kind(each ^ change) for each in values], flip
        distance = span // 2
        while distance:
            is_after = (thread & Int32(distance)) != Int32(0)
            others = fetch(values, distance)
            values = [select((other > own) ^ is_after, other, own) for own, other in zip(values, others, strict=True)]
            distance //= 2
        network = sorting_network(len(values)) if span == 1 else merging_network(len(values))
        values = compared(values, network)
        span *= 2
    return values
