"""Compute an epilogue's graph on a thread's registers of one accumulator subtile (traced).

A value that varies with rows or columns only is computed once for each of the thread's rows or columns. Whatever reads
an operand is computed for all registers before the next step, so that the operand's registers, or its stage in shared
memory, are free early; what follows from values at hand is computed register by register, so that few of them live.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32

from cutepy.device.fragment import Registers
from cutepy.dsl.element_types import element_type
from cutepy.epilogues.graph import Graph, Node

_LOG2_E = 1.4426950408889634
_TYPES = {"f32": Float32, "i32": Int32, "bool": Boolean}


def logistic(x):
    """Compute 1 / (1 + exp(-x)) from the fast base-2 power and reciprocal."""
    return cute.arch.rcp_approx(1.0 + cute.math.exp2(x * -_LOG2_E, fastmath=True))


def select(condition, x, y):
    """Give x where the condition holds, else y, without a branch."""
    kind = type(x) if isinstance(x, cutlass.Numeric) else type(y)
    return kind(cutlass.select_(condition, kind(x), kind(y)))


def _floordiv(x, n):
    if n & (n - 1) == 0:
        return x >> (n.bit_length() - 1)
    # The quotient of what is not negative; that of -1 - x otherwise, of which it is the complement.
    negative = x < 0
    quotient = select(negative, ~x, x).to(cutlass.Uint32) // cutlass.Uint32(n)
    quotient = quotient.to(Int32)
    return select(negative, ~quotient, quotient)


def _mod(x, n):
    return x & (n - 1) if n & (n - 1) == 0 else x - _floordiv(x, n) * n


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "abs": lambda x: select(x < 0, -x, x) if isinstance(x, Int32) else cute.math.absf(x),
    "exp": cute.math.exp,
    "exp2": cute.math.exp2,
    "log": cute.math.log,
    "log2": cute.math.log2,
    "sqrt": cute.math.sqrt,
    "rsqrt": cute.math.rsqrt,
    "sin": cute.math.sin,
    "cos": cute.math.cos,
    "tanh": cute.math.tanh,
    "sigmoid": logistic,
    "erf": cute.math.erf,
    "floor": cute.math.floor,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": lambda x, y: _extreme(cute.arch.fmax, x, y),
    "minimum": lambda x, y: _extreme(cute.arch.fmin, x, y),
    "clamp_min": lambda x, y: _extreme(cute.arch.fmax, x, y),
    "clamp_max": lambda x, y: _extreme(cute.arch.fmin, x, y),
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x: x ^ True if isinstance(x, Boolean) else ~x,
    "float": lambda x: x.to(Float32),
    "int": lambda x: x.to(Int32),
    "where": select,
}
_BY_CONSTANT: dict[str, Callable[[Any, int], Any]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "shl": lambda x, n: x << n,
    "shr": lambda x, n: x >> n,
}
REDUCTIONS: dict[str, tuple[float, Callable[[Any, Any], Any]]] = {
    "sum": (0.0, lambda x, y: x + y),
    "max": (-float("inf"), lambda x, y: _extreme(cute.arch.fmax, x, y)),
    "min": (float("inf"), lambda x, y: _extreme(cute.arch.fmin, x, y)),
}
"""Of each kind, what changes nothing, and how two values are joined."""


def _extreme(function, x, y):
    """Give the larger or smaller; NaN, which the plain instruction drops, stays."""
    if isinstance(x, Int32) or isinstance(y, Int32):
        return select(x > y if function is cute.arch.fmax else x < y, x, y)
    return function(x, y, nan=True)


class Evaluation:
    """A graph's values on the registers of one subtile, each computed when it is first asked for.

    Parameters
    ----------
    graph : Graph
    tile : Registers
        Where this thread's registers are.
    accumulators : sequence of Float32
        This thread's registers.
    read : callable
        (operand's name, slot) -> its value, for each of the thread's rows, columns or registers
        (`Registers.slots`).
    row, column : Int32
        Of this thread's first register.
    """

    def __init__(
        self,
        graph: Graph,
        tile: Registers,
        accumulators: Sequence[Any],
        read: Callable[[str, int], Any],
        row: Any,
        column: Any,
    ):
        self.graph, self.accumulators, self.read = graph, accumulators, read
        self.row, self.column, self.lane = row, column, cute.arch.lane_idx()
        self._tiles = {node.width: tile.narrowed(node.width) for node in graph.nodes}
        self._values: dict[tuple[int, int], Any] = {}
        self._pairs: dict[tuple[int, int], Sequence[Any]] = {}

    def places(self, node: Node) -> Registers:
        """Tell where the registers of a value are: parted columns fill a narrower subtile in the same order."""
        return self._tiles[node.width]

    def run(self, roots: Sequence[int], consumed: Callable[[], None] = lambda: None) -> None:
        """Compute tiles, in the order told above; `consumed` is called once no operand is read any more."""
        runs = segments(self.graph, roots)
        last = max((k for k, run in enumerate(runs) if any(reads(self.graph, n) for n in run)), default=-1)
        if last < 0:
            consumed()
        for k, run in enumerate(runs):
            for register in range(self.places(self.graph.nodes[run[0]]).count("tile")):
                for n in run:
                    self.value(n, register)
            if k == last:
                consumed()

    def tile(self, n: int) -> list[Any]:
        """Give a tile's value for all registers."""
        return [self.value(n, register) for register in range(self.places(self.graph.nodes[n]).count("tile"))]

    def value(self, n: int, slot: int) -> Any:
        """Give a value for one of the thread's rows, columns or registers."""
        if (n, slot) not in self._values:
            self._values[n, slot] = self._compute(self.graph.nodes[n], n, slot)
        return self._values[n, slot]

    def _input(self, node: Node, n: int, slot: int) -> Any:
        """Give an input for a slot of a node that depends on it."""
        given = self.graph.nodes[n]
        if node.shape == given.shape:
            return self.value(n, slot)
        if node.shape == "tile":
            return self.value(n, self.places(node).slots(given.shape)[slot])
        return self.value(n, 0)  # a scalar, since rows and columns make tiles

    def _compute(self, node: Node, n: int, slot: int) -> Any:
        op = node.op
        if op == "acc":
            return self.accumulators[slot]
        if op == "operand":
            return self.read(str(node.value), slot)
        if op == "const":
            return _TYPES[node.type](node.value)
        if op == "row_index":
            return self.row + self.places(node).distinct(0)[slot]
        if op == "column_index":
            # Of the thread's columns only the place within the subtile scales, not that within eight columns.
            return self.column_of(node.width) + self.places(node).distinct(1)[slot]
        if op == "part":
            return self._part(node, node.inputs[0], slot)
        if op == "to":
            return self._rounded(node, slot)
        given = [self._input(node, i, slot) for i in node.inputs]
        if op in _BY_CONSTANT:
            return _BY_CONSTANT[op](given[0], node.value)
        return _FUNCTIONS[op](*given)

    def column_of(self, width: int) -> Any:
        """Give the column of this thread's first register in a subtile that is narrower by `width`."""
        if width == 1:
            return self.column
        first = self._tiles[1].of_thread(1)
        return (self.column - first) // width + first

    def _rounded(self, node: Node, slot: int) -> Any:
        (source,) = node.inputs
        dtype = element_type(str(node.value))
        if dtype.width > 8:
            return self.value(source, slot).to(dtype).to(Float32)
        # 8-bit floats are converted in fours.
        first = slot // 4 * 4
        count = self.places(node).count(node.shape)
        fragment = cute.make_rmem_tensor(4, Float32)
        for i in range(4):
            fragment[i] = self.value(source, min(first + i, count - 1))
        narrow = cute.make_rmem_tensor(4, dtype)
        narrow.store(fragment.load().to(dtype))
        fragment.store(narrow.load().to(Float32))
        for i in range(min(4, count - first)):
            self._values[self.graph.nodes.index(node), first + i] = fragment[i]
        return fragment[slot - first]

    def _part(self, node: Node, source: int, slot: int) -> Any:
        given, places = self.graph.nodes[source], self.places(node)
        if places.has_whole_rows:
            return self.value(source, 2 * slot + int(node.value))
        row, column = places.registers[places.slots(given.shape).index(slot)]
        key = (source, row, column // math.prod(places.sharing))
        if key not in self._pairs:
            self._pairs[key] = self._exchange(given, *key)
        return self._pairs[key][int(node.value)][column % places.sharing[1]]

    def _exchange(self, given: Node, source: int, row: int, block: int) -> Sequence[Sequence[Any]]:
        """Part the columns of two spans into those of two parts, between the threads that share a row.

        Of n threads, 4 of an MMA, thread q holds a pair of columns of each span, 2q and 2q + 1 of its 2n, and is to
        hold columns 4q to 4q + 3 of both spans: the pairs that threads 2q and 2q + 1 (modulo n) hold of the lower one
        if q < n / 2, else of the upper. In each of two rounds a thread sends one pair and takes one.
        """
        places = self.places(given)
        (n, run), slots = places.sharing, places.slots(given.shape)
        pair = [
            [
                self.value(source, slots[places.registers.index((row, (2 * block + upper) * n * run + c))])
                for c in range(run)
            ]
            for upper in (0, 1)
        ]
        q = self.lane % n
        odd, high = q % 2 == 1, q >= n // 2
        base = self.lane - q + 2 * (q % (n // 2))
        taken = []
        for turn in (0, 1):
            sent = [select(odd, pair[1 - turn][c], pair[turn][c]) for c in range(run)]
            sender = base + (q // (n // 2) if turn == 0 else 1 - q // (n // 2))
            taken.append([_shuffled(value, sender) for value in sent])
        # What came from thread 2q is first; in the upper half of the four it came in the second round.
        return [
            [select(high, taken[1][part], taken[0][part]), select(high, taken[0][part], taken[1][part])]
            for part in (0, 1)
        ]


def _shuffled(value: Any, sender: Any) -> Any:
    if isinstance(value, Boolean):
        return cute.arch.shuffle_sync(value.to(Int32), sender) != 0
    return cute.arch.shuffle_sync(value, sender)


def segments(graph: Graph, roots: Sequence[int]) -> list[list[int]]:
    """Cut the tiles that lead to values into runs; each is computed register by register, one run after another.

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
    """List what values are computed from, and themselves, in order."""
    found = set(roots)
    for n in range(max(found, default=-1), -1, -1):
        if n in found:
            found.update(graph.nodes[n].inputs)
    return sorted(found)


def reads(graph: Graph, n: int) -> bool:
    """Tell whether a tile is computed from a row, column or tile operand with no other tile between."""
    inputs = [i for i in graph.nodes[n].inputs if graph.nodes[i].shape != "tile" or graph.nodes[i].op == "operand"]
    return any(graph.nodes[i].op == "operand" and graph.nodes[i].shape != "scalar" for i in needed(graph, inputs))
