"""Operand A in registers: coordinates of its elements, and its load from shared memory or from accumulators (traced).

Rows and columns follow from the layout of the MMA's A (`sm90.OperandCoordinates`), as those of accumulators do.
"""

from dataclasses import dataclass
from functools import cache

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import CopyUniversalOp, warp

from cutepy.device import rules
from cutepy.device.fragment import PlacedRegisters
from cutepy.dsl import from_cute, to_cute
from cutepy.dsl.atoms import a_source, operand_types
from cutepy.layouts import sm90

_MATRICES = 4
"""Matrices of one ldmatrix: 16 rows and 32 bytes of K, a warp's part of an MMA's A."""


@dataclass(frozen=True)
class OperandTile(PlacedRegisters):
    """Coordinates of a thread's elements of A in the rows of a tile and the K of one MMA, the same for each MMA.

    Attributes
    ----------
    coordinates : OperandCoordinates
    tidx : Int32
        Index among the threads of the MMA.
    """

    coordinates: sm90.OperandCoordinates
    tidx: cutlass.Int32

    @property
    def registers(self) -> tuple[tuple[int, int], ...]:
        """(row, column along K) of each register, to be added to the thread's own."""
        return self.coordinates.registers


@dataclass(frozen=True)
class Step:
    """One MMA along K, whose part of A passes through registers.

    Attributes
    ----------
    tile : Int32
        Index of the tile along K, relative to the first that is multiplied.
    stage : Int32
        Stage of the tile.
    k : int
        First column in the tile.
    """

    tile: cutlass.Int32
    stage: cutlass.Int32
    k: int


