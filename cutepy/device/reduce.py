"""Reductions of accumulators over rows and columns, and of values over a warp, a CTA and a cluster (traced).

Operations are ``max``, ``add`` and the like on two fp32 values, associative and commutative. The order of each step
depends on indices only, so that results are the same from run to run.
"""

import functools
import math
from collections.abc import Callable

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import rules
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.primitives import exp, select
from cutepy.layouts.sm90 import arch


def add(x, y):
    """Add two values."""
    return x + y


def maximum(x, y):
    """Return the larger of two values; NaN if one of them is, as torch does."""
    return cute.arch.fmax(x, y, nan=True)


@cute.jit
def reduce_registers(rC, tile: AccumulatorTile, mode: cutlass.Constexpr, operation: Callable):
    """Reduce this thread's registers of each row (mode 0) or column (mode 1) of a subtile to one value each.

    The result has an element for each of ``tile.distinct(mode)``; other threads' registers are not included. Errors are
    those of `Registers.check`.
    """
    tile.check(rC)
    found: dict = {}
    for register, place in enumerate(tile.place(mode)):
        found[place] = operation(found[place], rC[register]) if place in found else rC[register]
    result = cute.make_rmem_tensor(len(found), cutlass.Float32)
    for place, value in found.items():
        result[place] = value
    return result


@cute.jit
def reduce_rows(rC, tile: AccumulatorTile, operation: Callable):
    """Reduce each row of a subtile over all its columns; all threads get the values of their rows.

    The four lanes of a warp that share a row differ in the lowest bits of their index, so a butterfly of shuffles
    reduces it; all lanes of a warp call.
    """
    return _reduce_in_warp(rC, tile, 0, operation)


@cute.jit
def reduce_warp_columns(rC, tile: AccumulatorTile, operation: Callable):
    """Reduce each column of a subtile over the rows of this warp; all lanes call, and get those of their columns.

    To reduce over the rows of all warps, hand the results to `block_reduce`, or let each warp leave its own in shared
    memory.
    """
    return _reduce_in_warp(rC, tile, 1, operation)


def _reduce_in_warp(rC, tile: AccumulatorTile, mode: int, operation: Callable):
    """Reduce over a thread's registers of each row, mode 0, or column, mode 1, then over the lanes that share it."""
    result = reduce_registers(rC, tile, mode, operation)
    for place in range(cute.size(result)):
        result[place] = _over_lanes(result[place], tile.sharing_lanes(mode), operation)
    return result


def _over_lanes(value, bits, operation: Callable):
    """Reduce a value over the lanes of a warp that differ in these bits."""
    for bit in bits:
        value = operation(value, cute.arch.shuffle_sync_bfly(value, offset=bit))
    return value


def reduce_block(rC, tile: AccumulatorTile, operation: Callable):
    """Reduce all of a subtile over the lanes that share rows or columns; all lanes call, and get the value."""
    tile.check(rC)
    total = functools.reduce(operation, [rC[v] for v in range(cute.size(rC))])
    return _over_lanes(total, (*tile.sharing_lanes(0), *tile.sharing_lanes(1)), operation)


@cute.jit
def warp_reduce(value, operation: Callable):
    """Reduce a value over the 32 lanes of a warp; all lanes call, and get the result."""
    return lanes_reduce(value, arch.WARP_THREADS, operation)


