"""Configuration of Blackwell's GEMM: tiles, stages and CTAs of one kernel, checked before anything compiles."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from cutepy.device.sm100.rules import BLOCK_FACTORS, BLOCK_ROWS, BLOCK_WORDS, LANES
from cutepy.kernels.gemm import limits
from cutepy.kernels.gemm.output_signature import StagedKind, check_each
from cutepy.kernels.sm100.signature import UmmaGemmSignature
from cutepy.layouts import sm90, sm100
from cutepy.layouts.sm90 import arch
from cutepy.runtime.dtypes import DTYPES

EPILOGUE_WARPS = 4
PRODUCER_THREADS = arch.WARPGROUP_THREADS
MOST_STAGES = 12
_SCALE_TYPES = {"float8_e4m3fn": "ue4m3", "float8_e8m0fnu": "ue8m0"}
"""Types of scale factors: torch's names -> PTX's."""


@dataclass(frozen=True, kw_only=True)
class UmmaGemmConfig:
    """Tiles, stages and CTAs of one kernel, checked against a B200's shared memory and tensor memory.

    Attributes
    ----------
    signature : UmmaGemmSignature
        Computation of the kernel.
    ctas : 1 or 2
        CTAs that multiply together: 2 compute 256 rows, and each loads half of B.
    tile_n : int
        Columns of the output tile: of both CTAs of a pair.
    tile_k : int
        K extent of a stage; 128 bytes of elements if 0.
    stages : int
        Stages of A and B, 2 at least; as many as fit if 0.
    accumulators : int
        Sets of accumulators in tensor memory; 2 if 0 and they fit, else 1.
    epi_n : int
        Columns of an epilogue subtile of 128 rows: 8, 16, 32, 64 or 128, which divide tile_n; if 0, the most of these
        up to 32.
    epi_stages, c_stages : int
        Subtiles of D, 2 at least, and of tiles that the epilogue reads, in shared memory; 2 if 0.
    band_rows : int
        Cluster rows that are rasterised together (`cutepy.device.rasterise`).

    Raises
    ------
    TypeError
        If a number is no int.
    ValueError
        If no MMA has the tile, nothing could be moved while something is used, or shared memory or tensor memory is too
        small.

    Examples
    --------
    >>> half = UmmaGemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> config = UmmaGemmConfig(signature=half, ctas=2, tile_n=256)
    >>> config.traits.shape_mnk, config.stages, config.accumulators, config.memory.columns
    ((256, 256, 16), 6, 2, 512)
    """

    signature: UmmaGemmSignature
    ctas: int = 1
    tile_n: int = 128
    tile_k: int = 0
    stages: int = 0
    accumulators: int = 0
    epi_n: int = 0
    epi_stages: int = 0
    c_stages: int = 0
    band_rows: int = 8

    def __post_init__(self) -> None:
        """Fill in the fields that are 0, then refuse a configuration that the hardware cannot run."""
        limits.check_types(self)
        check_each(("ctas", self.ctas, (1, 2)), ("epi_n", self.epi_n, (0, 8, 16, 32, 64, 128)))
        for name in ("tile_k", "stages", "accumulators", "epi_stages", "c_stages"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        self._fill("tile_k", 1024 // self.signature.operand_bits)
        self._fill("epi_n", next((columns for columns in (32, 16) if self.tile_n % columns == 0), 8))
        self._fill("epi_stages", 2)
        self._fill("c_stages", 2 if self.signature.added else 0)
        self._check_tile()
        limits.check_depths(self.stages, self.epi_stages, self.c_stages, self.band_rows, self.signature)
        fits = 2 * self.tile_n + self.scale_columns <= 512
        self._fill("accumulators", 2 if fits else 1)
        fitting = bisect_left(range(1, MOST_STAGES + 1), True, key=lambda stages: not self._plan(stages).fits)
        self._fill("stages", fitting)
        if fitting < 2 or self.stages > fitting:
            raise ValueError(
                f"stages of A and B must be at least 2 and fit into shared memory beside the epilogue, which has room "
                f"for {fitting}, got {self.stages}; use a smaller tile_n, tile_k, epi_n or epi_stages"
            )
        _ = self.memory

    def _fill(self, name: str, value: int) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)

    def _check_tile(self) -> None:
        traits, kind = self.traits, self.signature
        if self.tile_n % self.epi_n:
            raise ValueError(f"epi_n must divide tile_n, got {self.epi_n} and {self.tile_n}")
        if self.epi_n % (8 * kind.graph.widest):
            raise ValueError(
                f"epi_n must be a multiple of {8 * kind.graph.widest}, 8 for each part of interleaved columns, got "
                f"{self.epi_n}"
            )
        step, scaling = traits.shape_mnk[2], kind.scaling
        unit = step if scaling is None else max(step, BLOCK_FACTORS * scaling.vector)
        if self.tile_k % unit:
            raise ValueError(f"tile_k must be a multiple of {unit}, got {self.tile_k}")
        if scaling is not None and self.tile_n % BLOCK_ROWS:
            raise ValueError(
                f"tile_n must be a multiple of {BLOCK_ROWS} with scale factors, whose blocks have so many rows, got "
                f"{self.tile_n}"
            )

    @cached_property
    def traits(self) -> sm100.UmmaTraits:
        """The MMA, of one CTA or of a pair."""
        kind = self.signature
        a_dtype, b_dtype = (DTYPES[dtype].ptx for dtype in (kind.a_dtype, kind.b_dtype))
        a_major, b_major = kind.majors
        scaling = kind.scaling
        return sm100.umma_traits(
            kind.kind,
            LANES * self.ctas,
            self.tile_n,
            cta_group=self.ctas,
            a_major=a_major,
            b_major=b_major,
            a_dtype=a_dtype,
            b_dtype=b_dtype,
            d_dtype="f32",
            scale_dtype=None if scaling is None else _SCALE_TYPES[scaling.dtype],
            scale_vector=None if scaling is None else scaling.vector,
        )

    @property
    def scale_blocks(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Blocks of scale factors in a stage, (row blocks, K blocks) of A and of B; 0 without."""
        scaling = self.signature.scaling
        along_k = 0 if scaling is None else self.tile_k // (BLOCK_FACTORS * scaling.vector)
        return (1, along_k), (-(-self.tile_n // BLOCK_ROWS), along_k)

    @property
    def scale_columns(self) -> int:
        """Columns of tensor memory that scale factors take: a block has 4."""
        return sum(4 * rows * along_k for rows, along_k in self.scale_blocks)

    @cached_property
    def memory(self) -> sm100.TmemPlan:
        """Tensor memory of a CTA: sets of accumulators, and scale factors of A and B."""
        regions = {"C": self.accumulators * self.tile_n}
        if self.signature.scaling is not None:
            regions |= {
                name: 4 * rows * along_k for name, (rows, along_k) in zip(("SA", "SB"), self.scale_blocks, strict=True)
            }
        return sm100.TmemPlan.of(**regions)

    def _staged(self, tile: StagedKind, stages: int) -> sm90.StagedTile:
        bits, contiguous_mode = DTYPES[tile.dtype].bits, int(tile.major == "row")
        return sm90.staged_subtile((LANES, self.epi_n // tile.width), stages, bits, contiguous_mode)

    def _plan(self, stages: int) -> sm90.SmemPlan:
        kind = self.signature
        a_mode, b_mode = (int(major == "K") for major in kind.majors)
        plan: dict[str, sm90.StagedTile | sm90.SmemArray] = {
            "sA": sm90.StagedTile((LANES, self.tile_k), stages, kind.operand_bits, a_mode),
            "sB": sm90.StagedTile((self.tile_n // self.ctas, self.tile_k), stages, kind.operand_bits, b_mode),
        }
        for name, (rows, along_k) in zip(("sScaleA", "sScaleB"), self.scale_blocks, strict=True):
            if along_k:
                plan[name] = sm90.SmemArray(rows * along_k * BLOCK_WORDS * stages, bits=32, alignment_bytes=128)
        for tile in kind.stored:
            plan[tile.name] = self._staged(tile, self.epi_stages)
        for tile in kind.added:
            plan[tile.name] = self._staged(tile, self.c_stages)
        plan["barriers"] = sm90.SmemArray(2 * (stages + self.accumulators + self.c_stages), bits=64)
        plan["address"] = sm90.SmemArray(1, bits=32)
        return sm90.SmemPlan.of(plan)

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA: stages of A, B and scale factors, of results, of tiles that are read, barriers."""
        return self._plan(self.stages)

    def _bytes_of(self, *names: str) -> int:
        return sum(region.size_bytes for region in self._plan(1) if region.name in names)

    @property
    def stage_bytes(self) -> int:
        """Bytes that fill one stage of one CTA."""
        return self._bytes_of("sA", "sB", "sScaleA", "sScaleB")

    @property
    def c_stage_bytes(self) -> int:
        """Bytes of a subtile of all tiles that an epilogue reads."""
        return self._bytes_of(*(tile.name for tile in self.signature.added)) // max(self.c_stages, 1)

    @property
    def tile_m(self) -> int:
        """Rows of a CTA's output tile."""
        return LANES

    @property
    def epi_tile(self) -> tuple[int, int]:
        """Rows and columns of an epilogue subtile."""
        return LANES, self.epi_n

    @property
    def subtiles(self) -> int:
        """Epilogue subtiles of a CTA's output tile."""
        return self.tile_n // self.epi_n

    @property
    def cluster(self) -> tuple[int, int, int]:
        """CTAs of a cluster along M, N and K."""
        return self.ctas, 1, 1

    @property
    def threads(self) -> int:
        """Threads of a CTA: warps that load and multiply, and the epilogue's four."""
        return PRODUCER_THREADS + EPILOGUE_WARPS * arch.WARP_THREADS

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        m, n, _ = self.traits.shape_mnk
        return f"cutepy_umma_gemm_{self.signature.name}_{m}x{n}x{self.tile_k}x{self.stages}_cta{self.ctas}"
