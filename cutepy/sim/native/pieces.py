"""Cut basic blocks into pieces, of which the hot ones run as machine code.

A piece is a run of instructions that `instructions` has, or one store, or a run of others. Of each there is numpy's
translation. Machine code does what numpy's does, or, where a check fails, nothing: then numpy's runs, and says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.machine.traffic import Traffic
from cutepy.sim.native import compiler
from cutepy.sim.native.accesses import source
from cutepy.sim.native.instructions import write_instruction
from cutepy.sim.native.lanes import FIRST_ARGUMENT, Lanes, UnsupportedError
from cutepy.sim.native.snippets import (
    FAILED,
    LOADED,
    REGION_SIZE,
    REGION_TABLE,
    REGIONS,
    SHARED_BASE,
    SHARED_BYTES,
    STATE_SIZE,
    STORED,
)
from cutepy.sim.native.writer import BY_CTA, BY_THREAD, LANES
from cutepy.sim.ptx.model import Instruction, Vector
from cutepy.sim.translate.emitter import kind_of
from cutepy.sim.translate.memory import space_of

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.group import Group

Numpy = Callable[[Any, list[Any], Any], int | None]

CALL_COST, LANE_COST = 1e-6, 0.5e-9
"""About what numpy takes for an instruction of integers, and for each lane of it, in seconds."""

_HEAVY = 20
"""As many of these are worth an access of memory, or an instruction whose rounding takes numpy several steps."""

_HEAVY_OPERATIONS = frozenset("ld st fma mad cvt div min max sqrt rcp rsqrt prmt lop3 shf brev clz".split())

_WORTH, _WORTH_IMPORTING = 0.05, 1.0
"""Seconds, about, that numpy takes for a piece before it is compiled, and for all before the compiler is imported."""

_PATIENCE = 3
_total = [0.0]
_helpers: dict[tuple[str, str, int, int], tuple[compiler.Code, int]] = {}


def is_native(i: Instruction, kinds: list[str]) -> bool:
    """Tell whether machine code can be written for an instruction that is no store."""
    try:
        write_instruction(Lanes(kinds, {}, True), i)
    except UnsupportedError:
        return False
    return True


def _write_store(lanes: Lanes, i: Instruction, checks: bool) -> None:
    lanes.instruction = i
    if len(i.operands) != 2 or i.predicate is not None:
        raise UnsupportedError
    address, value = i.operands
    kind = kind_of(i.parts[-1])
    items = value.items if isinstance(value, Vector) else (value,)
    lanes.store(i, address, [lanes.read_wide(item, kind) for item in items], checks)


def is_native_store(i: Instruction, kinds: list[str]) -> bool:
    """Tell whether machine code can be written for a store."""
    if i.parts[0] != "st" or "async" in i.parts or space_of(i) == "const":
        return False
    try:
        _write_store(Lanes(kinds, {}, True), i, True)
        _write_store(Lanes(kinds, {}, True), i, False)
    except UnsupportedError:
        return False
    return True


def weight(instructions: Sequence[Instruction]) -> int:
    """Return how many instructions of integers some take as long as, in numpy."""
    return sum(_HEAVY if i.parts[0] in _HEAVY_OPERATIONS and not _is_light(i) else 1 for i in instructions)


def _is_light(i: Instruction) -> bool:
    """Tell whether an instruction is one on integers for which numpy takes a step or two."""
    parts = i.parts
    if parts[0] == "ld":
        return "param" in parts
    return parts[0] in ("mad", "min", "max", "cvt") and all(p[0] != "f" and p[:2] != "bf" for p in parts[1:])


class Piece:
    """Some instructions of a block.

    Parameters
    ----------
    numpy : callable
        Their translation: returns None, or what the block returns.
    instructions : sequence of Instruction
    outputs : sequence of int
        The registers that are read after it, of those that it writes.
    kinds : list of str
        Canonical kind of each register.
    is_store : bool
        Whether it is a store.
    """

    def __init__(
        self,
        numpy: Numpy,
        instructions: Sequence[Instruction],
        outputs: Sequence[int],
        kinds: list[str],
        is_store: bool,
    ) -> None:
        self.numpy, self.instructions, self.outputs = numpy, instructions, outputs
        self.kinds, self.is_store = kinds, is_store
        self._names = list(self._written({}, True, True).inputs)
        self._inputs: Callable[[Any, list[Any], Any], tuple[Any, ...]] = eval(
            f"lambda g, R, m: ({', '.join(self._names)}{',' if self._names else ''})", {"number": _number}
        )
        self._costs: dict[Any, float] = {}
        self._compiled: dict[Any, _Compiled | None] = {}

    def __call__(self, g: Group, registers: list[Any], m: Engine) -> int | None:
        """Run."""
        values = self._inputs(g, registers, m)
        key = (g.threads.full, *[v.shape[0] > 1 for v in values], *[v.shape[1] > 1 for v in values])
        if key not in self._compiled and self._is_worth(g, key):
            self._compiled[key] = self._compile(g, values)
        compiled = self._compiled.get(key)
        if compiled is not None and compiled.run(g, registers, m, values):
            return None
        return self.numpy(g, registers, m)

    def _is_worth(self, g: Group, key: Any) -> bool:  # noqa: ANN401
        """Count what numpy takes, and tell whether it was much."""
        cost = weight(self.instructions) * (CALL_COST + g.ctas.count * g.threads.count * LANE_COST)
        self._costs[key] = self._costs.get(key, 0.0) + cost
        _total[0] += cost
        return self._costs[key] > _WORTH and (compiler.is_imported() or _total[0] > _WORTH_IMPORTING)

    def _written(self, axes: dict[str, int], full: bool, checks: bool) -> Lanes:
        lanes = Lanes(self.kinds, axes, full)
        if self.is_store:
            # What a store reads is the same in both functions.
            _write_store(lanes, self.instructions[0], checks)
        else:
            for i in self.instructions:
                write_instruction(lanes, i)
        return lanes

    def _compile(self, g: Group, values: Sequence[Any]) -> _Compiled | None:
        axes = {
            name: BY_CTA * (v.shape[0] > 1) + BY_THREAD * (v.shape[1] > 1)
            for name, v in zip(self._names, values, strict=True)
        }
        passes = (True, False) if self.is_store else (False,)
        try:
            return _Compiled(self, [self._written(axes, g.threads.full, checks) for checks in passes], self._names)
        except ImportError:
            return None  # there is no compiler


class _Compiled:
    """Machine code of a piece, for inputs of given axes."""

    def __init__(self, piece: Piece, functions: Sequence[Lanes], names: Sequence[str]) -> None:
        self._is_store = piece.is_store
        self._is_shared = piece.is_store and space_of(piece.instructions[0]) == "shared"
        self._outputs: list[tuple[int, Any, int]] = []
        self._uniform = functions[0].uniform
        self._functions = []
        self._failed = 0
        for lanes in functions:
            for index in [] if piece.is_store else piece.outputs:
                axes, kind = lanes.output(index), piece.kinds[index]
                self._outputs.append((index, np.dtype(bool if kind == "pred" else kind), axes))
        code = _compiled("\n".join(["module {", *(_function(f"pass{n}", x) for n, x in enumerate(functions)), "}"]))
        for n, lanes in enumerate(functions):
            arguments = np.zeros(FIRST_ARGUMENT + len(lanes.arguments), np.int64)
            for key in lanes.helpers:
                arguments[lanes.argument(f"call {' '.join(map(str, key))}")] = _helper(*key)
            inputs = [(k, lanes.argument(f"in {x}")) for k, x in enumerate(names) if f"in {x}" in lanes.arguments]
            outputs = [lanes.argument(f"out {index}") for index, _, _ in self._outputs]
            self._functions.append((code.function(f"pass{n}"), arguments, arguments.ctypes.data, inputs, outputs))

    def run(self, g: Group, registers: list[Any], m: Engine, values: Sequence[Any]) -> bool:
        """Run; tells whether it was done."""
        if self._failed > _PATIENCE:
            return False
        state = _state(m)
        if self._is_shared and m.memory.has_objects:
            return False
        numbers = state.numbers
        numbers[FAILED] = 0
        numbers[LOADED : STORED + 2] = 0
        rows, columns, warps = g.ctas.count, g.threads.count, g.threads.warps
        table = g.threads.extents
        results = [
            np.empty((rows if axes & BY_CTA else 1, columns if axes & BY_THREAD else 1), kind)
            for _, kind, axes in self._outputs
        ]
        held = [np.ascontiguousarray(v) for v in values]
        for function, arguments, address, inputs, outputs in self._functions:
            arguments[0], arguments[1], arguments[2] = rows, len(warps), columns
            arguments[3], arguments[4] = _address(table), state.address
            for n, position in inputs:
                arguments[position] = _address(held[n])
            for result, position in zip(results, outputs, strict=True):
                arguments[position] = _address(result)
            function(address)
            if numbers[FAILED]:
                self._failed += 1
                return False
        traffic = m.activity.traffic
        for kind, size in self._uniform:
            times = len(warps) * rows
            traffic.add(kind, times, times * size)  # type: ignore[arg-type]
        # What all CTAs read at the same addresses was counted once, with their number.
        if numbers[LOADED]:
            traffic.add("load", int(numbers[LOADED]), int(numbers[LOADED + 1]))
        if numbers[STORED]:
            traffic.add("store", int(numbers[STORED]), int(numbers[STORED + 1]))
        if self._is_store:
            m.activity.changes += 1
        for (index, _, _), result in zip(self._outputs, results, strict=True):
            registers[index] = result
        return True


def _address(array: Any) -> int:  # noqa: ANN401
    return int(array.__array_interface__["data"][0])


@cache
def _number(value: int) -> Any:  # noqa: ANN401
    return np.array([[value]], np.uint64)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> compiler.Code:
    return compiler.compiled(text)


def _helper(operation: str, space: str, bits: int, count: int) -> int:
    """Return the address of a function that accesses memory."""
    key = operation, space, bits, count
    if key not in _helpers:
        code = compiler.compiled(source(*key))
        found = np.zeros(1, np.int64)
        code.function("where")(found.ctypes.data)
        _helpers[key] = code, int(found[0])
    return _helpers[key][1]


class _State:
    """What machine code knows of a machine's memory."""

    def __init__(self, m: Engine) -> None:
        self.traffic, self.shared = m.activity.traffic, m.memory.shared
        self.numbers = np.zeros(STATE_SIZE, np.int64)
        self.address = self.numbers.ctypes.data
        ranges = m.memory.known.ranges()
        self.regions = np.zeros((max(1, len(ranges)), REGION_SIZE), np.int64)
        self.maps = self._maps(m.activity.traffic, ranges)
        for n, (start, end) in enumerate(ranges):
            self.regions[n] = start, end, *(_address(m) if m is not None else 0 for m in self.maps[n])
        self.numbers[REGIONS] = len(ranges)
        self.numbers[REGION_TABLE] = self.regions.ctypes.data
        self.numbers[SHARED_BYTES] = m.memory.used_bytes
        self.numbers[SHARED_BASE] = _address(m.memory.shared)

    @staticmethod
    def _maps(traffic: Traffic, ranges: Sequence[tuple[int, int]]) -> list[tuple[Any, Any]]:
        return [traffic.maps(start, end) for start, end in ranges]