@dataclass(frozen=True)
class OperandLoad:
    """Load of a thread's elements of a staged A into registers.

    Elements as wide as those that the MMA multiplies come by ldmatrix; others, to be converted, by plain loads of what
    is next to one another along K.

    Attributes
    ----------
    copy : TiledCopy
        From shared memory to the distribution of A.
    tXsA : Tensor
        This thread's part of the stages, (copy, copies along M, MMAs along K, stages).
    tile : OperandTile
    shape : shape
        This thread's registers for one MMA along K, (MMA, MMA_M, 1).
    """

    copy: cute.TiledCopy
    tXsA: cute.Tensor
    tile: OperandTile
    shape: cute.Shape

    @property
    def steps(self) -> int:
        """Number of MMAs along K in a stage."""
        return cute.size(self.tXsA, mode=[2])

    def read(self, step: Step):
        """Read the A of one MMA along K, as staged, in the order of `tile.registers`; all threads call."""
        values = cute.make_rmem_tensor(self.shape, self.tXsA.element_type)
        source = self.tXsA[(None, None, step.k // self.tile.coordinates.tile_mk[1], step.stage)]
        cute.copy(self.copy, source, self.copy.get_slice(self.tile.tidx).retile(values)[(None, None, 0)])
        return values


def make_operand_load(tiled_mma: cute.TiledMma, sA: cute.Tensor, tidx: cutlass.Int32) -> OperandLoad:
    """Partition the stages `sA` (M, K, stages) for MMAs that take A from registers.

    Raises
    ------
    ValueError
        If they take it from shared memory, or A is not staged K-major, in elements that a thread can load.
    """
    rules.check_operand_source(a_source(tiled_mma), "rmem")
    tiling, dtype = from_cute(tiled_mma), sA.element_type
    mma_k = tiled_mma.get_tile_size(2)
    coordinates = sm90.OperandCoordinates(tiling, (cute.size(sA, mode=[0]), mma_k))
    rules.check_staged_operand(_innermost(sA.stride[1]) == 1, dtype.width, coordinates.run)
    if dtype.width * mma_k == 256:  # element type as wide as the MMA's
        instruction, known = warp.LdMatrix8x8x16bOp(False, _MATRICES), sm90.ldmatrix_traits(_MATRICES)
        atom = cute.make_copy_atom(instruction, dtype)
    else:
        bits = dtype.width * coordinates.run
        atom, known = cute.make_copy_atom(CopyUniversalOp(), dtype, num_bits_per_copy=bits), sm90.universal_copy(bits)
    copy = sm90.make_tiled_copy_A(sm90.make_copy_atom(known, dtype.width), tiling)
    tiled_copy = cute.make_tiled_copy(atom, to_cute(copy.layout_tv), to_cute(copy.tiler_mn))
    shape = tiled_mma.partition_shape_A(coordinates.tile_mk)
    part = tiled_copy.get_slice(tidx).partition_S(sA)
    return OperandLoad(tiled_copy, part, OperandTile(coordinates, tidx), shape)


def _innermost(stride):
    return _innermost(stride[0]) if isinstance(stride, tuple) else stride


def make_fragments(tiled_mma: cute.TiledMma, tile: tuple[int, int]) -> tuple[cute.Tensor, ...]:
    """Make the registers of an A (M, K): a fragment (MMA, MMA_M, 1) for each MMA along K.

    One fragment of all of K would be one value in a loop that carries it, taken apart and packed again in each round.

    Raises
    ------
    ValueError
        If the MMAs take A from shared memory.
    """
    rules.check_operand_source(a_source(tiled_mma), "rmem")
    (rows, columns), step = tile, tiled_mma.get_tile_size(2)
    shape = tiled_mma.partition_shape_A((rows, step))
    return tuple(tiled_mma.make_fragment_A(shape) for _ in range(columns // step))


def from_accumulators(
    tCrC: cute.Tensor,
    of: cute.TiledMma,
    tile: tuple[int, int],
    tiled_mma: cute.TiledMma,
    into: tuple[cute.Tensor, ...] | None = None,
    *,
    reorders: bool = False,
) -> tuple[cute.Tensor, ...]:
    """Convert accumulators to the A of the next product: of S = Q K^T, the P of P V.

    Parameters
    ----------
    tCrC : Tensor, (MMA, MMA_M, MMA_N)
        This thread's sums, complete.
    of : TiledMma
        The MMAs that summed them.
    tile : (int, int)
        Extents of the sums: M, and the K of the next product.
    tiled_mma : TiledMma
        The MMAs to come, which take A from registers: of types of 8 or 16 bits.
    into : tuple of Tensor, optional
        Fragments of `make_fragments` to write to, such as those that a loop carries; new ones if not given.
    reorders : bool
        True if B has K in the order `sm90.operand_order`, as `cutepy.device.transposing` gives it: an 8-bit A has it in
        this order, so that no thread needs what another holds. Of 16-bit types it is the plain order.

    Returns
    -------
    tuple of Tensor, (MMA, MMA_M, 1)
        A fragment for each MMA along K, as `Product` takes them.

    Raises
    ------
    ValueError
        If the tile is not that of the sums, or not whole MMAs along K, with a fragment for each; if threads would need
        elements that others hold, the MMAs multiply 32-bit types, or 8-bit ones whose B is not said to be in order.
    """
    if operand_types(tiled_mma)[0].width == 8 and not reorders:
        raise ValueError(
            "an 8-bit A of accumulators has K in another order, sm90.operand_order: bring B into it, as "
            "cutepy.device.transposing does, and pass reorders=True"
        )
    rules.check_accumulated(tile, tuple(cute.size(tCrC, mode=[1 + n]) * of.get_tile_size(n) for n in range(2)))
    fragments = make_fragments(tiled_mma, tile) if into is None else into
    rules.check_fragments(tile[1], tiled_mma.get_tile_size(2), len(fragments))
    order = _register_order(from_cute(of), from_cute(tiled_mma), tile)
    each, dtype = cute.size(fragments[0]), operand_types(tiled_mma)[0]
    for step, fragment in enumerate(fragments):
        sums = cute.make_rmem_tensor(fragment.shape, tCrC.element_type)
        for register in range(each):
            sums[register] = tCrC[order[step * each + register]]
        put(sums, fragment, dtype)
    return fragments


@cache
def _register_order(of: sm90.TiledMMA, to: sm90.TiledMMA, tile: tuple[int, int]) -> tuple[int, ...]:
    """Return the accumulator for each register of A."""
    return sm90.OperandCoordinates(to, tile).from_accumulators(sm90.AccumulatorCoordinates(of, tile))


def put(values, fragment: cute.Tensor, dtype: type[cutlass.Numeric]) -> None:
    """Convert values, a tensor or a vector, to the MMA's type, and write them to the registers of its A."""
    values = values.load() if isinstance(values, cute.Tensor) else values
    if not isinstance(values, cute.TensorSSA):
        raise TypeError(
            f"A's registers need a tensor or a vector, got {type(values).__name__}; return one from `change`"
        )
    converted = cute.make_rmem_tensor(fragment.shape, dtype)
    converted.store(values.to(dtype))
    # as words, since the DSL's integer fragments have signed elements, and its vectors have unsigned ones
    cute.recast_tensor(fragment, cutlass.Int32).store(cute.recast_tensor(converted, cutlass.Int32).load())
