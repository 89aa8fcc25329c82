"""Read from a kernel's PTX what it was meant to hold: its MMAs, descriptor constants, barriers and copies."""

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

_WGMMA = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)\.(?P<c>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\s*"
    r"\{(?P<registers>[^}]*)\}\s*,\s*(?P<desc_a>%\w+)\s*,\s*(?P<desc_b>%\w+)\s*,(?P<rest>[^;]*);"
)
_DEFINITION = re.compile(r"^\s*(?P<opcode>[a-z][\w.:]*)\s+(?P<target>%\w+|\{[^}]*\})\s*,\s*(?P<sources>[^;]*);", re.M)
_MBARRIER_INIT = re.compile(r"mbarrier\.init\.shared(?:::cta)?\.b64\s+\[[^\]]*\]\s*,\s*(?P<count>%?\w+)\s*;")
_INSTRUCTION = re.compile(
    r"^\s*(?:\{\s*)?(?:@!?%?\w+\s+)?(?P<opcode>[a-z][a-z0-9_]*(?:[.:]+\w+)*)(?=[\s;])[^\n]*;", re.M
)
_REGISTER = re.compile(r"%\w+")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)U?")


@dataclass(frozen=True)
class Wgmma:
    """One `wgmma.mma_async` with both operands in shared memory.

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
        The matrix descriptors of A and B in the first pipeline stage, were shared memory to start at address 0. All but
        the address is the same in every thread.
    """

    shape_mnk: tuple[int, int, int]
    types: tuple[str, str, str]
    transpose: tuple[int, int]
    accumulators: int
    descriptors: tuple[int, int]


def wgmmas(ptx: str, *, thread: int = 0) -> list[Wgmma]:
    """List the shared-memory MMAs of a kernel, in order, with the descriptors that thread `thread` of a CTA has."""
    evaluate = _Evaluator(_definitions(ptx), thread).value
    found = []
    for match in _WGMMA.finditer(ptx):
        immediates = [part.strip() for part in match["rest"].split(",")]
        transposes = [int(x) for x in immediates[3:5]] or [0, 0]
        found.append(
            Wgmma(
                (int(match["m"]), int(match["n"]), int(match["k"])),
                (match["c"], match["a"], match["b"]),
                (transposes[0], transposes[1]),
                match["registers"].count("%"),
                (evaluate(match["desc_a"]), evaluate(match["desc_b"])),
            )
        )
    return found


def mbarrier_counts(ptx: str) -> list[int]:
    """List the arrival counts of the `mbarrier.init` instructions, in order."""
    evaluate = _Evaluator(_definitions(ptx), 0).value
    return [evaluate(match["count"]) for match in _MBARRIER_INIT.finditer(ptx)]


def opcodes(ptx: str) -> Counter[str]:
    r"""Count the instructions of a kernel by full spelling, such as `wgmma.commit_group.sync.aligned`.

    Examples
    --------
    >>> opcodes("  add.s32 %r1, %r2, 1;  // sum\n  @%p1 bra $L1;\n  ret;")
    Counter({'add.s32': 1, 'bra': 1, 'ret': 1})
    """
    return Counter(match["opcode"] for match in _INSTRUCTION.finditer(ptx))


def _definitions(ptx: str) -> dict[str, list[tuple[str, str, str]]]:
    """Map each register to the (opcode, target, sources) of every instruction that writes it."""
    table: dict[str, list[tuple[str, str, str]]] = {}
    for match in _DEFINITION.finditer(ptx):
        for register in _REGISTER.findall(match["target"]):
            table.setdefault(register, []).append((match["opcode"], match["target"], match["sources"]))
    return table


class _Evaluator:
    """Compute registers of one thread as if shared memory started at address 0, in pipeline stage 0.

    Whatever is no plain arithmetic on constants (special registers, loads, loop-carried values) counts as 0: what
    remains of a descriptor is its constant part.
    """

    _OPERATIONS: ClassVar[dict[str, Callable[..., int]]] = {
        "mov": lambda a: a,
        "cvt": lambda a: a,
        "add": operator.add,
        "sub": operator.sub,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "shl": operator.lshift,
        "shr": operator.rshift,
        "mul": operator.mul,
        "mad": lambda a, b, c: a * b + c,
    }

    def __init__(self, definitions: Mapping[str, list[tuple[str, str, str]]], thread: int) -> None:
        self._definitions = definitions
        self._known = {"%tid.x": thread}

    def value(self, operand: str) -> int:
        """Evaluate a register, an immediate or a `{low, high}` pair of 32-bit registers."""
        if operand.startswith("{"):
            low, high = (part.strip() for part in operand.strip("{}").split(","))
            return self.value(low) | self.value(high) << 32
        if not operand.startswith("%"):
            return int(operand, 0) if _INTEGER.fullmatch(operand) else 0
        if operand not in self._known:
            self._known[operand] = 0  # a loop-carried register that depends on itself starts at 0
            self._known[operand] = self._evaluate(operand)
        return self._known[operand]

    def _evaluate(self, register: str) -> int:
        writes = self._definitions.get(register, [])
        if len(writes) != 1:
            return 0
        opcode, target, sources = writes[0]
        operation = self._OPERATIONS.get(opcode.split(".")[0])
        if operation is None:
            return 0
        operands = [self.value(part.strip()) for part in re.findall(r"\{[^}]*\}|[^,]+", sources)]
        bits = int(re.sub(r"\D", "", opcode.rsplit(".", 1)[-1]) or 64) * (2 if ".wide." in opcode else 1)
        result = operation(*operands) & (1 << bits) - 1
        if target.startswith("{"):  # mov.b64 {low, high}, source
            result = result >> 32 if target.strip("{}").split(",")[1].strip() == register else result & 0xFFFFFFFF
        return result
