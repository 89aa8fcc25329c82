"""Atomic operations of many lanes on few addresses, against one lane after the other."""

import itertools
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cutepy.sim.mechanisms.atomics import combine
from cutepy.sim.mechanisms.collisions import one_after_another

_BITS = {"b16": "u2", "f16": "u2", "bf16": "u2", "u32": "u4", "s32": "u4", "b32": "u4", "f32": "u4", "f16x2": "u4"}
_BITS |= {"bf16x2": "u4", "u64": "u8", "s64": "u8", "b64": "u8", "f64": "u8"}
_OPERATIONS = {
    "add": "u32 s32 u64 f16 f16x2 bf16 bf16x2 f32 f64",
    "min": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
    "max": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "exch": "b32 b64",
    "cas": "b16 b32 b64",
    "inc": "u32",
    "dec": "u32",
}
_CASES = [(operation, name) for operation, names in _OPERATIONS.items() for name in names.split()]


def _in_turn(view, index, values, apply):
    old = np.empty(index.shape, view.dtype)
    for at in itertools.product(*map(range, index.shape)):
        before = view[index[at]].reshape(1).copy()
        old[at] = before[0]
        view[index[at]] = apply(before, *(v[at].reshape(1) for v in values))[0]
    return old


def _some(rng, bits, kind, count):
    """Bits of which many are equal, small, or special floats."""
    size = 8 * int(bits[1:])
    width = {"f16x2": 16, "bf16x2": 16}.get(kind, size)
    pool = rng.integers(0, 1 << width, 4, dtype=np.uint64)
    one = {"f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80, "f32": 0x3F800000}.get(kind, 3)
    one = 0x3FF << 52 if kind == "f64" else one
    top = 1 << (width - 1)
    # Zeros of both signs, a subnormal, numbers near 1 and the least normal one, now and then an infinity and a NaN.
    infinities = {"f16": 0x7C00, "f16x2": 0x7C00, "bf16": 0x7F80, "bf16x2": 0x7F80, "f32": 0x7F800000}
    infinity = infinities.get(kind, 0x7FF << 52)
    least = infinity & -infinity
    usual = [0, top, 1, 2, 3, one, one | 1, one | top, least, least + 1, (least + 2) | top, *pool.tolist()]
    rare = [infinity, infinity + 1, (infinity | top) + 1, infinity | top]
    mask = (1 << width) - 1
    values = np.array([x & mask for x in usual + (rare if rng.random() < 0.3 else [])], np.uint64)
    out = rng.choice(values, count)
    for _ in range(size // width - 1):
        out = out << np.uint64(width) | rng.choice(values, count)
    return out.astype(bits)


@pytest.mark.parametrize(("operation", "name"), _CASES)
@settings(max_examples=7, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 90), places=st.integers(1, 12))
def test_many_at_once_are_one_after_the_other(operation, name, seed, count, places):
    rng = np.random.default_rng(seed)
    bits = _BITS[name]
    memory = _some(rng, bits, name, 16)
    index = np.minimum(rng.integers(0, places, (2, count)), rng.integers(0, places, (2, count)))
    values = [_some(rng, bits, name, 2 * count).reshape(2, count) for _ in range(1 + (operation == "cas"))]
    if operation == "cas":
        values[0] = np.where(rng.random((2, count)) < 0.5, rng.choice(memory, (2, count)), values[0])
    with np.errstate(all="ignore"):
        for flush in (False, True) if operation == "add" else (False,):
            apply = partial(combine, operation, name, flush=flush)
            expected_memory, found_memory = memory.copy(), memory.copy()
            expected = _in_turn(expected_memory, index, values, apply)
            found = one_after_another(found_memory, index, values, apply, operation, name, flush)
            assert found.tobytes() == expected.tobytes()
            assert found_memory.tobytes() == expected_memory.tobytes()


@pytest.mark.parametrize("places", [1, 200, 20_000])
@pytest.mark.parametrize("name", ["f32", "u32", "f16x2"])
def test_a_hundred_thousand_take_less_than_a_call_each(places, name):
    """One call of `combine` takes 10 us and more: all of them took three seconds."""
    rng = np.random.default_rng(0)
    index = rng.integers(0, places, (100, 1000))
    values = rng.integers(0x3C003C00, 0x3C013C00, index.shape).astype(np.uint32)
    memory = np.zeros(places, np.uint32)
    start = time.process_time()
    with np.errstate(all="ignore"):
        one_after_another(memory, index, [values], partial(combine, "add", name), "add", name, False)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_bf16_sums_beyond_float32_are_infinities_of_their_sign(sign):
    memory, largest = np.zeros(1, np.uint16), np.full(64, 0x7F7F | sign, np.uint16)
    old = one_after_another(
        memory, np.zeros(64, np.intp), [largest], partial(combine, "add", "bf16"), "add", "bf16", False
    )
    assert old.tolist() == [0, 0x7F7F | sign] + [0x7F80 | sign] * 62
    assert memory.tolist() == [0x7F80 | sign]
