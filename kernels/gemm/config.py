"""Say what a GEMM kernel is compiled for and how it is tiled, checked before anything compiles.

`GemmSignature` names types and majors; extents are never part of a compiled kernel. `GemmConfig` adds tiles, stages
and cluster, and making one that the hardware cannot run raises, saying which resource is short and by how much.
`choice.select_config` picks one for a problem.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from cutepy.device import rules
from cutepy.epilogues.graph import Graph
from cutepy.layouts import ComposedLayout, sm90
from cutepy.layouts.sm90 import arch
from cutepy.runtime.dtypes import DTYPES

OperandMajor = Literal["k", "mn"]
OutputMajor = Literal["row", "col"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
ACTIVATIONS = get_args(Activation)

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
INPUTS = ("float16", "bfloat16", *_FLOAT8)
"""What A and B may be."""
OUTPUTS = ("float16", "bfloat16", "float32")
"""What C, D and the bias may be."""

PRODUCER_WARPGROUPS = 1
_MAX_CONSUMER_WARPGROUPS = 2
_MAX_CLUSTER = 4
MAX_BATCH_MODES = 3
"""Modes of a batch beside the two of a matrix: TMA knows five."""


def multipliable(a_dtype: str, b_dtype: str) -> bool:
    """Tell whether an instruction multiplies elements of these types: of one, or of two 8-bit floats."""
    return a_dtype == b_dtype or {a_dtype, b_dtype} <= set(_FLOAT8)


class StagedKind(NamedTuple):
    """Subtiles in shared memory that the epilogue reads or writes.

    Attributes
    ----------
    name : str
        Of their region.
    dtype : str
    width : int
        The accumulators have so many times the columns.
    major : "row" or "col"
    """

    name: str
    dtype: str
    width: int
    major: str

    @property
    def place(self) -> int:
        """The place among an epilogue's operands or results."""
        return int(self.name[2:])


