"""Steps of a kernel's pipeline, in the order of its text: MMAs with descriptors, barriers, copies and group waits.

Operands are evaluated as they are when their instruction first runs, in thread `thread` of the first CTA, with shared
memory at address 0. Of several writes to a register the first in the text counts, so that a loop-carried register has
the value with which it enters the loop. A result that depends on memory, parameters or other special registers is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cutepy.sim.ptx import Address, Function, Immediate, Instruction, Operand, Register, Special, Symbol, Vector
from cutepy.sim.semantics.evaluation import results_of
from cutepy.sim.translate import load_module
from cutepy.sim.translate.effects import accumulators, is_wgmma, written

_TELLING = frozenset("parity read inc dec async 1d 2d 3d 4d 5d".split())
"""Modifiers that say in which direction or in which way a step of a protocol goes."""


@dataclass(frozen=True)
class Wgmma:
    """A `wgmma.mma_async` with both operands in shared memory.

    Attributes
    ----------
    shape_mnk : (int, int, int)
        The instruction's extents.
    types : (str, str, str)
        Accumulator, A and B, as PTX spells them.
    transpose : (int, int)
        The tnspA and tnspB immediates: 1 says MN-major. (0, 0) where the instruction has none (8-bit types).
    accumulators : int
        Registers a thread holds of the accumulator.
    descriptors : (int, int)
        The matrix descriptors of A and B. All but the address is the same in every thread.
    accumulate : bool
        True if the product is added to the accumulators (scale-d), False if it overwrites them.
    saturate : bool
        True if sums of integers stay within s32.
    """

    shape_mnk: tuple[int, int, int]
    types: tuple[str, str, str]
    transpose: tuple[int, int]
    accumulators: int
    descriptors: tuple[int, int]
    accumulate: bool
    saturate: bool = False

    @property
    def spelling(self) -> str:
        """Instruction, as PTX spells it."""
        m, n, k = self.shape_mnk
        saturate = ".satfinite" if self.saturate else ""
        return f"wgmma.mma_async.sync.aligned.m{m}n{n}k{k}{saturate}.{'.'.join(self.types)}"


class Step(NamedTuple):
    """An instruction of a pipeline's protocol.

    Attributes
    ----------
    name : str
        Its opcode without the modifiers, such as "mbarrier.arrive".
    operands : tuple of int
        The operands that matter: addresses of mbarriers, parities, counts, coordinates.
    """

    name: str
    operands: tuple[int, ...] = ()


def wgmmas(ptx: str, *, thread: int = 0) -> list[Wgmma]:
    """List the shared-memory MMAs of a module's kernels, with the descriptors of thread `thread` of a CTA."""
    found = []
    for i, value in _instructions(ptx, thread):
        if is_wgmma(i) and isinstance(i.operands[1], Register):
            m, n, k = (int(extent) for extent in i.parts[4].replace("n", " ").replace("k", " ").lstrip("m").split())
            flags = [value(operand) for operand in i.operands[6:8]] or [0, 0]
            c, a, b = i.parts[-3:]
            found.append(
                Wgmma(
                    (m, n, k),
                    (c, a, b),
                    (flags[0], flags[1]),
                    len(accumulators(i)),
                    (value(i.operands[1]), value(i.operands[2])),
                    bool(value(i.operands[3])),
                    "satfinite" in i.parts,
                )
            )
    return found


def mbarrier_counts(ptx: str) -> list[int]:
    """List the arrival counts of the `mbarrier.init` instructions, in order."""
    return [value(i.operands[1]) for i, value in _instructions(ptx, 0) if i.traits.makes_mbarrier]


def steps(ptx: str, *, thread: int = 0) -> list[Step]:
    r"""List the waits, arrivals, fences, barriers, copies and groups of MMAs of a module's kernels.

    Examples
    --------
    >>> head = ".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() { .reg .b32 %r<2>;\n"
    >>> steps(head + "mov.b32 %r1, 64; mbarrier.init.shared.b64 [%r1+8], 3; wgmma.wait_group.sync.aligned 1; }")
    [Step(name='mbarrier.init', operands=(72, 3)), Step(name='wgmma.wait_group', operands=(1,))]
    """
    return [
        Step(_name(i), tuple(value(part) for operand in _operands(i) for part in _parts(operand)))
        for i, value in _instructions(ptx, thread)
        if _is_step(i)
    ]


