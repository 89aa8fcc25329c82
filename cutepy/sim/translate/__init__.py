"""Translate a PTX function into Python functions over numpy arrays, one for each basic block.

Translations are kept by content: the same PTX is translated once in a process.

Instructions whose meaning is written on the builder (`cutepy.sim.semantics`) are added there. What asks the machine for
something (memory, other lanes, barriers, matrices) is a function in the module of its family here, registered with
`@instruction("opcode")`: it reads operands as expressions, and emits a call of a mechanism of the machine.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from cutepy.layouts.sm90.arch import WARP_THREADS
from cutepy.sim.arithmetic import floats, integers as alu, minifloat
from cutepy.sim.errors import OperandError, SimulationError, UnknownInstructionError
from cutepy.sim.ptx.forms import Checks
from cutepy.sim.ptx.linking import LANDING, LinkedEntry, link
from cutepy.sim.ptx.model import Function, Instruction, Module, Symbol, type_bits
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.refusals import refusal
from cutepy.sim.semantics import meaning_of
from cutepy.sim.semantics.registry import Meaning
from cutepy.sim.semantics.types import canonical_bits, kind_of
from cutepy.sim.translate import (  # noqa: F401  each registers its instructions
    asynchronous,
    calls,
    launch_control,
    matrices,
    memory,
    movement,
    tcgen05,
)
from cutepy.sim.translate.control_flow import EXIT, ControlFlow, analyse
from cutepy.sim.translate.effects import accumulators, is_wgmma, read, written
from cutepy.sim.translate.emitter import Emitter, Translator, refused_modifier, translator_of
from cutepy.sim.translate.expressions import write_meaning
from cutepy.sim.translate.unknown_forms import FORM_ERRORS, SITES

BlockFunction = Callable[[Any, list[Any], Any], int]

_KEPT = 64
_modules: OrderedDict[str, Module] = OrderedDict()


@dataclass(eq=False)
class Program:
    """A translated function.

    Attributes
    ----------
    function : Function
        Translated function, with the functions that it calls.
    linked : LinkedEntry
        The linked text.
    landing : int
        The block where they return to, or -1.
    entries : dict of int to int
        Index of the first instruction of a function -> its block.
    flow : ControlFlow
    blocks : list of callable
        ``block(group, registers, machine)`` runs a block and returns the number of the next.
    kinds : list of str
        Canonical kind of each register.
    accumulator_sets : list of tuple of int
        The register tuples that wgmmas accumulate in.
    set_of : dict
        Instruction index of a wgmma -> its tuple.
    sets_with : dict
        Register -> the tuples it belongs to.
    source : str
        The Python that was generated.
    names : dict
        Objects that it refers to.
    hot : list of callable
        The blocks as they run, once they have: see `native`.
    watched : list of callable
        The same where observers see each access.
    """

    function: Function
    linked: LinkedEntry
    landing: int
    entries: dict[int, int]
    flow: ControlFlow
    blocks: list[BlockFunction]
    kinds: list[str]
    accumulator_sets: list[tuple[int, ...]]
    set_of: dict[int, int]
    sets_with: dict[int, tuple[int, ...]]
    source: str = field(repr=False)
    names: dict[str, Any] = field(repr=False)
    hot: list[BlockFunction] = field(default_factory=list, init=False, repr=False)
    watched: list[BlockFunction] = field(default_factory=list, init=False, repr=False)


@lru_cache(maxsize=1 << 12)
def _writer_of(opcode: str, meaning: Meaning | None) -> Translator | None:
    """Return the function that writes the source of instructions: their meaning's, or one of their own."""
    if refused_modifier(opcode) is not None:
        return None
    return translator_of(opcode) if meaning is None else partial(write_meaning, meaning)


def _has_effects(i: Instruction) -> bool:
    return bool(i.traits.effects) or i.traits.threads > 1 or _writer_of(i.opcode, meaning_of(i)) is None


