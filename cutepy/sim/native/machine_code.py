"""Machine code of regions: compiled for inputs of given axes, and called with arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.machine.group import inherited
from cutepy.sim.native import compiler, ledger
from cutepy.sim.native.accesses import source
from cutepy.sim.native.function import function, inputs_of
from cutepy.sim.native.lanes import FIRST_ARGUMENT, UnsupportedError
from cutepy.sim.native.ledger import Ledger
from cutepy.sim.native.memory_state import address_of, state_of
from cutepy.sim.native.regions import Region
from cutepy.sim.native.snippets import FULL
from cutepy.sim.native.writer import BY_CTA, BY_THREAD

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.group import Group

_PATIENCE = 3
"""Most failures of a region before it is left to numpy."""

_TRYING, _WRITING = 0.01, 1e-4
"""Seconds, about, that it takes to find out whether a region was compiled before, and for each of its instructions."""

_helpers: dict[tuple[str, str, int, int], tuple[compiler.Code, int]] = {}


class MachineCode:
    """A region's functions, one for each combination of axes that its inputs come in.

    Parameters
    ----------
    region : Region
    kinds : list of str
        Canonical kind of each register.
    numpys : Ledger
        Seconds that numpy takes.

    Attributes
    ----------
    lacks : float
        Further seconds of numpy that must be expected for it to be compiled.
    """

    def __init__(self, region: Region, kinds: list[str], numpys: Ledger) -> None:
        self.region = region
        self.lacks = 0.0
        self._kinds, self._numpys = kinds, numpys
        self._compiled: dict[Any, _Compiled | None] = {}
        self._failed = 0

    @cached_property
    def _inputs(self) -> tuple[list[str], Callable[[Any, Any, Any], tuple[Any, ...]]]:
        """Inputs of machine code, as expressions, and a function that evaluates them all."""
        names = inputs_of(self.region, self._kinds)
        text = ", ".join(names) + ("," if names else "")
        return names, eval(f"lambda g, R, m: ({text})")

    def applies(self, g: Group, m: Engine) -> bool:
        """Return whether lanes may run it: all of a CTA, if there are barriers."""
        return self._failed <= _PATIENCE and not (self.region.barriers and not _are_together(g, m))

    def run(self, g: Group, registers: list[Any], m: Engine) -> bool:
        """Run, once it is worth compiling; tells whether it was done."""
        self.lacks = 0.0
        trying = _TRYING + _WRITING * len(self.region.instructions)
        if not self._compiled:
            if not self._is_worth(trying + self._numpys.tried, m):
                return False
            self._numpys.tried += trying
        for index in self.region.inputs:
            if registers[index] is None:
                registers = list(registers)
                registers[index] = inherited(g, index)
        names, evaluate = self._inputs
        values = evaluate(g, registers, m)
        key = (g.threads.full, *[BY_CTA * (v.shape[0] > 1) + BY_THREAD * (v.shape[1] > 1) for v in values])
        if key not in self._compiled:
            self._compiled[key] = self._written(dict(zip(names, key[1:], strict=True)), g.threads.full)
        compiled = self._compiled[key]
        if compiled is None:
            return False
        if not compiled.is_compiled:
            if not self._is_worth(compiled.cost(), m):
                return False
            try:
                compiled.compile()
            except ImportError:
                self._compiled[key] = None
                return False
            self._numpys.pay(self.region, m)
            self._numpys.tried = max(0.0, self._numpys.tried - trying)
        told = [(load, registers[load.base]) for load in self.region.told]
        done = compiled.run(g, m, values)
        if done and told:
            m.memory.tell_loaded(g, told)
        self._numpys.interrupt()
        self._failed += not done
        return done

    def _is_worth(self, cost: float, m: Engine) -> bool:
        self.lacks = max(0.0, ledger.WORTH * cost - self._numpys.expected(self.region, m))
        return self.lacks == 0.0

    def _written(self, axes: dict[str, int], full: bool) -> _Compiled | None:
        """Write code for inputs of given axes; None where collectives lack lanes of a warp."""
        try:
            return _Compiled(self.region, self._kinds, axes, full, self._inputs[0])
        except UnsupportedError:
            return None


class _Compiled:
    """Machine code of a region, for inputs of given axes: written, and then compiled.

    Attributes
    ----------
    is_compiled : bool
    """

    def __init__(self, region: Region, kinds: list[str], axes: dict[str, int], full: bool, names: list[str]) -> None:
        lanes, text, outputs = function(region, kinds, axes, full)
        self._outputs = [
            (i, np.dtype(bool if kinds[i] == "pred" else kinds[i]), by, lanes.argument(f"out {i}"))
            for i, by in outputs.items()
        ]
        self._writes_shared, self._keeps_shared = lanes.writes_shared, False
        self._entry, self._has_barriers = region.nodes.all[region.entry], bool(region.barriers)
        self._frames = np.zeros(0, np.uint8)
        self._helpers = {key: lanes.argument(f"call {' '.join(map(str, key))}") for key in lanes.helpers}
        self._inputs = [(n, lanes.argument(f"in {name}")) for n, name in enumerate(names)]
        if self._has_barriers:
            self._frames_at, self._frame_bytes = lanes.argument("frames"), lanes.frame_bytes
        self._arguments = np.zeros(FIRST_ARGUMENT + len(lanes.arguments), np.int64)
        self._address = address_of(self._arguments)
        self._text = text
        self.is_compiled = False

    def cost(self) -> float:
        """Return about how many seconds compiling takes."""
        return compiler.seconds([self._text, *(_source(*key) for key in self._helpers if key not in _helpers)])

    def compile(self) -> None:
        """Compile, or take the code of an earlier compilation.

        Raises
        ------
        ImportError
            If there is no compiler after all.
        """
        for key, position in self._helpers.items():
            self._arguments[position] = _helper(*key)
        self._function = compiler.compiled(self._text).function("run")
        self.is_compiled, self._text = True, ""

    def run(self, g: Group, m: Engine, values: tuple[Any, ...]) -> bool:
        """Run; tells whether it was done."""
        if self._writes_shared and m.memory.objects:
            return False
        state, arguments = state_of(m), self._arguments
        rows, columns, warps = g.ctas.count, g.threads.count, len(g.threads.warps)
        held = [v if v.flags.c_contiguous else np.ascontiguousarray(v) for v in values]
        results = []
        for _, kind, by, position in self._outputs:
            result = np.empty((rows if by & BY_CTA else 1, columns if by & BY_THREAD else 1), kind)
            results.append(result)
            arguments[position] = address_of(result)
        table = g.threads.extents
        arguments[:FIRST_ARGUMENT] = rows, warps, columns, address_of(table), state.address, state.counts_address
        for n, position in self._inputs:
            arguments[position] = address_of(held[n])
        if self._has_barriers:
            if len(self._frames) < warps * self._frame_bytes:
                self._frames = np.empty(warps * self._frame_bytes, np.uint8)
            arguments[self._frames_at] = address_of(self._frames)
        state.begin(self._keeps_shared)
        self._function(self._address)
        failed = state.take(m)
        if failed == FULL and self._writes_shared and not self._keeps_shared:
            self._keeps_shared = True
            return self.run(g, m, values)
        if failed:
            return False
        m.activity.changes += self._has_barriers
        if self._entry.is_first:
            # The schedule has counted it as it was entered.
            m.schedule.executed[self._entry.block] -= rows * warps
        for (index, _, _, _), result in zip(self._outputs, results, strict=True):
            g.registers[index] = result
        return True


def _are_together(g: Group, m: Engine) -> bool:
    """Tell whether a group has all threads of its CTAs, and no thread waits at a named barrier."""
    return g.threads.count == m.schedule.roster.threads_per_cta and m.barriers.is_idle()


_source = cache(source)


def _helper(operation: str, space: str, bits: int, count: int) -> int:
    """Return the address of a function that accesses memory."""
    key = operation, space, bits, count
    if key not in _helpers:
        code = compiler.compiled(_source(*key))
        found = np.zeros(1, np.int64)
        code.function("where")(address_of(found))
        _helpers[key] = code, int(found[0])
    return _helpers[key][1]
