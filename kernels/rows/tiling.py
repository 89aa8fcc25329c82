"""Tilings of rows: how many threads, CTAs and registers hold one row.

A row is read once and stays in registers, so that what follows a reduction over it needs no second read. Rows that are
too wide for the registers of a CTA are parted over a cluster, whose CTAs reduce together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from cutepy.device import rules
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch

MOST_COLUMNS = 262144
"""Columns of the widest row that a cluster of `MOST_CTAS` holds."""
MOST_CTAS = 8
"""CTAs of the largest cluster that every Hopper GPU launches."""
MOST_THREADS = 1024
"""Threads of a row in a CTA."""
LEAST_CTA = 128
"""Threads of a CTA, at least: narrow rows share one."""
IN_REGISTERS = 32
"""Elements that each of 1,024 threads holds in registers, at most."""
STAGED_BYTES = 128 << 10
"""Bytes of staged rows of a CTA, at most."""
LEAST_STAGED = 2048
"""Bytes of a row that is staged, at least."""
COPIED_BYTES = 4
"""Bytes that cp.async copies, at least."""
MOST_VECTORS = 16
"""Vectors of a thread that are loaded at once, before a cluster parts the row."""
SUM_WARPS = 16
"""Warps of a CTA that sums rows."""


@dataclass(frozen=True)
class RowTiling:
    """Distribution of rows over threads: each holds `vectors` vectors of `elems` neighbouring elements.

    Attributes
    ----------
    elems : int
        Elements of a vector, which a thread loads at once.
    threads : int
        Threads of a CTA that hold a row.
    vectors : int
        Vectors of a thread.
    ctas : int
        CTAs of a cluster that hold a row.

    Raises
    ------
    ValueError
        If numbers that must be powers of two are none, or a cluster's CTAs have several rows at a time.
    """

    elems: int
    threads: int
    vectors: int
    ctas: int = 1

    def __post_init__(self) -> None:
        for name, number in (("elems", self.elems), ("threads", self.threads), ("ctas", self.ctas)):
            if number < 1 or number & (number - 1):
                raise ValueError(f"{name} must be a power of 2, got {number}")
        if self.ctas > 1 and self.rows > 1:
            least = 2 * arch.WARP_THREADS
            raise ValueError(f"CTAs of a cluster must have at least {least} threads, got {self.threads}: one row each")

    @property
    def columns(self) -> int:
        """Columns of the widest row that fits."""
        return self.elems * self.threads * self.vectors * self.ctas

    @property
    def rows(self) -> int:
        """Rows of a CTA at a time."""
        return max(1, LEAST_CTA // self.threads) if self.threads <= arch.WARP_THREADS else 1

    @property
    def cta(self) -> int:
        """Threads of a CTA."""
        return self.rows * self.threads

    @property
    def warps(self) -> int:
        """Warps of a row in a CTA."""
        return -(-self.threads // arch.WARP_THREADS)

    @property
    def block_lanes(self) -> int:
        """Neighbouring threads that hold a block of 128 elements, if `holds_blocks`."""
        return rules.K_BLOCK // self.elems

    @property
    def holds_blocks(self) -> bool:
        """Tell whether neighbouring threads of a warp hold each block of 128 elements, a vector each."""
        return self.block_lanes <= min(self.threads, arch.WARP_THREADS)

    @property
    def summed(self) -> int:
        """Values of shared memory in which the rows of a CTA are summed, column by column; 0 if it has one."""
        return self.elems * self.vectors * self.threads * (self.cta // arch.WARP_THREADS) if self.rows > 1 else 0

    def plan(self, kept: Mapping[str, int] = MappingProxyType({}), **staged: tuple[int, int]) -> sm90.SmemPlan:
        """Plan a CTA's shared memory: a value of each warp of the cluster, twice, the sums of its rows, staged rows.

        `staged` names matrices, with the bits of their elements, and the rows that each thread has parts of; `kept`
        arrays of so many numbers of 32 bits.
        """
        reductions = {"of_warps": 2 * rules.reduction_slots(self.warps * self.ctas)}
        reductions |= {"of_rows": self.summed} if self.rows > 1 else {}
        arrays = {
            name: sm90.SmemArray(rules.reduction_slots(count), bits=32, alignment_bytes=16)
            for name, count in reductions.items()
        }
        elems = self.cta * self.vectors * self.elems
        arrays |= {
            name: sm90.SmemArray(stages * elems, bits=bits, alignment_bytes=16)
            for name, (bits, stages) in staged.items()
        }
        arrays |= {name: sm90.SmemArray(count, bits=32, alignment_bytes=16) for name, count in kept.items()}
        return sm90.SmemPlan.of(arrays)

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        return self.part_name + (f"_cluster{self.ctas}" if self.ctas > 1 else "")

    @property
    def part_name(self) -> str:
        """Part of the name of a kernel whose CTAs need no cluster."""
        return f"{self.elems}x{self.threads}x{self.vectors}"


@dataclass(frozen=True)
class NormConfig:
    """Configuration of a normalisation.

    Attributes
    ----------
    tiling : RowTiling
    centres : bool
        True if the mean is subtracted: LayerNorm.
    scaled : str
        What shares a scale where the result has 8 bits: the "tensor", whose scale is given, or each "row", or each
        "block" of 128 of a row, whose scales are results too. Empty if nothing is scaled.
    staged : bool
        True if rows wait in shared memory, in which they take no registers.
    has_amax : bool
        True if the largest magnitude of the undivided tensor is a result too, where its scale is given.
    """

    tiling: RowTiling
    centres: bool = False
    scaled: str = ""
    staged: bool = False
    has_amax: bool = False

    def __post_init__(self) -> None:
        if self.scaled not in ("", "tensor", "row", "block"):
            raise ValueError(f'scaled must be "", "tensor", "row" or "block", got {self.scaled!r}')
        if self.has_amax and self.scaled != "tensor":
            raise ValueError(f'an amax goes with a scale of the "tensor", got scaled={self.scaled!r}')
        if self.scaled == "block" and not self.tiling.holds_blocks:
            raise ValueError(f"threads of a warp must hold blocks of {rules.K_BLOCK} elements, got {self.tiling}")

    @property
    def kind(self) -> str:
        """Name of what it computes."""
        of_result = (f"_by_{self.scaled}" if self.scaled else "") + ("_with_amax" if self.has_amax else "")
        return ("layer_norm" if self.centres else "rms_norm") + of_result


@dataclass(frozen=True)
class RowFit:
    """Measured choice of threads of rows, by their columns (H200, 2026-11-30).

    Attributes
    ----------
    in_warp : int
        Elements that each lane holds of a row that one warp can hold so.
    held : int
        Elements that each thread holds of a wider row, as long as there are more threads.
    threads : int
        Threads of a CTA, at most. Beyond, each holds more.
    most_held : int
        Elements that each thread holds, at most. Beyond, a cluster parts the row.
    cluster_held, cluster_threads : int
        Elements of each thread of a cluster, and threads of its CTAs, as long as there are more CTAs.
    few_ctas : int
        CTAs that few wide rows are parted over, at most.
    """

    in_warp: int = 32
    held: int = 16
    threads: int = 512
    most_held: int = 64
    cluster_held: int = 64
    cluster_threads: int = 1024
    few_ctas: int = 64


NORM = RowFit()
NORM_GRADIENT = RowFit(held=8, threads=1024, most_held=16, cluster_held=32, cluster_threads=512)
"""Sums of weights take registers."""
SOFTMAX = RowFit(held=32, cluster_threads=512, few_ctas=128)
SOFTMAX_GRADIENT = RowFit(in_warp=8, held=8, cluster_threads=512)

SELECTION = RowFit(threads=512, held=64, most_held=64)
"""Of at most `MOST_SELECTED` columns, which no cluster parts."""
SAMPLE = RowFit(threads=512, held=16, most_held=32, cluster_held=32, cluster_threads=512)
"""Elements are held in registers."""
MOST_K = 1024
"""Elements of a row that are selected, at most."""
MOST_SELECTED = 16384
"""Columns of a CTA that selects the largest."""
LEAST_SELECTED, FILLING_CTAS = 2048, 128
"""Columns of a CTA at least where a row is parted to fill the SMs; and the CTAs that fill them."""


def tile_rows(columns: int, elems: int, fit: RowFit = NORM, staged: int = 0, least_threads: int = 1) -> RowTiling:
    """Choose the tiling of rows by their number of columns; threads read vectors of `elems` elements.

    The tiling does not depend on the number of rows, so that a row has the same bits in any batch. `part_few_rows` may
    change the tiling of few rows, and keeps these bits.

    Parameters
    ----------
    columns, elems : int
    fit : RowFit
    staged : int
        Bytes of shared memory that each element takes; 0 if rows are held in registers.
    least_threads : int
        Minimum number of threads that hold a row.

    Raises
    ------
    ValueError
        If the row is wider than `MOST_COLUMNS`.

    Examples
    --------
    >>> tile_rows(4096, 8), tile_rows(32768, 8).name, tile_rows(131072, 8, staged=2).name
    (RowTiling(elems=8, threads=256, vectors=2, ctas=1), '8x512x8', '8x1024x8_cluster2')
    >>> tile_rows(128, 8).rows, tile_rows(100, 1)
    (32, RowTiling(elems=1, threads=8, vectors=13, ctas=1))
    """
    if not 1 <= columns <= MOST_COLUMNS:
        raise ValueError(f"rows must have 1 to {MOST_COLUMNS} columns, got {columns}; part wider ones")
    pieces = -(-columns // elems)
    in_warp, held, most_held, cluster_held = (
        max(1, min(each // elems, MOST_VECTORS)) for each in (fit.in_warp, fit.held, fit.most_held, fit.cluster_held)
    )
    of_cta = STAGED_BYTES // (staged * elems) if staged else MOST_COLUMNS
    threads, ctas = power_of_two(-(-pieces // in_warp)), 1
    if threads > arch.WARP_THREADS:
        threads = _threads_of_cta(pieces, held, most_held, fit.threads)
        if pieces > min(threads * most_held, of_cta):
            if not staged:
                cluster_held = min(cluster_held, max(1, IN_REGISTERS // elems))
            threads, ctas = _cluster(pieces, cluster_held, fit.cluster_threads, 1 << of_cta.bit_length() - 1)
    threads = max(threads, least_threads)
    return RowTiling(elems, threads, -(-pieces // (threads * ctas)), ctas)


def _threads_of_cta(pieces: int, held: int, most_held: int, most: int) -> int:
    """Choose the threads of a CTA, of several warps, that hold so many vectors of a row each, or a vector more."""
    threads = power_of_two(-(-pieces // held))
    if held < most_held and pieces <= threads // 2 * (held + 1) < threads * -(-pieces // threads):
        threads //= 2  # a vector more is better than idle threads
    return max(2 * arch.WARP_THREADS, min(most, threads))


def _cluster(pieces: int, held: int, threads: int, of_cta: int) -> tuple[int, int]:
    """Choose the threads and the CTAs of a cluster that hold so many vectors of a row each."""
    ctas = min(MOST_CTAS, power_of_two(-(-pieces // min(held * threads, of_cta))))
    while threads < MOST_THREADS and pieces > threads * ctas * held:
        threads *= 2
    return threads, ctas


LEAST_PARTED, PARTED_THREADS = 16384, 128
"""Columns of few rows that a cluster parts, and threads of its CTAs, at least; measured as `RowFit`."""
FEW_HELD, FEW_ROWS = 64, 64
"""Bytes of few rows that each thread holds in registers, at most, and how many rows are few."""


def part_few_rows(tiling: RowTiling, rows: int, fit: RowFit = NORM) -> RowTiling:
    """Part each of few wide rows over a larger cluster, so that more SMs load them at once.

    As many threads hold the row, each the same elements, and their warps are joined in the same order: the row has the
    same bits in any batch.

    Examples
    --------
    >>> [part_few_rows(RowTiling(8, 512, 4), rows).name for rows in (1, 16, 32, 64)]
    ['8x128x4_cluster4', '8x128x4_cluster4', '8x256x4_cluster2', '8x512x4']
    """
    threads, ctas = tiling.threads, tiling.ctas
    wide = tiling.columns >= LEAST_PARTED
    while wide and ctas < MOST_CTAS and threads > PARTED_THREADS and 2 * ctas * rows <= fit.few_ctas:
        threads, ctas = threads // 2, 2 * ctas
    return replace(tiling, threads=threads, ctas=ctas)


def stages_rows(tiling: RowTiling, rows: int, staged: int) -> bool:
    """Tell whether rows wait in shared memory, of `staged_bytes` for each element; registers have room for few rows.

    Examples
    --------
    >>> stages_rows(RowTiling(8, 512, 4), 1000, 2), stages_rows(RowTiling(8, 512, 4), 8, 2)
    (True, False)
    """
    held = tiling.elems * tiling.vectors * staged
    return staged > 0 and (rows > FEW_ROWS or held > FEW_HELD)


def staged_bytes(columns: int, elems: int, *sizes: int, stages: int = 1) -> int:
    """Return the bytes of shared memory that an element takes if rows are staged there; 0 if registers hold them.

    Narrow rows are faster in registers. cp.async copies 4 bytes at least, and a cluster has so much room.

    Parameters
    ----------
    columns, elems : int
        As of `tile_rows`.
    *sizes : int
        Bytes of the elements of each matrix.
    stages : int
        Rows of each at a time.

    Examples
    --------
    >>> staged_bytes(4096, 8, 2, 2), staged_bytes(256, 8, 2), staged_bytes(4096, 1, 2), staged_bytes(262144, 4, 4, 4)
    (4, 0, 0, 0)
    """
    taken = stages * sum(sizes)
    fits = columns * taken <= MOST_CTAS * STAGED_BYTES
    return taken if fits and elems * min(sizes) >= COPIED_BYTES and columns * min(sizes) >= LEAST_STAGED else 0


PIECE_HELD, PIECES, PIECE_THREADS = 16, 16, 256
"""Elements of a thread of a piece of a row, pieces of a row at least, threads at most; measured as `RowFit`."""
NARROW, NARROW_HELD, NARROW_THREADS = 1024, 32, 8
"""Columns of narrow rows at most, elements of a thread of a piece of them, and threads; measured as `RowFit`."""


def tile_pieces(columns: int, elems: int) -> RowTiling:
    """Choose the tiling of pieces of rows of a given number of columns, through which a CTA goes one by one.

    Examples
    --------
    >>> tile_pieces(128256, 8).name, tile_pieces(16384, 8).name, tile_pieces(200, 8).name
    ('8x256x2', '8x64x2', '8x8x4')
    """
    if columns <= NARROW:
        vectors = max(1, NARROW_HELD // elems)
        return RowTiling(elems, min(NARROW_THREADS, power_of_two(-(-columns // (elems * vectors)))), vectors)
    vectors = max(1, PIECE_HELD // elems)
    places = power_of_two(-(-columns // (elems * vectors)))
    threads = min(PIECE_THREADS, places, max(arch.WARP_THREADS, places // PIECES))
    return RowTiling(elems, threads, vectors)


def power_of_two(least: int) -> int:
    """Return the least power of two that is no less.

    Examples
    --------
    >>> power_of_two(1), power_of_two(5)
    (1, 8)
    """
    return 1 << (least - 1).bit_length()


def pieces_of_selection(rows: int, columns: int, k: int) -> int:
    """Choose in how many pieces of its row CTAs select the k largest, of which the k largest are selected then.

    Examples
    --------
    >>> pieces_of_selection(10000, 16384, 64), pieces_of_selection(8, 128256, 64), pieces_of_selection(1, 262144, 1024)
    (1, 16, 16)
    """
    piece = MOST_SELECTED
    while (
        columns > LEAST_SELECTED
        and piece > max(LEAST_SELECTED, 2 * k)
        and rows * -(-columns // piece) < FILLING_CTAS
        and -(-2 * columns // piece) * k <= MOST_SELECTED
    ):
        piece //= 2
    return -(-columns // piece)


LANES_HELD, LEAST_LANES, LANES_K, LANES_KEPT = 64, 4, 32, 512
"""Elements of 16 bits that a lane of a narrow row holds, and lanes, at least; elements selected, and kept, at most."""
ROOM = 1.25
"""Elements that are sorted, for each that is selected, at least: fewer take more steps to find."""
SORTED = 8
"""Elements that each thread sorts, at least where several warps do."""


def tile_lanes(columns: int, elems: int, k: int) -> RowTiling | None:
    """Choose the lanes of a warp that sort a narrow row of elements of 16 bits; None if a CTA selects faster.

    Examples
    --------
    >>> tile_lanes(64, 8, 8).name, tile_lanes(1024, 8, 32).name, tile_lanes(2048, 8, 32), tile_lanes(1024, 8, 64)
    ('8x4x2', '8x16x8', None, None)
    """
    lanes = max(power_of_two(-(-columns // LANES_HELD)), min(LEAST_LANES, power_of_two(-(-columns // elems))))
    if k > LANES_K or lanes > arch.WARP_THREADS or lanes * power_of_two(k) > LANES_KEPT:
        return None
    return RowTiling(elems, lanes, -(-columns // (elems * lanes)))


def room_of_selection(tiling: RowTiling, k: int) -> int:
    """Return how many elements of a row are sorted, of which the first k are selected: a power of 2.

    Examples
    --------
    >>> [room_of_selection(RowTiling(8, 512, 4), k) for k in (1, 50, 64, 1000, 1024)]
    [32, 64, 128, 2048, 2048]
    """
    least = max(int(k * ROOM), min(arch.WARP_THREADS, tiling.threads))
    return min(power_of_two(least), power_of_two(max(k, tiling.columns)))


def sorters_of(tiling: RowTiling, room: int) -> int:
    """Return how many threads of a row sort so many elements.

    Examples
    --------
    >>> [sorters_of(RowTiling(8, 512, 4), room) for room in (32, 256, 2048)]
    [32, 32, 256]
    """
    return min(tiling.threads, max(arch.WARP_THREADS, room // SORTED))
