"""Transposes of 8-bit tiles in shared memory, from MN-major as they are loaded to K-major as wgmma reads them (traced).

The transpose bits of wgmma's descriptors exist for 16-bit types only. So warps of a role of their own transpose a
tile: ldmatrix.trans gives a thread two neighbours of a row at two places along K, prmt puts the bytes of one row
together, and stmatrix writes 16 of a row at a time. A thread's four bytes are those at the places along K that it has
accumulators of, so that K comes in the order `sm90.operand_order`, in which accumulators are the next A.

The eight rows of a matrix that is written are even ones below the eighth and odd ones above it, or the reverse: each
has another address modulo 128 bytes under each swizzle, and no two meet in a bank.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warp

from cutepy.device import rules
from cutepy.device.primitives import select
from cutepy.dsl import to_cute
from cutepy.layouts import sm90

_EVEN, _ODD = 0x6420, 0x7531
"""Selectors of prmt: the bytes of two registers that have the even, or odd, row of each pair."""


@dataclass(frozen=True)
class Transposer:
    """Transposes of stages (rows, K) by some warps, each of which has some of the rows.

    Attributes
    ----------
    loaded, staged : StagedTile
        Tiles of 8-bit elements as they are loaded, contiguous along rows, and as they are multiplied, along K.
    source, target : Pointer
        Their stages.
    warp, warps : Int32, int
        This warp's index among those that transpose, and their number.
    at_once : int
        Blocks that a warp has in registers, four for each, so that their latencies overlap.
    """

    loaded: sm90.StagedTile
    staged: sm90.StagedTile
    source: cute.Pointer
    target: cute.Pointer
    warp: cutlass.Int32
    warps: int
    at_once: int = 4

    @cute.jit
    def run(self, source, target):
        """Transpose this warp's rows of stage `source` of the loaded ring to stage `target`.

        Both have been waited for; all warps run it. `StoredRing.commit` must follow before MMAs read the stage.
        """
        loaded, staged = (tile.layout.position_independent() for tile in (self.loaded, self.staged))
        (rows, extent), (block_rows, block) = self.loaded.tile, rules.TRANSPOSED
        # What a shuffle gives is no invariant of the tiles' loop: a lane's addresses are not kept over it, and spilled.
        lane = cute.arch.shuffle_sync(cute.arch.lane_idx(), cute.arch.lane_idx())
        # Lanes address rows of 16 bytes: 8 of each matrix. ldmatrix reads 32 places along K, stmatrix writes 16 rows.
        matrix, row = lane // 8, lane % 8
        parity, half = matrix % 2, matrix // 2
        first = self.source.toint() + source * self.loaded.stage_bytes
        down = 2 * row + (parity ^ select(row < 4, cutlass.Int32(0), 1))
        # Blocks of one span of the swizzle differ by other bits than those that follow it.
        patterns = max(self.staged.line_bytes // block, 1)
        begins = [
            self.target.toint()
            + target * self.staged.stage_bytes
            + cute.crd2idx((down, n * block + half * 16, 0), to_cute(staged))
            for n in range(patterns)
        ]
        even = select(lane < 16, cutlass.Int32(_EVEN), _ODD)
        odd = even ^ (_EVEN ^ _ODD)
        for across in cutlass.range(self.warp, rows // block_rows, self.warps, unroll=1):
            read = first + cute.crd2idx((across * block_rows, lane, 0), to_cute(loaded))
            written = [begin + across * staged((block_rows, 0, 0)) for begin in begins]
            for group in cutlass.range_constexpr(0, extent, self.at_once * block):
                starts = range(group, min(group + self.at_once * block, extent), block)
                held = [_load(read + loaded((0, k, 0))) for k in starts]
                for k, pairs in zip(starts, held, strict=True):
                    beyond, pattern = divmod(k // block, patterns)
                    words = cute.make_rmem_tensor(4, cutlass.Int32)
                    for n in range(4):
                        selector = even if n % 2 == 0 else odd
                        words[n] = cute.arch.prmt(pairs[n // 2 * 2], pairs[n // 2 * 2 + 1], selector)
                    _store(words, written[pattern] + staged((0, beyond * patterns * block, 0)))


def _row(address):
    """View 16 bytes of shared memory as the row of a matrix that a lane addresses."""
    pointer = cute.make_ptr(cutlass.Float16, address, cute.AddressSpace.smem, assumed_align=16)
    return cute.make_tensor(pointer, cute.make_layout((8, 1)))


def _load(address):
    """Read four matrices of pairs of bytes, transposed."""
    pairs = cute.make_rmem_tensor((8, 1), cutlass.Float16)
    cute.copy(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), cutlass.Float16), _row(address), pairs)
    return cute.recast_tensor(pairs, cutlass.Int32)


def _store(words, address):
    """Write four matrices."""
    pairs = cute.make_tensor(cute.recast_ptr(words.iterator, dtype=cutlass.Float16), cute.make_layout((8, 1)))
    cute.copy(cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), cutlass.Float16), pairs, _row(address))


def make_transposes(
    source: cute.Tensor,
    loaded: sm90.StagedTile,
    target: cute.Tensor,
    staged: sm90.StagedTile,
    warp_index: cutlass.Int32,
    warps: int,
    at_once: int = 4,
) -> Transposer:
    """Make the transposes of the stages `source`, planned as `loaded`, to the stages `target`, planned as `staged`.

    Parameters
    ----------
    source, target : Tensor (rows, K, stages)
        Of 8-bit elements.
    loaded, staged : StagedTile
        Contiguous along rows, and along K.
    warp_index : Int32
        Index among the `warps` that transpose.
    at_once : int
        Blocks that a warp has in registers.

    Raises
    ------
    ValueError
        If elements are not of 8 bits, the tiles differ, are contiguous otherwise or no whole blocks.
    """
    rules.check_transposes(loaded, staged, warps)
    return Transposer(loaded, staged, source.iterator, target.iterator, warp_index, warps, at_once)
