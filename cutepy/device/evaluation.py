"""Evaluation of an epilogue's graph on a thread's registers of one accumulator subtile (traced).

A value that varies with rows or columns only is computed once for each of the thread's rows or columns. A node that
reads an operand is computed for all registers before the next step, so that the operand's registers, or its stage in
shared memory, are free early. Values that follow from these are computed register by register, so that few of them are
live.
"""

from collections.abc import Callable, Sequence
from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32

from cutepy.device import primitives
from cutepy.device.fragment import Registers
from cutepy.device.primitives import select, wrapping
from cutepy.dsl.element_types import element_type
from cutepy.epilogues.graph import Graph, Node


class Evaluation:
    """Values of a graph on the registers of one subtile, each computed on first use.

    Parameters
    ----------
    graph : Graph
    tile : Registers
        Coordinates of this thread's registers.
    accumulators : sequence of Float32
        This thread's registers.
    read : callable
        (operand's name, slot) -> its value, for each of the thread's rows, columns or registers
        (`Registers.slots`).
    row, column : Int32
        Coordinate of this thread's first register.
    product : Int32
        The index of the product within the batch.
    """

    def __init__(
        self,
        graph: Graph,
        tile: Registers,
        accumulators: Sequence[Any],
        read: Callable[[str, int], Any],
        row: Any,
        column: Any,
        product: Any,
    ):
        self.graph, self.accumulators, self.read = graph, accumulators, read
        self.row, self.column, self.product, self.lane = row, column, product, cute.arch.lane_idx()
        self._tiles = {node.width: tile.narrowed(node.width) for node in graph.nodes}
        self._values: dict[tuple[int, int], Any] = {}
        self._pairs: dict[tuple[int, int], Sequence[Any]] = {}

    def registers_of(self, node: Node) -> Registers:
        """Return the registers of a value: parted columns fill a narrower subtile in the same order."""
        return self._tiles[node.width]

    def run(self, roots: Sequence[int], consumed: Callable[[], None] = lambda: None) -> None:
        """Compute tiles, in the order of the module's docstring; call `consumed` once no operand is read any more."""
        runs = segments(self.graph, roots)
        last = max((k for k, run in enumerate(runs) if any(reads(self.graph, n) for n in run)), default=-1)
        if last < 0:
            consumed()
        for k, run in enumerate(runs):
            for register in range(self.registers_of(self.graph.nodes[run[0]]).count("tile")):
                for n in run:
                    self.value(n, register)
            if k == last:
                consumed()

    def tile(self, n: int) -> list[Any]:
        """Return a tile's value for all registers."""
        return [self.value(n, register) for register in range(self.registers_of(self.graph.nodes[n]).count("tile"))]

    def value(self, n: int, slot: int) -> Any:
        """Return a value for one of the thread's rows, columns or registers, after the values that it depends on."""
        asked = (n, slot)
        pending = [] if asked in self._values else [(asked, self._sources(*asked))]
        while pending:  # without recursion: graphs are deeper than Python's stack
            place, sources = pending[-1]
            missing = [each for each in sources if each not in self._values]
            pending += [(each, self._sources(*each)) for each in reversed(missing)]
            if not missing:
                pending.pop()
                if place not in self._values:
                    self._values[place] = self._compute(*place, sources)
        return self._values[asked]

    def _sources(self, n: int, slot: int) -> list[tuple[int, int]]:
        """List the values, each with its slot, that a slot of a node is computed from."""
        node = self.graph.nodes[n]
        if node.op == "part":
            return self._parted(node, slot)
        if node.op == "to" and element_type(str(node.value)).width <= 8:
            return [(node.inputs[0], each) for each in self._four(node, slot)]
        return [(i, self._slot(node, self.graph.nodes[i], slot)) for i in node.inputs]

    def _slot(self, node: Node, given: Node, slot: int) -> int:
        """Return which slot of an input a slot of a node depends on."""
        if node.shape == given.shape:
            return slot
        # The input of a node that is no tile is a scalar, since rows and columns make tiles.
        return self.registers_of(node).slots(given.shape)[slot] if node.shape == "tile" else 0

    def _compute(self, n: int, slot: int, sources: Sequence[tuple[int, int]]) -> Any:
        """Compute a slot of a node whose sources are computed."""
        node = self.graph.nodes[n]
        op = node.op
        if op == "acc":
            return self.accumulators[slot]
        if op == "operand":
            value = self.read(str(node.value), slot)
            return wrapping(value) if node.type == "i32" else value
        if op == "const":
            return primitives.constant(node.type, node.value)
        if op == "row_index":
            return wrapping(self.row + self.registers_of(node).distinct(0)[slot])
        if op == "column_index":
            # The place of a subtile's columns scales with their width, but the place within eight columns does not.
            return wrapping(self.column_of(node.width) + self.registers_of(node).distinct(1)[slot])
        if op == "product_index":
            # A single product's index is a Python integer, which does not wrap as the program's integers do.
            return wrapping(Int32(self.product).ir_value())
        if op == "part":
            return self._part(node, slot, sources)
        if op == "to":
            return self._rounded(n, slot)
        given = [self._values[source] for source in sources]
        if op in primitives.BY_CONSTANT:
            return primitives.BY_CONSTANT[op](given[0], node.value)
        return primitives.FUNCTIONS[op](*given)

    def column_of(self, width: int) -> Any:
        """Return the column of this thread's first register in a subtile with 1/`width` of the columns."""
        if width == 1:
            return self.column
        first = self._tiles[1].of_thread(1)
        return (self.column - first) // width + first

    def _four(self, node: Node, slot: int) -> list[int]:
        """Return the four slots that are converted to 8 bits together; at the end the last one repeats."""
        first, last = slot // 4 * 4, self.registers_of(node).count(node.shape) - 1
        return [min(first + i, last) for i in range(4)]

    def _rounded(self, n: int, slot: int) -> Any:
        node = self.graph.nodes[n]
        (source,) = node.inputs
        dtype = element_type(str(node.value))
        if dtype.width > 8:
            return self._values[source, slot].to(dtype).to(Float32)
        # 8-bit floats are converted in fours.
        four = self._four(node, slot)
        fragment = cute.make_rmem_tensor(4, Float32)
        for i in range(4):
            fragment[i] = self._values[source, four[i]]
        narrow = cute.make_rmem_tensor(4, dtype)
        narrow.store(fragment.load().to(dtype))
        fragment.store(narrow.load().to(Float32))
        for i in range(four[3] - four[0] + 1):
            self._values[n, four[i]] = fragment[i]
        return self._values[n, slot]

    def _place(self, node: Node, slot: int) -> tuple[int, int]:
        """Return the position of a part's slot, relative to this thread's first."""
        tile, given = self.registers_of(node), self.graph.nodes[node.inputs[0]]
        row, column = tile.registers[tile.slots(given.shape).index(slot)]
        return row, column

    def _parted(self, node: Node, slot: int) -> list[tuple[int, int]]:
        """List the sources of a part's slot: where several threads share a row, the pairs of two spans."""
        (source,) = node.inputs
        given = self.graph.nodes[source]
        tile = self.registers_of(given)
        if tile.has_whole_rows:
            return [(source, 2 * slot + int(node.value))]
        (row, column), (lanes, run) = self._place(node, slot), tile.sharing
        span, slots = lanes * run, tile.slots(given.shape)
        first = 2 * (column // span) * span
        found = [tile.registers.index((row, first + upper * span + c)) for upper in (0, 1) for c in range(run)]
        return [(source, slots[register]) for register in found]

    def _part(self, node: Node, slot: int, sources: Sequence[tuple[int, int]]) -> Any:
        if len(sources) == 1:
            return self._values[sources[0]]
        lanes, run = self.registers_of(node).sharing
        if sources[0] not in self._pairs:
            self._pairs[sources[0]] = self._exchange([self._values[source] for source in sources], lanes)
        _, column = self._place(node, slot)
        return self._pairs[sources[0]][int(node.value)][column % run]

    def _exchange(self, given: Sequence[Any], n: int) -> Sequence[Sequence[Any]]:
        """Redistribute the columns of two spans to those of two parts, among the threads that share a row.

        Of n threads, 4 of an MMA, thread q holds a pair of columns of each span, 2q and 2q + 1 of its 2n, and is to
        hold columns 4q to 4q + 3 of both spans: the pairs that threads 2q and 2q + 1 (modulo n) hold of the lower one
        if q < n / 2, else of the upper. In each of two rounds a thread sends one pair and takes one.
        """
        run = len(given) // 2
        pair = [given[:run], given[run:]]
        q = self.lane % n
        odd, high = q % 2 == 1, q >= n // 2
        base = self.lane - q + 2 * (q % (n // 2))
        taken = []
        for turn in (0, 1):
            sent = [select(odd, pair[1 - turn][c], pair[turn][c]) for c in range(run)]
            sender = base + (q // (n // 2) if turn == 0 else 1 - q // (n // 2))
            taken.append([_shuffled(value, sender) for value in sent])
        # The pair from thread 2q is first; in the upper half of the four it came in the second round.
        return [
            [select(high, taken[1][part], taken[0][part]), select(high, taken[0][part], taken[1][part])]
            for part in (0, 1)
        ]


def _shuffled(value: Any, sender: Any) -> Any:
    if isinstance(value, Boolean):
        return cute.arch.shuffle_sync(value.to(Int32), sender) != 0
    return cute.arch.shuffle_sync(value, sender)


def segments(graph: Graph, roots: Sequence[int]) -> list[list[int]]:
    """Split the tiles that values depend on into runs; each is computed register by register, one run after another.

    A run ends with what reads a row, column or tile operand, and before the columns are parted.
    """
    runs: list[list[int]] = [[]]
    for n in needed(graph, roots):
        node = graph.nodes[n]
        if node.shape != "tile" or node.op in ("acc", "operand"):
            continue
        if runs[-1] and (node.op == "part" or graph.nodes[runs[-1][-1]].width != node.width):
            runs.append([])
        runs[-1].append(n)
        if reads(graph, n):
            runs.append([])
    return [run for run in runs if run]


def needed(graph: Graph, roots: Sequence[int]) -> list[int]:
    """Return the transitive inputs of some values, and the values, in order."""
    found = set(roots)
    for n in range(max(found, default=-1), -1, -1):
        if n in found:
            found.update(graph.nodes[n].inputs)
    return sorted(found)


def reads(graph: Graph, n: int) -> bool:
    """Return whether a tile depends on a row, column or tile operand with no other tile between."""
    inputs = [i for i in graph.nodes[n].inputs if graph.nodes[i].shape != "tile" or graph.nodes[i].op == "operand"]
    return any(graph.nodes[i].op == "operand" and graph.nodes[i].shape != "scalar" for i in needed(graph, inputs))
