"""GEMM configurations: tiles, stages and cluster of one kernel, checked before anything compiles.

`signature.GemmSignature` says what is computed; extents are never part of a compiled kernel. `GemmConfig` adds tiles,
stages and cluster, and making one that the hardware cannot run raises, saying which resource is short and by how much.
`choice.select_config` picks one for a problem.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from cutepy.device import rules
from cutepy.kernels.gemm import limits
from cutepy.kernels.gemm.families import WorkspaceKind
from cutepy.kernels.gemm.loading import scale_stages, staged_columns
from cutepy.kernels.gemm.output_signature import StagedKind
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts import ComposedLayout, sm90
from cutepy.layouts.sm90 import arch
from cutepy.runtime.dtypes import DTYPES

PRODUCER_THREADS = arch.WARPGROUP_THREADS


@dataclass(frozen=True, kw_only=True)
class GemmConfig:
    """Tiles, stages and cluster of one kernel, checked against an SM90's shared memory and registers.

    Attributes
    ----------
    signature : GemmSignature
        Computation of the kernel.
    tile_m, tile_n : int
        Output tile of a CTA. tile_m is a multiple of 64 for each warpgroup, tile_n is one wgmma's N.
    tile_k : int
        K extent of a stage; 128 bytes of elements if 0, the span of the widest swizzle.
    warpgroups : 1, 2 or 3
        Warpgroups that multiply one tile, stacked along M.
    consumers : 1 or 2
        Groups of `warpgroups` warpgroups that take output tiles in turns: one stores while the other multiplies.
    stages : int
        Stages of A and B; as many as fit if 0.
    cluster_m, cluster_n : int
        CTAs of a cluster along M share tiles of B by multicast; along N, tiles of A.
    split_k : int
        CTAs of a cluster that share the K of an output tile, and sum through each other's shared memory.
    stream_k : bool
        True if all CTAs share the K of the last tiles, too few for a wave, and sum through a workspace.
    dynamic : bool
        True if CTAs that finish sooner take more tiles, by a counter in a workspace.
    epi_n : int
        Columns of an epilogue subtile, a multiple of 8 that divides tile_n; its rows are 64 for each warpgroup.
    epi_stages : int
        Subtiles of D in shared memory; 4 if 0, or 3 where that makes room for one more stage of A and B, or 2 where D
        has 32 bits or C needs room.
    c_stages : int
        Subtiles of C in shared memory; 2 if 0, unless there is no C.
    buffers : int
        Sets of accumulators of the MMAs where sums are promoted; if 0, 2 if they fit, else 1.
    band_rows : int
        Cluster rows that are rasterised together (`cutepy.device.rasterise`).

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> config = GemmConfig(signature=half, tile_m=128, tile_n=256, warpgroups=2)
    >>> config.stages, config.smem_bytes, config.accumulator_registers
    (4, 229440, 128)
    >>> print(config.a_layout)
    Sw<3,4,3> o smem_ptr[16b](unset) o ((8,16),(64,1),(1,4)):((64,512),(1,0),(0,8192))
    >>> GemmConfig(signature=half, tile_m=256, tile_n=256, warpgroups=2)
    Traceback (most recent call last):
    ...
    ValueError: 256x256 accumulators over 2 warpgroups take 256 registers a thread, and 40 more are needed for addresses: 296 exceed the 232 that a thread of 3 warpgroups can have; use a smaller tile_m or tile_n
    """  # noqa: E501

    signature: GemmSignature
    tile_m: int
    tile_n: int
    tile_k: int = 0
    warpgroups: int = 1
    consumers: int = 1
    stages: int = 0
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    stream_k: bool = False
    dynamic: bool = False
    epi_n: int = 32
    epi_stages: int = 0
    c_stages: int = 0
    buffers: int = 0
    band_rows: int = 8

    kernels = ("cutepy.kernels.gemm.standard:StandardGemm", "cutepy.kernels.gemm.kernel:Gemm")

    def __post_init__(self) -> None:
        """Fill in the fields that are 0, then refuse a configuration that the hardware cannot run."""
        limits.check_types(self, bools=("stream_k", "dynamic"))
        if not self.tile_k:
            object.__setattr__(self, "tile_k", 1024 // self.signature.operand_bits)
        if self.signature.added and not self.c_stages:
            object.__setattr__(self, "c_stages", 2)
        self._check_shape()
        tile = (self.tile_m, self.tile_n, self.tile_k)
        buffers = limits.check_registers(tile, self.warpgroups, self.consumers, self.buffers, self.signature)
        object.__setattr__(self, "buffers", buffers)
        if not self.epi_stages:
            object.__setattr__(self, "epi_stages", self._fitting_epi_stages())
        fitting = self._stages_that_fit(self.epi_stages)
        limits.check_room(self, fitting)
        if not self.stages:
            object.__setattr__(self, "stages", fitting)

    def _fitting_epi_stages(self) -> int:
        if self.c_stages or self.signature.out_bits == 32:
            return 2
        return 3 if not self.stages and self._stages_that_fit(3) > self._stages_that_fit(4) else 4

    def _check_shape(self) -> None:
        kind = self.signature
        limits.check_consumers(self.warpgroups, self.consumers, self.split_k, kind.scale_rows is not None)
        limits.check_stream(self.stream_k, self.consumers, self.split_k, kind.sum_dtype)
        limits.check_dynamic(self.dynamic, self.stream_k)
        limits.check_tile((self.tile_m, self.tile_n, self.tile_k), self.epi_n, self.warpgroups, kind, self.dynamic)
        limits.check_cluster(self.cluster_m, self.cluster_n, self.split_k, kind.by_threads)
        limits.check_shared((self.tile_m, self.staged_n, self.tile_k), (self.cluster_m, self.cluster_n), kind)
        limits.check_depths(self.stages, self.epi_stages, self.c_stages, self.band_rows, kind)

    def _stages_that_fit(self, epi_stages: int) -> int:
        """Return the number of stages of A and B, 8 at most, that fit beside everything else; 0 if none fits."""
        return bisect_left(range(1, 9), True, key=lambda stages: not self._plan(stages, epi_stages).fits)

    def _staged(self, tile: StagedKind, stages: int) -> sm90.StagedTile:
        rows, columns = self.epi_tile
        bits, contiguous_mode = DTYPES[tile.dtype].bits, int(tile.major == "row")
        return sm90.staged_subtile((rows, columns // tile.width), stages, bits, contiguous_mode)

    def _plan(self, stages: int, epi_stages: int) -> sm90.SmemPlan:
        kind = self.signature
        plan: dict[str, sm90.StagedTile | sm90.SmemArray] = {
            "sA": sm90.StagedTile((self.tile_m, self.tile_k), stages, kind.operand_bits, int(kind.a_major == "k")),
            "sB": sm90.StagedTile((self.staged_n, self.tile_k), stages, kind.operand_bits, int(kind.b_major == "k")),
        }
        for tile in kind.stored:
            plan[tile.name] = self._staged(tile, epi_stages * self.consumers)
        for tile in kind.added:
            plan[tile.name] = self._staged(tile, self.c_stages)
        for name, stage in self.scale_stages.items():
            plan[name] = sm90.SmemArray(stage.stride * stages, bits=32, alignment_bytes=stage.alignment_bytes)
        if self.split_k > 1:
            sums = rules.exchange_bytes(self.split_k, self.subtiles, self.subtile_registers, self.consumer_threads)
            plan["sums"] = sm90.SmemArray(sums // 4, bits=32, alignment_bytes=16)
        slots = rules.ticket_slots(self.consumers) if self.dynamic else 0
        if slots:
            plan["tickets"] = sm90.SmemArray(slots, bits=32)
        plan["barriers"] = sm90.SmemArray(2 * (stages + self.c_stages + (self.split_k > 1) + slots), bits=64)
        return sm90.SmemPlan.of(plan)

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA, by names, in order: stages of A and B, of results, and of C or tiles that are read.

        Then scales, sums of peers where K is split, tickets, and two mbarriers for each stage, exchange and ticket.
        """
        return self._plan(self.stages, self.epi_stages)

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}x{self.stages}_cluster{self.cluster_m}x{self.cluster_n}"
        split = f"_split{self.split_k}" if self.split_k > 1 else "_stream" if self.stream_k else ""
        turns = ("_pingpong" if self.consumers > 1 else "") + ("_dynamic" if self.dynamic else "")
        return f"cutepy_gemm_{self.signature.name}_{tile}{split}{turns}"

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        return PRODUCER_THREADS + self.consumers * self.consumer_threads

    @property
    def cluster(self) -> tuple[int, int, int]:
        """CTAs of a cluster along M, N and K."""
        return self.cluster_m, self.cluster_n, self.split_k

    @property
    def workspace(self) -> WorkspaceKind | None:
        """Kind of workspace in global memory: None, "flags" (the first counts tiles), or "sums" (flags and sums)."""
        return "sums" if self.stream_k else "flags" if self.dynamic else None

    @property
    def is_batch_invariant(self) -> bool:
        """True if the bits of a row do not depend on the batch: K is not split."""
        return self.split_k == 1 and not self.stream_k

    @property
    def consumer_threads(self) -> int:
        """Threads of one consumer."""
        return arch.WARPGROUP_THREADS * self.warpgroups

    @property
    def registers(self) -> rules.RegisterBudget:
        """Registers of a thread of the producer and of the consumers."""
        return rules.register_budget(self.warpgroups * self.consumers)

    @property
    def consumer_warps(self) -> int:
        """Warps of one consumer."""
        return self.consumer_threads // arch.WARP_THREADS

    @property
    def named_barriers(self) -> dict[str, int]:
        """First named barriers of two kinds: a consumer's store barrier, and the barrier where it awaits its turn."""
        taking_turns = self.consumers if self.consumers > 1 else 0
        reading = taking_turns if self.signature.added else 0
        return rules.named_barriers(store=self.consumers, multiply=taking_turns, read=reading)

    @property
    def epi_tile(self) -> tuple[int, int]:
        """Rows and columns of an epilogue subtile."""
        return 64 * self.warpgroups, self.epi_n

    @property
    def subtiles(self) -> int:
        """Epilogue subtiles of an output tile."""
        return self.tile_m * self.tile_n // (self.epi_tile[0] * self.epi_n)

    @property
    def accumulator_registers(self) -> int:
        """fp32 registers a consumer thread holds for the output tile."""
        return rules.accumulator_registers(self.tile_m, self.tile_n, self.warpgroups)

    @property
    def scale_stages(self) -> dict[str, rules.ScaleStage]:
        """Shapes of the scales of A and B in one stage, by the names of their regions in shared memory."""
        return scale_stages(self.signature, (self.tile_m, self.tile_n, self.tile_k))

    @property
    def stage_bytes(self) -> int:
        """Bytes that fill one stage by TMA: A, B and scales. The full barrier of the stage expects them."""
        scales = sum(stage.tma_bytes for stage in self.scale_stages.values())
        return scales + sum(self._plan(1, 1)[name].size_bytes for name in ("sA", "sB"))

    @property
    def epilogue_bytes(self) -> int:
        """Bytes of the subtiles of D, for each consumer, and of C."""
        return self._bytes_of(*(tile.name for tile in (*self.signature.stored, *self.signature.added)))

    @property
    def c_stage_bytes(self) -> int:
        """Bytes of a subtile of C, or of all tiles that an epilogue reads."""
        return self._bytes_of(*(tile.name for tile in self.signature.added)) // max(self.c_stages, 1)

    @property
    def subtile_registers(self) -> int:
        """fp32 registers that a consumer thread holds of an epilogue subtile."""
        return rules.accumulator_registers(*self.epi_tile, self.warpgroups)

    @property
    def exchange_bytes(self) -> int:
        """Bytes for the sums of the other CTAs that share the K of a tile."""
        return self._bytes_of("sums")

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a CTA."""
        return self.smem.size_bytes

    def _bytes_of(self, *names: str) -> int:
        plan = self._plan(1, self.epi_stages)  # bytes of the regions whose size does not depend on the number of stages
        return sum(region.size_bytes for region in plan if region.name in names)

    @property
    def a_layout(self) -> ComposedLayout:
        """A in shared memory: (tile_m, tile_k, stages) -> offset in elements."""
        return self._layout("sA")

    @property
    def staged_n(self) -> int:
        """Columns of B in a stage: the tile's, and more of an MN-major B, to whole spans, where TMA loads it."""
        return staged_columns(self.signature, self.tile_n, self.cluster_m)

    @property
    def b_layout(self) -> ComposedLayout:
        """B in shared memory: (staged_n, tile_k, stages) -> offset in elements."""
        return self._layout("sB")

    def _layout(self, name: str) -> ComposedLayout:
        layout = self.smem[name].layout
        assert isinstance(layout, ComposedLayout)
        return layout

    @property
    def majors(self) -> tuple[sm90.Major, sm90.Major]:
        """The majors of A and B by the hardware's names."""
        return ("K" if self.signature.a_major == "k" else "MN"), ("K" if self.signature.b_major == "k" else "MN")

    @property
    def tiled_mma(self) -> sm90.TiledMMA:
        """The MMAs of one consumer: an atom of all of tile_n for each warpgroup, one above the other."""
        return rules.wgmma_tiling(self.signature.a_dtype, self.signature.b_dtype, self.tile_n, self.warpgroups)
