"""Loads of tiles by threads: cp.async from global into shared memory, where TMA does not reach (traced).

TMA needs addresses and strides that are multiples of 16 bytes. cp.async copies a piece of 4, 8 or 16 bytes by one
thread, from an address that is a multiple of the piece, into the same swizzled stages. Consumers differ only in their
ring (`cutepy.device.pipeline.MixedRing`).
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from cutepy.device import rules

UNROLLED = 8
"""Copies without a branch between them."""


@dataclass(frozen=True)
class ThreadLoads:
    """Loads of a matrix by the threads of one CTA: tiles in pieces, neighbouring ones by neighbouring threads.

    Attributes
    ----------
    tensor : Tensor, (contiguous, other, batch...)
        In global memory.
    staged : Tensor, (contiguous, other, stages)
        Shared memory.
    mode : 0 or 1
        Contiguous mode of a tile.
    piece_bytes : 4, 8 or 16
        Bytes of one cp.async: the address, strides and contiguous extent are multiples of it.
    threads : int
        Number of threads that share a tile.
    tidx : Int32
        Index of this one.
    """

    tensor: cute.Tensor
    staged: cute.Tensor
    mode: int
    piece_bytes: int
    threads: int
    tidx: cutlass.Int32

    def __post_init__(self) -> None:
        tile = (cute.size(self.staged, mode=[0]), cute.size(self.staged, mode=[1]))
        bits = self.staged.element_type.width
        rules.check_pieces(tile, 0, bits, self.piece_bytes, self.threads)

    @cute.jit
    def load(self, coordinate, stage):
        """Issue cp.async of this thread's pieces of the tile at (row, column, batch...) into a stage; all threads call.

        Elements beyond the matrix become zero, and are not read. The stage must have been acquired; `MixedRing.commit`
        signals the end of the copies.
        """
        staged, bits = self.staged, 8 * self.piece_bytes
        elements = bits // staged.element_type.width
        across, lines = cute.size(staged, mode=[0]) // elements, cute.size(staged, mode=[1])
        cache = cpasync.LoadCacheMode.GLOBAL if self.piece_bytes == 16 else cpasync.LoadCacheMode.ALWAYS
        copy = cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=cache), staged.element_type, num_bits_per_copy=bits)
        one = cute.make_layout(((elements, 1), 1))
        source, into = self.tensor[(None, None, *coordinate[2:])], staged[None, None, stage]
        along, beside = rules.piece_threads(across, self.threads)
        first, line = coordinate[self.mode] * across + self.tidx % along, self.tidx // along
        left = source.shape[1] - coordinate[1 - self.mode] * lines  # lines of the matrix from this tile on
        step = cutlass.Int64(source.stride[1]) * beside
        for group in cutlass.range_constexpr(across // along):
            piece = first + group * along
            exists = piece * elements < source.shape[0]
            place = cute.local_tile(source, (elements, 1), (piece, coordinate[1 - self.mode] * lines + line)).iterator
            # Incremented by an addition; a multiplication of lines by a stride of 64 bits costs five instructions.
            offset = cutlass.Int64(0)
            for index in cutlass.range(lines // beside, unroll=UNROLLED):
                here = line + index * beside
                within = cute.make_rmem_tensor((1, 1), cutlass.Boolean)
                within[0] = exists & (here < left)
                to = cute.local_tile(into, (elements, 1), (self.tidx % along + group * along, here)).iterator
                taken = cute.make_tensor(place + cute.assume(offset, divby=elements), one)
                cute.copy(copy, taken, cute.make_tensor(to, one), pred=within)
                offset += step


@dataclass(frozen=True)
class ThreadTiles:
    """Matrix, or batch of them, in tiles that threads load; interchangeable with `tma.TmaTiles` for loads.

    Attributes
    ----------
    tensor : Tensor, (rows, columns, batch...)
        In global memory.
    staged : Tensor, (rows, columns, stages)
        Shared memory.
    mode : 0 or 1
        Contiguous one of rows and columns, in global and shared memory.
    piece_bytes : 4, 8 or 16
        As of `ThreadLoads`.
    """

    tensor: cute.Tensor
    staged: cute.Tensor
    mode: int
    piece_bytes: int

    @property
    def columns(self):
        """Tiles in a row."""
        return cute.ceil_div(cute.size(self.tensor, mode=[1]), cute.size(self.staged, mode=[1]))

    def loads(self, threads, tidx):
        """Make the loads of a given number of threads of this CTA, for the thread with index `tidx`."""
        return ThreadLoads(
            _contiguous_first(self.tensor, self.mode),
            _contiguous_first(self.staged, self.mode),
            self.mode,
            self.piece_bytes,
            threads,
            tidx,
        )


def _contiguous_first(tensor: cute.Tensor, mode: int) -> cute.Tensor:
    """View a tensor (rows, columns, more...) with its contiguous mode before the other."""
    order = [mode, 1 - mode, *range(2, cute.rank(tensor))]
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=order))
