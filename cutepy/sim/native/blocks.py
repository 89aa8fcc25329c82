"""Basic blocks as they run: numpy's translation, and machine code of regions that take long.

A block is divided into nodes. A node may be the entry of a region, which may include nodes of further blocks. If numpy
is expected to spend more time in the region than its compilation takes, the region runs as machine code from then on.
The rest of the block at which the region ends runs by numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cutepy.sim.native import compiler, ledger
from cutepy.sim.native.ledger import Ledger
from cutepy.sim.native.machine_code import MachineCode
from cutepy.sim.native.nodes import Node, Nodes
from cutepy.sim.native.regions import regions
from cutepy.sim.translate import Program, translate_end, translate_run
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.group import Group
    from cutepy.sim.ptx.model import Instruction

BlockFunction = Callable[[Any, list[Any], Any], int]

_CUTTING = 1e-4
"""Seconds, about, that it takes to cut a program into nodes and to write them, for each instruction."""

_STEPPING = 0.03
"""Seconds after which the nodes of a block that has others than native ones run, and are timed, one by one."""

_SOON, _LATER = 2e-3, 0.05
"""Seconds of numpy after which it is asked again whether to compile: so many, and so much of all that were."""


def hot_blocks(program: Program, stops: frozenset[int] | None = None) -> list[BlockFunction]:
    """Return the functions of a program's blocks, which become machine code where they take long.

    Parameters
    ----------
    program : Program
    stops : frozenset of int, optional
        Where observers see each access, the instructions at which they stop as well.
    """
    found = program.hot if stops is None else program.watched
    if not found:
        hot = _SharedState(program, stops)
        found += [
            HotBlock(hot, n) if program.flow.blocks[n].instructions or program.flow.blocks[n].condition else whole
            for n, whole in enumerate(program.blocks)
        ]
    return found


class _SharedState:
    """State that the blocks of a program share.

    Attributes
    ----------
    nodes : Nodes or None
        Until they are worth it.
    ledger : Ledger
        By node; until there are nodes by block.
    """

    def __init__(self, program: Program, stops: frozenset[int] | None) -> None:
        self.program, self._stops = program, stops
        self.nodes: Nodes | None = None
        self.ledger = Ledger(len(program.blocks))
        self._steps: dict[int, _Step] = {}

    def is_to_be_cut(self, m: Engine) -> bool:
        """Return whether the program's nodes are worth knowing."""
        cost = _CUTTING * len(self.program.function.instructions)
        return self.ledger.total * m.to_come >= ledger.WORTH * cost and compiler.is_there()

    def cut(self) -> Nodes:
        """Cut blocks into nodes, one of which each block's time is put down to."""
        self.ledger.pause()
        nodes = self.nodes = Nodes(self.program, self._stops is not None)
        self.ledger = self.ledger.of_nodes(len(nodes.all), nodes.main_of)
        return nodes

    def stop_of(self, number: int) -> Instruction | None:
        """Return the instruction that a block begins with, if observers stop there."""
        block = self.program.flow.blocks[number]
        first = block.instructions[0] if block.instructions else block.branch
        return None if first is None or first.index not in (self._stops or ()) else first

    def step(self, number: int) -> _Step:
        """Return how a node runs."""
        if number not in self._steps:
            assert self.nodes is not None
            self._steps[number] = _Step(self, self.nodes.all[number])
        return self._steps[number]