@dataclass(frozen=True, kw_only=True)
class GemmSignature:
    """Types and majors of D = activation(A B^T + C + bias): what one compiled kernel serves, at any extents.

    Attributes
    ----------
    a_dtype, b_dtype : str
        Torch's names. Both float16, both bfloat16, or each one of the two 8-bit floats.
    a_major, b_major : "k" or "mn"
        Which extent is contiguous. 8-bit operands are "k": wgmma transposes 16-bit elements only.
    out_dtype : str
        "float16", "bfloat16" or "float32".
    out_major : "row" or "col"
        "row" if N is contiguous.
    c_dtype, c_major : str or None
        The same of C; None without C.
    bias_dtype : str or None
        Of a vector of N elements that is added to each row; None without one.
    activation : str or None
        "relu", "gelu", "gelu_tanh" or "silu", of the fp32 sum before it is rounded.
    epilogue : str or None
        Instead of C, bias and activation: the text of an epilogue's graph (`cutepy.epilogues`), whose results take D's
        place; `out_dtype` is that of those which it doesn't round itself.
    operand_types : tuple of (str, str)
        Of each of the epilogue's operands: dtype, "" of a number of the host, and of a tile "row" or "col", else "".
    batch_modes : int
        Modes of a batch: 0 for matrices; 1 for a batch of them, each at one stride from the last; up to 3 where several
        strides are needed. A, B, C and D all have them.

    Examples
    --------
    >>> GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", a_major="mn", out_dtype="bfloat16")
    Traceback (most recent call last):
    ...
    ValueError: a must be K-major (its K extent contiguous) for 8-bit types, got "mn"; wgmma transposes 16-bit elements only, so copy a to a K-major tensor
    """  # noqa: E501

    a_dtype: str
    b_dtype: str
    out_dtype: str
    a_major: OperandMajor = "k"
    b_major: OperandMajor = "k"
    out_major: OutputMajor = "row"
    c_dtype: str | None = None
    c_major: OutputMajor | None = None
    bias_dtype: str | None = None
    activation: Activation | None = None
    batch_modes: int = 0
    epilogue: str | None = None
    operand_types: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse combinations that no wgmma instruction or epilogue has."""
        for name, value, allowed in (
            ("a_dtype", self.a_dtype, INPUTS),
            ("b_dtype", self.b_dtype, INPUTS),
            ("out_dtype", self.out_dtype, OUTPUTS),
            ("c_dtype", self.c_dtype, (*OUTPUTS, None)),
            ("a_major", self.a_major, ("k", "mn")),
            ("b_major", self.b_major, ("k", "mn")),
            ("out_major", self.out_major, ("row", "col")),
            ("c_major", self.c_major, ("row", "col") if self.c_dtype else (None,)),
            ("bias_dtype", self.bias_dtype, (*OUTPUTS, None)),
            ("activation", self.activation, (*ACTIVATIONS, None)),
            ("batch_modes", self.batch_modes, range(MAX_BATCH_MODES + 1)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value}")
        if not multipliable(self.a_dtype, self.b_dtype):
            raise ValueError(
                f"a and b must have one 16-bit dtype, or each an 8-bit float dtype, got {self.a_dtype} and "
                f"{self.b_dtype}; convert one of them"
            )
        for name, major in (("a", self.a_major), ("b", self.b_major)):
            if self.operand_bits == 8 and major != "k":
                raise ValueError(
                    f'{name} must be K-major (its K extent contiguous) for 8-bit types, got "{major}"; '
                    f"wgmma transposes 16-bit elements only, so copy {name} to a K-major tensor"
                )

        if self.epilogue is not None:
            self._check_epilogue()

    def _check_epilogue(self) -> None:
        graph = Graph.parse(self.epilogue or "")
        if self.c_dtype or self.bias_dtype or self.activation or self.batch_modes:
            raise ValueError("an epilogue takes the place of C, bias and activation, and has no batch; leave them out")
        if len(self.operand_types) != len(graph.operands):
            raise ValueError(f"operand_types must be of {len(graph.operands)} operands, got {len(self.operand_types)}")
        for operand, (dtype, major) in zip(graph.operands, self.operand_types, strict=True):
            if (operand.shape == "tile") != (major in ("row", "col")) or (dtype or operand.shape) not in (
                *DTYPES,
                "scalar",
            ):
                raise ValueError(f"{operand} can't be of {dtype or 'a number'} {major}")

    @cached_property
    def graph(self) -> Graph | None:
        """The epilogue's graph."""
        return None if self.epilogue is None else Graph.parse(self.epilogue)

    @cached_property
    def stored(self) -> tuple[StagedKind, ...]:
        """What is stored by way of shared memory: D, or an epilogue's results that are tiles, "sD" with a place."""
        if self.graph is None:
            return (StagedKind("sD", self.out_dtype, 1, self.out_major),)
        tiles = ((n, result) for n, result in enumerate(self.graph.results) if not self.graph.reduction(result))
        return tuple(
            StagedKind(f"sD{n}", self.graph.dtype(result) or self.out_dtype, self.graph.width(result), self.out_major)
            for n, result in tiles
        )

    @cached_property
    def added(self) -> tuple[StagedKind, ...]:
        """What is read by way of shared memory beside A and B: C, or the tiles of an epilogue, "sC" with a place."""
        if self.graph is None:
            return (StagedKind("sC", self.c_dtype, 1, self.c_major or "row"),) if self.c_dtype else ()
        pairs = enumerate(zip(self.graph.operands, self.operand_types, strict=True))
        return tuple(
            StagedKind(f"sC{n}", dtype, operand.width, major)
            for n, (operand, (dtype, major)) in pairs
            if operand.shape == "tile"
        )

    @property
    def adds(self) -> bool:
        """Whether tiles are read beside A and B: C, or operands of an epilogue."""
        return bool(self.added)

    @property
    def transposed(self) -> "GemmSignature":
        """What computes the transposed result: A and B exchanged, rows for columns; a bias has no place there."""
        turned: dict[OutputMajor, OutputMajor] = {"row": "col", "col": "row"}
        return replace(
            self,
            a_dtype=self.b_dtype,
            b_dtype=self.a_dtype,
            a_major=self.b_major,
            b_major=self.a_major,
            out_major=turned[self.out_major],
            c_major=turned[self.c_major] if self.c_major else None,
        )

    @property
    def operand_bits(self) -> int:
        """Width of an element of A or B."""
        return DTYPES[self.a_dtype].bits

    @property
    def out_bits(self) -> int:
        """Width of an element of D."""
        return DTYPES[self.out_dtype].bits

    @property
    def c_bits(self) -> int:
        """Width of an element of C; 0 without C."""
        return DTYPES[self.c_dtype].bits if self.c_dtype else 0


