"""Put an entry together with the functions that it may call: one sequence of instructions, with frames of memory.

Each function keeps what has addresses in a frame of its own, in the local memory of its thread: its results and
parameters, then its local variables and what it passes to others. A frame starts where that of the caller ends, so
that functions may call themselves. Addresses in frames become operands (`FrameSlot`), relative to a register of the
function that tells where its frame starts; that of an entry starts at 0.

All functions that are called return to one place, the last instruction, where their lanes meet.

References
----------
PTX ISA, "Function Declarations and Definitions", "Control Flow Instructions: call, ret", "Stack Manipulation
Instructions". PTX Writer's Guide to Interoperability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cutepy.sim.ptx.header import Target, parsed_target
from cutepy.sim.ptx.model import (
    Address,
    FrameSlot,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    NegatedPredicate,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)

SLOT_BYTES = 16
"""Alignment of arguments and variables in a frame, in bytes."""

LANDING = "%return"
"""The opcode of the place where functions return to."""

FUNCTION_WINDOW = 1 << 58
"""First address of functions."""

_STACK = ("alloca", "stacksave", "stackrestore")


@dataclass(frozen=True)
class Callee:
    """A function that can be called.

    Attributes
    ----------
    name : str
    start : int
        Index of its first instruction.
    frame : Register
        Holds where its frame starts.
    frame_bytes : int
    results, parameters : tuple of int
        Bytes of each.
    """

    name: str
    start: int
    frame: Register
    frame_bytes: int
    results: tuple[int, ...]
    parameters: tuple[int, ...]


@dataclass(frozen=True)
class CallSite:
    """Arguments and results of a call.

    Attributes
    ----------
    results, arguments : tuple of (int, int)
        Offset in the caller's frame, and bytes.
    frame_bytes : int
        Of the caller.
    """

    results: tuple[tuple[int, int], ...]
    arguments: tuple[tuple[int, int], ...]
    frame_bytes: int


@dataclass(frozen=True)
class LinkedEntry:
    """An entry with the functions that it calls.

    Attributes
    ----------
    function : Function
        All instructions, those of the entry first.
    callees : dict of int to Callee
        By address.
    names : dict of str to int
        Name of a function -> its address.
    sites : dict of int to CallSite
        By instruction index.
    frame_bytes : int
        Of the entry.
    is_deep : bool
        True if a thread may need more local memory than that.
    target : Target
        The GPU that it is for.
    """

    function: Function
    callees: dict[int, Callee]
    names: dict[str, int]
    sites: dict[int, CallSite]
    frame_bytes: int
    is_deep: bool
    target: Target

    @property
    def is_ranked(self) -> bool:
        """Return whether addresses of a cluster's shared memory have the rank of a CTA."""
        return self.target.number >= _RANKED


def function_addresses(module: Module) -> dict[str, int]:
    """Return where functions and entries are, as variables hold their addresses: the same for all of a module."""
    numbers: dict[int, int] = {}
    addresses: dict[str, int] = {}
    for name in (*module.declared, *module.called, *module.functions):
        known = module.called.get(name) or module.functions.get(name)
        number = numbers.setdefault(id(known) if known is not None else -1 - len(addresses), len(numbers))
        addresses[name] = FUNCTION_WINDOW + SLOT_BYTES * (number + 1)
    return addresses