def load_module(text: str, file: str = "") -> Module:
    """Parse a PTX module, once for the same text; errors name the file."""
    key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    if key not in _modules:
        _modules[key] = parse_module(text, file=file, checks=_CHECKS)
        while len(_modules) > _KEPT:
            _modules.popitem(last=False)
    return _modules[key]


def _wrong_operands(i: Instruction) -> str:
    """Describe the fault in the types of an instruction's operands, as its translation finds them."""
    if "stack" in i.traits.qualities:  # translated once its callees are known
        return ""
    registers = {r.index: canonical_bits(r) for r in (*read(i), *written(i))}
    e = Emitter(registers, {}, {}, _NOTHING)
    e.instruction = i
    try:
        _translate_one(e, i)
    except OperandError as error:
        return error.reason
    except UnknownInstructionError:
        return ""  # it is told where it is reached
    return ""


_NOTHING: Any = None
_CHECKS = Checks(_wrong_operands)


@dataclass(frozen=True)
class Kernel:
    r"""An entry of a PTX module with its linked text and programs; one object for the same text.

    Attributes
    ----------
    ptx : str
        The PTX module.
    name : str
        The entry function.

    Examples
    --------
    >>> head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    >>> kernel = Kernel(head + ".entry k() { .reg .b32 %r<1>; mov.u32 %r0, 1; ret; }", "k")
    >>> [i.opcode for i in kernel.instructions], len(kernel.program().blocks)
    (['mov.u32', 'ret'], 1)
    """

    ptx: str = field(repr=False)
    name: str

    @property
    def module(self) -> Module:
        """The module, parsed."""
        return load_module(self.ptx)

    @property
    def linked(self) -> LinkedEntry:
        """The entry, linked with the functions that it may call."""
        return _linked(self)

    @property
    def function(self) -> Function:
        """The same as one function."""
        return _linked(self).function

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of the entry, and of the functions that it may call."""
        return _linked(self).function.instructions

    def calls(self, *names: str) -> bool:
        """Return whether an instruction calls one of some functions by name."""
        targets = (i.operands[0] for i in self.instructions if i.traits.calls and i.operands)
        return any(isinstance(target, Symbol) and target.name in names for target in targets)

    @property
    def flow(self) -> ControlFlow:
        """The control flow, as `program` has it."""
        return _flow_of(self)

    def program(self, stops: frozenset[int] = frozenset(), pauses: frozenset[int] = frozenset()) -> Program:
        """Translate the kernel.

        Parameters
        ----------
        stops : frozenset of int
            Indices of instructions before which the program calls the machine's `stop`.
        pauses : frozenset of int
            Indices of instructions before which the program calls the machine's `pause`, which may hold lanes back.
        """
        return _program(self, stops, pauses)


@lru_cache(maxsize=_KEPT)
def _linked(kernel: Kernel) -> LinkedEntry:
    functions = kernel.module.functions
    if kernel.name not in functions:
        raise SimulationError(f"the PTX defines no entry {kernel.name}; it has {', '.join(functions)}")
    return link(functions[kernel.name], kernel.module)


@lru_cache(maxsize=_KEPT)
def _program(kernel: Kernel, stops: frozenset[int], pauses: frozenset[int]) -> Program:
    return translate_linked(kernel.linked, stops, pauses)


@lru_cache(maxsize=_KEPT)
def _flow_of(kernel: Kernel) -> ControlFlow:
    return _flow(kernel.linked, frozenset(), frozenset())


def _flow(whole: LinkedEntry, stops: frozenset[int], pauses: frozenset[int]) -> ControlFlow:
    starts = {callee.start for callee in whole.callees.values()}
    waits = stops | pauses
    return analyse(whole.function, lambda i: i.traits.waits or i.index in waits, _has_effects, starts)


def translate_function(function: Function, stops: frozenset[int] = frozenset()) -> Program:
    """Translate a function alone, whether or not it was translated before."""
    return translate_linked(link(function), stops)


def translate_linked(
    whole: LinkedEntry, stops: frozenset[int] = frozenset(), pauses: frozenset[int] = frozenset()
) -> Program:
    """Translate an entry and the functions that it calls."""
    function = whole.function
    starts = {callee.start for callee in whole.callees.values()}
    flow = _flow(whole, stops, pauses)
    sets: dict[tuple[int, ...], int] = {}
    set_of: dict[int, int] = {}
    for i in function.instructions:
        if is_wgmma(i):
            registers = tuple(r.index for r in accumulators(i))
            set_of[i.index] = sets.setdefault(registers, len(sets))
    sets_with: dict[int, tuple[int, ...]] = {}
    for registers, number in sets.items():
        for register in registers:
            sets_with[register] = (*sets_with.get(register, ()), number)
    kinds = _canonical_kinds(function)
    constants: dict[str, Any] = {}
    parts = [
        _block_source(n, flow, kinds, constants, sets_with, (stops, pauses), whole) for n in range(len(flow.blocks))
    ]
    source = "\n".join(parts)
    names = {**_runtime(), **constants, "I": function.instructions}
    exec(compile(source, f"<{function.name}>", "exec"), names)
    blocks = [names[f"block_{n}"] for n in range(len(flow.blocks))]
    landing = len(blocks) - 1 if function.instructions and function.instructions[-1].opcode == LANDING else -1
    entries: dict[int, int] = {}
    for number, block in enumerate(flow.blocks):
        first = block.instructions[0] if block.instructions else block.branch
        if first is not None and first.index in starts:
            entries.setdefault(first.index, number)
    return Program(function, whole, landing, entries, flow, blocks, kinds, list(sets), set_of, sets_with, source, names)


def translate_run(program: Program, instructions: Sequence[Instruction], live: set[int]) -> Any:  # noqa: ANN401
    """Translate some instructions of a block by themselves.

    Parameters
    ----------
    program : Program
    instructions : sequence of Instruction
    live : set of int
        The registers that are read after them.

    Returns
    -------
    callable
        ``run(group, registers, machine)`` returns None, or what the block returns.
    """
    e = Emitter(program.kinds, program.names, program.sets_with, program.linked)
    for i in instructions:
        e.instruction = i
        _translate_one(e, i)
    e.write_back(live)
    e.emit("return None")
    return _function(f"run_{instructions[0].index}" if instructions else "run", e, program.names)


def translate_end(program: Program, number: int) -> tuple[BlockFunction, set[int]]:
    """Translate the end of a block by itself: the code that returns the next block, and the registers live there."""
    e = Emitter(program.kinds, program.names, program.sets_with, program.linked)
    live = _finish(e, number, program.flow)
    return _function(f"end_{number}", e, program.names), live


def _function(name: str, e: Emitter, names: dict[str, Any]) -> Any:  # noqa: ANN401
    found: dict[str, Any] = {}
    names[SITES + name] = e.sites
    exec(compile(_source_of(name, e), "<piece>", "exec"), names, found)
    return found[name]


def _source_of(name: str, e: Emitter) -> str:
    return f"def {name}(g, R, m):\n    " + "\n    ".join(e.lines) + "\n"


def _runtime() -> dict[str, Any]:
    names: dict[str, Any] = {f"{letter}{size}": np.dtype(f"{letter}{size}") for letter in "ui" for size in (1, 2, 4, 8)}
    names |= {f"f{size}": np.dtype(f"f{size}") for size in (2, 4, 8)}
    functions = "where maximum minimum isnan copysign sqrt clip".split()
    names |= {name: getattr(np, name) for name in functions}
    names |= {"abs_": np.abs, "alu": alu, "floats": floats, "minifloat": minifloat}
    return names


def _canonical_kinds(function: Function) -> list[str]:
    """Choose float for the registers that only float operations write, and bits for the others."""
    written_as: dict[int, set[str]] = {}
    for i in function.instructions:
        for register in written(i):
            if register.type == "pred":
                continue
            kind = canonical_bits(register)
            last = i.parts[-1]
            if is_wgmma(i):
                kind = "f4" if "f32" in i.parts else "u4"
            elif i.parts[0] == "mov" and len(i.operands) == 2:
                continue
            else:
                # A conversion names the type of its result first; a load or conversion may write a wider register.
                type_ = i.parts[-2] if i.parts[0] == "cvt" else last
                if type_ in ("f32", "f64") and i.parts[0] not in ("atom", "set") and register.bits == type_bits(type_):
                    kind = kind_of(type_)
            written_as.setdefault(register.index, set()).add(kind)
    kinds = []
    for register in function.registers:
        found = written_as.get(register.index, set())
        kinds.append(found.pop() if len(found) == 1 else canonical_bits(register))
    return kinds


def _translate_one(e: Emitter, i: Instruction) -> None:
    if reason := refusal(i.opcode):
        raise UnknownInstructionError(i, refusal=reason)
    translator = _writer_of(i.opcode, meaning_of(i))
    if translator is None:
        refused = refused_modifier(i.opcode)
        raise UnknownInstructionError(i, "" if refused in (None, i.parts[0]) else f"modifier .{refused}")
    together = i.traits.threads
    if i.parts[0] == "setmaxnreg" and e.linked is not None and e.linked.is_ranked:
        together = WARP_THREADS  # warps of a warpgroup ask for as many each by its own: NVIDIA's kernels for sm_100 do
    if together > 1:
        is_part = "not g.threads.full" if together == WARP_THREADS else "g.threads.warpgroups is None"
        e.emit(f"if {is_part}: m.in_part(g, {e.site})")
    try:
        translator(e, i)
        e.finish()
    except UnknownInstructionError:
        raise
    except FORM_ERRORS as error:
        # Operands of another form than those that the translation of this opcode takes apart.
        raise OperandError(i, "its operands are of a form that is not known") from error


def _block_source(
    number: int,
    flow: ControlFlow,
    kinds: list[str],
    constants: dict[str, Any],
    sets_with: dict[int, tuple[int, ...]],
    marked: tuple[frozenset[int], frozenset[int]],
    whole: LinkedEntry,
) -> str:
    block = flow.blocks[number]
    e = Emitter(kinds, constants, sets_with, whole)
    # The branch around a guarded instruction is no instruction of its own: the stop is after it.
    first = block.instructions[0] if block.instructions else block.branch
    if first is not None and (block.instructions or first.traits.branches):
        stops, pauses = marked
        if first.index in pauses:
            e.emit(f"if m.pause(g, I[{first.index}]): return -4")
        if first.index in stops:
            e.emit(f"m.stop(g, I[{first.index}])")
    elif first is not None and first.index in marked[0]:
        e.emit(f"m.guard(g, I[{first.index}])")
    try:
        e.after = block.successors[0]
        for i in block.instructions:
            e.instruction = i
            _translate_one(e, i)
    except UnknownInstructionError as error:
        # Code that never runs may hold anything: the error is raised if it is reached.
        e = Emitter(kinds, {}, sets_with, whole)
        constants[f"ERROR_{number}"] = error
        e.emit(f"raise ERROR_{number}")
        return _source_of(f"block_{number}", e)
    _finish(e, number, flow)
    constants[f"{SITES}block_{number}"] = e.sites
    return _source_of(f"block_{number}", e)


def _finish(e: Emitter, number: int, flow: ControlFlow) -> set[int]:
    """Write the end of a block; returns the registers that its successors read."""
    block = flow.blocks[number]
    e.instruction = block.branch
    condition = e.read(block.condition[0], "pred") if block.condition is not None else ""
    live: set[int] = set()
    for successor in block.successors:
        if successor != EXIT:
            live |= flow.live_in[successor]
    e.write_back(live)
    if e.ending:
        e.emit(e.ending)
    elif block.condition is None:
        e.emit(f"return {block.successors[0]}")
    else:
        taken, other = block.successors[::-1] if block.condition[1] else block.successors
        e.emit(f"if {condition}.size == 1: return {taken} if {condition}.item() else {other}")
        e.emit(f"return m.branch(g, {condition}, {taken}, {other}, {flow.join[number]})")
    return live
