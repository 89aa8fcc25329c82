"""Write numpy source for the instructions of one basic block.

A register is an array over (CTAs, threads) and lives in the list `R`; within a block it is a local variable. Its bits
have one canonical kind, an unsigned integer or, where only float operations write it, a float; other readings are
views. Kinds are numpy's type codes: "u4" is b32 and u32, "i4" s32, "f4" f32; "pred" a bool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.errors import OperandError, UnknownInstructionError
from cutepy.sim.ptx.forms import spelled
from cutepy.sim.ptx.instruction_set import CLOCKS
from cutepy.sim.ptx.linking import LinkedEntry
from cutepy.sim.ptx.model import (
    Address,
    FrameSlot,
    Immediate,
    Instruction,
    NegatedPredicate,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from cutepy.sim.ptx.modifiers import is_spelled
from cutepy.sim.semantics import MEANINGS
from cutepy.sim.semantics.types import canonical_bits, constant_bits, ptx_name

UNIFORM_SPECIALS = frozenset(
    """ntid.x ntid.y ntid.z nctaid.x nctaid.y nctaid.z nclusterid.x nclusterid.y nclusterid.z cluster_nctaid.x
    cluster_nctaid.y cluster_nctaid.z cluster_nctarank is_explicit_cluster nwarpid nsmid gridid dynamic_smem_size
    total_smem_size aggr_smem_size reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap
    reserved_smem_offset_0 reserved_smem_offset_1 current_graph_exec""".split()
) | {f"envreg{n}" for n in range(32)}
_THREAD_SPECIALS = frozenset(
    "tid.x tid.y tid.z laneid warpid lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge".split()
)

Kinds: TypeAlias = "list[str] | dict[int, str]"


class Emitter:
    """Writer of the numpy source of one block.

    Parameters
    ----------
    kinds : list or dict of str
        Canonical kind of each register.
    constants : dict
        Names and values that the source refers to; grows.
    accumulator_sets : dict
        Register -> the accumulator tuples, by number, that it belongs to.
    linked : LinkedEntry
        Function of the block.

    Attributes
    ----------
    ending : str
        Result of the block if its last instruction says where it goes on.
    after : int
        The block that follows it if not.
    lines : list of str
        The source.
    sites : list of Instruction or None
        The instruction of each line.
    """

    def __init__(
        self,
        kinds: Kinds,
        constants: dict[str, Any],
        accumulator_sets: dict[int, tuple[int, ...]],
        linked: LinkedEntry,
    ) -> None:
        self.linked = linked
        self._is_ranked = linked is not None and linked.is_ranked  # None where an instruction is only tried
        self.ending = ""
        self.after = -1
        self.lines: list[str] = []
        self.sites: list[Instruction | None] = []
        self._kinds = kinds
        self._constants = constants
        self._sets = accumulator_sets
        self._local: set[int] = set()
        self._forms: dict[tuple[int, str], str] = {}
        self._flushed: set[int] = set()
        self.dirty: set[int] = set()
        self.instruction: Instruction | None = None
        self._temporaries = 0
        self._results: list[tuple[int, str, int]] = []  # register, its value, and the line that computes this

    def emit(self, line: str) -> None:
        """Append a line of source."""
        self.lines.append(line)
        self.sites.append(self.instruction)

    def temporary(self, expression: str) -> str:
        """Keep a value in a fresh local variable."""
        name = f"t{self._temporaries}"
        self._temporaries += 1
        self.emit(f"{name} = {expression}")
        return name

    def unknown(self, reason: str = "") -> UnknownInstructionError:
        """Make the error for an instruction, or a form of it, that has no translation."""
        assert self.instruction is not None
        return UnknownInstructionError(self.instruction, reason)

    def mistaken(self, reason: str = "") -> OperandError:
        """Make the error for an operand of another kind or type than the instruction takes."""
        assert self.instruction is not None
        return OperandError(self.instruction, reason)

    def refused(self, reason: str) -> UnknownInstructionError:
        """Make the error for an instruction that is known, and not valid or not simulated."""
        assert self.instruction is not None
        return UnknownInstructionError(self.instruction, refusal=reason)

    @property
    def site(self) -> str:
        """The current instruction, as the source names it."""
        assert self.instruction is not None
        return f"I[{self.instruction.index}]"

    @property
    def accumulator_registers(self) -> Iterable[int]:
        """The registers that some wgmma accumulates in."""
        return self._sets

    # Operands.

    def kind_of_register(self, register: Register) -> str:
        """Return the canonical kind of a register."""
        return self._kinds[register.index]

    def constant(self, value: object, name: str) -> str:
        """Name a constant object."""
        self._constants.setdefault(name, value)
        return name

    def immediate(self, value: int, kind: str, float_bits: int = 0) -> str:
        """Name a constant of a kind."""
        name, array = _constant(value, kind, float_bits)
        return self.constant(array, name)

    def read(self, operand: Operand, kind: str) -> str:
        """Return an expression of an operand's value, of the given kind."""
        if isinstance(operand, Register):
            return self._read_register(operand, kind)
        if isinstance(operand, Immediate):
            return self.immediate(operand.value, kind, operand.float_bits)
        if isinstance(operand, NegatedPredicate):
            return f"~{self.read(operand.operand, kind)}"
        if isinstance(operand, Special):
            return self._special(operand.name, kind)
        if isinstance(operand, FrameSlot):
            if operand.base is None:
                return self.immediate(operand.offset, kind)
            return f"({self.read(operand.base, 'u8')} + {self.immediate(operand.offset, 'u8')}).astype({kind})"
        if isinstance(operand, Symbol):
            if operand.is_kernel:
                raise self.refused(
                    f"{operand.name} is a kernel, which a kernel needs the address of to launch it; launches from the "
                    "device are not simulated, launch it from the host"
                )
            address = address_of_symbol(operand.name, self._is_ranked)
            return (
                f"({address} + {self.immediate(operand.offset, 'u8')}).astype({kind})"
                if operand.offset
                else f"{address}.astype({kind})"
            )
        raise self.mistaken(f"operand {spelled(operand)}")

    def read_wide(self, operand: Operand, kind: str) -> str:
        """Read the low bits of an operand that may be wider than the kind (ld, st, cvt)."""
        if isinstance(operand, Register) and operand.type != "pred" and operand.bits > 8 * int(kind[1:]):
            unsigned = self.read(operand, canonical_bits(operand))
            low = f"{unsigned}.astype(u{kind[1:]})"
            return low if kind[0] == "u" else f"{low}.view({kind})"
        return self.read(operand, kind)

    def read_all(self, operand: Operand, kind: str, *, wide: bool = False) -> str:
        """Read the members of an operand, as a tuple; of wider ones the low bits, if that is asked for."""
        read = self.read_wide if wide else self.read
        return f"({', '.join(read(item, kind) for item in self.items(operand))},)"

    def write_all(self, operand: Operand, expression: str, kind: str) -> str:
        """Write the members of an operand, of which an expression has the values; returns the name of these."""
        values = self.temporary(expression)
        for n, item in enumerate(self.items(operand)):
            if not isinstance(item, Sink):
                self.write(item, f"{values}[{n}]", kind)
        return values

    def argument(self, operand: Operand, how: str) -> str:
        """Return an operand as `mechanism` passes it."""
        if how == "value":
            assert isinstance(operand, Immediate)
            return str(operand.value)
        return self.address(operand) if how == "address" else self.read(operand, how)

    def _read_register(self, register: Register, kind: str) -> str:
        index = register.index
        if index not in self._local:
            self.flush(index)
            self.emit(f"v{index} = R[{index}]")
            self._local.add(index)
        canonical = self._kinds[index]
        if canonical == kind:
            return f"v{index}"
        if canonical == "pred" or kind == "pred" or canonical[1:] != kind[1:]:
            raise self.mistaken(f"{register.name} of type {register.type} read as {ptx_name(kind)}")
        key = index, kind
        if key not in self._forms:
            self.emit(f"v{index}{kind} = v{index}.view({kind})")
            self._forms[key] = f"v{index}{kind}"
        return self._forms[key]

    def flush(self, index: int) -> None:
        """Bring accumulators that an MMA holds as a tile back into registers."""
        for number in self._sets.get(index, ()):
            if number not in self._flushed:
                self._flushed.add(number)
                self.emit(f"if g.tiles: m.wgmma.flush(g, {number})")

    def _special(self, name: str, kind: str) -> str:
        if name in _THREAD_SPECIALS:
            source = f"g.threads.special[{name!r}]"
        elif name in UNIFORM_SPECIALS:
            source = f"m.uniform[{name!r}]"
        elif name in CLOCKS:
            source = f"m.clock({name!r})"
        elif name.startswith("pm"):
            raise self.refused(f"the performance monitor %{name} is not simulated; read it on a GPU")
        else:
            source = f"g.ctas.special[{name!r}]"
        if kind == "pred":
            return f"({source} != 0)"
        return source if kind == "u4" and name not in CLOCKS else f"{source}.astype({kind})"

    def address(self, operand: Operand) -> str:
        """Return an expression of the address that an operand denotes, in its register's width."""
        if not isinstance(operand, Address):
            raise self.mistaken(f"an address must be in brackets, got {spelled(operand)}")
        base = operand.base
        if isinstance(base, Register):
            kind = canonical_bits(base)
            text = self.read(base, kind)
        else:
            kind = "u8"
            text = self.read(base, kind)
        if operand.offset:
            text = f"({text} + {self.immediate(operand.offset, kind)})"
        return text

    # Results.

    def write(self, operand: Operand, expression: str, kind: str) -> None:
        """Compute a value of a kind for a destination, which `finish` assigns; a narrower one is extended.

        Integers are extended by their sign, and floats by zeros.

        Until then every register reads as it was before the instruction: its guard, sources and other destinations.
        """
        if isinstance(operand, Sink):
            self.emit(expression)
            return
        if not isinstance(operand, Register):
            raise self.mistaken(f"destination {spelled(operand)}")
        index, canonical = operand.index, self._kinds[operand.index]
        assert self.instruction is not None
        self.flush(index)
        guard = self.instruction.predicate
        if canonical != kind:
            expression = self._converted(expression, kind, canonical, operand)
        if guard is not None:
            old = self._read_register(operand, canonical)
            condition = self.read(guard[0], "pred")
            order = f"{old}, {expression}" if guard[1] else f"{expression}, {old}"
            expression = f"where({condition}, {order})"
        self._results.append((index, expression, len(self.lines)))
        self.emit("")

    def finish(self) -> None:
        """Assign the results of the current instruction to its destinations."""
        results, self._results = self._results, []
        last = len(self.lines) - 1
        assigned: dict[int, str] = {}
        for n, (index, expression, line) in enumerate(results):
            # Nothing is computed after the last line, so that its destination needs no other name.
            assigned[index] = f"v{index}" if line == last else f"n{n}"
            self.lines[line] = f"{assigned[index]} = {expression}"
        for index, name in assigned.items():
            if name[0] == "n":
                self.emit(f"v{index} = {name}")
        for key in [key for key in self._forms if key[0] in assigned]:
            del self._forms[key]
        self._local.update(assigned)
        self.dirty.update(assigned)

    def _converted(self, expression: str, kind: str, canonical: str, register: Register) -> str:
        if "pred" in (kind, canonical):
            raise self.mistaken(f"{register.name} of type {register.type} written as {ptx_name(kind)}")
        if kind[1:] == canonical[1:]:
            return f"({expression}).view({canonical})"
        if int(kind[1:]) > int(canonical[1:]):
            raise self.mistaken(f"{register.name} of type {register.type} is too narrow for {ptx_name(kind)}")
        assert self.instruction is not None
        if "widens" not in self.instruction.traits.qualities:
            raise self.mistaken(f"{register.name} of type {register.type} is too wide for {ptx_name(kind)}")
        if kind[0] == "f":  # its bits are extended
            expression, kind = f"({expression}).view(u{kind[1:]})", f"u{kind[1:]}"
        extended = f"({expression}).astype({kind[0]}{canonical[1:]})"
        return extended if kind[0] == canonical[0] else f"{extended}.view({canonical})"

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """Return the members of a vector operand, or the operand itself."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    def write_back(self, indices: Iterable[int]) -> None:
        """Store locals that changed into the register list."""
        for index in sorted(indices):
            if index in self.dirty:
                self.emit(f"R[{index}] = v{index}")
                self.dirty.discard(index)

    def forget(self, indices: Iterable[int]) -> None:
        """Drop locals, once written back, whose registers something else writes; their tiles are flushed again."""
        for index in indices:
            self._local.discard(index)
            for key in [key for key in self._forms if key[0] == index]:
                del self._forms[key]
            self._flushed.difference_update(self._sets.get(index, ()))


@lru_cache(maxsize=1 << 12)
def _constant(value: int, kind: str, float_bits: int) -> tuple[str, NDArray[Any]]:
    """Return a constant as an array that broadcasts, and its name in the source."""
    bits = constant_bits(Immediate(value, float_bits), kind)
    array: NDArray[Any] = np.array([[bool(bits)]]) if kind == "pred" else np.array([[bits]], f"u{kind[1:]}").view(kind)
    array.flags.writeable = False
    return f"K_{kind}_{array.tobytes().hex()}", array


def address_of_symbol(name: str, is_ranked: bool) -> str:
    """Return an expression of a variable's address, which code may find to have the rank of its CTA."""
    return f"m.address_of(g, {name!r})" if is_ranked else f"m.symbols[{name!r}]"


