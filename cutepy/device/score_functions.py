"""Score and mask functions of attention on a thread's accumulators of scores (traced).

The functions are a graph (`cutepy.epilogues.scores.trace_scores`). A value that varies with the query or the key only
is computed once for each of the thread's rows or columns; tables are read at clamped places, so that rows and columns
beyond the last query and key read nothing beyond a table.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from cutepy.device.evaluation import Evaluation
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.primitives import constant, logistic, select, wrapping
from cutepy.epilogues.derivatives import DERIVATIVE, GRADIENT
from cutepy.epilogues.graph import Graph, Node
from cutepy.epilogues.operations import joined_shape

_NEVER_NEGATIVE = ("row_index", "column_index", "batch_index", "head_index")


class ScoresPlace(NamedTuple):
    """Matrix of scores that a tile is of.

    Attributes
    ----------
    batch, head : Int32
        Its index in the batch, or among the sequences, and its head.
    rows, columns : Int32
        Its extents.
    """

    batch: Any
    head: Any
    rows: Any
    columns: Any


class ScoreEvaluation(Evaluation):
    """Values of a score function's graph on a thread's scores: also places in the batch, counts, and tables.

    `functions` are the `ScoreFunctions`, and `place` is a `ScoresPlace`; the others are as of `Evaluation`.
    """

    def __init__(self, functions, accumulators, row, column, place):
        super().__init__(functions.graph, functions.tile, accumulators, None, row, column, 0)
        self.functions, self.place = functions, place

    def of_register(self, n: int, register: int):
        """Return a value for one of the thread's registers, of a tile, a row or a column alike."""
        return self.value(n, self.registers_of(self.graph.nodes[n]).slots(self.graph.nodes[n].shape)[register])

    def _compute(self, n, slot, sources):
        node = self.graph.nodes[n]
        single = {
            "batch_index": self.place.batch,
            "head_index": self.place.head,
            "row_count": self.place.rows,
            "column_count": self.place.columns,
        }
        if node.op in single:
            return wrapping(single[node.op])
        given = [self._values[source] for source in sources]
        if node.op == "gather":
            return self._gathered(node, given)
        if node.op == "tanh":
            # Its error is 1e-7 of 1, with two instructions of the special function unit: scores are as exact.
            return 2.0 * logistic(2.0 * given[0]) - 1.0
        if node.op == "div" and self.graph.nodes[node.inputs[1]].op == "const":
            divisor = self.graph.nodes[node.inputs[1]].value
            if divisor != 0:
                return given[0] * Float32(1.0 / divisor)
        return super()._compute(n, slot, sources)

    def _gathered(self, node: Node, indices):
        """Read a table."""
        found = cute.make_tensor(self._element(self.functions.tables, node, indices), cute.make_layout(1))[0]
        if node.type == "bool":
            return found != 0
        return wrapping(found.to(Int32)) if node.type == "i32" else found.to(Float32)

    def scattered(self, n: int, register: int):
        """Return a pointer to the element of a gradient that a scatter adds to for one of the thread's registers."""
        node = self.graph.nodes[n]
        indices = [self.of_register(source, register) for source in node.inputs[1:]]
        return self._element(self.functions.dtables, node, indices)

    def _element(self, tensors, node: Node, indices):
        """Return a pointer to the element of a node's table; indices below 0 count from its end, as torch's do.

        `tensors` are one for each of the graph's tables.
        """
        table = next(i for i, each in enumerate(self.graph.tables) if each.name == node.value)
        tensor, sources = tensors[table], node.inputs[len(node.inputs) - len(indices) :]
        base, offset = tensor.iterator, Int32(0)
        for mode, (index, source) in enumerate(zip(indices, sources, strict=True)):
            extent, stride = Int32(cute.size(tensor, mode=[mode])), tensor.stride[mode]
            if self.graph.nodes[source].op not in _NEVER_NEGATIVE:
                index = cutlass.max(select(index < 0, index + extent, index), 0)
            index = cutlass.min(index, extent - 1)
            # Within a head 32 bits are enough, as the host checks, and cost half of the instructions.
            if self.graph.nodes[source].shape == "scalar":
                base = base + cutlass.Int64(index) * stride
            else:
                offset = offset + index * Int32(stride)
        return base + offset


