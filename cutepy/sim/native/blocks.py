"""Basic blocks as they run: numpy's translation, and machine code of regions that take long.

A block is cut into nodes. A node that has taken numpy long becomes the entry of a region, which may go on through
further blocks; what is left of the block where it ends is run from there.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING, Any

from cutepy.sim.native import compiler
from cutepy.sim.native.machine_code import MachineCode
from cutepy.sim.native.nodes import Node, Nodes
from cutepy.sim.native.regions import Region, regions
from cutepy.sim.translate import Program, translate_end, translate_run
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.group import Group

BlockFunction = Callable[[Any, list[Any], Any], int]

_WORTH, _WORTH_IMPORTING = 0.03, 1.0
"""Seconds that numpy takes too long for a node before it is compiled, and for all before the compiler is imported."""

_COMPILING = 2e-3
"""Seconds, about, that compiling takes for each instruction."""

_CALL = 30e-6
"""Seconds, about, that machine code takes before and after it does anything: what takes numpy less is none of its."""

_total = [0.0]


def hot_blocks(program: Program) -> list[BlockFunction]:
    """Return the functions of a program's blocks, which become machine code where they take long."""
    if not program.hot:
        hot = _Hot(program)
        program.hot += [
            HotBlock(hot, n) if program.flow.blocks[n].instructions or program.flow.blocks[n].condition else whole
            for n, whole in enumerate(program.blocks)
        ]
    return program.hot


class _Hot:
    """What the blocks of a program share."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._nodes: Nodes | None = None
        self._steps: dict[int, _Step] = {}
        self._regions: dict[tuple[int, int], list[Region]] = {}
        self._began: tuple[Engine, float] | None = None

    @property
    def nodes(self) -> Nodes:
        """The program's nodes."""
        if self._nodes is None:
            self._nodes = Nodes(self.program)
        return self._nodes

    def regions(self, entry: int, stop: int) -> list[Region]:
        """Return the regions from a node on, up to a block."""
        key = entry, stop
        if key not in self._regions:
            nodes = self.nodes
            self._regions[key] = regions(nodes, entry, EXIT if stop == EXIT else nodes.starts[stop])
        return self._regions[key]

    def goes_beyond(self, block: int) -> bool:
        """Tell whether all of a block can be machine code, with where it goes: parting lanes may be what takes long."""
        ends = [region.end for region in self.regions(self.nodes.starts[block], EXIT)]
        return any(end == EXIT or self.nodes.all[end].block != block for end in ends)

    def since_last_wave(self, m: Engine) -> float:
        """Return the seconds since CTAs of a launch began to run last, if they may run as machine code to their end."""
        before, self._began = self._began, (m, thread_time())
        if before is None or before[0] is not m or not any(r.end == EXIT for r in self.regions(0, EXIT)):
            return 0.0
        return self._began[1] - before[1]

    def step(self, number: int) -> _Step:
        """Return how a node runs."""
        if number not in self._steps:
            self._steps[number] = _Step(self, self.nodes.all[number])
        return self._steps[number]


class HotBlock:
    """A block's translation, until it has taken long.

    Parameters
    ----------
    hot : _Hot
    number : int
        Of the block.
    """

    def __init__(self, hot: _Hot, number: int) -> None:
        self._hot, self._number = hot, number
        self._whole = hot.program.blocks[number]
        self._seconds = 0.0
        self._first: _Step | None = None

    def __call__(self, g: Group, registers: list[Any], m: Engine) -> int:
        """Run."""
        step = self._first
        if step is None:
            if self._number == 0 and self._seconds <= _WORTH:
                self._seconds += self._hot.since_last_wave(m)
            if self._seconds <= _WORTH:
                start = thread_time()
                block = self._whole(g, registers, m)
                self._seconds += max(0.0, thread_time() - start - _CALL)
                return block
            step = self._first = self._hot.step(self._hot.nodes.starts[self._number])
            if self._hot.goes_beyond(self._number):
                step.begin(self._seconds)
        hot = self._hot
        while True:
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


_NODES = 1 << 32
"""Numbers from here on are of nodes, and those below of blocks."""


class _Step:
    """How a node runs."""

    def __init__(self, hot: _Hot, node: Node) -> None:
        self._hot, self.node = hot, node
        self._numpy: Callable[[Any, list[Any], Any], int | None] | None = None
        self._seconds: dict[int, float] = {}
        self._least = 0.0
        self._code: dict[int, list[MachineCode]] = {}

    def run(self, g: Group, registers: list[Any], m: Engine) -> int | None:
        """Run; returns None if the next node of the block follows, or where lanes go on."""
        if self._numpy is None:
            self._numpy = self._translated()
        if not self.node.is_native:
            return self._numpy(g, registers, m)
        stop = EXIT if g.join is None else g.join.block
        if stop not in self._code:
            if self.node.number == 0:
                self._least += self._hot.since_last_wave(m)
            seconds = max(self._least, self._seconds.get(stop, 0.0))
            if not self._is_worth(seconds):
                return self._timed(stop, g, registers, m)
            found = self._hot.regions(self.node.number, stop)
            if found and 0 < _WORTH and seconds < _COMPILING * len(found[0].instructions):
                return self._timed(stop, g, registers, m)
            self._code[stop] = [MachineCode(region, self._hot.program.kinds) for region in found]
        for code in self._code[stop]:
            if code.run(g, registers, m):
                return EXIT if code.region.end == EXIT else _NODES + code.region.end
        return self._numpy(g, registers, m)

    def begin(self, seconds: float) -> None:
        """Begin with what numpy has taken for its block."""
        self._least = seconds
        _total[0] += seconds

    def _timed(self, stop: int, g: Group, registers: list[Any], m: Engine) -> int | None:
        """Let numpy run it, and count what it takes."""
        assert self._numpy is not None
        start = thread_time()
        found = self._numpy(g, registers, m)
        seconds = max(0.0, thread_time() - start - _CALL)
        self._seconds[stop] = self._seconds.get(stop, 0.0) + seconds
        _total[0] += seconds
        return found

    @staticmethod
    def _is_worth(seconds: float) -> bool:
        """Tell whether what has taken numpy some time is to be compiled."""
        return seconds > _WORTH and (compiler.is_imported() or _total[0] > _WORTH_IMPORTING)

    def _translated(self) -> Callable[[Any, list[Any], Any], int | None]:
        program, node = self._hot.program, self.node
        if node.kind == "whole" or (node.is_first and node.kind == "end"):
            return program.blocks[node.block]
        if node.kind == "end":
            return translate_end(program, node.block)[0]
        live = self._hot.nodes.live_in[node.number + 1] & {r.index for i in node.instructions for r in written(i)}
        found: Callable[[Any, list[Any], Any], int | None] = translate_run(program, node.instructions, set(live))
        return found
