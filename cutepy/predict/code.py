"""Steps of basic blocks: issue slots, cycles, pipes and scoreboards, from the assembled machine code.

The simulator executes blocks of PTX, and the assembler makes other blocks of them: it moves, joins, unrolls and drops
instructions. Each instruction of machine code is counted in the block of PTX whose anchors, the instructions that
nothing moves (accesses, barriers, MMAs, branches), are around it. A block that the assembler copied has variants, which
are taken in turn.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cutepy.binaries.machine_code import MachineInstruction
from cutepy.predict.gpu import Gpu
from cutepy.sim.translate.control_flow import Block

FMA, ALU, XU, FP64, TENSOR, LSU = range(6)
PIPES = ("FMA", "ALU", "XU", "FP64", "tensor (mma.sync)", "LSU")
SCHEDULERS = 4
"""Sub-partitions of an SM, each with a scheduler and pipes of its own; the LSU is the SM's."""
_CHUNK = 8
"""Most issue slots of a step: the warps of a scheduler take turns after each step."""
_MOVED = 0.3
"""Smallest part of a PTX block, relative to the largest, that counts as a copy; the assembler moved smaller parts."""
_CONSTANT_CYCLES = 30
"""Latency of LDC, and of other instructions that set a scoreboard and have no constant of their own."""
_ANCHORS = frozenset(
    """LDG STG LDS STS LDSM STSM ATOM ATOMG ATOMS RED REDG REDAS LDGSTS LDGDEPBAR UTMALDG UTMASTG UTMAREDG UTMACMDFLUSH
    UBLKCP UBLKRED SYNCS BAR HGMMA QGMMA IGMMA BGMMA WARPGROUP DEPBAR UCGABAR_ARV UCGABAR_WAIT ACQBULK PREEXIT LD ST
    USETMAXREG FENCE MEMBAR ARRIVES NANOSLEEP HMMA IMMA QMMA""".split()
)
"""Instructions that the assembler never moves across a branch."""
_MMAS = frozenset("HGMMA QGMMA IGMMA BGMMA".split())
_ENDS = frozenset("BRA BRX JMP JMX EXIT RET CALL BSYNC BREAK YIELD KILL".split())
_CLASSES = {
    "FFMA": (FMA, "ffma"), "FMUL": (FMA, "fmul"), "FADD": (FMA, "fadd"), "IMAD": (FMA, "imad"), "HFMA2": (FMA, "hfma2"),
    "HADD2": (FMA, "hadd2"), "HMUL2": (FMA, "hfma2"), "FMNMX": (ALU, "fmnmx"), "IADD3": (ALU, "iadd3"),
    "LOP3": (ALU, "lop3"), "SHF": (ALU, "shf"), "PRMT": (ALU, "prmt"), "SEL": (ALU, "sel"), "FSEL": (ALU, "sel"),
    "MOV": (ALU, "mov"), "I2F": (XU, "i2f"), "F2I": (XU, "f2i"), "F2F": (XU, "f2i"), "POPC": (XU, "popc"),
    "FLO": (XU, "popc"), "BREV": (XU, "popc"), "DFMA": (FP64, "dfma"), "DADD": (FP64, "dfma"), "DMUL": (FP64, "dfma"),
    "SHFL": (LSU, "shfl"), "REDUX": (XU, "redux"), "VOTE": (ALU, "vote"), "S2R": (XU, "s2r"),
}  # fmt: skip
"""Opcode -> pipe and class; the GPU's constants have an interval and a latency for each class."""
_MUFU = {
    "EX2": "ex2",
    "RCP": "rcp",
    "RSQ": "rsqrt",
    "LG2": "lg2",
    "TANH": "tanh",
    "SQRT": "rsqrt",
    "SIN": "ex2",
    "COS": "ex2",
}
_NO_PIPE = frozenset("NOP BSSY BSYNC WARPSYNC R2UR NANOSLEEP CS2R ELECT PLOP3 ACQBULK PREEXIT DEPBAR ERRBAR".split())


class Action(NamedTuple):
    """Instruction whose cost depends on its facts: its number in PTX, scoreboards, and the class of its access.

    It has been issued `ago` cycles before the step's end.
    """

    number: int
    sets: int | None
    releases: int | None
    kind: str
    ago: float = 0.0