@dataclass(frozen=True)
class ScoreFunctions:
    """Score and mask functions of tiles of scores.

    Attributes
    ----------
    graph : Graph
        With results named "score", "mask", "weight", "derivative" and "gradient0" and so on, each of which may be
        missing. Rows are the accumulators': keys, of a transposed graph.
    tables : tuple of Tensor
        Of the graph's tables; truth values as uint8; of one element, (1,).
    dtables : tuple of Tensor or None
        Gradients of those tables that the graph scatters to, fp32; None for others.
    tile : AccumulatorTile
        Coordinates of the scores, one subtile of all columns.
    scale : Float32
        Factor of the products before the score function.
    """

    graph: Graph
    tables: tuple
    dtables: tuple
    tile: AccumulatorTile
    scale: Float32

    @cached_property
    def results(self) -> dict[str, int]:
        """Nodes of the results, by their names."""
        return {result.name: result.node for result in self.graph.results}

    @property
    def changes_scores(self) -> bool:
        """True if scores are other than the products: then `apply` multiplies these by the scale."""
        return "score" in self.results

    @property
    def scatters(self) -> list[int]:
        """Nodes that scatter to gradients of tables."""
        return [node for name, node in self.results.items() if name.startswith(GRADIENT)]

    def given(self, products) -> list:
        """List the arguments of the functions for a tile of products, which is scaled for the score function."""
        return [products[v] * self.scale if self.changes_scores else products[v] for v in range(cute.size(products))]

    def apply(self, scores, row, column, place, hides=True, shown=None):
        """Replace a tile of products by its scores: minus infinity where the mask function says no.

        Parameters
        ----------
        scores : Tensor, (MMA, MMA_M, MMA_N), fp32
            Complete.
        row, column : Int32
            Of the tile's first score.
        place : ScoresPlace
        hides : bool
            False to leave out the mask function.
        shown : Boolean, optional
            True to leave it out, known in the kernel only.

        Returns
        -------
        list
            Derivative of each score by its scaled product; empty where that is 1, and where `derive` computes it.
        """
        results, derivatives = self.results, []
        registers = range(cute.size(scores))
        given = self.given(scores)
        origin = row + self.tile.of_thread(0), column + self.tile.of_thread(1)
        values = ScoreEvaluation(self, given, *origin, place)
        for register in registers:
            found = given[register]
            if "score" in results:
                found = values.of_register(results["score"], register)
            if DERIVATIVE in results and not self.scatters:
                derivatives.append(values.of_register(results[DERIVATIVE], register))
            if "mask" in results and hides:
                seen = values.of_register(results["mask"], register)
                found = select(seen if shown is None else seen | shown, found, -Float32.inf)
            scores[register] = found
        return derivatives

    def derive(self, differences, given, row, column, place):
        """Add a tile to the gradients of tables, and turn derivatives by scores into derivatives by scaled products.

        All lanes of a warp call. What is for one element is summed in the warp, as far as it is known to be: an index
        that varies with neither rows nor columns takes one addition, one that varies with both an addition a score.

        Parameters
        ----------
        differences : Tensor, fp32
            Derivatives by the scores: 0 where nothing is seen.
        given : list
            Of `given`, before `apply`.
        row, column, place
            As of `apply`.
        """
        origin = row + self.tile.of_thread(0), column + self.tile.of_thread(1)
        values, nodes = ScoreEvaluation(self, given, *origin, place), self.graph.nodes
        shapes = {n: joined_shape(*(nodes[i].shape for i in nodes[n].inputs[1:])) for n in self.scatters}
        registers: dict[tuple[int, int], int] = {}
        sums: dict[tuple[int, int], Any] = {}
        # One score after another, so that few values are live.
        for register in range(cute.size(differences)):
            difference = differences[register]
            for n, shape in shapes.items():
                part = weighted(difference, values.of_register(nodes[n].inputs[0], register))
                if shape == "tile":
                    _add(values.scattered(n, register), part, True)
                    continue
                slot = n, self.tile.slots(shape)[register]
                sums[slot] = sums[slot] + part if slot in sums else part
                registers.setdefault(slot, register)
            if DERIVATIVE in self.results:
                found = values.of_register(self.results[DERIVATIVE], register)
                differences[register] = weighted(difference, found)
        for (n, slot), total in sums.items():
            lanes = self._sharing(shapes[n])
            for bit in lanes:
                total = total + cute.arch.shuffle_sync_bfly(total, offset=bit)
            element = values.scattered(n, registers[n, slot])
            _add(element, total, (cute.arch.lane_idx() & sum(lanes)) == 0)

    def _sharing(self, shape: str) -> tuple[int, ...]:
        """Return the distances between lanes that share values which vary with rows, columns, or neither."""
        if shape == "scalar":
            return tuple(1 << bit for bit in range(5))
        return self.tile.coordinates.lanes_across(1 if shape == "column" else 0)

    def weights(self, scores, row, column, place) -> "Weights | None":
        """Return the factors of a tile's probabilities; None if the functions have no weight.

        Parameters are those of `apply`; of the scores nothing but their number counts.
        """
        if "weight" not in self.results:
            return None
        origin = row + self.tile.of_thread(0), column + self.tile.of_thread(1)
        values = ScoreEvaluation(self, [Float32(0.0)] * cute.size(scores), *origin, place)
        registers, node = range(cute.size(scores)), self.graph.nodes[self.results["weight"]]
        chosen = [self.graph.nodes[n].value for n in node.inputs[1:] if self.graph.nodes[n].op == "const"]
        if node.op != "where" or chosen[1:] != [0.0]:
            return Weights([values.of_register(self.results["weight"], register) for register in registers])
        bits = [Int32(0) for _ in range(0, len(registers), 32)]
        for register in registers:
            holds = values.of_register(node.inputs[0], register)
            bits[register // 32] = bits[register // 32] | select(holds, constant("i32", _BITS[register % 32]), 0)
        return Weights(bits, Float32(chosen[0]))


_BITS = [1 << n if n < 31 else -(1 << 31) for n in range(32)]


@dataclass(frozen=True)
class Weights:
    """Factors of a thread's probabilities.

    Attributes
    ----------
    values : list
        A Float32 for each; or Int32, with a bit for each, where factors are one number or 0.
    factor : Float32, optional
        That number, of bits that are set.
    """

    values: list
    factor: Float32 | None = None

    def times(self, numbers, result):
        """Multiply each register of a tensor by its factor, into another, which is returned."""
        for register in range(cute.size(numbers)):
            if self.factor is None:
                result[register] = numbers[register] * self.values[register]
            else:
                # What is chosen waits for the number: ptxas would choose all factors before, and have no registers.
                is_set = (self.values[register // 32] & _BITS[register % 32]) != 0
                result[register] = select(is_set, numbers[register], Float32(0.0)) * self.factor
        return result


def weighted(probability, derivative):
    """Multiply a probability by a derivative, which may be infinite or NaN where nothing is seen."""
    return select(probability == 0.0, Float32(0.0), probability * derivative)


@cute.jit
def _add(pointer, value, is_own):
    """Add a value to an element in global memory, where this thread is the one to do so, and it is not 0."""
    if is_own & ~(value == 0.0):
        cute.arch.red(pointer, value, op="add", dtype="f32", sem="relaxed", scope="gpu")


def make_score_functions(
    graph: Graph | None, tables: tuple, tile: AccumulatorTile, scale: Float32, dtables: tuple | None = None
) -> ScoreFunctions | None:
    """Make the functions of a graph; None if there is none."""
    return None if graph is None else ScoreFunctions(graph, tables, dtables or (), tile, scale)