def _state(m: Engine) -> _State:
    state: _State | None = m.native_state
    if state is None or state.traffic is not m.activity.traffic or state.shared is not m.memory.shared:
        state = m.native_state = _State(m)
    return state


def _function(name: str, lanes: Lanes) -> str:
    """Put the parts of a function together."""
    w = lanes.w
    every = ", ".join(map(str, range(LANES)))
    kind = f"vector<{LANES}xi64>"
    lines = [f"llvm.func @{name}(%arguments: !llvm.ptr) {{"]
    lines += [f"%n{n} = llvm.mlir.constant({n} : i64) : i64" for n in (0, 1, 2, 32)]
    for position, name in enumerate(("rows", "warps", "columns")):
        lines.append(f"%{name}p = llvm.getelementptr %arguments[{position}] : (!llvm.ptr) -> !llvm.ptr, i64")
        lines.append(f"%{name} = llvm.load %{name}p : !llvm.ptr -> i64")
    for position, name in ((3, "table"), (4, "state")):
        lines.append(f"%{name}p = llvm.getelementptr %arguments[{position}] : (!llvm.ptr) -> !llvm.ptr, i64")
        lines.append(f"%{name} = llvm.load %{name}p : !llvm.ptr -> !llvm.ptr")
    if lanes.buffer:
        lines.append(f"%room = llvm.mlir.constant({lanes.buffer} : i64) : i64")
        lines.append("%buffer = llvm.alloca %room x i8 {alignment = 64 : i64} : (i64) -> !llvm.ptr")
    lines.append(f"%every = llvm.mlir.constant(dense<true> : vector<{LANES}xi1>) : vector<{LANES}xi1>")
    lines.append(f"%each = llvm.mlir.constant(dense<[{every}]> : {kind}) : {kind}")
    lines += [*w.once, "llvm.br ^row(%n0 : i64)", "^row(%row: i64):"]
    lines.append('%inside = llvm.icmp "ult" %row, %rows : i64')
    lines += ["llvm.cond_br %inside, ^cta, ^end", "^cta:"]
    lines.append('%first = llvm.icmp "eq" %row, %n0 : i64')
    lines.append("%isfirst = llvm.select %first, %rows, %n0 : i1, i64")
    lines += [*w.by_cta, "%rowstart = llvm.mul %row, %columns : i64", "%nextrow = llvm.add %row, %n1 : i64"]
    if w.by_warp:
        lines += ["llvm.br ^warp(%n0 : i64)", "^warp(%warp: i64):"]
        lines.append('%is = llvm.icmp "ult" %warp, %warps : i64')
        lines += ["llvm.cond_br %is, ^lanes, ^row(%nextrow : i64)", "^lanes:"]
        if lanes.full:
            lines += ["%start = llvm.mul %warp, %n32 : i64", "%lanes = llvm.add %n32, %n0 : i64"]
        else:
            lines += [
                "%pairat = llvm.mul %warp, %n2 : i64",
                "%pair = llvm.getelementptr %table[%pairat] : (!llvm.ptr, i64) -> !llvm.ptr, i64",
                "%start = llvm.load %pair : !llvm.ptr -> i64",
                "%lanesp = llvm.getelementptr %pair[1] : (!llvm.ptr) -> !llvm.ptr, i64",
                "%lanes = llvm.load %lanesp : !llvm.ptr -> i64",
                "%lastlane = llvm.sub %lanes, %n1 : i64",
                f"%some = llvm.mlir.poison : {kind}",
                f"%last1 = llvm.insertelement %lastlane, %some[%n0 : i64] : {kind}",
                f"%last = llvm.shufflevector %last1, %last1 [{', '.join(['0'] * LANES)}] : {kind}",
                f'%clamped = "llvm.intr.umin"(%each, %last) : ({kind}, {kind}) -> {kind}',
                f'%here = llvm.icmp "ule" %each, %last : {kind}',
            ]
        lines.append("%position = llvm.add %rowstart, %start : i64")
        lines += [*w.by_warp, "%nextwarp = llvm.add %warp, %n1 : i64", "llvm.br ^warp(%nextwarp : i64)"]
    else:
        lines.append("llvm.br ^row(%nextrow : i64)")
    return "\n".join([*lines, "^end:", "llvm.return", "}"])