def slots(sizes: Iterable[int]) -> Iterator[int]:
    """Yield where values of these sizes are that follow each other in a frame, and where they end.

    Examples
    --------
    >>> list(slots([4, 40, 8]))
    [0, 16, 64, 80]
    """
    end = 0
    yield end
    for size in sizes:
        end += -(-size // SLOT_BYTES) * SLOT_BYTES
        yield end


def is_call(i: Instruction) -> bool:
    """Return whether an instruction is a call."""
    return i.parts[0] == "call"


_RANKED = 100
"""The number of the first target whose code knows ranks in addresses of its own shared memory."""


def link(entry: Function, module: Module | None = None) -> LinkedEntry:
    """Put an entry and the functions that it may call together.

    Parameters
    ----------
    entry : Function
    module : Module, optional
        Module of the entry. Without it, calls are refused where they are reached.
    """
    module = module or Module("", {entry.name: entry}, ())
    addresses = function_addresses(module)
    target = parsed_target(module.target)
    called = _reachable(entry, module)
    if not any(_needs_linking(i) for i in entry.instructions) and not _in_frame(entry):
        return LinkedEntry(entry, {}, addresses, {}, 0, is_deep=False, target=target)
    alignment = max([SLOT_BYTES, *(v.alignment for function in (entry, *called) for v in _in_frame(function))])
    placing = _Placement(addresses, alignment, target)
    placing.add(entry, is_entry=True)
    for function in called:
        placing.add(function, is_entry=False)
    return placing.finish(entry)


def _in_frame(function: Function) -> list[Variable]:
    return [v for v in function.variables if v.space in ("local", "param")]


def _needs_linking(i: Instruction) -> bool:
    return i.opcode.startswith(("call", *_STACK))


def _reachable(entry: Function, module: Module) -> list[Function]:
    """List the functions that an entry may call, directly or by their addresses, in memory too."""
    found: dict[str, Function] = {}
    waiting = [entry]
    stored = {reference.name for variable in module.variables for reference in variable.references}
    while waiting:
        function = waiting.pop()
        names = {name for i in function.instructions for name in _symbols(i.operands)}
        if any(is_call(i) and isinstance(i.operands[1], Register) for i in function.instructions):
            names |= stored | set(_taken(module))
        for name in sorted(names):
            called = module.called.get(name)
            if called is not None and called.name not in found:
                found[called.name] = called
                waiting.append(called)
    return list(found.values())


def _taken(module: Module) -> Iterator[str]:
    """Yield the functions whose addresses code takes."""
    for function in (*module.functions.values(), *module.called.values()):
        for i in function.instructions:
            if not is_call(i):
                yield from _symbols(i.operands)


def _symbols(operands: Sequence[Operand]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Symbol):
            yield operand.name
        elif isinstance(operand, Vector):
            yield from _symbols(operand.items)


@dataclass(frozen=True)
class _Frame:
    """Offsets of a function's variables in its frame."""

    offsets: dict[str, int]
    sizes: dict[str, int]
    size_bytes: int
    base: Register | None
    dynamic: Register | None


class _Placement:
    """The functions that have been put after each other so far."""

    def __init__(self, addresses: dict[str, int], alignment: int, target: Target) -> None:
        self._addresses, self._target = addresses, target
        self._alignment = alignment
        self._registers: list[Register] = []
        self._instructions: list[Instruction] = []
        self._variables: list[Variable] = []
        self._returns: list[int] = []
        self._callees: dict[int, Callee] = {}
        self._sites: dict[int, CallSite] = {}
        self._entry_bytes = 0
        self._is_deep = False

    def add(self, function: Function, *, is_entry: bool) -> None:
        start = len(self._instructions)
        first = len(self._registers)
        self._registers += [replace(r, index=first + r.index) if first else r for r in function.registers]
        base = None if is_entry else self._register("%frame")
        dynamic = None
        if any(i.parts[0] in _STACK for i in function.instructions):
            dynamic = self._register("%stack")
            self._is_deep = True
        frame = _frame_of(function, base, dynamic, is_entry, self._alignment)
        self._variables += [v for v in function.variables if v.space not in ("local", "param")]
        for i in function.instructions:
            operands = tuple(self._moved(operand, frame, start, first) for operand in i.operands)
            if is_call(i) and len(operands) == 3:
                self._sites[start + i.index] = _site(i, frame)
                operands = (operands[1], FrameSlot(base, 0), *([dynamic] if dynamic else []))
                self._is_deep = True
            elif dynamic is not None and i.parts[0] in _STACK:
                operands = _with_stack(i, operands, dynamic, FrameSlot(base, frame.size_bytes))
            elif i.parts[0] == "ret" and not is_entry:
                self._returns.append(len(self._instructions))
            if start or operands != i.operands:
                guard = i.predicate
                if guard is not None and first:
                    guard = replace(guard[0], index=first + guard[0].index), guard[1]
                i = replace(i, index=start + i.index, operands=operands, predicate=guard)
            self._instructions.append(i)
        if is_entry:
            self._entry_bytes = frame.size_bytes
        else:
            assert base is not None
            sizes = (tuple(p.size_bytes for p in formals) for formals in (function.results, function.parameters))
            callee = Callee(function.name, start, base, frame.size_bytes, *sizes)
            self._callees[self._addresses[function.name]] = callee
            self._returns.append(len(self._instructions))
        # What a function that has no last `ret` would run into.
        self._instructions.append(Instruction(len(self._instructions), "ret", (), text="ret"))

    def finish(self, entry: Function) -> LinkedEntry:
        """Return everything that was added, with the place where functions return to."""
        if len(self._instructions) == len(entry.instructions) + 1:
            self._instructions.pop()  # an entry alone ends anyway
        else:
            landing = Label("the caller", len(self._instructions))
            for index in self._returns:
                self._instructions[index] = replace(self._instructions[index], operands=(landing,))
            self._instructions.append(Instruction(landing.target, LANDING, (), text="return"))
        function = replace(
            entry,
            registers=tuple(self._registers),
            instructions=tuple(self._instructions),
            variables=tuple(self._variables),
            callees={n: self._callees[a].start for n, a in self._addresses.items() if a in self._callees},
        )
        return LinkedEntry(
            function, self._callees, self._addresses, self._sites, self._entry_bytes, self._is_deep, self._target
        )

    def _register(self, name: str) -> Register:
        register = Register(name, "b64", len(self._registers))
        self._registers.append(register)
        return register

    def _moved(self, operand: Operand, frame: _Frame, start: int, first: int) -> Operand:
        """Return an operand as it is in the whole: registers and labels have other numbers."""
        if isinstance(operand, Register):
            return self._registers[first + operand.index] if first else operand
        if isinstance(operand, Label):
            return replace(operand, target=start + operand.target) if start else operand
        if isinstance(operand, Symbol):
            offset = frame.offsets.get(operand.name)
            return operand if offset is None else FrameSlot(frame.base, offset + operand.offset)
        if isinstance(operand, Address):
            base = self._moved(operand.base, frame, start, first)
            assert isinstance(base, Register | Symbol | Immediate | FrameSlot)
            coordinates = operand.coordinates and tuple(
                self._moved(item, frame, start, first) for item in operand.coordinates
            )
            if base is operand.base and coordinates == operand.coordinates:
                return operand
            return replace(operand, base=base, coordinates=coordinates)
        if isinstance(operand, Vector):
            items = tuple(self._moved(item, frame, start, first) for item in operand.items)
            return operand if items == operand.items else Vector(items)
        if isinstance(operand, Pair):
            return Pair(
                self._moved(operand.first, frame, start, first), self._moved(operand.second, frame, start, first)
            )
        if isinstance(operand, NegatedPredicate):
            inner = self._moved(operand.operand, frame, start, first)
            assert isinstance(inner, Register)
            return NegatedPredicate(inner)
        return operand


def _with_stack(
    i: Instruction, operands: tuple[Operand, ...], dynamic: Register, end: FrameSlot
) -> tuple[Operand, ...]:
    """Return the operands of a stack manipulation with the bytes that are taken beyond the frame, and its end."""
    if i.parts[0] == "stacksave":
        return *operands, dynamic
    if i.parts[0] == "stackrestore":
        return Vector((dynamic,)), *operands
    return Vector((operands[0], dynamic)), *operands[1:], dynamic, end


def _frame_of(
    function: Function, base: Register | None, dynamic: Register | None, is_entry: bool, alignment: int
) -> _Frame:
    """Lay out a function's variables in local memory; parameters and results come first, if it is called."""
    formals = () if is_entry else (*function.results, *function.parameters)
    sizes = {formal.name: formal.size_bytes for formal in formals}
    *starts, end = slots(sizes.values())
    offsets = dict(zip(sizes, starts, strict=True))
    for variable in _in_frame(function):
        step = max(variable.alignment, SLOT_BYTES)
        sizes[variable.name] = variable.size_bytes or 0
        offsets[variable.name] = end = -(-end // step) * step
        end += -(-sizes[variable.name] // SLOT_BYTES) * SLOT_BYTES
    return _Frame(offsets, sizes, -(-end // alignment) * alignment, base, dynamic)


def _site(i: Instruction, frame: _Frame) -> CallSite:
    """Return the arguments and results of a call; its operands are results, function and arguments, as written."""
    places = []
    for group in (i.operands[0], i.operands[2]):
        assert isinstance(group, Vector)
        names = [item.name for item in group.items if isinstance(item, Symbol)]
        places.append(tuple((frame.offsets[name], frame.sizes[name]) for name in names))
    return CallSite(places[0], places[1], frame.size_bytes)
