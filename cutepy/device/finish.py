"""Finish accumulator subtiles by an epilogue's graph: its operands in, its results out (traced).

Who calls: all consumer threads, for each subtile `load` well before `compute`, since rows and columns come from global
memory; tiles are handed in as registers, in the distribution of the accumulators. Results are registers for a
`TileStore`, or partial reductions, which `store_partials` writes: for each row one of each subtile, for each column
one of each 16 rows. No atomics take part, so that the sums of these are the same from run to run.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from cutepy.device import evaluation, rules
from cutepy.device.places import accumulator_places
from cutepy.epilogues.graph import Graph


@dataclass(frozen=True)
class Finish:
    """An epilogue's graph, with its operands.

    Attributes
    ----------
    graph : Graph
    columns : int
        Of an accumulator subtile.
    operands : tuple
        For each of the graph's: a number, or a tensor of one element, of a scalar; a tensor (N,) of a row, (M,) of a
        column; None of a tile.
    m, n : Int32
        Extents of the product.
    tidx, lane : Int32
        Index among the consumer threads, and in the warp.
    """

    graph: Graph
    columns: int
    operands: tuple
    m: cutlass.Int32
    n: cutlass.Int32
    tidx: cutlass.Int32
    lane: cutlass.Int32

    def __post_init__(self):
        rules.check_widths(self.columns, self.graph.widest)

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
                count = accumulator_places(self.columns // operand.width).count(operand.shape)
                fragments.append(cute.make_rmem_tensor(count, given.element_type))
        return tuple(fragments)

    def origin(self, row, column, width=1):
        """Give the place of this thread's first register in a subtile, whose columns are fewer by `width`."""
        down, along = evaluation.thread_place(self.tidx, self.lane)
        return row + down, (column if width == 1 else column // width) + along

    def load(self, fragments, row, column):
        """Load this thread's values of rows and columns for the subtile at (row, column) of the accumulators."""
        for operand, given, fragment in zip(self.graph.operands, self.operands, fragments, strict=True):
            if operand.shape in ("row", "column"):
                places = accumulator_places(self.columns // operand.width)
                down, along = self.origin(row, column, operand.width)
                first, offsets = (along, places.columns) if operand.shape == "row" else (down, places.rows)
                # What lies beyond the last one is never stored, so that one's value will do there.
                last = cute.size(given) - 1
                for slot, offset in enumerate(offsets):
                    fragment[slot] = given[cutlass.min(first + offset, last)]

    def compute(self, accumulators, fragments, tiles, row, column, consumed=lambda: None):
        """Compute a subtile at (row, column) from its registers.

        `tiles` gives, for each tile operand by its name, the registers of its subtile; `consumed` is called once
        fragments and tiles have been read.
        """
        read = {}
        for operand, fragment in zip(self.graph.operands, fragments, strict=True):
            read[operand.name] = tiles[operand.name] if operand.shape == "tile" else fragment

        def value(name, slot):
            source = read[name]
            return source[slot].to(Float32) if isinstance(source, cute.Tensor) else source

        registers = [accumulators[v] for v in range(cute.size(accumulators))]
        down, along = self.origin(row, column)
        evaluated = evaluation.Evaluation(self.graph, self.columns, registers, value, down, along, self.lane)
        evaluated.run([self.root(index) for index in range(len(self.graph.results))], consumed)
        return evaluated

    def root(self, index):
        """Give the node of a result's tile; what rounds it is left to its store, what reduces it to its partials."""
        n = self.graph.results[index].node
        node = self.graph.nodes[n]
        return node.inputs[0] if node.op in ("to", "reduce") else n

    def result(self, evaluated, index):
        """Give the registers of a result that is a tile."""
        return evaluated.tile(self.root(index))

    def store_partials(self, evaluated, index, partials, row, column):
        """Reduce a subtile at (row, column) as far as a warp can, and write that to global memory.

        `partials` is (ceil(N / columns), M) for values of rows, (ceil(M / 16), N) for those of columns, and
        (ceil(M / 16), ceil(N / columns)) for one of all.
        """
        kind, dim = self.graph.reduction(self.graph.results[index])
        width = self.graph.nodes[self.root(index)].width
        places = accumulator_places(self.columns // width)
        neutral, _ = evaluation.REDUCTIONS[kind]
        down, along = self.origin(row, column, width)
        values = evaluated.tile(self.root(index))
        inside = {}
        for v, (below, beside) in enumerate(places.registers):
            within = (down + below < self.m) & (along + beside < self.n // width)
            inside[v] = evaluation.select(within, values[v], Float32(neutral))
        shape = {1: "column", 0: "row", None: "scalar"}[dim]
        totals = evaluation.reduce_registers(inside, kind, places, shape)
        totals = [evaluation.reduce_lanes(total, kind, shape) for total in totals]
        lane = self.lane
        rows = down // rules.PARTIAL_ROWS  # a warp's 16 rows: its threads' first registers are in the upper 8
        strip = column // self.columns
        if shape == "column":
            self._write(partials, [(strip, down + offset) for offset in places.rows], totals, lane % 4 == 0)
        elif shape == "row":
            self._write(partials, [(rows, along + offset) for offset in places.columns], totals, lane < 4)
        else:
            self._write(partials, [(rows, strip)], totals, lane == 0)

    @cute.jit
    def _write(self, partials, places, totals, first):
        for slot in cutlass.range_constexpr(len(totals)):
            i, j = places[slot]
            if first and i < cute.size(partials, mode=[0]) and j < cute.size(partials, mode=[1]):
                partials[i, j] = totals[slot]
