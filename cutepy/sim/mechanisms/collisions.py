"""Atomic operations of lanes that hit the same address: one after the other, in order, and many of them at once.

Addresses that few lanes hit are taken in rounds: the first lane of each address, then the second of each. An address
that many hit is taken by itself: where the operation is associative, or numpy accumulates in the order of the lanes,
its lanes take a few calls together. The results are those of lane after lane, bit for bit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from cutepy.sim.arithmetic import floats
from cutepy.sim.machine.lanes import Array

Apply = Callable[..., Array]
"""``apply(old, *values)`` returns the bits of old values after the operation, element by element."""

_CHUNK = 4096
_CHAIN_PER_ROUND = 4
"""Cost of the lanes of one address by themselves, in rounds."""

_FLOAT_TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "f16x2": np.float16}
_ASSOCIATIVE = frozenset(("and", "or", "xor", "exch", "min", "max"))


def one_after_another(
    view: Array, index: Array, values: list[Array], apply: Apply, operation: str, name: str, flush: bool
) -> Array:
    """Apply an operation at positions of an array, some of which are equal; returns the old values.

    Parameters
    ----------
    view : array
        Memory, as elements of the operation's width; is changed.
    index : array of int
        By lane, the position.
    values : list of array
        By lane, the operands.
    apply : callable
    operation, name : str
        "add", ..., and the PTX type of the elements.
    flush : bool
        True if sums of float32 are flushed.
    """
    is_number = view.dtype.itemsize <= 8
    if operation == "cas" and is_number:
        present: Array = view[index]
        if not (present == values[0].view(view.dtype)).any():
            return present
    flat = index.reshape(-1)
    order = np.argsort(flat, kind="stable")
    lanes = [np.ascontiguousarray(v).reshape(-1)[order] for v in values]
    positions = flat[order]
    starts = np.flatnonzero(np.concatenate([[True], positions[1:] != positions[:-1]]))
    counts = np.diff(np.append(starts, len(flat)))
    by_count = np.argsort(-counts, kind="stable")
    starts, counts = starts[by_count], counts[by_count]
    old = np.empty(len(flat), view.dtype)
    alone = is_number * int(np.argmin(np.arange(len(counts) + 1) * _CHAIN_PER_ROUND + np.append(counts, 0)))
    for start, count in zip(starts[:alone].tolist(), counts[:alone].tolist(), strict=True):
        at, part = positions[start], slice(start, start + count)
        states = _chain(view[at : at + 1], [v[part] for v in lanes], apply, operation, name, flush)
        old[part], view[at] = states[:-1], states[-1]
    starts, counts = starts[alone:], counts[alone:]
    left = len(counts)
    for number in range(int(counts[0]) if left else 0):
        while counts[left - 1] <= number:
            left -= 1
        now = starts[:left] + number
        at = positions[now]
        found = old[now] = view[at]
        view[at] = apply(found, *(v[now] for v in lanes))
    result = np.empty_like(old)
    result[order] = old
    return result.reshape(index.shape)


def _chain(first: Array, values: list[Array], apply: Apply, operation: str, name: str, flush: bool) -> Array:
    """Return the value of one element before the first operation, and after each."""
    if operation in _ASSOCIATIVE or (operation == "add" and name[0] not in "fb"):
        return _scanned(first, values[0], apply)
    if operation == "add" and name in _FLOAT_TYPES:
        return _accumulated(first, values[0], apply, name, flush)
    if operation == "add":
        return _bf16_sums(first, values[0], apply)
    return _stepped(first, values, operation)


def _scanned(first: Array, values: Array, apply: Apply) -> Array:
    """Scan with an associative operation: each doubling combines runs of twice the length."""
    runs = values.copy()
    step = 1
    while step < len(runs):
        runs[step:] = apply(runs[:-step].copy(), runs[step:])
        step *= 2
    return np.concatenate([first, apply(np.broadcast_to(first, runs.shape), runs)])


def _accumulated(first: Array, values: Array, apply: Apply, name: str, flush: bool) -> Array:
    """Sum floats in order, rounded at each step; where a sum needs more than that, take its step alone."""
    kind, bits = _FLOAT_TYPES[name], values.dtype
    packed = 2 if name == "f16x2" else 1
    flush = flush and kind == np.float32
    states = np.empty(len(values) + 1, bits)
    states[0], done = first[0], 0
    while done < len(values):
        terms = np.concatenate([states[done : done + 1], values[done : done + _CHUNK]]).view(kind).reshape(-1, packed)
        terms = floats.flush(terms) if flush else terms
        sums = np.add.accumulate(terms, axis=0, dtype=kind)[1:]
        special = np.isnan(sums)
        if flush:
            special |= (np.abs(sums) < np.float32(2.0**-126)) & (sums != 0)
        elif kind == np.float16 or kind == np.float32:
            # A sum that is a NaN stays one.
            sums[special] = np.array([0x7FFF if kind == np.float16 else 0x7FFFFFFF], f"u{sums.itemsize}").view(kind)[0]
            special[:] = False
        found = np.flatnonzero(special.any(axis=1))
        good = int(found[0]) if len(found) else len(sums)
        states[done + 1 : done + 1 + good] = np.ascontiguousarray(sums[:good]).view(bits).reshape(-1)
        done += good
        if len(found):
            states[done + 1 : done + 2] = apply(states[done : done + 1].copy(), values[done : done + 1])
            done += 1
    return states


def _bf16_sums(first: Array, values: Array, apply: Apply) -> Array:
    """Sum bf16, one or two in an element, in order; each sum is rounded to float32 and then to bf16."""
    halves = []
    for part in range(first.dtype.itemsize // 2):
        state, *terms = np.concatenate([first, values]).view(np.uint16).reshape(len(values) + 1, -1)[:, part].tolist()
        states = [state]
        for term in terms:
            state = _bf16_sum(state, term)
            states.append(state)
        halves.append(states)
    return np.ascontiguousarray(np.array(halves, np.uint16).T).view(first.dtype).reshape(-1)


def _bf16_sum(a: int, b: int) -> int:
    x, y = struct.unpack("<2f", struct.pack("<2I", a << 16, b << 16))
    total = x + y
    if total != total:
        return 0x7FFF
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", total))
    except OverflowError:
        bits = 0x7F800000 if total > 0 else 0xFF800000
    if bits & 0x7FFFFFFF == 0x7F800000:
        return int(bits >> 16)
    return int(bits + 0x7FFF + (bits >> 16 & 1) >> 16)


def _stepped(first: Array, values: list[Array], operation: str) -> Array:
    """Compare and swap, or count up or down, in order."""
    state = int(first[0])
    states = [state]
    operands: list[list[Any]] = [v.view(f"u{first.dtype.itemsize}").tolist() for v in values]
    if operation == "cas":
        for expected, new in zip(*operands, strict=True):
            state = new if state == expected else state
            states.append(state)
    elif operation == "inc":
        for limit in operands[0]:
            state = 0 if state >= limit else state + 1
            states.append(state)
    else:
        for limit in operands[0]:
            state = limit if state == 0 or state > limit else state - 1
            states.append(state)
    return np.array(states, f"u{first.dtype.itemsize}").view(first.dtype)
