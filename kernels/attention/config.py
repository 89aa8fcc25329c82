"""Attention configurations: types, head dimensions, tiles and masks; and the layout of intermediate results."""

import math
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from cutepy.device import rules
from cutepy.epilogues.derivatives import DERIVATIVE, with_derivative
from cutepy.epilogues.graph import Graph
from cutepy.layouts import sm90
from cutepy.runtime.dtypes import DTYPES

PRODUCERS = 128
"""Threads of the producer's warpgroup, of which one warp loads."""
L2_BYTES = 32 << 20
"""Bytes of L2 that tiles in flight share."""
VECTOR = 4
"""Registers of dQ that a thread writes together: 16 bytes."""
DQ_COLUMNS = 256
"""Elements of a row of the sums of dQ, as TMA sees them: the most that a box can have."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the sequences of a matrix of queries, and of one of keys, as tensors on the device.

    Attributes
    ----------
    q_begins, k_begins : Tensor (sequences + 1,), int32, or None
        First rows, and the end of the last; None if all sequences have as many rows.
    q_used, k_used : Tensor (sequences,), int32, or None
        Rows of each sequence that are used; None for all.
    """

    q_begins: Any = None
    k_begins: Any = None
    q_used: Any = None
    k_used: Any = None

    @property
    def tensors(self) -> tuple[Any, Any, Any, Any]:
        """The four tensors, None where one is not given."""
        return self.q_begins, self.k_begins, self.q_used, self.k_used

    @property
    def given(self) -> "Lengths":
        """True for each tensor that is given, None for others."""
        return Lengths(
            *(None if each is None else True for each in (self.q_begins, self.k_begins, self.q_used, self.k_used))
        )

    @property
    def count(self) -> int:
        """Number of sequences."""
        for bounds in (self.q_begins, self.k_begins):
            if bounds is not None:
                return int(bounds.shape[0]) - 1
        return int((self.q_used if self.k_used is None else self.k_used).shape[0])


@dataclass(frozen=True)
class CachedKeys:
    """Places of cached keys in the matrix of all rows, beside the lengths and the table of pages.

    Attributes
    ----------
    pitch : Int32 or None
        Rows from one page, or one sequence, to the next; None if they follow one another.
    most : Int32 or None
        Keys that are seen at most; None for all that there are.
    shared : Int32 or None
        Keys at the beginning that another launch has for the queries that see all of them: whole tiles. None for none.
    """

    pitch: Any = None
    most: Any = None
    shared: Any = None

    @property
    def given(self) -> "CachedKeys":
        """1 for each number that is given: kernels are compiled for any."""
        return CachedKeys(*(None if each is None else 1 for each in astuple(self)))


@dataclass(frozen=True)
class SharedKeys:
    """Results of keys that all sequences share, and the flags of the queries that they count for.

    Attributes
    ----------
    parts : Tensor (tokens, splits * heads, head), fp32
        O of all sequences' queries, one sequence after another, of parts of the keys.
    lses : Tensor (splits * heads, tokens), fp32
    keys : Int32
        Keys that are shared.
    most_keys : Int32
        Keys of the longest sequence, at most.
    lengths : Tensor (sequences,), int32, or None
        Keys of each sequence; None if all have the same.
    right, sharing : Int32 or None
        As of `Band`.
    """

    parts: Any
    lses: Any
    keys: Any
    most_keys: Any
    lengths: Any
    right: Any
    sharing: Any


def epilogue_stages(head: int) -> tuple[int, int]:
    """Return the columns of a stage that a result of `head` columns leaves through, and the number of stages.

    Each tile begins with the first stage, so that their number divides that of the subtiles.

    Examples
    --------
    >>> epilogue_stages(128), epilogue_stages(96), epilogue_stages(80), epilogue_stages(16)
    ((32, 2), (32, 3), (16, 5), (8, 2))
    """
    columns = next(columns for columns in (32, 16, 8) if head % columns == 0 and head > columns)
    count = head // columns
    return columns, next(stages for stages in range(2, count + 1) if count % stages == 0)


