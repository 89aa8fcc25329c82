"""Outcome of a schedule: its writes to global memory, or the error it ended with; and differences of two.

A schedule holds lanes or an operation back, so that one side of a hazard comes later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.machine.policies import Site
from cutepy.sim.machine.shared_memory import MemoryContents
from cutepy.sim.parallel.footprint import Ranges, take
from cutepy.sim.sanitize.hazards import Hazard, Side


@dataclass(frozen=True)
class Request:
    """Schedule and inputs with which a launch is played.

    Attributes
    ----------
    policy : CompletionPolicy or None
    expected : bytes
        The digest of the outcome that is not told at length, since it is known.
    with_reads : bool
        True to tell what was read.
    with_left : bool
        True to tell what the last CTAs left in shared memory, megabytes.
    unwritten : int
        The bytes of registers that nothing has written.
    unwritten_shared : int, Words or array
        Contents of shared memory that nothing has written.
    sanitizes : bool
        True to look for hazards, if the run does.
    integer_sums : bool
        True if atomics add floats as if they were integers, so that their order does not show.
    memory : (array, array, array) or None
        Initial global memory: starts and ends of ranges, and their bytes, one after another.
    """

    policy: CompletionPolicy | None = None
    expected: bytes = b""
    with_reads: bool = False
    with_left: bool = False
    unwritten: int = 0
    unwritten_shared: MemoryContents = field(default=0, repr=False)
    sanitizes: bool = False
    integer_sums: bool = False
    memory: tuple[Array, Array, Array] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a schedule.

    Attributes
    ----------
    error : str
        Error that the launch raised; empty if it ended.
    is_hang : bool
        True if that is a deadlock.
    digest : bytes
        Of what it wrote.
    starts, ends, data : array
        The addresses that it wrote to, as ranges, and the bytes there at the end; None where they are known.
    reads : (array, array) or None
        The addresses that it read from.
    left : array or None
        Shared memory after the launch.
    hazards : tuple of (str, Hazard)
        Hazards, each with the lines that identify it.
    """

    error: str = ""
    is_hang: bool = False
    digest: bytes = b""
    starts: Array | None = field(default=None, repr=False)
    ends: Array | None = field(default=None, repr=False)
    data: Array | None = field(default=None, repr=False)
    reads: tuple[Array, Array] | None = field(default=None, repr=False)
    left: Array | None = field(default=None, repr=False, compare=False)
    hazards: tuple[tuple[str, Hazard], ...] = field(default=(), compare=False)

    def with_hazards(self, hazards: Sequence[tuple[str, Hazard]]) -> Outcome:
        """Return the same with these hazards."""
        return replace(self, hazards=tuple(hazards))

    @property
    def kind(self) -> str:
        """Kind of a difference from the expected outcome: "values", "hang" or "error"."""
        return "hang" if self.is_hang else "error" if self.error else "values"


def outcome_of(writes: Ranges, reads: Ranges, request: Request) -> Outcome:
    """Return the outcome of a launch that has ended."""
    data = take(writes).view(np.uint8)
    hashed = hashlib.blake2b()
    for part in (writes.starts, writes.ends, data):
        hashed.update(part.tobytes())
    digest = hashed.digest()
    told = (reads.starts, reads.ends) if request.with_reads else None
    if digest == request.expected:
        return Outcome(digest=digest, reads=told)
    return Outcome("", False, digest, writes.starts, writes.ends, data, told)


def difference(
    expected: Outcome, found: Outcome, before: Callable[[Array, Array], Array], memory: GlobalMemory
) -> str | None:
    """Describe the difference of two outcomes, in two lines at most; None if they are equal.

    Parameters
    ----------
    expected, found : Outcome
        The first has ended without an error, and has its data.
    before : callable
        Returns what ranges of memory, given by starts and ends, held before the launch.
    memory : GlobalMemory
        Knows which tensor an address is in.
    """
    if found.error:
        return found.error
    if found.digest == expected.digest:
        return None
    ranges = Ranges.union([expected.starts, found.starts], [expected.ends, found.ends])  # type: ignore[list-item]
    initial = before(ranges.starts, ranges.ends)
    one, other = (over(ranges, initial, outcome) for outcome in (expected, found))
    where = np.flatnonzero(one != other)
    if not len(where):
        return None
    lengths = ranges.ends - ranges.starts
    offsets = np.cumsum(lengths) - lengths
    at = int(np.searchsorted(offsets, where[0], "right")) - 1
    start, position = int(offsets[at]), int(where[0])
    address = int(ranges.starts[at]) + position - start
    window = slice(start, start + int(lengths[at]))
    named = _element(memory, address, int(ranges.starts[at]), one[window], other[window])
    return f"{len(where)} bytes differ, first {named}"