def warp_scatter_reduce(values, operation: Callable):
    """Reduce several values over the lanes of a warp, each to lanes of its own; all lanes call.

    With each shuffle a lane sends half of its values and combines the received half with the rest. So 32 values take 31
    shuffles, and 32 calls of `warp_reduce` take 160. Lanes are combined in the order of `warp_reduce`.

    Parameters
    ----------
    values : sequence of Float32
        As many as a power of 2, 32 at most.

    Returns
    -------
    value, index
        A value over all lanes, and its index among `values`; lanes with one index have the same value.

    Raises
    ------
    ValueError
        If there are other numbers of values.
    """
    rules.check_scattered(len(values))
    held, lane, index = list(values), cute.arch.lane_idx(), 0
    for step in range(arch.WARP_THREADS.bit_length() - 1):
        upper = (lane >> step & 1) != 0
        half = len(held) // 2
        if half:
            given = [_select(upper, x, y) for x, y in zip(held[:half], held[half:], strict=True)]
            held = [_select(upper, y, x) for x, y in zip(held[:half], held[half:], strict=True)]
            index += (lane >> step & 1) * half
        else:
            given = held
        held = [
            operation(own, cute.arch.shuffle_sync_bfly(other, offset=1 << step))
            for own, other in zip(held, given, strict=True)
        ]
    (value,) = held
    return value, index


def _check_slots(slots, count: int) -> None:
    """Check that the slots in shared memory suffice, where their number is known: of tensors."""
    if not isinstance(slots, cute.Tensor):
        raise TypeError(
            f"slots must be a tensor, which knows how many there are, got {type(slots).__name__}; use smem.as_vector"
        )
    if slots.element_type is not Float32:
        raise TypeError(f"slots must be Float32, got {slots.element_type.__name__}; share them as cutlass.Float32")
    rules.check_slots(cute.size(slots), count)


def _select(condition, x, y):
    return Float32(cutlass.select_(condition, x, y))


@cute.jit
def block_reduce(
    value, slots, tidx, threads: cutlass.Constexpr, barrier: cutlass.Constexpr, operation: Callable, turn=None
):
    """Reduce a value over `threads` threads: every thread must call, and every thread gets the result.

    Each warp writes its result to `slots`, waits at the named barrier for the other warps, and reads all results. They
    are reduced in pairs of neighbours, as by `cluster_reduce`, so that warps of one CTA and as many warps of a cluster
    give the same bits. A second barrier keeps the writes of the next reduction behind the reads of this one. With
    `turn` there is no second barrier.

    Parameters
    ----------
    slots : Tensor
        Shared memory for an fp32 value of each warp, as many as `rules.reduction_slots` says, or twice as many with
        `turn`, aligned to 16 bytes: `smem.as_vector` of a region of a plan.
    tidx : Int32
        Index among the threads.
    barrier : int
        The number of the named barrier.
    turn : int or Int32, optional
        Half of the slots to use: 0 and 1 in turns, from call to call.

    Raises
    ------
    TypeError
        If the slots are no tensor of fp32.
    ValueError
        If the slots are too few, the threads are no whole warps of a CTA, or the barrier's number does not exist.
    """
    rules.check_reduction(threads)
    rules.check_barrier(barrier)
    warps = threads // arch.WARP_THREADS
    shared = _half(slots, warps, turn)
    _leave(warp_reduce(value, operation), shared, tidx)
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    result = reduce_pairs([shared[warp] for warp in range(warps)], operation)
    if cutlass.const_expr(turn is None):
        cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    return result


