"""Definedness of memory: the bits that come back are those that were stored, wherever they are."""

from types import SimpleNamespace

import numpy as np
import pytest

import cutepy
from cutepy.sim.sanitize.undefined_memory import BESIDE_VALUES, Element, UndefinedMemory


def access(addresses, size_bytes, space="shared"):
    addresses = np.asarray(addresses).reshape(1, -1)
    lanes = SimpleNamespace(count=addresses.shape[1])
    return SimpleNamespace(
        space=space, addresses=addresses, size_bytes=size_bytes, ctas=SimpleNamespace(count=1), threads=lanes
    )


def element(*lacks, origin=1):
    lacks = np.array([lacks], np.uint64)
    return Element(lacks, np.full(lacks.shape, origin))


@pytest.mark.parametrize("far", [0, 4094, 4096, 3 * 4096 + 6, 10**8])
def test_bits_come_back_from_where_they_were_stored(far):
    memory = UndefinedMemory()
    memory.write(access([far, far + 2], 2), [element(0x0F00, 0x8000, origin=7)])
    (found,) = memory.read(access([far], 4), 1, is_signed=False)
    assert (found.lacks.tolist(), found.origins.tolist()) == ([[0x80000F00]], [[7]])
    (found,) = memory.read(access([far], 4), 1, is_signed=True)
    assert found.lacks.tolist() == [[0xFFFFFFFF80000F00]]
    low, high = memory.read(access([far], 4), 2, is_signed=False)
    assert (low.lacks.tolist(), high.lacks.tolist()) == ([[0x0F00]], [[0x8000]])
    (found,) = memory.read(access([far], 4, "local"), 1, is_signed=False)
    assert found.lacks.tolist() == [[0xFFFFFFFF]]
    memory.write(access([far + 2], 2), [])
    (found,) = memory.read(access([far], 4), 1, is_signed=False)
    assert found.lacks.tolist() == [[0x0F00]]
    memory.write(access([far], 2), [])
    assert memory.read(access([far], 4), 1, is_signed=False) == []


def test_elements_of_16_bytes_lack_all_bits_or_none():
    memory = UndefinedMemory()
    memory.write(access([32], 16), [element(1)])
    (found,) = memory.read(access([32], 16), 1, is_signed=False)
    assert found.lacks.tolist() == [[(1 << 64) - 1]]


def test_a_copy_takes_along_what_has_values_and_what_has_not():
    memory = UndefinedMemory()
    memory.write(access([16], 4, "local"), [element(0xFF, origin=3)])
    memory.write(access([0], 16, "local"), [])
    memory.copy("local", np.array([[0, 16]]), np.array([[9000, 9016]]), 16)
    (found,) = memory.read(access([9000, 9016, 9020], 4, "local"), 1, is_signed=False)
    assert found.lacks.tolist() == [[0, 0xFF, 0xFFFFFFFF]]
    assert found.origins[0, 1] == 3
    memory.copy("local", np.array([[0]]), np.array([[9016]]), 16)
    assert memory.read(access([9016], 4, "local"), 1, is_signed=False) == []


def test_local_memory_begins_without_a_value_and_what_is_beside_values_is_told_apart():
    memory = UndefinedMemory()
    memory.write(access([64], 4, "local"), [])
    low, high = memory.read(access([64, 80], 8, "local"), 2, is_signed=False)
    assert (low.lacks.tolist(), high.lacks.tolist()) == ([[0, 0xFFFFFFFF]], [[0xFFFFFFFF, 0xFFFFFFFF]])
    assert high.origins.tolist() == [[BESIDE_VALUES, 0]]


def test_a_kernel_that_only_returns_begins_with_nothing():
    text = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }"
    with cutepy.simulate(sanitize=True) as run:
        cutepy.load_ptx(text).launch("k", 1, 32, ())
    assert not run.hazards