def overlaid(address: int, before: Array, outcome: Outcome) -> Array:
    """Return the bytes of one range after an outcome, which may have written elsewhere too."""
    assert outcome.starts is not None
    assert outcome.ends is not None
    assert outcome.data is not None
    result = before.copy()
    at = np.cumsum(outcome.ends - outcome.starts) - (outcome.ends - outcome.starts)
    inside = (outcome.starts >= address) & (outcome.ends <= address + len(before))
    for start, end, first in zip(outcome.starts[inside], outcome.ends[inside], at[inside], strict=True):
        result[start - address : end - address] = outcome.data[first : first + end - start]
    return result


def over(ranges: Ranges, initial: Array, outcome: Outcome) -> Array:
    """Return the contents of memory after an outcome, over ranges that include all its writes."""
    assert outcome.starts is not None
    assert outcome.ends is not None
    assert outcome.data is not None
    result = initial.copy()
    lengths = ranges.ends - ranges.starts
    offsets = np.cumsum(lengths) - lengths
    inside = np.searchsorted(ranges.starts, outcome.starts, "right") - 1
    places = offsets[inside] + outcome.starts - ranges.starts[inside]
    counts = outcome.ends - outcome.starts
    flat = np.arange(int(counts.sum())) + np.repeat(places - (np.cumsum(counts) - counts), counts)
    result[flat] = outcome.data
    return result


def _element(memory: GlobalMemory, address: int, start: int, one: Array, other: Array) -> str:
    """Name the element at an address, with its values; `one` and `other` are bytes from `start` on."""
    region = memory.find(address, address + 1)
    for owner in () if region is None else region.owners:
        described = _coordinate(owner, address)
        if described is None:
            continue
        coordinate, size, numbers = described
        first = address - (address - _address(owner)) % size - start
        if 0 <= first and first + size <= len(one):
            was, now = (numbers(x[first : first + size]) for x in (one, other))
            return f"[{', '.join(map(str, coordinate))}] of {region and region.name.rstrip(',')}: {now}, not {was}"
    name = "an unknown range" if region is None else f"byte {address - region.start} of {region}"
    return f"{name}: {int(other[address - start]):#04x}, not {int(one[address - start]):#04x}"


def _address(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.ctypes.data)


def _coordinate(tensor: Any, address: int) -> tuple[list[int], int, Callable[[Array], object]] | None:  # noqa: ANN401
    """Return the index of the tensor element at an address, the element's size, and a function that reads one."""
    if hasattr(tensor, "data_ptr"):
        import torch

        size, dtype = tensor.element_size(), tensor.dtype
        strides = list(tensor.stride())

        def number(data: Array) -> object:
            return torch.frombuffer(bytearray(data.tobytes()), dtype=dtype).item()

    elif isinstance(tensor, np.ndarray) and all(s % tensor.itemsize == 0 for s in tensor.strides):
        size, kind = tensor.itemsize, tensor.dtype
        strides = [s // size for s in tensor.strides]

        def number(data: Array) -> object:
            return np.frombuffer(data.tobytes(), kind)[0].item()

    else:
        return None
    offset = (address - _address(tensor)) // size
    found = [0] * len(strides)
    for axis in sorted(range(len(strides)), key=lambda n: -strides[n]):
        if strides[axis] > 0 and tensor.shape[axis] > 1:
            found[axis], offset = divmod(offset, strides[axis])
    inside = all(0 <= c < extent for c, extent in zip(found, tensor.shape, strict=True))
    return (found, size, number) if inside and offset == 0 else None


def site_of(side: Side) -> Site:
    """Return the site to hold, to hold back one side of a hazard."""
    i = side.instruction
    assert i is not None
    kind = i.parts[0]
    warp = None if kind == "wgmma" else side.warp
    return Site(i.index, kind, i.traits.issues, side.cta, warp, None if warp is None else side.lane)
