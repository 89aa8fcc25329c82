"""Analytical model of the GEMM kernel on an H200: expected time of a tile and cluster for a problem.

The model has no table of problems. It follows a CTA: the CTA fills its ring, steps along K, and stores. A step takes
the time of its slowest resource: the tensor cores, the loads of the CTA and their latency, or the loads of all CTAs
from L2. CTAs take their tiles in waves, and the launch takes at least the time of its traffic to device memory. Some
twenty constants are the costs.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.heuristic.tiles import OutputTile
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.runtime.dtypes import DTYPES


class Promotion(NamedTuple):
    """Cost of promoting accumulators to fp32 sums, in microseconds.

    A warpgroup multiplies a block of 128 of K, and then adds up what that gave; meanwhile others multiply, or the same
    does for the other block of a stage that has two.

    Attributes
    ----------
    block : float
        Cost of a block, however many elements a warpgroup has.
    element : float
        Cost of each of the warpgroup's elements.
    column_element : float
        Of each element of the tile, where each column has a scale of its own: the tensor cores wait so much longer.
    """

    block: float
    element: float
    column_element: float


@dataclass(frozen=True)
class Costs:
    """Costs of the parts of a launch, in microseconds.

    Attributes
    ----------
    launch, fill : float
        Before the first CTA runs; until its first stage has arrived.
    span, latency : float
        128 bytes of K, at least; a load, in which all stages but one are loaded.
    cycle : float
        Cycle of a tensor core, where a wgmma of N columns takes N / 2 cycles.
    copy : float
        From one cp.async of a thread to the next, where threads load.
    l2_byte, sm_byte, empty_byte, memory_byte : float
        Loaded from L2 by all CTAs; into one SM; filled with zeros there, beyond the end of A or B; moved to or from
        device memory.
    memory, idle : float
        Latency of device memory, and the share of its time that is added where SMs are idle, by the share of these.
    store, store_element, subtile, instruction : float
        The epilogue of a tile; of each element of it; of each subtile; of an instruction for each element.
    split, split_element : float
        The exchange of a tile's sums between two, and each time that twice as many take part; of each element of those
        that are exchanged.
    promotion : Promotion or None
        Costs of promotion, if sums are promoted.
    """

    launch: float
    fill: float
    span: float
    latency: float
    cycle: float
    copy: float
    l2_byte: float
    sm_byte: float
    empty_byte: float
    memory_byte: float
    memory: float
    idle: float
    store: float
    store_element: float
    subtile: float
    instruction: float
    split: float
    split_element: float
    promotion: Promotion | None = None


H200_COSTS = Costs(
    launch=1.154,
    fill=0.441,
    span=0.1039,
    latency=0.959,
    cycle=6.0e-4,
    copy=0.0175,
    l2_byte=1.193e-7,
    sm_byte=9.61e-6,
    empty_byte=1.696e-5,
    memory_byte=2.445e-7,
    memory=1.659,
    idle=0.2,
    store=0.394,
    store_element=9.9e-5,
    subtile=0.03135,
    instruction=4.5e-6,
    split=0.2455,
    split_element=2.184e-4,
)
"""Fitted to 9,400 device times of 415 problems on an H200, 2026-11-23, launched one after another.

Random ones, M, N and K log-uniform up to 16384, bfloat16 and float8, and 31 that were chosen. On fifths of them that a
fit had not seen, the choice among some 20 tiles that were timed was 4.8% slower than the fastest measurement, in the
geometric mean.

`copy` was fitted to 183 device times of 9 problems in pieces of 4 bytes, of 1 to 4096 rows (2026-11-24): with it they
are what is expected in the mean, within 12%. By the instructions that the DSL 4.8.1 makes of
`cutepy.device.thread_loads`, 104 to 145 for 8 cp.async, it would be 0.015 to 0.021.

