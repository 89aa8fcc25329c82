"""Shares of L2 and of device memory that an SM gets while others run."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.predict.gpu import Gpu


@dataclass(frozen=True)
class Rates:
    """Cycles that a byte takes on its way, of one SM while `active` SMs run, and the clock that they follow from.

    Attributes
    ----------
    l2, tma, l2_write, dram, dram_write : float
        Share of the SM in what all SMs get: of L2 by loads and by TMA, of device memory.
    port : float
        Of what one SM can receive.
    crowd : float
        Part of the GPU's SMs that are active.
    """

    l2: float
    tma: float
    l2_write: float
    dram: float
    dram_write: float
    port: float
    crowd: float

    @classmethod
    def of(cls, gpu: Gpu, active: int, clock_hz: float, slowdown: float = 1.0) -> Rates:
        """Return the rates while some SMs are active, and device memory is so much slower than without writes."""

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
            active / gpu.sms,
        )