class Step(NamedTuple):
    """Instructions that issue without a wait between them.

    Attributes
    ----------
    waits : tuple of int
        Scoreboards that the step waits for.
    slots : int
        Issue slots.
    cycles : float
        Cycles until the warp's next step, while nothing else uses the scheduler and the pipes.
    pipes : tuple of (int, float)
        Cycles of each pipe that is used.
    sets : tuple of (int, float)
        Scoreboards, each with the cycles from the step's end until it is clear.
    action : Action or None
        The last instruction.
    line : int
        PTX line of the last instruction.
    conflicts : int
        Cycles in which the scheduler issues nothing, because operands are read from one bank of the register file.
    constants : tuple of int
        Lines of the constant bank of parameters that are read.
    """

    waits: tuple[int, ...]
    slots: int
    cycles: float
    pipes: tuple[tuple[int, float], ...]
    sets: tuple[tuple[int, float], ...]
    action: Action | None
    line: int
    conflicts: int = 0
    constants: tuple[int, ...] = ()


Variants = list[list[Step]]


def block_steps(
    blocks: Sequence[Block], code: Sequence[MachineInstruction], factual: Collection[int], gpu: Gpu
) -> list[Variants]:
    """Return the steps of each block of PTX, by variant.

    Parameters
    ----------
    blocks : sequence of Block
        As the simulator executes them.
    code : sequence of MachineInstruction
        The kernel's.
    factual : collection of int
        Indices of PTX instructions with facts: each is an action, even without an instruction of machine code.
    gpu : Gpu
    """
    homes = _homes(blocks)
    parts = [_with_mma_lines(part, homes, blocks) for part in _basic_blocks(code)]
    counts = [Counter(homes[i.line][1] for i in part if i.line in homes) for part in parts]
    most = Counter[int]()
    for count in counts:
        most |= count
    placed = [
        _place(part, homes, {block for block, n in count.items() if n >= _MOVED * most[block]})
        for part, count in zip(parts, counts, strict=True)
    ]
    found: list[Variants] = []
    for number, block in enumerate(blocks):
        own = [by_block[number] for by_block in placed if number in by_block]
        indices = {i.index: i.line for i in block.instructions if i.index in factual}
        compiler = _Compiler(gpu, indices)
        found.append([compiler.compile(variant) for variant in _variants(own)])
    return found


def _homes(blocks: Sequence[Block]) -> dict[int, tuple[int, int]]:
    """Map each line of PTX to the block of its instruction and the block of the guard, equal without a guard."""
    homes: dict[int, tuple[int, int]] = {}
    for number, block in enumerate(blocks):
        for i in block.instructions:
            homes[i.line] = number, homes[i.line][1] if i.line in homes else number
        if block.branch is not None:
            homes[block.branch.line] = number, number
    return homes


def _basic_blocks(code: Sequence[MachineInstruction]) -> Iterator[Sequence[MachineInstruction]]:
    leaders = {0, *(i.target for i in code if i.target is not None)}
    leaders.update(n + 1 for n, i in enumerate(code) if i.verb in _ENDS)
    starts = sorted(n for n in leaders if n < len(code))
    for start, end in zip(starts, [*starts[1:], len(code)], strict=True):
        yield code[start:end]


def _with_mma_lines(
    part: Sequence[MachineInstruction], homes: dict[int, tuple[int, int]], blocks: Sequence[Block]
) -> Sequence[MachineInstruction]:
    """Give wgmmas their lines by their order: the assembler names the same line for several of them."""
    mmas = [n for n, i in enumerate(part) if i.verb in _MMAS and not i.operands.startswith("RZ")]
    if not mmas:
        return part
    near = sorted({homes[i.line][0] for i in part if i.line in homes})
    lines = [i.line for number in near for i in blocks[number].instructions if i.parts[:2] == ("wgmma", "mma_async")]
    if not lines or len(mmas) % len(lines):
        return part
    found = list(part)
    for n, at in enumerate(mmas):
        found[at] = replace(part[at], line=lines[n % len(lines)])
    return found


def _place(
    part: Sequence[MachineInstruction], homes: dict[int, tuple[int, int]], whole: set[int]
) -> dict[int, list[MachineInstruction]]:
    """Assign a basic block of machine code to blocks of PTX: those with anchors in it, and those in `whole`.

    The assembler moved instructions of other blocks here, such as out of a loop: they count with the block before.
    """

    def home(i: MachineInstruction) -> int | None:
        if i.line not in homes:
            return None
        return homes[i.line][0 if i.verb in _ANCHORS else 1]

    core = {home(i) for i in part if i.verb in _ANCHORS or i.verb in _ENDS} | whole
    found: dict[int, list[MachineInstruction]] = defaultdict(list)
    current = next((home(i) for i in part if home(i) in core and home(i) is not None), None)
    if current is None:
        return found
    for i in part:
        here = home(i)
        if here is not None and here in core:
            current = here
        found[current].append(i)
    return found