Translator = Callable[[Emitter, Instruction], None]
_TRANSLATORS: dict[str, Translator] = {}
"""Translations of instructions, or forms of them, that have no meaning on the builder."""
_REFUSED: dict[str, frozenset[str]] = {name: meaning.refuses for name, meaning in MEANINGS.items()}
"""Modifiers that are not simulated, of all that have a translation, by the beginnings of their opcodes."""
_TYPES = frozenset(
    """pred b1 b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f32 f64 bf16 tf32 f16x2 bf16x2 e4m3 e5m2 e4m3x2 e5m2x2
    u16x2 s16x2 f32x2 e2m1x2 e2m3x2 e3m2x2 ue8m0x2""".split()
)


def instruction(*names: str, refuses: str = "") -> Callable[[Translator], Translator]:
    """Register the translation of instructions, by the first part of their opcode or by a longer prefix of it.

    Parameters
    ----------
    *names : str
        Opcodes, or their beginnings.
    refuses : str
        Modifiers of theirs that are not simulated. All others that PTX has are: see `ptx.instruction_set`.
    """

    def register(translator: Translator) -> Translator:
        for name in names:
            _TRANSLATORS[name] = translator
            _REFUSED[name] = _REFUSED.get(name, frozenset()) | frozenset(refuses.split())
        return translator

    return register


