"""Epilogue of an accumulator subtile by a graph: operands in, results out (traced).

All consumer threads call, for each subtile `load` well before `compute`, since rows and columns come from global
memory. Tile operands are passed as registers, in the distribution of the accumulators. Results are registers for a
`TileStore`, or partial reductions, which `store_partials` writes: for each row one value of each subtile, for each
column one of each 16 rows. No atomics are used, so that the sums of these are the same from run to run.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from cutepy.device import evaluation, primitives, reduce, rules
from cutepy.device.fragment import Registers
from cutepy.epilogues.graph import Graph


@dataclass(frozen=True)
class SubtileEpilogue:
    """Epilogue of accumulator subtiles: a graph with its operands.

    Attributes
    ----------
    graph : Graph
    tile : AccumulatorTile or ThreadColumns
        Coordinates of the accumulator subtiles; reductions need an AccumulatorTile.
    operands : tuple
        For each of the graph's: a number, or a tensor of one element, of a scalar; a tensor (N,) of a row, (M,) of a
        column; None of a tile.
    m, n : Int32
        Extents of the product.
    steps : tuple of Int32
        Step of each mode of the batch in the index of a product; none where there is one product, and of groups
        whose rows or columns are those of one matrix.
    """

    graph: Graph
    tile: Registers
    operands: tuple
    m: cutlass.Int32
    n: cutlass.Int32
    steps: tuple = ()

    def __post_init__(self):
        self.tile.check_widths(self.graph.widest)

    def make_fragments(self):
        """Make the registers for this thread's values of rows and columns, and read the scalars."""
        fragments = []
        for operand, given in zip(self.graph.operands, self.operands, strict=True):
            if operand.shape == "scalar":
                kind = Int32 if operand.type == "i32" else Float32
                fragments.append(given[0].to(kind) if isinstance(given, cute.Tensor) else kind(given))
            elif operand.shape == "tile":
                fragments.append(None)
            else:
                count = self.tile.narrowed(operand.width).count(operand.shape)
                fragments.append(cute.make_rmem_tensor(count, given.element_type))
        return tuple(fragments)

    def origin(self, row, column, width=1):
        """Return the coordinate of this thread's first register in a subtile with fewer columns by `width`."""
        column = column if width == 1 else column // width
        return row + self.tile.of_thread(0), column + self.tile.of_thread(1)

    def load(self, fragments, row, column, batch=()):
        """Load this thread's values of rows and columns for the subtile at (row, column) of the accumulators.

        Where these are one of a batch, `batch` says which: of tensors (N, batch...), while those (N,) are of all.
        """
        for operand, given, fragment in zip(self.graph.operands, self.operands, fragments, strict=True):
            if operand.shape in ("row", "column"):
                tile = self.tile.narrowed(operand.width)
                down, along = self.origin(row, column, operand.width)
                along_row = operand.shape == "row"
                first, offsets = (along, tile.distinct(1)) if along_row else (down, tile.distinct(0))
                # Results beyond the last one are never stored, so its value will do there.
                given = given if cute.rank(given) == 1 else given[(None, *batch)]
                last = cute.size(given) - 1
                for slot, offset in enumerate(offsets):
                    fragment[slot] = given[cutlass.min(first + offset, last)]

    def product(self, batch):
        """Return the index of the product at a place in the batch; 0 without a batch, or where no node needs it."""
        if not self.graph.uses("product_index"):
            return 0
        return sum(at * step for at, step in zip(batch, self.steps, strict=False))

    def compute(self, accumulators, fragments, tiles, row, column, consumed=lambda: None, batch=()):
        """Compute a subtile at (row, column) from its registers; `batch` is the product's coordinate.

        `tiles` gives, for each tile operand by its name, the registers of its subtile; `consumed` is called once
        fragments and tiles have been read.

        Raises
        ------
        ValueError
            If the accumulators are those of another subtile.
        """
        rules.check_registers(cute.size(accumulators), len(self.tile.registers))
        read = {}
        for operand, fragment in zip(self.graph.operands, fragments, strict=True):
            read[operand.name] = tiles[operand.name] if operand.shape == "tile" else fragment

        def value(name, slot):
            source = read[name]
            return source[slot].to(Float32) if isinstance(source, cute.Tensor) else source

        # Integer accumulators without an epilogue are stored unchanged.
        kind = accumulators.element_type if len(self.graph.nodes) == 1 else Float32
        registers = [accumulators[v].to(kind) for v in range(cute.size(accumulators))]
        down, along = self.origin(row, column)
        evaluated = evaluation.Evaluation(self.graph, self.tile, registers, value, down, along, self.product(batch))
        evaluated.run([self.root(index) for index in range(len(self.graph.results))], consumed)
        return evaluated

    def root(self, index):
        """Return the node of a result's tile, before its rounding (the store's task) or reduction (the partials')."""
        n = self.graph.results[index].node
        node = self.graph.nodes[n]
        return node.inputs[0] if node.op in ("to", "reduce") else n

    def result(self, evaluated, index):
        """Return the registers of a tile result."""
        return evaluated.tile(self.root(index))

    def store_partials(self, evaluated, index, partials, row, column):
        """Reduce a subtile at (row, column) within each warp, and write the partial results to global memory.

        `partials` is (ceil(N / columns), M) for values of rows, (ceil(M / 16), N) for those of columns, and
        (ceil(M / 16), ceil(N / columns)) for one of all.
        """
        kind, dim = self.graph.reduction(self.graph.results[index])
        width = self.graph.nodes[self.root(index)].width
        tile = self.tile.narrowed(width)
        neutral, join = primitives.REDUCTIONS[kind]
        down, along = self.origin(row, column, width)
        values = evaluated.tile(self.root(index))
        inside = cute.make_rmem_tensor(len(values), Float32)
        for v, (below, beside) in enumerate(tile.registers):
            within = (down + below < self.m) & (along + beside < self.n // width)
            inside[v] = primitives.select(within, values[v], Float32(neutral))
        lane = cute.arch.lane_idx()
        rows = down // rules.PARTIAL_ROWS
        strip = column // self.tile.epi_tile[1]
        if dim == 1:
            totals = reduce.reduce_rows(inside, tile, join)
            self._write(
                partials, [(strip, down + offset) for offset in tile.distinct(0)], totals, tile.is_first(0, lane)
            )
        elif dim == 0:
            totals = reduce.reduce_warp_columns(inside, tile, join)
            self._write(
                partials, [(rows, along + offset) for offset in tile.distinct(1)], totals, tile.is_first(1, lane)
            )
        else:
            first = tile.is_first(1, lane) & tile.is_first(0, lane)
            self._write(partials, [(rows, strip)], [reduce.reduce_block(inside, tile, join)], first)

    @cute.jit
    def _write(self, partials, cells, totals, first):
        for slot in cutlass.range_constexpr(len(cells)):
            i, j = cells[slot]
            if first and i < cute.size(partials, mode=[0]) and j < cute.size(partials, mode=[1]):
                partials[i, j] = totals[slot]
