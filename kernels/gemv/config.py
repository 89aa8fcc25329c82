"""GEMV configurations: tiles, warps and unrolling of one kernel, checked before anything compiles."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

from cutepy.kernels.gemm.elements import FLOAT8
from cutepy.kernels.gemm.limits import check_types
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch

INPUTS = ("float16", "bfloat16", "float32", *FLOAT8)
"""Element types of A and B: those that convert to fp32 exactly."""
ENOUGH_BYTES = 64 * 1024
"""Bytes in flight that saturate an SM: twice its share, 32 bytes a nanosecond, of an H200's 4.2 TB/s in a microsecond.
"""
_BESIDE = 24
"""Registers for counters and the like: with them ptxas 13.0 spills nothing of what is chosen for models' shapes."""
_POWERS = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class GemvConfig:
    """Tiles, warps and unrolling of a kernel for few rows of A: D = epilogue(A B^T), B read once, no tensor cores.

    Attributes
    ----------
    signature : GemmSignature
        Computation of the kernel: matrices are K-major, in whole 16 bytes; the epilogue has no reductions; float32 is
        not rounded.
    tile_m : 1, 2, 4 or 8
        Rows of A that a CTA multiplies with each read of B; more rows read B again, from L2.
    columns : 1, 2, 4 or 8
        Rows of B that a warp reads at a time: they share each read of A.
    unroll : 1, 2, 4 or 8
        16 bytes along K that each lane reads ahead of each of these.
    warps : 1, 2, 4, 8 or 16
        Warps of a CTA.
    k_warps : int
        Those of them that share K. Of all fields only this one decides in which order a product is summed.
    ctas_per_sm : int
        For which the compiler leaves registers; if 0, as many as have 64 KiB on their way, or fit.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> config = GemvConfig(signature=half, tile_m=1, columns=4, unroll=2, warps=4, k_warps=4)
    >>> config.tile_n, config.chunk_k, config.ctas_per_sm, config.flying_bytes
    (4, 1024, 4, 65536)
    >>> GemvConfig(signature=half, tile_m=8, columns=8)
    Traceback (most recent call last):
    ...
    ValueError: tile_m * columns must be at most 32, a sum for each lane of a warp, got 8 * 8; use columns=4
    """

    signature: GemmSignature
    tile_m: int = 1
    columns: int = 4
    unroll: int = 2
    warps: int = 4
    k_warps: int = 4
    ctas_per_sm: int = 0

    kernels = ("cutepy.kernels.gemv.kernel:StandardGemv", "cutepy.kernels.gemv.kernel:Gemv")
    cluster = (1, 1, 1)
    workspace = None
    is_batch_invariant = False
    """False: more rows are multiplied by tensor cores, which sum in another order."""

    def __post_init__(self) -> None:
        """Refuse a configuration that the kernel can't run, then fill in the CTAs of an SM."""
        check_types(self)
        self._check_signature()
        self._check_shape()
        fitting = self._fitting_ctas()
        if not fitting:
            raise ValueError(
                f"{self.threads} threads of some {self._registers} registers exceed the {arch.REGISTERS_PER_SM} of an "
                "SM; use less unroll, columns or warps"
            )
        if self.ctas_per_sm > fitting:
            raise ValueError(
                f"ctas_per_sm must be at most {fitting}, of {self.threads} threads and some {self._registers} "
                f"registers each, got {self.ctas_per_sm}"
            )
        if not self.ctas_per_sm:
            enough = -(-ENOUGH_BYTES // self._cta_bytes)
            object.__setattr__(self, "ctas_per_sm", min(enough, fitting))

    def _check_signature(self) -> None:
        kind = self.signature
        graph = kind.graph
        if kind.a_dtype not in INPUTS:
            raise ValueError(f"a and b must be of {', '.join(INPUTS)}, got {kind.a_dtype}; use a GemmConfig")
        for name, major, align in (("a", kind.a_major, kind.a_align), ("b", kind.b_major, kind.b_align)):
            if major != "k" or align != arch.UNIT_BYTES:
                raise ValueError(
                    f'{name} must be "k"-major, in whole {arch.UNIT_BYTES} bytes, which a lane reads at once, got '
                    f'"{major}" and {align}; use a GemmConfig'
                )
        if kind.batch_modes or kind.scale_rows is not None:
            raise ValueError(
                f"a and b must be matrices without scales along K, got batch_modes {kind.batch_modes} and scale_rows "
                f"{kind.scale_rows}; use a GemmConfig"
            )
        if reductions := graph.reductions:
            found = ", ".join(kind for kind, _ in reductions)
            raise ValueError(f"the epilogue must have no reductions, got {found}; use a GemmConfig")

    def _check_shape(self) -> None:
        for name, powers in (("tile_m", _POWERS), ("columns", _POWERS), ("unroll", _POWERS), ("warps", (*_POWERS, 16))):
            if (got := getattr(self, name)) not in powers:
                raise ValueError(f"{name} must be one of {', '.join(map(str, powers))}, got {got}")
        if self.tile_m * self.columns > arch.WARP_THREADS:
            raise ValueError(
                f"tile_m * columns must be at most {arch.WARP_THREADS}, a sum for each lane of a warp, got "
                f"{self.tile_m} * {self.columns}; use columns={arch.WARP_THREADS // self.tile_m}"
            )
        if self.k_warps < 1 or self.warps % self.k_warps:
            raise ValueError(f"k_warps must divide the {self.warps} warps, got {self.k_warps}")
        widest = self.signature.graph.widest
        if self.tile_n % widest:
            raise ValueError(
                f"a CTA's columns, columns * warps / k_warps, must be a multiple of {widest}, which are interleaved, "
                f"got {self.tile_n}; use more columns or warps"
            )
        if self.ctas_per_sm < 0:
            raise ValueError(f"ctas_per_sm must be positive, or 0 for as many as are needed, got {self.ctas_per_sm}")

    @property
    def _registers(self) -> int:
        """Estimated registers of a thread: data in flight, sums, addresses, and converted pieces.

        All converted pieces of B are kept where several rows of A use them.
        """
        read = arch.UNIT_BYTES // 4 * self.columns * self.unroll
        converted = self.piece * (1 + (self.columns if self.tile_m > 1 else 1))
        rows = 2 * (self.tile_m + self.columns)
        return min(read + self.tile_m * self.columns + rows + converted + _BESIDE, arch.MAX_REGISTERS_PER_THREAD)

    @property
    def _cta_bytes(self) -> int:
        return self.threads * self.columns * self.unroll * arch.UNIT_BYTES

    def _fitting_ctas(self) -> int:
        """Return the CTAs of an SM that its registers and warps suffice for."""
        by_registers = arch.REGISTERS_PER_SM // (self.threads * self._registers)
        return min(by_registers, arch.MAX_WARPS_PER_SM // self.warps, arch.MAX_CTAS_PER_SM)

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        shape = f"{self.tile_m}x{self.columns}x{self.unroll}_warps{self.warps}_split{self.k_warps}x{self.ctas_per_sm}"
        return f"cutepy_gemv_{self.signature.name}_{shape}"

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return arch.WARP_THREADS * self.warps

    @property
    def tile_n(self) -> int:
        """Columns of the product that a CTA computes."""
        return self.columns * (self.warps // self.k_warps)

    @property
    def epi_n(self) -> int:
        """Columns whose epilogue is computed together."""
        return self.tile_n

    @property
    def piece(self) -> int:
        """Elements that a lane reads at once."""
        return arch.UNIT_BITS // self.signature.operand_bits

    @property
    def chunk_k(self) -> int:
        """Elements along K that a CTA reads at once of each of its rows of B."""
        return arch.WARP_THREADS * self.piece * self.k_warps

    @property
    def flying_bytes(self) -> int:
        """Bytes of B in flight to an SM with a given number of CTAs."""
        return self._cta_bytes * self.ctas_per_sm

    @property
    def sums(self) -> tuple[int, int, int]:
        """Shape of the partial sums of a CTA's warps: (k_warps, tile_m, tile_n)."""
        return self.k_warps, self.tile_m, self.tile_n

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA: the sums."""
        return sm90.SmemPlan.of({"sums": sm90.SmemArray(prod(self.sums), bits=32)})

    @property
    def smem_percent(self) -> int:
        """Percentage of the unified L1 and shared memory to configure as shared memory; the rest caches A."""
        needed = self.ctas_per_sm * (self.smem.size_bytes + arch.RESERVED_SMEM_BYTES)
        return -(-100 * needed // arch.SMEM_BYTES_PER_SM)
