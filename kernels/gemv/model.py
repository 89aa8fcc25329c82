"""Analytical model of products of few rows, from an H200's data sheet; not yet measured.

The CTAs of an SM read B at the rate of the slowest resource: device memory, the loads of the SM from it, the loads of A
from L1, the bytes in flight, or the multiply-adds. The rate is somewhat lower where two resources are close.
"""

from dataclasses import dataclass

from cutepy.kernels.gemv.config import GemvConfig
from cutepy.layouts.sm90 import arch

_NORM = 6


@dataclass(frozen=True)
class Costs:
    """Costs of the parts of a launch, in microseconds.

    Attributes
    ----------
    launch : float
        Before the first CTA runs, and after the last has ended.
    latency : float
        A load where memory is busy.
    finish : float
        Sums through shared memory, the epilogue, and the store.
    memory_byte, sm_byte : float
        Read from memory by all SMs; into one.
    cycle : float
        Cycle of an SM, which begins an instruction of 128 lanes, and reads 128 bytes from L1.
    """

    launch: float = 1.2
    latency: float = 1.0
    finish: float = 0.5
    memory_byte: float = 1 / 4.2e6
    sm_byte: float = 1 / (64 * 1755)
    cycle: float = 1 / 1755


def expected_us(
    config: GemvConfig, m: int, n: int, k: int, sm_count: int = arch.SM_COUNT, costs: Costs | None = None
) -> float:
    """Estimate the microseconds that a configuration takes.

    Examples
    --------
    >>> from cutepy.kernels.gemm import GemmSignature
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> [round(expected_us(GemvConfig(signature=half, tile_m=m), m, 8192, 8192), 1) for m in (1, 8)]
    [34.7, 37.6]
    """
    costs = costs or Costs()
    bits, tile_m = config.signature.operand_bits, config.tile_m
    ctas = -(-m // tile_m) * -(-n // config.tile_n)
    busiest = -(-ctas // sm_count)
    at_once = min(busiest, config.ctas_per_sm)
    elements = config.tile_n * -(-k // config.chunk_k) * config.chunk_k
    cta_bytes = elements * bits / 8
    flying = at_once * min(config.flying_bytes / config.ctas_per_sm, cta_bytes)
    # Cost of an element of B: its conversion, a multiply-add for each row, and its share of the loads of B and A.
    instructions = 1 + tile_m + tile_m / config.columns + (1 + tile_m / config.columns) / config.piece
    paces = (
        costs.memory_byte * (m + n) * k * bits / 8,
        busiest * cta_bytes * costs.sm_byte,
        busiest * cta_bytes * costs.latency / flying,
        busiest * cta_bytes * (1 + tile_m / config.columns) / 128 * costs.cycle,
        busiest * elements * instructions / 128 * costs.cycle,
    )
    body = float(sum(pace**_NORM for pace in paces) ** (1 / _NORM))
    # later CTAs begin while others of their SM read
    begun = -(-busiest // config.ctas_per_sm) / config.ctas_per_sm
    return costs.launch + costs.latency * max(1.0, begun) + costs.finish + body