@dataclass(frozen=True, kw_only=True)
class GemmConfig:
    """Tiles, stages and cluster of one kernel, checked against an SM90's shared memory and registers.

    Attributes
    ----------
    signature : GemmSignature
        What the kernel computes.
    tile_m, tile_n : int
        Output tile of a CTA. tile_m is a multiple of 64 for each warpgroup, tile_n is one wgmma's N.
    tile_k : int
        K extent of a stage; 128 bytes of elements if 0, the span of the widest swizzle.
    warpgroups : 1 or 2
        Warpgroups that multiply one tile, stacked along M.
    consumers : 1 or 2
        Groups of so many warpgroups that take output tiles in turn, each storing while the other multiplies.
    stages : int
        Stages of A and B; as many as fit if 0.
    cluster_m, cluster_n : int
        CTAs of a cluster along M share tiles of B by multicast; along N, tiles of A.
    split_k : int
        CTAs of a cluster that share the K of an output tile, and sum through each other's shared memory.
    epi_n : int
        Columns of an epilogue subtile; its rows are 64 for each warpgroup.
    epi_stages : int
        Subtiles of D in shared memory; 4 if 0, or 3 where that makes room for one more stage of A and B, or 2 where D
        has 32 bits or C needs room.
    c_stages : int
        Subtiles of C in shared memory; 2 if 0, unless there is no C.
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
    epi_n: int = 32
    epi_stages: int = 0
    c_stages: int = 0
    band_rows: int = 8

    def __post_init__(self) -> None:
        """Fill in the extents left to us, then refuse what the hardware cannot run."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "signature" and type(value) is not int:
                raise TypeError(f"{field.name} must be an int, got {value!r}")
        if not self.tile_k:
            object.__setattr__(self, "tile_k", 1024 // self.signature.operand_bits)
        if self.signature.adds and not self.c_stages:
            object.__setattr__(self, "c_stages", 2)
        self._check_shape()
        rules.check_accumulators((self.tile_m, self.tile_n), self.warpgroups, self.consumers)
        if not self.epi_stages:
            object.__setattr__(self, "epi_stages", self._fitting_epi_stages())
        self._check_stages()
        if not self.stages:
            object.__setattr__(self, "stages", self._stages_that_fit(self.epi_stages))

    def _fitting_epi_stages(self) -> int:
        if self.c_stages or self.signature.out_bits == 32:
            return 2
        return 3 if not self.stages and self._stages_that_fit(3) > self._stages_that_fit(4) else 4

    def _check_shape(self) -> None:
        for name, count in (("warpgroups", self.warpgroups), ("consumers", self.consumers)):
            if count not in (1, 2):
                raise ValueError(f"{name} must be 1 or 2, got {count}")
        if self.warpgroups * self.consumers > _MAX_CONSUMER_WARPGROUPS:
            raise ValueError(
                f"at most {_MAX_CONSUMER_WARPGROUPS} warpgroups can multiply with "
                f"{rules.register_budget(_MAX_CONSUMER_WARPGROUPS).consumer} registers a thread, got {self.consumers} "
                f"consumers of {self.warpgroups}; use one warpgroup each"
            )
        if self.consumers > 1 and self.split_k > 1:
            raise ValueError(f"consumers take tiles in turn only where K is not split, got split_k {self.split_k}")
        if self.consumers > 1 and self.signature.adds:
            # On an H200, 2026-11-23, single warps then added a wrong part of C, some 500 elements of 15 million.
            raise ValueError(f"consumers take tiles in turn only without C, got C of {self.signature.c_dtype}; use 1")
        rows = 64 * self.warpgroups
        instruction_k = 256 // self.signature.operand_bits
        for name, value, unit, why in (
            ("tile_m", self.tile_m, rows, "each consumer warpgroup multiplies 64 rows at a time"),
            ("epi_n", self.epi_n, 16, "a four-matrix stmatrix writes 16 columns"),
            ("tile_n", self.tile_n, self.epi_n, "the epilogue writes whole subtiles of epi_n columns"),
            ("tile_n", self.tile_n, 8, "wgmma's N is a multiple of 8"),
            (
                "epi_n",
                self.epi_n,
                16 * (self.signature.graph.widest if self.signature.graph else 1),
                "16 columns are left where columns are interleaved",
            ),
            ("tile_k", self.tile_k, instruction_k, "one wgmma takes 32 bytes of K"),
        ):
            if value <= 0 or value % unit:
                raise ValueError(f"{name} must be a positive multiple of {unit}, got {value}: {why}")
        if self.tile_n > 256:
            raise ValueError(f"tile_n must be at most 256, the largest N of a wgmma, got {self.tile_n}")
        for name, extent in (("cluster_m", self.cluster_m), ("cluster_n", self.cluster_n)):
            if extent not in (1, 2, 4):
                raise ValueError(f"{name} must be 1, 2 or 4, got {extent}")
        if self.cluster_m * self.cluster_n > _MAX_CLUSTER:
            raise ValueError(
                f"a cluster must have at most {_MAX_CLUSTER} CTAs, got {self.cluster_m} x {self.cluster_n}: "
                "larger ones leave SMs of a GPC idle"
            )
        if self.split_k not in (1, 2, 4, 8):
            raise ValueError(f"split_k must be 1, 2, 4 or 8, got {self.split_k}")
        if self.cluster_m * self.cluster_n * self.split_k > rules.PORTABLE_CLUSTER_CTAS:
            raise ValueError(
                f"a cluster must have at most {rules.PORTABLE_CLUSTER_CTAS} CTAs, got {self.cluster_m} x "
                f"{self.cluster_n} x {self.split_k}; split K, or share operands, among fewer"
            )
        rules.check_multicast((self.tile_m, self.tile_n), (self.cluster_m, self.cluster_n))
        if self.epi_stages and self.epi_stages < 2:
            raise ValueError(f"epi_stages must be at least 2, got {self.epi_stages}: one is filled while one is sent")
        if self.stages and self.stages < 2:
            raise ValueError(f"stages must be at least 2, one to load while one is multiplied, got {self.stages}")
        if self.signature.adds != bool(self.c_stages):
            raise ValueError(f"c_stages must be 0 without C and positive with it, got {self.c_stages}")
        if self.band_rows < 1:
            raise ValueError(f"band_rows must be at least 1, got {self.band_rows}")

    def _stages_that_fit(self, epi_stages: int) -> int:
        """Count the stages of A and B, 8 at most, that leave room for the rest; 0 if none does."""
        return next((stages for stages in range(8, 0, -1) if self._plan(stages, epi_stages).fits), 0)

    def _check_stages(self) -> None:
        fitting = self._stages_that_fit(self.epi_stages)
        if fitting < 2:
            shorten = "fewer epi_stages or c_stages" if self.epilogue_bytes > 2 * self.stage_bytes else "a smaller tile"
            raise ValueError(
                f"stages must be at least 2, one to load while one is multiplied, and there is room for "
                f"{fitting}: a stage of A and B takes {self.stage_bytes} bytes, the epilogue's "
                f"{self.epi_stages} + {self.c_stages} stages {self.epilogue_bytes} and the sums of {self.split_k - 1} "
                f"peers {self.exchange_bytes} of the {arch.SMEM_BYTES_PER_CTA} bytes of shared memory; use {shorten}"
            )
        if self.stages and not self.smem.fits:
            raise ValueError(
                f"{self.stages} stages of {self.stage_bytes} bytes and {self.epilogue_bytes} bytes for the epilogue "
                f"take {self.smem_bytes} bytes of shared memory, {self.smem_bytes - arch.SMEM_BYTES_PER_CTA} more "
                f"than the {arch.SMEM_BYTES_PER_CTA} of a block; use {fitting} stages"
            )

    def _staged(self, dtype: str, width: int, stages: int, major: str) -> sm90.StagedTile:
        rows, columns = self.epi_tile
        return sm90.StagedTile((rows, columns // width), stages, DTYPES[dtype].bits, int(major == "row"))

    def _plan(self, stages: int, epi_stages: int) -> sm90.SmemPlan:
        kind = self.signature
        plan: dict[str, sm90.StagedTile | sm90.SmemArray] = {
            "sA": sm90.StagedTile((self.tile_m, self.tile_k), stages, kind.operand_bits, int(kind.a_major == "k")),
            "sB": sm90.StagedTile((self.tile_n, self.tile_k), stages, kind.operand_bits, int(kind.b_major == "k")),
        }
        for name, dtype, width, major in kind.stored:
            plan[name] = self._staged(dtype, width, epi_stages * self.consumers, major)
        for name, dtype, width, major in kind.added:
            plan[name] = self._staged(dtype, width, self.c_stages, major)
        if self.split_k > 1:
            sums = rules.exchange_bytes(self.split_k, self.subtiles, self.subtile_registers, self.consumer_threads)
            plan["sums"] = sm90.SmemArray(sums // 4, bits=32, alignment_bytes=16)
        plan["barriers"] = sm90.SmemArray(2 * (stages + self.c_stages + (self.split_k > 1)), bits=64)
        return sm90.SmemPlan.of(plan)

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA, by names.

        The stages of A, B, D and, with C, of that, or of an epilogue's results and tiles; the sums of peers where K is
        split; and two mbarriers for each stage of A and B, then of C, and for the exchange of sums.
        """
        return self._plan(self.stages, self.epi_stages)

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        kind = self.signature
        operands = f"{kind.a_dtype}_{kind.a_major}_{kind.b_dtype}_{kind.b_major}_{kind.out_dtype}_{kind.out_major}"
        addend = f"_plus_{kind.c_dtype}_{kind.c_major}" if kind.c_dtype else ""
        addend += f"_bias_{kind.bias_dtype}" if kind.bias_dtype else ""
        addend += f"_{kind.activation}" if kind.activation else ""
        addend += f"_batch{kind.batch_modes}" if kind.batch_modes else ""
        if kind.epilogue:
            types = "".join("_" + (dtype or "number") + major for dtype, major in kind.operand_types)
            addend = f"_epilogue_{sha256(kind.epilogue.encode()).hexdigest()[:12]}{types}"
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}x{self.stages}_cluster{self.cluster_m}x{self.cluster_n}"
        split = f"_split{self.split_k}" if self.split_k > 1 else ""
        turns = "_pingpong" if self.consumers > 1 else ""
        return f"cutepy_gemm_{operands}{addend}_{tile}{split}{turns}"

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        return arch.WARPGROUP_THREADS * (PRODUCER_WARPGROUPS + self.warpgroups * self.consumers)

    @property
    def cluster(self) -> tuple[int, int, int]:
        """CTAs of a cluster along M, N and K."""
        return self.cluster_m, self.cluster_n, self.split_k

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
    def producer_threads(self) -> int:
        """Threads before the consumers'."""
        return arch.WARPGROUP_THREADS * PRODUCER_WARPGROUPS

    @property
    def named_barriers(self) -> dict[str, int]:
        """The first of the named barriers where each consumer's threads meet to store, and where it awaits its turn."""
        return rules.named_barriers(store=self.consumers, turns=self.consumers if self.consumers > 1 else 0)

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
    def stage_bytes(self) -> int:
        """Bytes of one stage of A and B: what the full barrier of the stage waits for."""
        plan = self._plan(1, 1)
        return plan["sA"].size_bytes + plan["sB"].size_bytes

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
        plan = self._plan(1, self.epi_stages)  # those of which there are as many whatever the stages of A and B
        return sum(region.size_bytes for region in plan if region.name in names)

    @property
    def a_layout(self) -> ComposedLayout:
        """A in shared memory: (tile_m, tile_k, stages) -> offset in elements."""
        return self._layout("sA")

    @property
    def b_layout(self) -> ComposedLayout:
        """B in shared memory: (tile_n, tile_k, stages) -> offset in elements."""
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