PARK = "return -2"
"""Ends a block whose threads wait: it runs again."""


def mechanism(names: str, method: str, operands: str = "", *, parks: bool = False) -> None:
    """Register the translation of instructions that a method of a mechanism executes, given their operands.

    Parameters
    ----------
    names : str
        Opcodes, or their beginnings.
    method : str
        Of the machine: called with the group, the instruction and the operands.
    operands : str
        Of each operand "address", "value" for the number of an immediate, "-" for one that is not passed, or the kind
        that it is read as, such as "u4".
    parks : bool
        True if the method tells if the threads may go on. Otherwise they run the block again.
    """
    taken = operands.split()

    def translate(e: Emitter, i: Instruction) -> None:
        given = zip(i.operands, taken, strict=True)
        arguments = [e.argument(operand, how) for operand, how in given if how != "-"]
        call = f"m.{method}({', '.join(('g', e.site, *arguments))})"
        e.emit(f"if not {call}: {PARK}" if parks else call)

    instruction(*names.split())(translate)


def provided() -> frozenset[str]:
    """Return the opcodes, and beginnings of them, that have a translation."""
    return frozenset(_REFUSED)


def registered_name(opcode: str) -> str:
    """Return the longest registered name that an opcode begins with; empty without one."""
    parts = opcode.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in _REFUSED), "")


def translator_of(opcode: str) -> Translator | None:
    """Find the translation of the longest registered prefix of an opcode; None if there is none beside its meaning."""
    return _TRANSLATORS.get(registered_name(opcode))


@cache
def is_type(part: str) -> bool:
    """Return whether a part of an opcode is a type."""
    return part in _TYPES


@lru_cache(maxsize=1 << 12)
def refused_modifier(opcode: str) -> str | None:
    """Return the part of an opcode that makes it unknown; None if it is known.

    An opcode that PTX doesn't have is unknown: ignoring a modifier could give wrong results.
    """
    parts = opcode.split(".")
    name = registered_name(opcode)
    if not name:
        return parts[0]
    refused = next((part for part in parts[name.count(".") + 1 :] if part in _REFUSED[name]), None)
    return refused or (None if is_spelled(opcode) else parts[-1])
