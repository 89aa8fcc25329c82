"""Parse PTX text into a `Module`.

The text is cut into statements by one regular expression. Blocks in braces, as inline assembly writes them, scope
their registers and labels; `.loc` lines give each instruction its line of Python.

References
----------
PTX ISA, "Syntax", "Directives".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from cutepy.sim.ptx.model import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Parameter,
    Register,
    Sink,
    SourceLine,
    Special,
    Symbol,
    Unread,
    Variable,
    Vector,
    type_bits,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_STATEMENT = re.compile(
    r"""\s*(?:
      (?P<loc>\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)(?:\s+(?P<column>\d+))?(?P<inlined>[^\n]*))
    | (?P<open>\{) | (?P<close>\})
    | (?P<label>[$%A-Za-z_][\w$]*)\s*:(?!:)
    | (?P<directive>\.[a-z][^;\n{]*(?:\{[^}]*\})?[^;\n]*;?)
    | (?:@(?P<negated>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)(?P<operands>[^;]*);
    )""",
    re.X,
)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?\s*([^{]*)\{")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.(?:const|global|local|shared)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$]+)\s*(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"^(?:\.visible|\.extern|\.weak|\s)*\.(shared|global|const|local)\s+(?:\.align\s+(\d+)\s+)?(?:\.attribute\([^)]*\)\s+)?"
    r"\.(\w+)\s+([\w$]+)\s*(\[\d*\])?\s*(?:=\s*(\{[^}]*\}|[^;]*))?\s*;",
    re.M,
)
_INLINED_AT = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_REGISTERS = re.compile(r"\.reg\s+(?:\.v([24])\s+)?\.(\w+)\s+(.*?);?\s*$", re.S)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_FILE_REF = re.compile(
    r"\s*\.(reqntid|maxntid|minnctapersm|maxnctapersm|explicitcluster|reqnctapercluster|maxclusterrank)\s*([\d,\s]*)"
)
_INTEGER = re.compile(r"([-+]?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_SPECIALS = frozenset(
    """tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid gridid clusterid nclusterid cluster_ctaid cluster_nctaid
    cluster_ctarank cluster_nctarank is_explicit_cluster clock clock64 clock_hi globaltimer globaltimer_lo
    globaltimer_hi lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt dynamic_smem_size total_smem_size
    aggr_smem_size envreg0 WARP_SZ""".split()
)


_T = TypeVar("_T")


class PtxSyntaxError(ValueError):
    """Text that is not the PTX this parser knows."""


_NOT_UNDERSTOOD = (PtxSyntaxError, AssertionError, LookupError, TypeError, ValueError)
"""What parsing a statement may raise that is of another form than those known."""


def parse_module(text: str, unread: list[Unread] | None = None) -> Module:
    """Parse a PTX module.

    Parameters
    ----------
    text : str
        As the compiler wrote it.
    unread : list of Unread, optional
        Gets what is not understood, and the rest is read: statements without their operands, or not at all.

    Raises
    ------
    PtxSyntaxError
        If a statement is not understood, and there is no such list; the message shows it.

    Examples
    --------
    >>> module = parse_module('''.target sm_90a
    ... .visible .entry k(.param .u32 k_param_0) { .reg .b32 %r<3>; add.s32 %r1, %r2, 5; ret; }''')
    >>> [i.opcode for i in module.functions["k"].instructions]
    ['add.s32', 'ret']
    """
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    reading = _Reading(unread)
    files = {int(number): name for number, name in _FILE.findall(text)}
    target = re.search(r"\.target\s+([\w]+)", text)
    functions: dict[str, Function] = {}
    outside = []
    position = 0
    for match in _ENTRY.finditer(text):
        line = text.count("\n", 0, match.end()) + 1
        end = reading.attempt(partial(_closing_brace, text, match.end()), line, match[0], len(text) + 1)
        outside.append(text[position : match.start()])
        position = end
        body = text[match.end() : end - 1]
        functions[match[1]] = _Body(files, reading, line).parse(match[1], match[2] or "", match[3], body)
    outside.append(text[position:])
    declared = [
        reading.attempt(partial(_variable, match), 0, match[0], None)
        for match in _VARIABLE.finditer("\n".join(outside))
    ]
    return Module(target[1] if target else "", functions, tuple(v for v in declared if v is not None))


class _Reading:
    """What becomes of statements that are not understood: they are listed, or end the reading."""

    def __init__(self, unread: list[Unread] | None) -> None:
        self._unread = unread
        self.strict = unread is None

    def attempt(self, read: Callable[[], _T], line: int, text: str, otherwise: _T) -> _T:
        """Give what reading a text gives, or something else."""
        if self._unread is None:
            return read()
        try:
            return read()
        except _NOT_UNDERSTOOD as error:
            words = " ".join(text.split())
            self._unread.append(Unread(line, words[:80], str(error) or "of a form that is not known"))
            return otherwise


def _closing_brace(text: str, position: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, position):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    raise PtxSyntaxError("the body of a function does not end")


def _variable(match: re.Match[str]) -> Variable:
    space, alignment, kind, name, extent, initial = match.groups()
    element = max(type_bits(kind), 8) // 8
    size: int | None = element
    if extent is not None:
        size = int(extent[1:-1]) * element if extent != "[]" else None
    data = None
    if initial:
        values = [int(v.strip(), 0) for v in initial.strip("{} \n").split(",") if v.strip()]
        data = b"".join((v & (1 << 8 * element) - 1).to_bytes(element, "little") for v in values)
    return Variable(name, space, size, int(alignment or element), data)


@dataclass
class _Scope:
    parent: _Scope | None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str, dict[int, Register]]] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)


class _Body:
    """The parser of one function body: its scopes, registers and instructions so far."""

    def __init__(self, files: dict[int, str], reading: _Reading, line: int) -> None:
        self._files = files
        self._reading = reading
        self._line = line
        self._registers: list[Register] = []
        self._scope = _Scope(None)
        self._label = ""
        self._source: SourceLine | None = None
        self._pending: list[tuple[str, str, str | None, bool, _Scope, SourceLine | None, int]] = []
        self._variables: list[Variable] = []
        self._sources: dict[SourceLine, SourceLine] = {}
        self._places: dict[tuple[int, int, int], SourceLine] = {}

    def parse(self, name: str, parameters: str, directives: str, body: str) -> Function:
        position, counted, end = 0, 0, len(body)
        match_at, attempt = _STATEMENT.match, self._reading.attempt
        while position < end:
            match = match_at(body, position)
            if match is None:
                rest = body[position:].lstrip()
                if not rest:
                    break
                start = end - len(rest)
                self._line += body.count("\n", counted, start)
                counted = start
                attempt(partial(_refuse, rest), self._line, rest.partition("\n")[0], None)
                # What ends the statement that can't be read, or its line.
                position += len(re.match(r"\s*[^;\n]*[;\n]?", body[position:])[0])  # type: ignore[index]
                continue
            position = match.end()
            start = match.start("opcode") if match["opcode"] is not None else position
            self._line += body.count("\n", counted, start)
            counted = start
            if self._reading.strict:
                self._statement(match)
            else:
                attempt(partial(self._statement, match), self._line, match[0], None)
        # Registers of a range come to be when an operand first names them.
        read = self._instruction if self._reading.strict else self._instruction_or_bare
        instructions = tuple(read(i, *item) for i, item in enumerate(self._pending))
        found = [attempt(partial(_parameter, m), self._line, m[0], None) for m in _PARAMETER.finditer(parameters)]
        return Function(
            name,
            tuple(parameter for parameter in found if parameter is not None),
            tuple(self._registers),
            instructions,
            tuple(self._variables),
            {m[1]: tuple(int(x) for x in m[2].split(",") if x.strip()) for m in _FILE_REF.finditer(directives)},
        )

    def _statement(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if match["opcode"] is not None:
            guard = match["guard"]
            operands = match["operands"]
            if match["opcode"].startswith("brx.idx") and guard is None:
                self._branch_by_index(operands)
                return
            negated = bool(match["negated"])
            self._pending.append((match["opcode"], operands, guard, negated, self._scope, self._source, self._line))
        elif match["loc"] is not None:
            self._locate(match)
        elif kind == "open":
            self._scope = _Scope(self._scope)
        elif kind == "close":
            assert self._scope.parent is not None
            self._scope = self._scope.parent
        elif match["label"] is not None:
            self._scope.labels[match["label"]] = len(self._pending)
            self._label = match["label"]
        else:
            self._directive(match["directive"])

    def _locate(self, match: re.Match[str]) -> None:
        """Note the line of what follows; `inlined_at` names the place of its caller, which a .loc before it gave."""
        inlined = _INLINED_AT.search(match["inlined"])
        caller = None
        if inlined:
            at = int(inlined[1]), int(inlined[2]), int(inlined[3])
            caller = self._places.get(at) or SourceLine(self._files.get(at[0], "?"), at[1])
        file, line = int(match["file"]), int(match["line"])
        place = SourceLine(self._files.get(file, "?"), line, caller)
        self._source = self._sources.setdefault(place, place)
        self._places[file, line, int(match["column"] or 0)] = self._source

    def _branch_by_index(self, operands: str) -> None:
        """Write ``brx.idx index, table`` as comparisons and branches."""
        index, table = _split(operands)
        scope: _Scope | None = self._scope
        while scope is not None and table not in scope.tables:
            scope = scope.parent
        if scope is None:
            raise PtxSyntaxError(f"no .branchtargets {table} before brx.idx {operands}")
        *targets, last = scope.tables[table]
        predicate = f"%brx{len(self._pending)}"
        self._scope.registers[predicate] = self._new(predicate, "pred")
        for number, target in enumerate(targets):
            comparison = f"{predicate}, {index}, {number}"
            self._pending.append(("setp.eq.u32", comparison, None, False, self._scope, self._source, self._line))
            self._pending.append(("bra", target, predicate, False, self._scope, self._source, self._line))
        self._pending.append(("bra", last, None, False, self._scope, self._source, self._line))

    def _directive(self, text: str) -> None:
        if text.startswith(".branchtargets"):
            names = text.removeprefix(".branchtargets").strip(" ;\n\t")
            self._scope.tables[self._label] = [name.strip() for name in names.split(",")]
            return
        declared = _REGISTERS.match(text)
        if declared:
            elements, kind, names = declared.groups()
            for item in names.split(","):
                name = item.strip()
                if elements:
                    self._new_vector(name, kind, int(elements))
                elif "<" in name:
                    stem, count = name.rstrip(">").split("<")
                    self._scope.ranges[stem] = (int(count), kind, {})
                else:
                    self._scope.registers[name] = self._new(name, kind)
        elif text.startswith((".shared", ".local")):
            match = _VARIABLE.match(text)
            if match:
                self._variables.append(_variable(match))

    def _new(self, name: str, kind: str) -> Register:
        register = Register(name, kind, len(self._registers))
        self._registers.append(register)
        return register

    def _new_vector(self, name: str, kind: str, elements: int) -> None:
        """Declare a vector, whose elements are registers by two names each."""
        items = [self._new(f"{name}.{letter}", kind) for letter in "xyzw"[:elements]]
        self._scope.vectors[name] = Vector(tuple(items))
        for letters in ("xyzw", "rgba"):
            self._scope.registers |= {f"{name}.{x}": item for x, item in zip(letters, items, strict=False)}

    def _find(self, name: str, scope: _Scope) -> Register | None:
        inner: _Scope | None = scope
        while inner is not None:
            if name in inner.registers:
                return inner.registers[name]
            if inner.ranges:
                stem = name.rstrip("0123456789")
                if stem in inner.ranges and len(stem) < len(name):
                    register = inner.registers[name] = self._new(name, inner.ranges[stem][1])
                    return register
            inner = inner.parent
        return None

    def _instruction_or_bare(self, index: int, opcode: str, text: str, *rest: Any) -> Instruction:  # noqa: ANN401
        """Read an instruction; if it can't be, give it without its operands."""
        *_, source, line = rest
        bare = Instruction(index, opcode, (), None, f"{opcode} {' '.join(text.split())}", source, line)
        return self._reading.attempt(partial(self._instruction, index, opcode, text, *rest), line, bare.text, bare)

    def _instruction(
        self,
        index: int,
        opcode: str,
        text: str,
        guard: str | None,
        negated: bool,
        scope: _Scope,
        source: SourceLine | None,
        line: int,
    ) -> Instruction:
        predicate = None
        if guard is not None:
            register = self._find(guard, scope)
            if register is None:
                raise PtxSyntaxError(f"unknown predicate {guard} of {opcode}{text}")
            predicate = register, negated
        operands = tuple(self._operand(part, scope, opcode) for part in _split(text))
        prefix = f"@{'!' if negated else ''}{guard} " if guard else ""
        whole = f"{prefix}{opcode} {' '.join(text.split())}"
        return Instruction(index, opcode, operands, predicate, whole, source, line)

    def _operand(self, text: str, scope: _Scope, opcode: str) -> Operand:
        first = text[0]
        if first == "[":
            return self._address(text[1:-1].strip(), scope, opcode)
        if first in "{(":
            return Vector(tuple(self._operand(part, scope, opcode) for part in _split(text[1:-1])))
        if "|" in text:
            left, right = text.split("|")
            return Pair(self._operand(left.strip(), scope, opcode), self._operand(right.strip(), scope, opcode))
        if first == "!":
            inner = self._operand(text[1:].strip(), scope, opcode)
            assert isinstance(inner, Register)
            return Negated(inner)
        if text == "_":
            return Sink()
        if first.isdigit() or first in "-+":
            return _immediate(text)
        register = self._find(text, scope)
        if register is not None:
            return register
        if first == "%":
            if text[1:].split(".")[0] in _SPECIALS:
                return Special(text[1:])
            raise PtxSyntaxError(f"unknown register {text} in {opcode}")
        if text == "WARP_SZ":
            return Immediate(32)
        inner_scope: _Scope | None = scope
        while inner_scope is not None:
            if text in inner_scope.labels:
                return Label(text, inner_scope.labels[text])
            if text in inner_scope.vectors:
                return inner_scope.vectors[text]
            inner_scope = inner_scope.parent
        return Symbol(text)

    def _address(self, text: str, scope: _Scope, opcode: str) -> Address:
        parts = _split(text)
        if len(parts) > 1:
            base = self._address(parts[0], scope, opcode)
            vector = self._operand(parts[1], scope, opcode)
            items = vector.items if isinstance(vector, Vector) else (vector,)
            return Address(base.base, base.offset, items)
        name, sign, offset = text.partition("+")
        base_operand = self._operand(name.strip(), scope, opcode)
        assert isinstance(base_operand, Register | Symbol | Immediate)
        return Address(base_operand, int(offset.strip(), 0) if sign else 0)


def _refuse(text: str) -> None:
    raise PtxSyntaxError(f"cannot read {text[:80]!r}")


def _parameter(match: re.Match[str]) -> Parameter:
    alignment, kind, name, extent = match.groups()
    element = max(type_bits(kind), 8) // 8
    return Parameter(name, element * int(extent or 1), int(alignment or element))


def _split(text: str) -> list[str]:
    """Split operands at the commas that no bracket encloses."""
    if not any(mark in text for mark in "[{("):
        return [part for part in (p.strip() for p in text.split(",")) if part]
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[\[\]{}(),]", text):
        mark = match[0]
        if mark in "[{(":
            depth += 1
        elif mark in "]})":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _immediate(text: str) -> Immediate:
    if text[:2] in ("0f", "0F") and len(text) == 10:
        return Immediate(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D") and len(text) == 18:
        return Immediate(int(text[2:], 16), 64)
    match = _INTEGER.match(text)
    if match:
        digits = match[2]
        octal = digits[0] == "0" and digits.isdigit()
        return Immediate(int(match[1] + digits, 8 if octal else 0))
    try:
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
    except ValueError:
        raise PtxSyntaxError(f"cannot read the constant {text!r}") from None