def _variants(parts: Sequence[list[MachineInstruction]]) -> list[list[MachineInstruction]]:
    """Return the copies of a block that one execution takes in turn.

    Parts that share no line of PTX form one copy together. Of parts that share lines, the longest is kept: the unrolled
    loop, not its remainder.
    """
    if not parts:
        return [[]]
    kept: list[list[MachineInstruction]] = []
    for part in sorted(parts, key=len, reverse=True):
        lines = {i.line for i in part if i.verb in _ANCHORS} or {i.line for i in part}
        if not any(lines & {i.line for i in other} for other in kept):
            kept.append(part)
    order = [part for part in parts if any(part is other for other in kept)]
    whole = [i for part in order for i in part]
    # A wait for a phase is tried again under a guard, which is no copy.
    marks = [i for i in whole if i.verb in _ANCHORS and not i.is_guarded] or whole
    counts = Counter(i.line or 0 for i in marks)
    copies, line = min((count, line) for line, count in counts.items())
    if copies == 1:
        return [whole]
    chosen = {id(i) for i in marks if i.line == line}
    starts = [0, *[n for n, i in enumerate(whole) if id(i) in chosen][1:]]
    return [whole[start:end] for start, end in zip(starts, [*starts[1:], len(whole)], strict=True)]


class _Compiler:
    """Compiler of one block's machine code to steps."""

    def __init__(self, gpu: Gpu, indices: dict[int, int]) -> None:
        self._gpu, self._indices = gpu, indices
        self._of_line: dict[int, list[int]] = defaultdict(list)
        for index, line in indices.items():
            self._of_line[line].append(index)

    def compile(self, code: Sequence[MachineInstruction]) -> list[Step]:
        """Return the steps."""
        self._steps: list[Step] = []
        self._now = 0.0
        self._begin(())
        known: dict[int, float] = {}
        missing = dict.fromkeys(self._indices)
        anchored = {i.line for i in code if i.verb in _ANCHORS}
        kept: dict[int, int] = {}
        for i in code:
            index = next((n for n in self._of_line.get(i.line or 0, ()) if n in missing), None)
            acts = index is not None and i.verb in _ANCHORS
            if index is not None and acts:
                # Instructions without machine code, such as the end of a group of MMAs, are over before.
                before = [n for n in missing if n < index and self._indices[n] not in anchored]
                known = self._act_without_code(before, missing, known)
            unknown = tuple(n for n in i.waits if n not in known)
            if unknown:
                if self._slots:
                    self._close(known, None, i.line)
                self._begin(unknown)
            self._now = max([self._now, *(known.pop(n) for n in i.waits if n in known)])
            self._slots += 1
            conflicts, kept = read_conflicts(i, kept)
            self._conflicts += conflicts
            for offset in _PARAMETER.findall(i.operands):
                self._constants[int(offset, 16) // CONSTANT_BYTES] = None
            self._add_pipe(i)
            start = self._now
            self._now += max(i.stall, 1)
            if acts:
                assert index is not None
                del missing[index]
                for n in (i.sets, i.releases):
                    if n is not None:
                        known.pop(n, None)
                self._close(known, Action(index, i.sets, i.releases, kind_of(i), max(i.stall, 1)), i.line)
                known.clear()
                self._begin(())
                continue
            if i.sets is not None:
                known[i.sets] = start + self._latency(i)
            if i.releases is not None:
                known[i.releases] = start + 10
            if self._slots >= _CHUNK:
                base = self._now
                self._close({}, None, i.line)
                self._begin(())
                known = {n: time - base for n, time in known.items()}
        known = self._act_without_code([*missing], missing, known)
        if self._slots or known:
            self._close(known, None, None)
        return self._steps

    def _act_without_code(
        self, indices: Sequence[int], missing: dict[int, None], known: dict[int, float]
    ) -> dict[int, float]:
        """Add the actions of instructions without machine code; returns the scoreboards that are still known."""
        for index in indices:
            if self._slots:
                self._close(known, None, None)
                known = {}
                self._begin(())
            self._close({}, Action(index, None, None, ""), self._indices[index])
            self._begin(())
            del missing[index]
        return known

    def _begin(self, waits: tuple[int, ...]) -> None:
        self._waits, self._slots, self._now, self._conflicts = waits, 0, 0.0, 0
        self._constants: dict[int, None] = {}
        self._pipes: dict[int, float] = defaultdict(float)

    def _close(self, known: dict[int, float], action: Action | None, line: int | None) -> None:
        sets = tuple((n, time - self._now) for n, time in known.items() if time > self._now)
        pipes = tuple(self._pipes.items())
        lines = tuple(self._constants)
        self._steps.append(
            Step(self._waits, self._slots, self._now, pipes, sets, action, line or 0, self._conflicts, lines)
        )

    def _add_pipe(self, i: MachineInstruction) -> None:
        if i.verb == "MUFU":
            name = _MUFU.get(i.opcode.split(".")[1], "ex2")
            self._pipes[XU] += self._gpu.at("instr.interval", name)
        elif i.verb in ("HMMA", "IMMA", "QMMA"):
            self._pipes[TENSOR] += self._gpu.at("mma.cycles", _mma(i))
        elif i.verb == "IMAD" and ("WIDE" in i.opcode or "HI" in i.opcode):  # products of 64 bits
            self._pipes[FMA] += self._gpu.at("instr.interval", "imad_wide")
        elif i.verb == "F2FP":
            self._pipes[ALU] += self._gpu.at("instr.interval", "cvt_e4m3x2" if "E4M3" in i.opcode else "cvt_bf16x2")
        elif i.verb in _CLASSES:
            pipe, name = _CLASSES[i.verb]
            interval = self._gpu.at("instr.interval", name)  # of a sub-partition, while all are at work
            self._pipes[pipe] += interval / SCHEDULERS if pipe == LSU else interval
        elif i.verb in ("LDL", "STL"):
            self._pipes[LSU] += self._gpu.at("global.interval", "ldg32")
        elif not (i.verb in _ANCHORS or i.verb in _ENDS or i.verb in _NO_PIPE or i.verb.startswith("U")):
            self._pipes[ALU] += self._gpu.at("instr.interval", "iadd3")

    def _latency(self, i: MachineInstruction) -> float:
        if i.verb == "MUFU":
            return self._gpu.at("instr.latency", _MUFU.get(i.opcode.split(".")[1], "ex2"))
        if i.verb in ("HMMA", "IMMA", "QMMA"):
            return self._gpu.at("mma.latency", _mma(i))
        if i.verb in _CLASSES:
            return self._gpu.at("instr.latency", _CLASSES[i.verb][1])
        if i.verb == "LDL":
            return self._gpu.value("l1.latency")
        if i.verb == "MEMBAR":
            return self._gpu.at("fence", "acq_rel_cta" if "CTA" in i.opcode else "acq_rel_gpu")
        if i.verb == "SYNCS":
            return self._gpu.value("mbarrier.try_wait")
        return _CONSTANT_CYCLES


_PARAMETER = re.compile(r"\bc\[0x0\]\[(0x[0-9a-f]+)\]")
CONSTANT_BYTES = 64
"""Line of the constant cache next to the schedulers (Jia et al., arXiv 1804.06826, of Volta)."""
FIRST_PARAMETER = 0x210
"""Place of the first parameter in the constant bank."""
_SOURCE = re.compile(r"-?[|~!]?R(\d+)(\.reuse)?\b")


def read_conflicts(i: MachineInstruction, kept: Mapping[int, int]) -> tuple[int, dict[int, int]]:
    """Return the cycles that an instruction's operands take beyond the first, and the operands that are kept after it.

    Registers of even and of odd numbers are two banks of a sub-partition's register file, and each reads one operand a
    cycle. An operand with `.reuse` is kept at its place for the next instruction. So FFMA with three sources, of which
    two are in a bank, takes two cycles: chains of eight warps do (instr.chain_interval), and HFMA2 and HADD2, whose
    intervals are above one (Huerta et al., arXiv 2503.20481, section 5.3, of Ampere).

    Parameters
    ----------
    i : MachineInstruction
    kept : mapping of int to int
        Register of each place of an operand that the instruction before has kept.
    """
    if i.verb in _NO_PIPE or i.verb in _ANCHORS or i.verb in _ENDS or i.verb == "MUFU" or i.sets is not None:
        return 0, {}
    read, after = set(), {}
    for place, text in enumerate(i.operands.split(", ")[1:]):
        found = _SOURCE.match(text)
        if found:
            register = int(found[1])
            if kept.get(place) != register:
                read.add(register)
            if found[2]:
                after[place] = register
    odd = sum(register % 2 for register in read)
    return max(0, odd - 1, len(read) - odd - 1), after


def _mma(i: MachineInstruction) -> str:
    for part, name in (
        ("BF16", "bf16_m16n8k16"),
        ("TF32", "tf32_m16n8k8"),
        ("E4M3", "e4m3_m16n8k32"),
        ("E5M2", "e4m3_m16n8k32"),
    ):
        if part in i.opcode:
            return name
    return "s8_m16n8k32" if i.verb == "IMMA" else "f16_m16n8k16"


def kind_of(i: MachineInstruction) -> str:
    """Return the class of an access, by which the GPU's constants name it; "" of others."""
    parts = i.opcode.split(".")
    width = "128" if "128" in parts else "64" if "64" in parts else "32"
    match i.verb:
        case "LDS" | "STS" | "LDG" | "STG":
            return i.verb.lower() + width
        case "LDSM" | "STSM":
            count = parts[-1] if parts[-1] in ("2", "4") else "1"
            return ("ldmatrix_x" if i.verb == "LDSM" else "stmatrix_x") + count
        case "ATOMS":
            return "atom_add"
        case _:
            return ""