@dataclass(frozen=True)
class ScoreSettings:
    """Functions of the scores, sinks, and lists of blocks that a kernel is compiled for.

    Attributes
    ----------
    text : str
        Of the graph of score and mask functions; empty if there are none.
    dtypes : tuple of str
        Of the graph's tables, in memory.
    sinks : bool
        True if a logit of each head joins the softmax's sum.
    blocks : (int, int) or None
        Queries and keys of a block of a block mask: kernels go through lists of blocks then.
    derived : tuple of str
        Names of the graph's tables that the backward kernel sums the gradients of.
    """

    text: str = ""
    dtypes: tuple[str, ...] = ()
    sinks: bool = False
    blocks: tuple[int, int] | None = None
    derived: tuple[str, ...] = ()

    @cached_property
    def graph(self) -> Graph | None:
        """Graph of the functions; None if there are none."""
        return Graph.parse(self.text) if self.text else None

    @property
    def changes(self) -> bool:
        """True if a function makes scores of the scaled products."""
        return self.graph is not None and any(result.name == "score" for result in self.graph.results)

    @property
    def weighs(self) -> bool:
        """True if probabilities have weights, as with dropout."""
        return self.graph is not None and any(result.name == "weight" for result in self.graph.results)

    @property
    def reads_each(self) -> bool:
        """True if a table is read for each score."""
        return self.graph is not None and any(node.op == "gather" and node.shape == "tile" for node in self.graph.nodes)

    @cached_property
    def transposed(self) -> Graph | None:
        """Graph on transposed scores, with the derivatives that are not 1; None if there are no functions."""
        if self.graph is None:
            return None
        return (with_derivative(self.graph, tables=self.derived) if self.changes else self.graph).transposed

    def of_packed_heads(self, group: int) -> "ScoreSettings":
        """Return the scoring of rows that are the queries of `group` heads, a query's heads together."""
        return self if self.graph is None else replace(self, text=self.graph.of_packed_heads(group).text)

    @property
    def needs_registers(self) -> bool:
        """True if derivatives, weights, or elements of tables, take registers in the backward kernel."""
        graph = self.transposed
        if graph is None:
            return False
        reads = any(node.op == "gather" and node.shape != "scalar" for node in graph.nodes)
        derives = any(result.name == DERIVATIVE for result in graph.results)
        return reads or derives or self.weighs or bool(self.derived)

    @property
    def suffix(self) -> str:
        """Part of a kernel's name; empty without functions, sinks and lists."""
        functions = f"_scores_{sha256(self.text.encode()).hexdigest()[:12]}" if self.text else ""
        derived = "".join(f"_d{name}" for name in self.derived)
        return functions + derived + ("_sinks" if self.sinks else "") + ("_blocks" if self.blocks else "")


NO_SCORING = ScoreSettings()