def _is_step(i: Instruction) -> bool:
    """Return whether an instruction synchronises, orders, copies in bulk or is one of a warpgroup's."""
    traits = i.traits
    is_of_warpgroup = traits.sets_registers or traits.kind == "wgmma"
    return bool(traits.barrier) or traits.fences or traits.is_bulk or is_of_warpgroup


def _name(i: Instruction) -> str:
    """Name a step by its short name, the modifier that tells its way, and the state space that a tensor copy writes."""
    beyond = i.parts[i.name.count(".") + 1 :]
    telling = [part for part in beyond if part in _TELLING][:1]
    spaces = [space for part in beyond if (space := part.partition("::")[0]) in ("shared", "global")]
    return ".".join((i.name, *telling, *spaces[: int(i.traits.has_tensor_map)]))


def _operands(i: Instruction) -> Iterator[Operand]:
    """Yield addresses and numbers of barriers, groups and registers, but no operand that may be left out."""
    form = i.traits.form
    assert form is not None
    words = form.words if i.traits.barrier == "named" else form.words[: len(form.words) - form.optional]
    for word, operand in zip(words, i.operands, strict=False):
        if word in ("address", "barrier"):
            yield operand


def opcodes(ptx: str) -> Counter[str]:
    """Count the instructions of a module's kernels by full spelling, such as `wgmma.commit_group.sync.aligned`."""
    return Counter(i.opcode for i, _ in _instructions(ptx, 0))


def _instructions(ptx: str, thread: int) -> Iterator[tuple[Instruction, _Values]]:
    for function in load_module(ptx).functions.values():
        values = _Values(function, thread)
        yield from ((i, values) for i in function.instructions)


def _parts(operand: Operand) -> tuple[Operand, ...]:
    """Return the coordinates of a tensor's address, and any other operand as it is."""
    is_tensor = isinstance(operand, Address) and operand.coordinates is not None
    return operand.coordinates or () if is_tensor and isinstance(operand, Address) else (operand,)


class _Values:
    """Values of operands in one thread, by the first write to each register."""

    def __init__(self, function: Function, thread: int) -> None:
        self._thread = thread
        self._known: dict[Register, int] = {}
        self._writes: dict[Register, Instruction] = {}
        for i in function.instructions:
            for register in written(i):
                self._writes.setdefault(register, i)

    def __call__(self, operand: Operand) -> int:
        if isinstance(operand, Register):
            return self._register(operand)
        if isinstance(operand, Immediate):
            return operand.value
        if isinstance(operand, Address):
            return self(operand.base) + operand.offset
        if isinstance(operand, Special):
            return self._thread if operand.name == "tid.x" else 0
        if isinstance(operand, Symbol):
            return operand.offset
        if isinstance(operand, Vector):
            widths = [item.bits if isinstance(item, Register) else 32 for item in operand.items]
            places = (sum(widths[:n]) for n in range(len(widths)))
            return sum(self(item) << place for item, place in zip(operand.items, places, strict=True))
        return 0

    def _register(self, register: Register) -> int:
        if register not in self._known:
            self._known[register] = 0  # a register that depends on itself starts at 0
            self._known[register] = self._result(self._writes.get(register), register) & (1 << register.bits) - 1
        return self._known[register]

    def _result(self, i: Instruction | None, register: Register) -> int:
        if i is None or (i.parts[0] in ("div", "rem") and not self(i.operands[2])):  # by what is not known
            return 0
        if i.traits.maps:  # the addresses of the same variable are taken for equal
            return self(i.operands[1])
        found = dict(results_of(i, self)).get(register)
        return 0 if found is None or found.data is None else int(found.data)
