"""Reader of a kernel's PTX: MMAs, descriptor constants, barriers and copies, with evaluated operands.

Operands are evaluated as they are when their instruction first runs, in thread `thread` of the first CTA, with shared
memory at address 0.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

_WGMMA = re.compile(
    # With line information, each of the two has a source location.
    r"(?:setp\.ne\.b32\s+p\s*,\s*(?P<scale_d>%?\w+)\s*,\s*0\s*;\s*(?:\.loc[^\n]*\n\s*)*)?"
    r"wgmma\.mma_async\.sync\.aligned\.m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)(?P<saturate>\.satfinite)?"
    r"\.(?P<c>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\s*"
    r"\{(?P<registers>[^}]*)\}\s*,\s*(?P<desc_a>%\w+)\s*,\s*(?P<desc_b>%\w+)\s*,(?P<rest>[^;]*);"
)
_DEFINITION = re.compile(r"^\s*(?P<opcode>[a-z][\w.:]*)\s+(?P<target>%\w+|\{[^}]*\})\s*,\s*(?P<sources>[^;]*);", re.M)
_MBARRIER_INIT = re.compile(r"mbarrier\.init\.shared(?:::cta)?\.b64\s+\[[^\]]*\]\s*,\s*(?P<count>%?\w+)\s*;")
_INSTRUCTION = re.compile(
    r"^\s*(?:\{\s*)?(?:@!?%?\w+\s+)?(?P<opcode>[a-z][a-z0-9_]*(?:[.:]+\w+)*)(?=[\s;])[^\n]*;", re.M
)
_STEP = re.compile(
    r"^\s*(?:\{\s*)?(?:@!?%?\w+\s+)?(?P<opcode>[a-z][a-z0-9_]*(?:[.:]+\w+)*)[ \t]*(?P<operands>[^;]*);", re.M
)
_OPERAND = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^,\s]+")
# Instructions of a pipeline's protocol, each with the positions of its operands: the first of two that fit. A tensor
# copy's operands are its addresses and coordinates.
_STEPS: dict[str, tuple[int, ...]] = {
    "mbarrier.init": (0, 1),
    "mbarrier.try_wait.parity": (1, 2),
    "mbarrier.arrive.expect_tx": (1, 2),
    "mbarrier.arrive": (1,),
    "fence.mbarrier_init": (),
    "fence.proxy.async": (),
    "barrier.cluster.arrive": (),
    "barrier.cluster.wait": (),
    "bar.warp.sync": (),
    "bar.sync": (0, 1),
    "barrier.sync": (0, 1),
    "setmaxnreg.dec": (0,),
    "setmaxnreg.inc": (0,),
    "wgmma.fence": (),
    "wgmma.mma_async": (),
    "wgmma.commit_group": (),
    "wgmma.wait_group": (0,),
    **{f"cp.async.bulk.tensor.{rank}d.global": (0, 1) for rank in range(1, 6)},
    **{f"cp.async.bulk.tensor.{rank}d.shared": (0, 1, 2) for rank in range(1, 6)},
    "cp.async.bulk.commit_group": (),
    "cp.async.bulk.wait_group.read": (0,),
    "cp.async.bulk.wait_group": (0,),
}
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
        The matrix descriptors of A and B. All but the address is the same in every thread.
    accumulate : bool
        Whether the product is added to the accumulators (scale-d) or overwrites them.
    saturate : bool
        Whether sums of integers stay within s32.
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


def wgmmas(ptx: str, *, thread: int = 0) -> list[Wgmma]:
    """List the shared-memory MMAs of a kernel, in order, with the descriptors of thread `thread` of a CTA."""
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
                bool(evaluate(match["scale_d"] or "1")),
                match["saturate"] is not None,
            )
        )
    return found


def mbarrier_counts(ptx: str) -> list[int]:
    """List the arrival counts of the `mbarrier.init` instructions, in order."""
    evaluate = _Evaluator(_definitions(ptx), 0).value
    return [evaluate(match["count"]) for match in _MBARRIER_INIT.finditer(ptx)]


class Step(NamedTuple):
    """One instruction of a pipeline's protocol.

    Attributes
    ----------
    name : str
        Its opcode without the modifiers, such as "mbarrier.arrive".
    operands : tuple of int
        The operands that matter: addresses of mbarriers, parities, counts, coordinates.
    """

    name: str
    operands: tuple[int, ...] = ()


def steps(ptx: str, *, thread: int = 0) -> list[Step]:
    r"""List the waits, arrivals, fences, barriers, copies and groups of MMAs of a kernel, in the order of its text.

    Examples
    --------
    >>> steps("mov.b32 %r1, 64; \n mbarrier.init.shared.b64 [%r1+8], 3;\n ret;\n wgmma.wait_group.sync.aligned 1;")
    [Step(name='mbarrier.init', operands=(72, 3)), Step(name='wgmma.wait_group', operands=(1,))]
    """
    evaluate = _Evaluator(_definitions(ptx), thread).value
    found = []
    for match in _STEP.finditer(ptx):
        name = next((name for name in _STEPS if match["opcode"].startswith(name)), None)
        if name is not None:
            written = _OPERAND.findall(match["operands"])
            parts = [part for index in _STEPS[name] for part in _address_parts(written[index : index + 1])]
            found.append(Step(name, tuple(sum(map(evaluate, part)) for part in parts)))
    return found


def _address_parts(operand: list[str]) -> list[list[str]]:
    """Split an operand into address sums: `[%r1+8]` into one, `[%rd1, {%r1, %r2}]` into its two coordinates."""
    text = "".join(operand).strip("[]")
    text = text[text.find("{") + 1 :].rstrip("} ")
    return [part.strip().split("+") for part in text.split(",") if part]


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
    """Compute registers of one thread as they are first used, as if shared memory started at address 0.

    Of several writes the first in the text counts: a loop-carried register has the value that it enters with. Whatever
    is no plain arithmetic on constants (special registers, loads) counts as 0: what remains is the constant part.
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
        "selp": lambda a, b, chosen: a if chosen else b,
        "setp.eq": operator.eq,
        "setp.ne": operator.ne,
        "mapa": lambda address, _rank: address,  # the same address in a peer CTA
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
            self._known[operand] = 0  # a register that depends on itself starts at 0
            self._known[operand] = self._evaluate(operand)
        return self._known[operand]

    def _evaluate(self, register: str) -> int:
        writes = self._definitions.get(register, [])
        if not writes:
            return 0
        opcode, target, sources = writes[0]
        verb, *modifiers = opcode.split(".")
        operation = self._OPERATIONS.get(f"setp.{modifiers[0]}" if verb == "setp" else verb)
        if operation is None:
            return 0
        operands = [self.value(part.strip()) for part in re.findall(r"\{[^}]*\}|[^,]+", sources)]
        bits = int(re.sub(r"\D", "", opcode.rsplit(".", 1)[-1]) or 64) * (2 if ".wide." in opcode else 1)
        result = operation(*operands) & (1 << bits) - 1
        if target.startswith("{"):  # mov.b64 {low, high}, source
            result = result >> 32 if target.strip("{}").split(",")[1].strip() == register else result & 0xFFFFFFFF
        return result
