"""Memory mappings that a fork would share."""

import mmap
import sys

import numpy as np
import pytest

from cutepy.sim.parallel import mappings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed on Linux")


def span(array):
    return array.ctypes.data, array.ctypes.data + array.nbytes


def test_writable_shared_mappings_are_found_from_any_byte():
    shared = np.frombuffer(mmap.mmap(-1, 1 << 16), np.uint8)
    own = np.zeros(1 << 16, np.uint8)
    assert mappings.any_shared([span(own), span(shared[100:101])])
    assert not mappings.any_shared([span(own)])
    assert not mappings.any_shared([])


def test_neighbours_of_shared_mappings_are_not():
    shared = np.frombuffer(mmap.mmap(-1, 1 << 16), np.uint8)
    low, high = span(shared)
    assert mappings.any_shared([(low - 1, low + 1)])
    assert mappings.any_shared([(high - 1, high + 1)])
    lines = [line.split()[0].split("-") for line in mappings._MAPS.read_text().splitlines() if " rw-s " in line]
    spans = [(int(start, 16), int(end, 16)) for start, end in lines]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    assert not mappings.any_shared([(first - 16, first), (last, last + 16)])


def test_private_and_read_only_mappings_are_not(tmp_path):
    np.zeros(4096, np.uint8).tofile(tmp_path / "data")
    for mode in ("c", "r"):
        assert not mappings.any_shared([span(np.memmap(tmp_path / "data", np.uint8, mode))])


def test_what_the_system_does_not_tell_may_be_shared(monkeypatch, tmp_path):
    monkeypatch.setattr(mappings, "_MAPS", tmp_path / "none")
    assert mappings.any_shared([span(np.zeros(8))])