@dataclass(frozen=True, kw_only=True)
class ForwardConfig:
    """Configuration of a forward kernel.

    Attributes
    ----------
    dtype : str
        Of Q, K and V: "float16", "bfloat16" or "float8_e4m3fn".
    head : int
        Extent of a row of Q, K.
    head_v : int
        Extent of a row of V, O.
    tile_m, tile_n : int
        Queries and keys of a tile.
    warpgroups : int
        Consumer warpgroups, each of 64 queries.
    stages : int
        Stages of K, and of V.
    left, right : bool
        True if keys before, or after, a query's position are bounded.
    ordered : bool
        True if warpgroups issue their MMAs in turns, so that one's softmax overlaps another's products.
    page : int
        Keys of a page; 0 if keys are not in pages.
    packed : int
        Heads that share keys whose queries are rows of one tile, those of one query after another.
    is_split : bool
        True if several CTAs have parts of a tile's keys: then O is one of each part, in float32.
    scoring : ScoreSettings
        Functions of the scores, and the other settings that decide which scores are seen.
    result : str
        Of O; if empty `dtype`, and bfloat16 where that has 8 bits.
    loaded : int
        Stages of V as it is loaded, if it is transposed to the others.
    block : int
        Tokens that share a scale of Q, of K, and of V; 0 if those of a head do. A multiple of `tile_n`.
    q_stages : int
        Stages of Q: with two the next tile of queries is loaded while this one is multiplied.
    o_stages : int
        Stages that a warpgroup's O leaves through; 0 for two, or three. Where they have all of O it is sent at once.
    begins_early : bool
        True if the first product of a CTA's next tile is issued before O of this one is stored; with two stages of Q.
    divides_fast : bool
        True if tiles are found with fast divisors; of batches of equal matrices.
    masks_parts : bool
        True if the first tile of keys is masked only where some query does not see all of it.
    o_over_q : bool
        True if O is staged where Q was, all of it at once; with one stage of Q.
    dynamic : bool
        True if a CTA that is done sooner takes more tiles, by a counter in memory: launch a CTA an SM.
    rescales_late : bool
        True if O is rescaled while the next tile's S is multiplied, not before.
    stores_rows : bool
        True if threads store parts of O from registers, 16 bytes of a row at a time; else TMA does.
    overlaps : bool
        True if CTAs start while the kernel before this one ends, and let those of the next one start.
    """

    dtype: str
    head: int
    head_v: int
    tile_m: int
    tile_n: int
    warpgroups: int
    stages: int = 2
    left: bool = False
    right: bool = False
    ordered: bool = True
    page: int = 0
    packed: int = 1
    is_split: bool = False
    scoring: ScoreSettings = NO_SCORING
    result: str = ""
    loaded: int = 2
    block: int = 0
    q_stages: int = 1
    o_stages: int = 0
    begins_early: bool = False
    divides_fast: bool = False
    masks_parts: bool = False
    o_over_q: bool = False
    dynamic: bool = False
    rescales_late: bool = False
    stores_rows: bool = False
    overlaps: bool = False

    @property
    def turns_end(self) -> bool:
        """True if a CTA's last tile hands its turn over too: whether it is the last is known late, or not asked."""
        return self.begins_early or self.dynamic

    @property
    def out_stages(self) -> tuple[int, int]:
        """Columns of a stage of a warpgroup's O, and the number of stages."""
        columns, stages = epilogue_stages(self.head_v)
        return columns, self.o_stages or stages

    @property
    def stores_at_once(self) -> bool:
        """True if the stages have all of a warpgroup's O."""
        return self.o_stages > 0 and self.o_stages * self.out_stages[0] == self.head_v

    @property
    def result_dtype(self) -> str:
        """Of O, once its parts are summed."""
        return self.result or ("bfloat16" if self.bits == 8 else self.dtype)

    @property
    def out_dtype(self) -> str:
        """Of O as this kernel stores it: parts of it are float32."""
        return "float32" if self.is_split else self.result_dtype

    @property
    def bits(self) -> int:
        """Of an element of Q, K and V."""
        return DTYPES[self.dtype].bits

    @property
    def transposes(self) -> int:
        """Warps that transpose V, which wgmma reads K-major only if it has 8 bits; 0 if none need to.

        They are those of the producer's warpgroup that don't load.
        """
        return PRODUCERS // 32 - 1 if self.bits == 8 else 0

    @property
    def blocks_at_once(self) -> int:
        """Blocks of V that a warp which transposes has in registers: as many as these have room for.

        With 24, two and four blocks spill where all keys are seen, and three don't (ptxas 13.0).
        """
        return {24: 3, 32: 2}.get(self.producer_registers, 4)

    @property
    def width(self) -> int:
        """Elements of a staged row of Q, K: whole MMAs of 32 bytes; those beyond `head` are zeros."""
        each = 256 // self.bits
        return -(-self.head // each) * each

    @property
    def probability_bits(self) -> int:
        """Powers of 2 that probabilities are raised by: e4m3 has its largest numbers, to 448, and fewest zeros then."""
        return 8 if self.bits == 8 else 0

    @property
    def producer_registers(self) -> int:
        """Registers of a producer thread: few, unless it transposes, reads pages' numbers, or has one consumer.

        Threads that copy need most, and parts of keys some.
        """
        if self.transposes and self.warpgroups > 1:
            # Three consumers have 160 with 32, two have 232 with 40, of which O of 256 columns leaves too few.
            return 32 if self.warpgroups == 3 else 40 if self.head_v <= 192 else 24
        if self.warpgroups == 1 or self.copies_rows:
            return 56
        return 40 if self.page or self.is_split else 24

    @property
    def copies_rows(self) -> bool:
        """True if threads copy keys row by row: a copy of fewer than 8 rows would end within a swizzle.

        Examples
        --------
        >>> tiles = {"tile_m": 64, "tile_n": 128, "warpgroups": 1}
        >>> [ForwardConfig(dtype="float16", head=64, head_v=64, **tiles, page=page).copies_rows for page in (12, 24, 0)]
        [True, False, False]
        """
        return self.rows_of_copy % 8 != 0

    @property
    def rows_of_copy(self) -> int:
        """Keys that one copy moves: of one tile, and of one page.

        Examples
        --------
        >>> tiles = {"tile_m": 64, "tile_n": 128, "warpgroups": 1}
        >>> ForwardConfig(dtype="float16", head=64, head_v=64, **tiles, page=48).rows_of_copy
        16
        """
        return math.gcd(self.page, self.tile_n) if self.page else self.tile_n

    @cached_property
    def k_copy(self) -> sm90.StagedTile:
        """Shared memory of a copy of K."""
        return sm90.StagedTile((self.rows_of_copy, self.width), 1, bits=self.bits)

    @cached_property
    def v_copy(self) -> sm90.StagedTile:
        """Shared memory of a copy of V."""
        return sm90.StagedTile((self.head_v, self.rows_of_copy), 1, bits=self.bits, contiguous_mode=0)

    @cached_property
    def qk(self) -> sm90.TiledMMA:
        """MMAs of S = Q K^T."""
        return rules.wgmma_tiling(self.dtype, self.dtype, self.tile_n, self.warpgroups)

    @cached_property
    def pv(self) -> sm90.TiledMMA:
        """MMAs of O = P V."""
        return rules.wgmma_tiling(self.dtype, self.dtype, self.head_v, self.warpgroups, a_in_registers=True)

    @property
    def consumers(self) -> int:
        """Consumer threads."""
        return 128 * self.warpgroups

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA."""
        columns, epi_stages = self.out_stages
        v_tile, v_stages = (self.head_v, self.tile_n), self.stages
        transposed: dict[str, Any] = {}
        if self.transposes:
            v_stages = self.loaded
            # An MMA reads 32 bytes of each row, and addresses of so wide a swizzle take fewest registers to write to.
            transposed["sVt"] = sm90.StagedTile(v_tile, self.stages, bits=self.bits, swizzle="SW32")
            transposed["vt_barriers"] = sm90.SmemArray(2 * self.stages, bits=64)
        return sm90.SmemPlan.of(
            overlays={"sO": "sQ"} if self.o_over_q else None,
            sQ=sm90.StagedTile((self.tile_m, self.width), self.q_stages, bits=self.bits),
            sK=sm90.StagedTile((self.tile_n, self.width), self.stages, bits=self.bits),
            sV=sm90.StagedTile(v_tile, v_stages, bits=self.bits, contiguous_mode=0),
            sO=sm90.StagedTile((64, columns), epi_stages * self.warpgroups, bits=32 if self.is_split else 16),
            q_barriers=sm90.SmemArray(2 * self.q_stages, bits=64),
            k_barriers=sm90.SmemArray(2 * self.stages, bits=64),
            v_barriers=sm90.SmemArray(2 * v_stages, bits=64),
            **transposed,
            **_tickets(self),
        )

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        mask = ("_left" if self.left else "") + ("_right" if self.right else "")
        kind = (f"_page{self.page}" if self.page else "") + (f"_packed{self.packed}" if self.packed > 1 else "")
        kind += ("_split" if self.is_split else "") + self.scoring.suffix
        kind += (f"_to_{self.result}" if self.result else "") + (f"_block{self.block}" if self.block else "")
        kind += "_dynamic" if self.dynamic else ""
        return f"cutepy_attention_{self.dtype}_{self.head}_{self.head_v}_{self.tile_m}x{self.tile_n}{mask}{kind}"


@dataclass(frozen=True, kw_only=True)
class BackwardConfig:
    """Configuration of a backward kernel.

    Attributes
    ----------
    dtype : str
        Of Q, K, V, dO, dK, dV: "float16" or "bfloat16".
    head, head_v : int
        Extents of a row of Q, K, and of V, dO.
    tile_k, tile_q : int
        Keys and queries of a tile.
    shares_keys : bool
        True if warpgroups have the same 64 keys: each scores some of the queries, sums some of the columns of dK and
        dV, and P and dS pass through shared memory. Else each has keys of its own, of which it sums dK and dV.
    transposes_sums : bool
        True if each warpgroup scores all queries, 64, with its own keys, not transposed, and sums dK^T and dV^T: an MMA
        has these keys as columns, of which there may be fewer than 64. P and dS pass through shared memory.
    warpgroups : int
        Consumer warpgroups.
    stages : int
        Stages of Q, and of dO.
    left, right : bool
        True if keys before, or after, a query's position are bounded.
    ordered : bool
        True if parts of dQ are added in an order that is the same from run to run.
    scoring : ScoreSettings
        Functions of the scores, and the other settings that decide which scores are seen.
    dynamic : bool
        As of `ForwardConfig`; not with an order.
    begins_with_k : bool
        True if the first S is multiplied before V is there, of which a barrier of its own tells.
    overlaps : bool
        True if a kernel's CTAs start while the kernel before it ends.
    """

    dtype: str
    head: int
    head_v: int
    tile_k: int
    tile_q: int
    shares_keys: bool = False
    transposes_sums: bool = False
    warpgroups: int = 2
    stages: int = 2
    left: bool = False
    right: bool = False
    ordered: bool = False
    scoring: ScoreSettings = NO_SCORING
    dynamic: bool = False
    begins_with_k: bool = False
    overlaps: bool = False

    @property
    def width(self) -> int:
        """Columns of tiles of Q and K: whole swizzles for each half of them; those beyond `head` are zeros."""
        return -(-self.head // 64) * 64

    @property
    def width_v(self) -> int:
        """Columns of tiles of V and dO."""
        return -(-self.head_v // 64) * 64

    @property
    def parts(self) -> int:
        """Parts of the queries of S and dP, and of the columns of dK and dV, of each of which a warpgroup has one."""
        return self.warpgroups if self.shares_keys else 1

    def steps(self, head: int) -> range | None:
        """Return the MMAs along rows of `head` of S, or dP; None for all of the tiles' columns."""
        return range(head // 16) if self.shares_keys else None

    @property
    def own_queries(self) -> int:
        """Queries of a tile that a warpgroup scores."""
        return self.tile_q // self.parts

    @property
    def own_keys(self) -> int:
        """Keys of a tile that a warpgroup's MMAs of sums have as columns; all of them where they are rows."""
        return self.tile_k // self.warpgroups if self.transposes_sums else self.tile_k

    @property
    def mma_warpgroups(self) -> int:
        """Warpgroups of the MMAs of S, dP, dK and dV, which have one tile."""
        return 1 if self.transposes_sums else self.warpgroups // self.parts

    @property
    def dq_is_transposed(self) -> bool:
        """True where the MMAs of dQ have the columns of the head as rows: 64 for each warpgroup, and all queries.

        Else their rows are queries, of which an MMA takes 64.
        """
        return self.tile_q % 64 != 0

    @property
    def dq_part(self) -> tuple[int, int]:
        """Queries, and columns of the head, of a tile's dQ that a warpgroup computes."""
        if not self.dq_is_transposed and self.tile_q == 64 * self.warpgroups:
            return 64, self.width
        return self.tile_q, self.width // self.warpgroups

    @property
    def dq_registers(self) -> int:
        """Registers of a thread's part of dQ."""
        return math.prod(self.dq_part) // 128

    @property
    def keeps_p(self) -> bool:
        """True where registers hold P's operand beside the accumulators of S, dP, dK and dV, or memory does.

        Then dV's MMAs run while dS is computed; else P and dS become operands together.
        """
        sums = (self.width + self.width_v) // 2
        return self.passes_p or self.scoring.graph is not None or sums + self.tile_q + self.tile_q // 4 <= 216

    @property
    def passes_p(self) -> bool:
        """True where P and dS pass through shared memory."""
        return self.shares_keys or self.transposes_sums

    @property
    def delays_dp(self) -> bool:
        """True where functions of the scores leave no registers for dP, which is multiplied after them."""
        return self.scoring.needs_registers and not self.shares_keys

    @property
    def dq_rows(self) -> int:
        """Rows of `DQ_COLUMNS` that the sums of a warpgroup's part of dQ are."""
        return self.dq_registers * 128 // DQ_COLUMNS

    def sums_shape(self, tiles: int) -> tuple[int, int]:
        """Return the rows and columns of a head's sums of dQ: of each tile of queries, each warpgroup's part.

        They are in the order of the MMA's registers, `VECTOR` of a thread together, so that each thread writes 16 bytes
        at a time, and TMA adds one stretch of memory.

        Examples
        --------
        >>> BackwardConfig(dtype="float16", head=128, head_v=128, tile_k=128, tile_q=64).sums_shape(4)
        (128, 256)
        """
        return tiles * self.warpgroups * self.dq_rows, DQ_COLUMNS

    @cached_property
    def scores(self) -> sm90.TiledMMA:
        """MMAs of S^T = K Q^T and dP^T = V dO^T, or of S = Q K^T and dP = dO V^T."""
        columns = self.own_keys if self.transposes_sums else self.own_queries
        return rules.wgmma_tiling(self.dtype, self.dtype, columns, self.mma_warpgroups)

    @cached_property
    def sums(self) -> sm90.TiledMMA:
        """MMAs of dK = dS^T Q."""
        return self._sums(self.width)

    @cached_property
    def sums_v(self) -> sm90.TiledMMA:
        """MMAs of dV = P^T dO."""
        return self._sums(self.width_v)

    def _sums(self, width: int) -> sm90.TiledMMA:
        in_registers, columns = not self.passes_p, self.own_keys if self.transposes_sums else width // self.parts
        return rules.wgmma_tiling(self.dtype, self.dtype, columns, self.mma_warpgroups, a_in_registers=in_registers)

    @cached_property
    def dq(self) -> sm90.TiledMMA:
        """MMAs of a warpgroup's part of dQ = dS K, or of dQ^T = K^T dS^T."""
        queries, columns = self.dq_part
        return rules.wgmma_tiling(self.dtype, self.dtype, queries if self.dq_is_transposed else columns, 1)

    @property
    def producer_registers(self) -> int:
        """Registers of a producer thread: more where it loads wide rows."""
        return 32 if self.shares_keys else 24

    @property
    def consumers(self) -> int:
        """Consumer threads."""
        return 128 * self.warpgroups

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA; sdS has stages of dS, then those of P if it passes through memory."""
        columns, epi_stages = self.out_stages
        regions: dict[str, sm90.StagedTile | sm90.SmemArray] = {
            "sK": self._staged(self.tile_k, self.width, 1, self.warpgroups),
            "sV": self._staged(self.tile_k, self.width_v, 1),
            "sQ": self._staged(self.tile_q, self.width, self.stages),
            "sdO": self._staged(self.tile_q, self.width_v, self.stages),
            "sdS": sm90.StagedTile((self.tile_k, self.tile_q), self.ds_stages, bits=16, contiguous_mode=self.ds_mode),
            "sdQ": sm90.SmemArray(self.warpgroups * self.dq_registers * 128, bits=32, alignment_bytes=1024),
            "sOut": sm90.StagedTile(
                (self.own_keys, columns), epi_stages * self.tile_k // self.own_keys * self.parts, bits=16
            ),
            "sStats": sm90.SmemArray(2 * self.tile_q * self.stages, bits=32, alignment_bytes=128),
            "k_barriers": sm90.SmemArray(2, bits=64),
            "v_barriers": sm90.SmemArray(2, bits=64),
            "q_barriers": sm90.SmemArray(2 * self.stages, bits=64),
            "do_barriers": sm90.SmemArray(2 * self.stages, bits=64),
            **_tickets(self),
        }
        if not self.begins_with_k:
            del regions["v_barriers"]
        if self.shares_keys:
            del regions["sdQ"]
        holder = "sdQ" if self.overlays_dq else "sdS"
        return sm90.SmemPlan.of(regions, overlays={"sOut": holder} if self.overlays_out else None)

    def _staged(self, rows: int, width: int, stages: int, parts: int | None = None) -> sm90.StagedTile:
        """Stage tiles so that each part of the columns, by default a warpgroup's of the sums, is whole swizzles."""
        swizzle: sm90.SwizzleMode | None = "SW64" if width // (parts or self.parts) % 64 else None
        return sm90.StagedTile((rows, width), stages, bits=16, swizzle=swizzle)

    @property
    def ds_stages(self) -> int:
        """Stages of dS, and of P where it passes through memory."""
        return 3 if self.shares_keys else 2  # each one of dS and P where sums are transposed

    @property
    def out_stages(self) -> tuple[int, int]:
        """Columns of a stage that dK and dV leave through, and the number of stages of a store."""
        if self.transposes_sums:
            return 64, 2  # rows of an MMA
        return epilogue_stages(math.gcd(self.width, self.width_v) // self.parts)

    @property
    def ds_mode(self) -> int:
        """Contiguous mode of the stages of dS: 1 for queries, which takes fewer registers, or 0 for keys.

        80 queries have no whole span of 64.
        """
        return 1 if self.keeps_p and not self.dq_is_transposed else 0

    @property
    def overlays_out(self) -> bool:
        """True where dK and dV are staged in memory of dS, or of the first warpgroup's dQ, whose sends it waits for."""
        return self.passes_p or self.overlays_dq

    @property
    def overlays_dq(self) -> bool:
        """True where dK and dV are staged in memory of dQ."""
        columns, epi_stages = self.out_stages
        fits_dq = self.tile_k * columns * epi_stages * 2 <= self.dq_registers * 128 * 4
        return not self.keeps_p and fits_dq

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        mask = ("_left" if self.left else "") + ("_right" if self.right else "")
        kind = mask + ("_ordered" if self.ordered else "") + self.scoring.suffix + ("_dynamic" if self.dynamic else "")
        head = f"{self.head}" if self.head == self.head_v else f"{self.head}_{self.head_v}"
        return f"cutepy_attention_backward_{self.dtype}_{head}_{self.tile_k}x{self.tile_q}{kind}"


def _tickets(config: ForwardConfig | BackwardConfig) -> dict[str, Any]:
    """Return the memory of the ring of tiles that a CTA has taken, if it takes them by a counter."""
    if not config.dynamic:
        return {}
    slots = rules.ticket_slots(1)
    return {"tickets": sm90.SmemArray(slots, bits=32), "ticket_barriers": sm90.SmemArray(2 * slots, bits=64)}