def reduce_pairs(values: list, operation: Callable):
    """Reduce values in pairs of neighbours, then the results: the order in which a butterfly reduces lanes."""
    while len(values) > 1:
        pairs = [operation(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[2 * len(pairs) :]
    return values[0]


@cute.jit
def _leave(value, shared, tidx):
    """Leave a warp's value in the shared memory of its CTA."""
    if tidx % arch.WARP_THREADS == 0:
        shared[tidx // arch.WARP_THREADS] = value


def _half(slots, count: int, turn) -> cute.Tensor:
    """Return the slots of a reduction of `count` values: all, or those of its turn."""
    room = rules.reduction_slots(count)
    _check_slots(slots, count if turn is None else 2 * room)
    start = slots.iterator if turn is None else slots.iterator + turn * room
    return cute.make_tensor(start, cute.make_layout(count))


@cute.jit
def cluster_reduce(
    value, slots, tidx, threads: cutlass.Constexpr, ctas: cutlass.Constexpr, operation: Callable, turn=None
):
    """Reduce a value over all threads of a cluster: every thread must call, and every thread gets the result.

    All CTAs must have begun, so a cluster barrier, such as `publish_barriers`, comes before the first call. Each warp
    reduces its values and writes the result to the shared memory of every CTA. A cluster barrier, with release and
    acquire, orders these writes before the reads. Each warp then reads the results of all warps and reduces them. A
    second cluster barrier keeps CTAs from the next write, and from their exit, until all warps have read. With `turn`
    there is no second barrier.

    Parameters
    ----------
    slots : Tensor
        Shared memory for an fp32 value of each warp of the cluster; as many, and aligned, as `block_reduce` takes.
    tidx : Int32
        Index of the thread in its CTA.
    threads, ctas : int
        Threads of a CTA, and CTAs of the cluster.
    turn : int or Int32, optional
        Half of the slots to use: 0 and 1 in turns, from call to call.

    Raises
    ------
    TypeError
        If the slots are no tensor of fp32.
    ValueError
        If the slots are too few, the threads are no whole warps, or the size or the warps of the cluster are refused.
    """
    rules.check_reduction(threads)
    rules.check_schedule((1, 1), ctas, 1)
    warps = threads // arch.WARP_THREADS
    count = warps * ctas
    rules.check_butterfly(count)
    shared = _half(slots, count, turn)
    _leave_in_cluster(warp_reduce(value, operation), shared, tidx, warps, ctas)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    lanes = min(count, arch.WARP_THREADS)
    result = functools.reduce(operation, _values_of_lane(shared, tidx, count))
    result = lanes_reduce(result, lanes, operation)
    if cutlass.const_expr(turn is None):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    return result


@cute.jit
def _leave_in_cluster(value, shared, tidx, warps: cutlass.Constexpr, ctas: cutlass.Constexpr):
    """Leave a warp's value in the shared memory of each CTA of its cluster."""
    lane, rank = tidx % arch.WARP_THREADS, cute.arch.block_idx_in_cluster()
    if lane < ctas:
        peer = cute.arch.map_dsmem_ptr(shared.iterator + rank * warps + tidx // arch.WARP_THREADS, lane)
        place = cute.make_ptr(cutlass.Float32, peer.toint(), cute.AddressSpace.smem, assumed_align=4)
        cute.arch.store(place, value, ss="cluster")


def _values_of_lane(shared, tidx, count: int) -> list:
    """Load the values of a cluster's warps that a lane reduces, before lanes are reduced."""
    lane, lanes = tidx % arch.WARP_THREADS, min(count, arch.WARP_THREADS)
    return [shared[lane % lanes + other * lanes] for other in range(count // lanes)]


@cute.jit
def lanes_reduce(value, lanes: cutlass.Constexpr, operation: Callable):
    """Reduce a value over so many neighbouring lanes, a power of 2; all lanes of a warp call, and get the result."""
    for step in cutlass.range_constexpr(lanes.bit_length() - 1):
        value = operation(value, cute.arch.shuffle_sync_bfly(value, offset=1 << step))
    return value


@cute.jit
def lanes_reduce_integers(value, lanes: cutlass.Constexpr, kind: cutlass.Constexpr):
    """Reduce an integer over so many neighbouring lanes, a power of 2; all lanes of a warp call, and get the result.

    Parameters
    ----------
    value : Int32 or Uint32
    lanes : int
    kind : str
        "add", "max", "min", "umax" or "umin", as redux.sync has them.
    """
    if cutlass.const_expr(lanes == arch.WARP_THREADS):
        return cute.arch.warp_redux_sync(value, kind)
    return lanes_reduce(value, lanes, _INTEGER_OPERATIONS[kind])


_INTEGER_OPERATIONS: dict[str, Callable] = {
    "add": add,
    "max": lambda x, y: select(x < y, y, x),
    "min": lambda x, y: select(x < y, x, y),
    "umax": lambda x, y: select(x < y, y, x),
    "umin": lambda x, y: select(x < y, x, y),
}
"""Operations on two integers, with a sign or without by their type."""


@cute.jit
def block_reduce_integers(
    value, slots, tidx, threads: cutlass.Constexpr, barrier: cutlass.Constexpr, kind: cutlass.Constexpr, turn
):
    """Reduce an integer over `threads` threads, which all call, meet once at the named barrier, and get the result.

    Each warp leaves its own in `slots`, and lanes of each warp reduce all. Parameters and errors are those of
    `block_reduce` with `turn`, and `kind` is that of `lanes_reduce_integers`.
    """
    rules.check_reduction(threads)
    rules.check_barrier(barrier)
    warps = threads // arch.WARP_THREADS
    held = cute.recast_tensor(_half(slots, warps, turn), type(value))
    _leave(lanes_reduce_integers(value, arch.WARP_THREADS, kind), held, tidx)
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    lane = tidx % arch.WARP_THREADS
    found = held[lane % warps]
    if cutlass.const_expr(kind == "add"):
        found = select(lane < warps, found, type(value)(0))
    return lanes_reduce_integers(found, arch.WARP_THREADS, kind)


def finite_base(largest):
    """Return the subtrahend before exp: the largest element, or 0 if that is -inf, from which -inf can't be taken."""
    return select(largest == -math.inf, Float32(0.0), largest)


def join_exponentials(pairs: list):
    """Join pairs of a largest element and the sum of exponentials of elements less that one."""
    largest = functools.reduce(maximum, [each for each, _ in pairs])
    base = finite_base(largest)
    return largest, functools.reduce(add, [total * exp(each - base) for each, total in pairs])


def lanes_exponentials(largest, total, lanes: int):
    """Join a pair, as of `join_exponentials`, of each of a given number of neighbouring lanes; all get the result."""
    joined = lanes_reduce(largest, lanes, maximum)
    return joined, lanes_reduce(total * exp(largest - finite_base(joined)), lanes, add)


@cute.jit
def block_exponentials(largest, total, slots, tidx, threads: cutlass.Constexpr, barrier: cutlass.Constexpr):
    """Join a pair, as of `join_exponentials`, of each of `threads` threads, which meet once at the named barrier.

    Slots are those of `block_reduce` with `turn`, both of whose halves are used; errors are its.
    """
    rules.check_reduction(threads)
    rules.check_barrier(barrier)
    warps = threads // arch.WARP_THREADS
    rules.check_butterfly(warps)
    largest, total = lanes_exponentials(largest, total, arch.WARP_THREADS)
    halves = [_half(slots, warps, turn) for turn in (0, 1)]
    _leave(largest, halves[0], tidx)
    _leave(total, halves[1], tidx)
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    return _join_warps(halves, tidx, warps)


@cute.jit
def cluster_exponentials(largest, total, slots, tidx, threads: cutlass.Constexpr, ctas: cutlass.Constexpr):
    """Join a pair, as of `join_exponentials`, of each thread of a cluster, whose CTAs have begun and meet once.

    Slots are those of `cluster_reduce` with `turn`, both of whose halves are used; errors are its.
    """
    rules.check_reduction(threads)
    rules.check_schedule((1, 1), ctas, 1)
    warps = threads // arch.WARP_THREADS
    count = warps * ctas
    rules.check_butterfly(count)
    largest, total = lanes_exponentials(largest, total, arch.WARP_THREADS)
    halves = [_half(slots, count, turn) for turn in (0, 1)]
    _leave_in_cluster(largest, halves[0], tidx, warps, ctas)
    _leave_in_cluster(total, halves[1], tidx, warps, ctas)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    return _join_warps(halves, tidx, count)


def _join_warps(halves: list, tidx, count: int):
    """Join pairs that warps have left in the halves of their slots: lanes read them, and are joined."""
    pairs = zip(*(_values_of_lane(half, tidx, count) for half in halves), strict=True)
    largest, total = join_exponentials(list(pairs))
    return lanes_exponentials(largest, total, min(count, arch.WARP_THREADS))
