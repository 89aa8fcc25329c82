"""Known memory: ranges that overlap are one, and a launch leaves nothing of its own behind."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import cutepy
from cutepy.frontends.torch_device import serve_cuda, storage
from cutepy.sim.machine.memory import GlobalMemory

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")


@cute.kernel
def fill_kernel(a: cute.Tensor, x: cutlass.Float32):
    a[cute.arch.thread_idx()[0]] = x


@cute.jit
def fill(a: cute.Tensor, x: cutlass.Float32):
    fill_kernel(a, x).launch(grid=(1, 1, 1), block=(64, 1, 1))


@pytest.mark.dsl
def test_what_is_known_does_not_grow_with_launches():
    a = torch.zeros(64)
    with cutepy.simulate() as run:
        fill(a, 0.0)
        known = len(run._memory.ranges())
        for n in range(5):
            fill(a, float(n))
        assert len(run._memory.ranges()) == known == 1
    others = len(storage.allocations.ranges())  # that somebody keeps for the device
    with serve_cuda() as run:
        for n in range(5):
            fill(a, float(n))
        assert len(run._memory.ranges()) <= others + 1
    assert (a == 4).all()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=20), st.integers(0, 70), st.integers(1, 9))
def test_ranges_that_overlap_are_one(ranges, low, size):
    """Against a set of the bytes, in which ranges that only touch are kept apart."""
    data = np.zeros(128, np.uint8)
    base = data.ctypes.data
    memory = GlobalMemory()
    parts: list[set[int]] = []
    for start, length in ranges:
        memory.register(base + start, length, data)
        part = set(range(start, start + length))
        joined = [p for p in parts if p & part]
        parts = [p for p in parts if not p & part] + ([part.union(*joined)] if part else [])
    assert len(memory.ranges()) == len(parts)
    found = memory.find(base + low, base + low + size)
    assert (found is not None) == any(p >= set(range(low, low + size)) for p in parts)
    for part in parts:
        memory.forget(base + min(part))
    assert len(memory.ranges()) == 0
    assert memory.find(base + low, base + low + size) is None


def test_what_is_known_already_is_not_new():
    """A part of it, or all, by whatever it is owned; what reaches beyond is new."""
    data = np.zeros(128, np.uint8)
    base, memory = data.ctypes.data, GlobalMemory()
    assert memory.register(base + 16, 64, data)
    for start, size in ((16, 64), (16, 8), (72, 8), (40, 8)):
        assert not memory.register(base + start, size, object())
    assert memory.register(base + 16, 65, data)
    assert memory.register(base + 15, 66, data)
    assert memory.ranges() == [(base + 15, base + 81)]
    assert not memory.register(base, 0, data)
