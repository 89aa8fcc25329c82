"""Rows of 8-bit floats and their scales, dequantised in shared memory in place of themselves (traced).

TMA loads a stage's rows as they lie in global memory into the second half of the stage, where 8-bit elements take half
of the room, and a line of each row that begins with its scales, of 128 bytes, before that. Warps then write the stage's
16-bit elements, as wgmma reads them. Lines of all of these are at multiples of 128 bytes, so that a row's bytes are
overwritten by the same row's elements only: a warp that has rows to itself needs no other one.

Four lanes have adjoining 16 bytes of a row, and the next four those of the row whose number differs by bits 0 and 2.
By the swizzle of 128 bytes the eight lanes then read from all banks, and write to all banks, at one time.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import rules
from cutepy.dsl import to_cute
from cutepy.layouts import sm90

_ACROSS = 4
"""Lanes side by side in a row."""
_OTHER_ROW = 0b101
"""Bits by which the two rows of eight lanes differ: bit 2 tells the banks of what is read, bit 0 of what is written."""


@dataclass(frozen=True)
class Dequantisation:
    """Dequantisation of stages (rows, columns) by some warps, each of which has some of the rows.

    Attributes
    ----------
    staged : StagedTile
        Tiles of 16-bit elements, as they are multiplied.
    target : Tensor (rows, columns, stages)
        Their stages.
    quantised : StagedTile
        Tiles of 8-bit floats, of which a stage's second half has one.
    warp, warps : Int32, int
        This warp's index among those that dequantise, and their number.
    """

    staged: sm90.StagedTile
    target: cute.Tensor
    quantised: sm90.StagedTile
    warp: cutlass.Int32
    warps: int

    @cute.jit
    def run(self, stage, first_scale):
        """Dequantise a stage: this warp's rows of it, of scales from `first_scale` on, one for each block of columns.

        These are whole in 16 bytes: 1, 2 or 4, from a multiple of their number on.
        TMA's bytes have arrived; all warps run it. A commit of the stage's ring must follow before MMAs read it.
        """
        quantised, staged = (tile.layout.position_independent() for tile in (self.quantised, self.staged))
        rows, blocks = self.staged.tile[0], self.staged.tile[1] // rules.SCALED_COLUMNS
        lane, line_bytes = cute.arch.lane_idx(), rows * self.staged.line_bytes
        across, other, pair = lane % _ACROSS, lane // _ACROSS % 2, lane // (2 * _ACROSS)
        row = pair ^ (other * _OTHER_ROW)
        begin = self.target.iterator.toint() + stage * self.staged.stage_bytes
        values = begin + self.staged.stage_bytes // 2
        scales = values - line_bytes + cute.crd2idx((row, 4 * first_scale, 0), to_cute(quantised))
        halves = range(rules.SCALED_COLUMNS // (16 * _ACROSS))
        read = [values + cute.crd2idx((row, 16 * (_ACROSS * half + across), 0), to_cute(quantised)) for half in halves]
        written = [begin + 2 * cute.crd2idx((row, 16 * across + 8 * n, 0), to_cute(staged)) for n in range(2)]
        for group in cutlass.range(self.warp, rows // 8, self.warps, unroll=1):
            down = group * (8 * self.staged.line_bytes)
            factors = _vector(scales + down, Float32, blocks).load()
            # A block's elements take the place of bytes of this block and those before it, and of the scales.
            for block in cutlass.range_constexpr(blocks):
                held = [_held(read[half] + down + block * line_bytes) for half in halves]
                cute.arch.sync_warp()  # all lanes have read the rows
                for half in cutlass.range_constexpr(len(halves)):
                    place = down + (block * len(halves) + half) * line_bytes
                    _write(held[half], factors[block], [each + place for each in written], self.target.element_type)


def _vector(address, element_type, count: int):
    """View adjoining elements of shared memory."""
    alignment = count * element_type.width // 8
    pointer = cute.make_ptr(element_type, address, cute.AddressSpace.smem, assumed_align=alignment)
    return cute.make_tensor(pointer, cute.make_layout(count))


def _held(address):
    """Read 16 bytes of 8-bit floats."""
    held = cute.make_rmem_tensor(16, cutlass.Float8E4M3FN)
    cute.autovec_copy(_vector(address, cutlass.Float8E4M3FN, 16), held)
    return held


def _write(held, factor, addresses, element_type):
    """Write 16 products of 8-bit floats and their scale, 8 at each address."""
    products = held.load().to(Float32) * factor
    rounded = cute.make_rmem_tensor((8, len(addresses)), element_type)
    rounded.store(products.to(element_type).reshape((8, len(addresses))))
    for n, address in enumerate(addresses):
        cute.autovec_copy(rounded[None, n], _vector(address, element_type, 8))


def stages_to_load(target: cute.Tensor, staged: sm90.StagedTile) -> tuple[cute.Tensor, cute.Tensor]:
    """View where TMA loads to: rows of bytes (rows, columns, stages), and lines with scales (rows, 128, stages).

    Parameters
    ----------
    target : Tensor (rows, columns, stages)
        Stages of 16-bit elements, planned as `staged`.
    """
    rows, columns = staged.tile
    line = sm90.StagedTile((rows, staged.line_bytes), 1, bits=8)
    half, views = staged.stage_bytes // 2, []
    for tile, begin in ((sm90.StagedTile((rows, columns), 1, bits=8), half), (line, half - line.stage_bytes)):
        layout = to_cute(tile.layout)
        address = target.iterator.toint() + begin
        start = cute.make_ptr(cutlass.Uint8, address, cute.AddressSpace.smem, assumed_align=tile.alignment_bytes)
        (*shape, _), (*stride, _) = layout.outer.shape, layout.outer.stride
        stages = cute.make_layout((*shape, staged.stages), stride=(*stride, staged.stage_bytes))
        views.append(cute.make_tensor(cute.recast_ptr(start, layout.inner), stages))
    return tuple(views)


def make_dequantisation(
    target: cute.Tensor, staged: sm90.StagedTile, warp_index: cutlass.Int32, warps: int
) -> Dequantisation:
    """Make the dequantisation of the stages `target` (rows, columns, stages), planned as `staged`, by so many warps.

    Raises
    ------
    ValueError
        If the stages are not of 16 bits, contiguous along columns in lines of 128 bytes, of whole blocks of 128 columns
        that share a scale, and whole groups of 8 rows.
    """
    return Dequantisation(staged, target, rules.quantised_tile(staged, warps), warp_index, warps)