class HotBlock:
    """A block's translation, until it is worth more.

    Parameters
    ----------
    hot : _SharedState
    number : int
        Of the block.
    """

    def __init__(self, hot: _SharedState, number: int) -> None:
        self._hot, self._number = hot, number
        self._whole = hot.program.blocks[number]
        self._first: _Step | None = None
        self._steps = False
        self._stop = hot.stop_of(number)
        self._whole_alone = not hot.program.flow.blocks[number].instructions  # its translation says how to stop

    def __call__(self, g: Group, registers: list[Any], m: Engine) -> int:
        """Run."""
        hot = self._hot
        if self._number == 0:
            hot.ledger.begin_wave(m)
        first = self._first
        if first is None:
            if hot.nodes is None and not hot.is_to_be_cut(m):
                start = hot.ledger.begin(m)
                block = self._whole(g, registers, m)
                hot.ledger.charge(self._number, start)
                return block
            nodes = hot.nodes or hot.cut()
            first = self._first = hot.step(nodes.starts[self._number])
            self._main, self._is_plain = nodes.main_of(self._number), nodes.is_plain(self._number)
            self._steps = not self._is_plain and ledger.WORTH == 0
        if self._stop is not None:
            return self._after_stop(first, g, registers, m)
        found = None if self._steps else first.native(g, registers, m)
        if found is None and not self._steps:
            start = hot.ledger.begin(m)
            block = self._whole(g, registers, m)
            hot.ledger.charge(self._main, start)
            self._steps = not self._is_plain and hot.ledger.spent[self._main] >= ledger.WORTH * _STEPPING
            return block
        return self._walk(first, found, g, registers, m)

    def _after_stop(self, first: _Step, g: Group, registers: list[Any], m: Engine) -> int:
        """Run where observers look at lanes first, which the block's translation lets them."""
        hot = self._hot
        if self._steps and not self._whole_alone:
            assert self._stop is not None
            m.stop(g, self._stop)
            return self._walk(first, None, g, registers, m)
        start = hot.ledger.begin(m)
        block = self._whole(g, registers, m)
        hot.ledger.charge(self._main, start)
        self._steps = hot.ledger.spent[self._main] >= ledger.WORTH * _STEPPING
        return block

    def _walk(self, step: _Step, found: int | None, g: Group, registers: list[Any], m: Engine) -> int:
        """Run nodes one after the other, the first of which has run if it is said where that went."""
        hot = self._hot
        while True:
            if found is None:
                found = step.run(g, registers, m)
            if found is None:
                step = hot.step(step.node.number + 1)
            elif found < _NODES:
                return found
            else:
                step = hot.step(found - _NODES)
                if step.node.is_first:
                    return step.node.block
                g.block = step.node.block
            found = None


_NODES = 1 << 32
"""Numbers from here on are of nodes, and those below of blocks."""


class _Step:
    """Back end that runs a node."""

    def __init__(self, hot: _SharedState, node: Node) -> None:
        self._hot, self.node = hot, node
        self._numpy: Callable[[Any, list[Any], Any], int | None] | None = None
        self._entries: dict[int, _Entry] = {}

    def run(self, g: Group, registers: list[Any], m: Engine) -> int | None:
        """Run the node; returns None if the block's next node follows, else the block where lanes go on."""
        found = self.native(g, registers, m)
        if found is not None:
            return found
        if self._numpy is None:
            self._numpy = self._translated()
        start = self._hot.ledger.begin(m)
        found = self._numpy(g, registers, m)
        self._hot.ledger.charge(self.node.number, start)
        return found

    def native(self, g: Group, registers: list[Any], m: Engine) -> int | None:
        """Run as machine code, if it is worth it; returns where lanes go on, or None."""
        if not self.node.is_native:
            return None
        stop = EXIT if g.join is None else g.join.block
        if stop not in self._entries:
            self._entries[stop] = _Entry(self._hot, self.node, stop)
        return self._entries[stop].run(g, registers, m)

    def _translated(self) -> Callable[[Any, list[Any], Any], int | None]:
        program, node = self._hot.program, self.node
        if node.kind == "whole" or (node.is_first and node.kind in ("end", "last")):
            return program.blocks[node.block]
        if node.kind in ("end", "last"):
            return translate_end(program, node.block)[0]
        nodes = self._hot.nodes
        assert nodes is not None
        live = nodes.live_in[node.number + 1] & {r.index for i in node.instructions for r in written(i)}
        found: Callable[[Any, list[Any], Any], int | None] = translate_run(program, node.instructions, set(live))
        return found


class _Entry:
    """The regions from a node on, up to a block."""

    def __init__(self, hot: _SharedState, node: Node, stop: int) -> None:
        self._hot, self._node, self._stop = hot, node, stop
        self._due = 0.0
        self._codes: list[MachineCode] | None = None

    def run(self, g: Group, registers: list[Any], m: Engine) -> int | None:
        """Run one that is compiled, or is worth compiling; returns where lanes go on, or None."""
        numpys = self._hot.ledger
        if numpys.total < self._due or self._codes == []:
            return None
        numpys.pause()
        if self._codes is None:
            self._codes = self._found()
        lacks = 0.0
        for code in self._codes:
            if code.applies(g, m):
                if code.run(g, registers, m):
                    return EXIT if code.region.end == EXIT else _NODES + code.region.end
                lacks = max(lacks, code.lacks)
        if lacks:
            self._due = numpys.total + max(lacks / max(m.to_come, 1.0), _SOON, _LATER * numpys.total)
        return None

    def _found(self) -> list[MachineCode]:
        hot, stop = self._hot, self._stop
        nodes = hot.nodes
        assert nodes is not None
        found = regions(nodes, self._node.number, EXIT if stop == EXIT else nodes.starts[stop])
        return [MachineCode(region, hot.program.kinds, hot.ledger) for region in found]
