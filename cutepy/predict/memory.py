"""Traffic of a whole launch to L2 and device memory, from what sampled CTAs touch.

A sampled CTA's trace has the bytes of each allocation that it requests from L2, and how many of them are distinct. Each
stands for so many other CTAs. An allocation that all CTAs together request several times over is shared: in a wave of
CTAs that run at once, those that share a part load it from device memory once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cutepy.predict.gpu import Gpu
from cutepy.predict.trace import LINE_BYTES, Region

L2_BYTES = 50e6
"""Capacity of the L2 of an H100 and an H200; the part `_KEPT` keeps data until they are read again."""
_KEPT = 0.7


@dataclass(frozen=True)
class Traffic:
    """Traffic of one allocation in a launch.

    Attributes
    ----------
    name : str
    l2_read_bytes, l2_write_bytes : float
        Requested from L2.
    dram_read_bytes, dram_write_bytes : float
        Moved from and to device memory.
    late : float
        Share of the requests that wait for device memory: all CTAs that share a part wait for the first.
    in_l1 : bool
        Whether threads of all CTAs read the same few bytes, which stay in L1.
    along : bool
        Whether each CTA goes along rows of its own, whose boxes lie apart at any time.
    """

    name: str
    l2_read_bytes: float
    l2_write_bytes: float
    dram_read_bytes: float
    dram_write_bytes: float
    late: float
    in_l1: bool = False
    along: bool = False

    @property
    def miss(self) -> float:
        """Bytes of device memory for each byte that is read from L2."""
        return self.dram_read_bytes / self.l2_read_bytes if self.l2_read_bytes else 0.0


_L1_BYTES = 100e3
"""Bytes that all CTAs read and that stay in L1 from one CTA to the next."""


def traffic_of(
    regions: Sequence[Region], sampled: Mapping[int, float], concurrent: int, tiles: float = 1.0
) -> list[Traffic]:
    """Return the traffic of a launch.

    Parameters
    ----------
    regions : sequence of Region
        Allocations that the sampled CTAs touch.
    sampled : mapping of int to float
        By linear index of each sampled CTA the number of CTAs that it stands for.
    concurrent : int
        CTAs that run at once.
    tiles : float
        Tiles that a CTA takes one after the other, if its kernel is persistent: each wave takes one of each CTA.
    """
    ctas, count = sum(sampled.values()), len(sampled)
    units = ctas * tiles
    waves = max(1.0, units / concurrent)
    kept = [_stays_in_l1(region, count) for region in regions]

    def moved(by_cta: Counter[int]) -> float:
        return sum(size * sampled[block] for block, size in by_cta.items())

    reads = [moved(region.reads) * (not in_l1) for region, in_l1 in zip(regions, kept, strict=True)]
    writes = [moved(region.writes) for region in regions]
    # All CTAs together touch no more than the allocation, and no less than one does.
    whole = [min(region.size_bytes, total) for region, total in zip(regions, reads, strict=True)]
    # A CTA's own part is that of a mean one, as samples at the edge have less.
    means = [moved(region.reads) / ctas / max(region.read_bytes / count, 1.0) for region in regions]
    own = [region.touched_bytes() / count / tiles * mean for region, mean in zip(regions, means, strict=True)]
    parts = [max(1.0, w / o) if o else 1.0 for w, o in zip(whole, own, strict=True)]
    uses = [total / w if w else 1.0 for total, w in zip(reads, whole, strict=True)]
    wave = min(concurrent, units)
    in_wave = _distinct_in_wave(parts, uses, wave)
    shared = [n for n, use in enumerate(uses) if use > 1.5]
    if len(shared) == 1 and _is_swept(regions[shared[0]]):  # a wave's CTAs share it with their neighbours
        in_wave[shared[0]] = max(1.0, parts[shared[0]] * wave / units)
    footprint = sum(whole) + sum(
        min(region.size_bytes, written) for region, written in zip(regions, writes, strict=True)
    )
    evicted = max(0.0, 1.0 - _KEPT * L2_BYTES / footprint) if footprint else 0.0
    found = []
    for region, total, written, w, o, n, in_l1 in zip(regions, reads, writes, whole, own, in_wave, kept, strict=True):
        by_waves = max(w, min(total, waves * n * o))
        dram = w + (by_waves - w) * evicted
        late = min(1.0, dram / by_waves) if by_waves else float(in_l1)  # the first CTAs of all SMs wait for memory
        stored = min(written, region.size_bytes)
        found.append(Traffic(region.name, total, written, dram, stored, late, in_l1, region.goes_along()))
    return found


def _is_swept(region: Region) -> bool:
    """Tell whether later CTAs read later lines, so that those next to each other read the same."""
    firsts = [region.first_lines[block] for block in sorted(region.first_lines)]
    return len(firsts) > 2 and all(after > before for before, after in pairwise(firsts))


def _stays_in_l1(region: Region, sampled: int) -> bool:
    """Tell whether all CTAs' threads read the same few bytes, which L1 has after the first CTA of an SM."""
    touched = region.touched_bytes()
    return (
        sampled > 1
        and region.by_threads
        and touched <= _L1_BYTES
        and touched <= 1.5 * region.read_bytes / sampled + LINE_BYTES
    )


def mixed(traffic: Sequence[Traffic]) -> float:
    """Return the share of device memory's bytes that are part of a copy: as many are written as are read."""
    read = sum(each.dram_read_bytes for each in traffic)
    written = sum(each.dram_write_bytes for each in traffic)
    return 2.0 * min(read, written) / (read + written) if read and written else 0.0


def slowdown(gpu: Gpu, traffic: Sequence[Traffic]) -> float:
    """Return the factor by which device memory is slower where reads and writes alternate, from a copy's bandwidth."""
    apart = 2.0 / (1.0 / gpu.value("dram.bandwidth") + 1.0 / gpu.value("dram.write_bandwidth"))
    return 1.0 + mixed(traffic) * max(0.0, apart / gpu.value("dram.copy_bandwidth") - 1.0)


def _distinct_in_wave(parts: Sequence[float], uses: Sequence[float], concurrent: float) -> list[float]:
    """Return how many distinct parts of each allocation the CTAs of a wave touch.

    One that nobody shares has a part for each CTA. Among those that are shared the CTAs of a wave are taken to be a
    block, as square as the parts allow: n1 * n2 * ... = CTAs.
    """
    found = [min(p, concurrent) for p in parts]
    shared = [n for n, use in enumerate(uses) if use > 1.5]
    left, open_ = concurrent, sorted(shared, key=lambda n: parts[n])
    while open_:
        n = open_.pop(0)
        found[n] = min(parts[n], max(1.0, left ** (1 / (len(open_) + 1))))
        left = max(1.0, left / found[n])
    return found
