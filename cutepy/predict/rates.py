"""Shares of L2 and of device memory that an SM gets while others run."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.predict.gpu import Gpu, interpolated

NO_RAMP = ((0.0, 0.0),)
"""Ramp of a launch in which device memory gives its full bandwidth."""


@dataclass(frozen=True)
class Rates:
    """Cycles that a byte of one SM takes at each level of memory, while `active` SMs run.

    Attributes
    ----------
    l2, tma, l2_write, dram, dram_write : float
        At the SM's share of the bandwidth of all SMs: of L2 by loads and by TMA, of device memory.
    port : float
        At the bandwidth into one SM.
    pace : float
        The SMs' clock in that of the constants, by which what lies behind L2 takes fewer cycles.
    crowd : float
        Part of the GPU's SMs that are active.
    ramp : tuple of (float, float)
        By bytes that the SM has read from device memory in the launch, the cycles that were lost meanwhile: it does not
        give its full bandwidth at once.
    """

    l2: float
    tma: float
    l2_write: float
    dram: float
    dram_write: float
    port: float
    pace: float
    crowd: float
    ramp: tuple[tuple[float, float], ...]

    def lost(self, read_bytes: float) -> float:
        """Return the cycles that are lost until an SM has read so many bytes from device memory."""
        return interpolated(self.ramp, read_bytes)

    @classmethod
    def of(cls, gpu: Gpu, active: int, clock_hz: float, slowdown: float = 1.0, mixed: float = 0.0) -> Rates:
        """Return the rates of `active` SMs.

        `slowdown` is that of device memory by writes between reads, `mixed` the share of its bytes that copies move.
        """

        def share(key: str, most: float) -> float:
            return 1.0 / min(gpu.value(key) / clock_hz / active, most)

        one, of_dram = gpu.value("l2.bandwidth_sm"), gpu.value("dram.bandwidth_sm")
        # It was measured with all SMs at the highest clock, which L2 does not follow.
        by_tma = gpu.at("tma.bandwidth_all", 8) * gpu.sms * gpu.value("clock.idle_hz")
        return cls(
            share("l2.bandwidth", one),
            1.0 / min(by_tma / clock_hz / active, one),
            share("l2.write_bandwidth", one),
            share("dram.bandwidth", of_dram) * slowdown,
            share("dram.write_bandwidth", of_dram) * slowdown,
            1.0 / one,
            clock_hz / gpu.value("clock.idle_hz"),
            active / gpu.sms,
            tuple((size / active, ns * clock_hz / 1e9) for size, ns in _ramp(gpu, mixed)),
        )


def _ramp(gpu: Gpu, mixed: float) -> list[tuple[float, float]]:
    """Return by bytes of a launch that are read from device memory the ns that it takes longer than by the bandwidth.

    They count from the shortest launch, whose time is latency: those of launches that read, and by the share `mixed`
    of those that copy.
    """
    reads = _lost(gpu, "launch.reads", 1.0 / gpu.value("dram.bandwidth"))
    if not mixed:
        return reads
    copies = _lost(gpu, "launch.copies", 2.0 / gpu.value("dram.copy_bandwidth"))
    sizes = sorted({size for size, _ in (*reads, *copies)})
    return [(size, (1.0 - mixed) * interpolated(reads, size) + mixed * interpolated(copies, size)) for size in sizes]


def _lost(gpu: Gpu, key: str, seconds_a_byte: float) -> list[tuple[float, float]]:
    """Return by bytes read the ns that launches took longer than by so many seconds a byte."""
    table = {float(size): float(ns) for size, ns in gpu.constants[key]["dram"].items()}
    sizes = sorted(table)
    first = sizes[0]
    found, most = [NO_RAMP[0], (first, 0.0)], 0.0
    for size in sizes[1:]:
        most = max(most, table[size] - table[first] - (size - first) * seconds_a_byte * 1e9)
        found.append((size, most))
    return found