`instruction` is what four schedulers need that issue one for 32 elements in each clock at 1.75 GHz. (On an H200,
2026-11-26, an epilogue of 17, bias and gelu, added 40 us to 4096x14336x4096 where it followed 14 tiles of 128x256 one
after another, 2.9 us each for 2.5 by this, and none where two consumers took turns, in tiles of 128x192.)
"""
PROMOTED_COSTS = replace(
    H200_COSTS,
    l2_byte=7e-8,
    promotion=Promotion(block=0.05, element=1.8e-5, column_element=8e-6),
)
"""Costs where accumulators are promoted: steps along K are longer, and the L2 cache slows them down less. Fitted to
2,229 device times of 28 products, eight of them in two runs, with scales of 1x128 and 128x128 on H100s, 2026-11-27.
What these costs choose of `PROMOTED_TILES` was 1.7% slower than the fastest that was timed, in the geometric mean of
the products, and as much in fourths of them that a fit had not seen; by `H200_COSTS`, and without the tiles of 192
rows, it was 4.8%.
"""

EPILOGUE_BYTES = 32768
SHORT_K = 256
Table = Literal["refined", "model", "promoted"]


class Extents(NamedTuple):
    """Problem of the model: a batch of products, with a shared B or one for each, and the way of computing it.

    `transposed` is True for the transpose of the requested product. `a_copies` and `b_copies` are the cp.async of each
    loading thread for a byte of A and of B, 0 where TMA loads. `unit` is the multiple that the columns of a tile must
    be (`epilogue_unit`). `strip` is the width of subtiles where it is given, else 0. `instructions` are the epilogue's
    for each element of the accumulators. `column_scales` is True if promoted sums have a scale for each column.
    `any_k` is True if one kernel serves each K, as of an exported library: its subtiles are those of a long K.
    """

    m: int
    n: int
    k: int
    operand_bits: int
    batch: int
    shared: bool = False
    whole: bool = False
    a_mn_major: bool = False
    b_mn_major: bool = False
    promotes: bool = False
    transposed: bool = False
    a_copies: float = 0.0
    b_copies: float = 0.0
    unit: int = 8
    strip: int = 0
    instructions: float = 0.0
    column_scales: bool = False
    any_k: bool = False

    @property
    def is_short(self) -> bool:
        """True if the epilogue gets the shared memory that the ring doesn't need."""
        return not self.any_k and self.k <= SHORT_K

    @property
    def by_threads(self) -> bool:
        """True if threads load A or B."""
        return self.a_copies + self.b_copies > 0

    @property
    def widens_b(self) -> bool:
        """True if a stage has more columns of B than the tile: the tile ends within a span of the widest swizzle."""
        return self.b_mn_major and self.operand_bits == 16 and not self.b_copies

    @property
    def table(self) -> Table:
        """Table of tiles to choose from: refined for a single product by TMA without promotion, else the model's."""
        if self.promotes:
            return "promoted"
        return "model" if self.batch > 1 or self.by_threads else "refined"

    @property
    def moved_bytes(self) -> float:
        """Bytes of A, B, and a result with 16-bit elements."""
        a_and_d = self.batch * (self.operand_bits / 8 * self.k * self.m + 2.0 * self.m * self.n)
        return a_and_d + self.operand_bits / 8 * self.k * self.n * (1 if self.shared else self.batch)


def costs_of(table: Table) -> Costs:
    """Return the costs that apply to the choices of a table."""
    return PROMOTED_COSTS if table == "promoted" else H200_COSTS


def column_scales(signature: GemmSignature) -> bool:
    """Return whether each column has a scale of its own for promoted sums."""
    return signature.scale_rows is not None and signature.scale_rows[1] == 1


class Choice(NamedTuple):
    """A tile in a cluster."""

    tile: OutputTile
    cluster_m: int
    cluster_n: int

    @property
    def least(self) -> tuple[int, int, int]:
        """Smallest M, N and bits of a row of K that the choice suits.

        CTAs of a cluster share an operand only where the product is larger than a tile. A split of K needs steps for
        each part.
        """
        tile = self.tile
        bits = 2048 * tile.k_spans * tile.split_k if tile.split_k > 1 else 1
        return tile.m + 1 if self.cluster_m > 1 else 1, tile.n + 1 if self.cluster_n > 1 else 1, bits

    def config(self, signature: GemmSignature, k: int, strip: int = 0) -> GemmConfig:
        """Return the configuration, with subtiles of `strip` columns if that is given.

        Where K is short, the epilogue gets the shared memory that the ring doesn't need.
        """
        if strip:
            return _configured(self, signature, strip)
        columns, unit = epilogue_columns(self.tile, k), epilogue_unit(signature)
        if columns % unit:
            columns = 16 * signature.graph.widest
        if self.tile.n % columns and self.tile.split_k == 1:  # of so few subtiles a split leaves none to most CTAs
            columns = unit
        return _configured(self, signature, columns)


@lru_cache(maxsize=1024)
def _configured(choice: Choice, signature: GemmSignature, epi_n: int) -> GemmConfig:
    """Return the configuration from a cache: counting stages takes a third of a choice's time."""
    tile = choice.tile
    return GemmConfig(
        signature=signature,
        tile_m=tile.m,
        tile_n=tile.n,
        tile_k=tile.k_spans * 1024 // signature.operand_bits,
        warpgroups=tile.warpgroups,
        consumers=tile.consumers,
        cluster_m=choice.cluster_m,
        cluster_n=choice.cluster_n,
        split_k=tile.split_k,
        epi_n=epi_n,
    )


@lru_cache(maxsize=1024)
def epilogue_unit(signature: GemmSignature) -> int:
    """Return the multiple that a subtile's columns must be where the epilogue splits columns into groups, else 8.

    Each group keeps at least 8 columns, and at least 16 bytes of a row in shared memory.
    """
    widest = signature.graph.widest
    if widest == 1:  # then a tile of other columns is refused by itself
        return 8
    rows = [each for each in (*signature.stored, *signature.added) if each.major == "row"]
    return max([8 * widest, *(128 // DTYPES[each.dtype].bits * each.width for each in rows)])


def epilogue_columns(tile: OutputTile, k: int) -> int:
    """Choose the columns of an epilogue subtile: more where stores are the bottleneck, fewer for a split of K."""
    if tile.split_k == 1 and k <= SHORT_K and tile.n % 64 == 0:
        return 64
    subtiles = tile.m // (64 * tile.warpgroups) * tile.n // 32
    if tile.n % 32 == 0 and (tile.split_k == 1 or subtiles >= tile.split_k):
        return 32
    return next(columns for columns in (16, 24, 40, 56, 8) if tile.n % columns == 0)
