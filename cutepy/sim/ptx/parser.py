"""Parse PTX text into a `Module`.

The text is cut into statements by one regular expression. Blocks in braces, as inline assembly writes them, scope
their registers and labels; `.loc` lines give each instruction its line of Python.

References
----------
PTX ISA, "Syntax", "Directives".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from cutepy.sim.ptx.constants import evaluate
from cutepy.sim.ptx.declarations import LINKING, SPACES, read_parameters, read_registers, read_variables
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
    Selected,
    Sink,
    SourceLine,
    Special,
    Symbol,
    Unread,
    Variable,
    Vector,
)
from cutepy.sim.ptx.spelling import usual
from cutepy.sim.ptx.tokens import PtxSyntaxError

_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
_STATEMENT = re.compile(
    r"""\s*(?:
      (?P<loc>\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)(?:\s+(?P<column>\d+))?(?P<inlined>[^\n]*))
    | (?P<open>\{) | (?P<close>\})
    | (?P<label>[$%A-Za-z_][\w$]*)\s*:(?!:)
    | (?P<directive>\.[a-z](?:[^;{}"]|"[^"]*")*(?:\{[^;]*)?;)
    | (?:@\s*(?P<negated>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)(?P<operands>[^;]*);
    )""",
    re.X,
)
_FUNCTION = re.compile(
    r"\s*(?:\.(?:extern|visible|weak)\s+)*\.(?P<kind>entry|func)\b\s*(?:\((?P<results>[^)]*)\)\s*)?"
    r"(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{};]*)(?P<end>[{;])"
)
_OUTSIDE = re.compile(
    r"""\s*(?:
      \.version\s+[\d.]+ | \.target\s+(?P<target>\w+)(?:\s*,\s*\w+)* | \.address_size\s+\d+
    | \.file\s+\d+\s+"[^"]*"(?:\s*,\s*\d+)* | \.loc\s[^\n]* | @@[^\n]*
    | \.pragma\s+"[^"]*"\s*; | \.alias\s+(?P<alias>[\w$]+)\s*,\s*(?P<aliasee>[\w$]+)\s*;
    | (?P<section>\.section\s+[.\w$]+\s*\{)
    | (?P<variables>(?:\.(?:extern|visible|weak|common)\s+)*\.(?:global|const|shared)\b[^;]*;) | ;
    )""",
    re.X,
)
"""What is outside of functions."""
_INLINED_AT = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_DIRECTIVE = re.compile(
    r"""\s*(?:\.(?P<name>reqntid|maxntid|minnctapersm|maxnctapersm|explicitcluster|reqnctapercluster|maxclusterrank|maxnreg)
      \b\s*(?P<values>[\d,\s]*)
    | \.(?:noreturn|blocksareclusters|abi_preserve\s+\d+|abi_preserve_control\s+\d+)\b | \.pragma\s+"[^"]*"\s*;?
    | \.attribute\([^)]*\) | \.unique\b)""",
    re.X,
)
_ADDRESS = re.compile(r"(?P<base>[%A-Za-z_$][\w$%.]*)\s*(?P<offset>[-+].*)?$", re.S)
_INDEXED = re.compile(r"(?P<name>[A-Za-z_$][\w$]*)\s*(?:\[(?P<index>.*)\]|(?P<offset>[-+].*))$", re.S)
_SELECTED = re.compile(r"(?P<sign>-?)\s*(?P<operand>[%\w$]+)(?:(?<=\w)\.(?P<parts>[bh][0-7]+))?$")
"""An operand of a video instruction that is not a register as it is."""
_CONSTANT = re.compile(r"(?:[-+~!()\s]|\.[su]64)*(?:\d|WARP_SZ\b)")
_SPECIALS = frozenset(
    """tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid gridid clusterid nclusterid cluster_ctaid cluster_nctaid
    cluster_ctarank cluster_nctarank is_explicit_cluster clock clock64 clock_hi globaltimer globaltimer_lo
    globaltimer_hi lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt dynamic_smem_size total_smem_size
    aggr_smem_size WARP_SZ current_graph_exec reserved_smem_offset_begin reserved_smem_offset_end
    reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1""".split()
) | {f"{name}{n}{part}" for name, count in (("envreg", 32), ("pm", 8)) for n in range(count) for part in ("", "_64")}


_WITHOUT_EFFECT = (".pragma", ".callprototype", ".calltargets", ".file", ".section")
"""Directives in functions that tell nothing which the simulator does not find out."""

_T = TypeVar("_T")


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
    text = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)
    reading = _Reading(unread)
    files = {int(number): name for number, name in _FILE.findall(text)}
    outside = _Outside(text, reading)
    functions: dict[str, Function] = {}
    called: dict[str, Function] = {}
    for match, line, body in outside.bodies:
        found = functions if match["kind"] == "entry" else called
        found[match["name"]] = _Body(files, reading, line, outside).parse(match, body)
    for name, other in outside.aliases.items():
        if other in called:
            called[name] = called[other]
        else:
            reading.attempt(partial(_refuse_alias, name, other), 1, f".alias {name}, {other};", None)
    return Module(outside.target, functions, tuple(outside.variables), called, tuple(outside.called))


class _Outside:
    """What a module says outside of its functions, and where these are."""

    def __init__(self, text: str, reading: _Reading) -> None:
        self.target = ""
        self.variables: list[Variable] = []
        self.called: dict[str, re.Match[str]] = {}
        self.aliases: dict[str, str] = {}
        self.bodies: list[tuple[re.Match[str], int, str]] = []
        self._text, self._reading = text, reading
        position, end = 0, len(text.rstrip())
        while position < end:
            position = self._one(position)

    def _one(self, position: int) -> int:
        """Read what is at a position; tells where it ends."""
        text = self._text
        match = _OUTSIDE.match(text, position)
        if match is None:
            return self._function(position)
        if match["target"]:
            self.target = match["target"]
        elif match["alias"]:
            self.aliases[match["alias"]] = match["aliasee"]
        elif match["section"]:
            return _closing_brace(text, match.end())
        elif match["variables"]:
            read = partial(read_variables, match["variables"])
            line = text.count("\n", 0, match.start("variables")) + 1
            self.variables += self._reading.attempt(read, line, match["variables"], [])
        return match.end()

    def _function(self, position: int) -> int:
        text, attempt = self._text, self._reading.attempt
        match = _FUNCTION.match(text, position)
        start = position + len(text[position:]) - len(text[position:].lstrip())
        if match is None:
            rest = text[start:]
            attempt(partial(_refuse, rest), text.count("\n", 0, start) + 1, rest.partition("\n")[0], None)
            return start + len(re.match(r"[^;\n]*[;\n]?", rest)[0])  # type: ignore[index]
        if match["kind"] == "func":
            self.called[match["name"]] = match
        if match["end"] == ";":
            return match.end()
        line = text.count("\n", 0, match.end()) + 1
        end = attempt(partial(_closing_brace, text, match.end()), line, match[0], len(text) + 1)
        self.bodies.append((match, line, text[match.end() : end - 1]))
        return end


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


@dataclass
class _Scope:
    parent: _Scope | None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str, dict[int, Register]]] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)


class _Body:
    """The parser of one function body: its scopes, registers and instructions so far."""

    def __init__(self, files: dict[int, str], reading: _Reading, line: int, outside: _Outside) -> None:
        self._files = files
        self._called = outside.called
        self._outer = {variable.name: variable for variable in outside.variables}
        self._reading = reading
        self._line = line
        self._registers: list[Register] = []
        self._scope = _Scope(None)
        self._label = ""
        self._source: SourceLine | None = None
        self._pending: list[tuple[str, str, str | None, bool, _Scope, SourceLine | None, int]] = []
        self._variables: list[Variable] = []
        self._results: tuple[Parameter, ...] = ()
        self._sources: dict[SourceLine, SourceLine] = {}
        self._places: dict[tuple[int, int, int], SourceLine] = {}

    def parse(self, head: re.Match[str], body: str) -> Function:
        attempt = self._reading.attempt
        none: tuple[Parameter, ...] = ()
        nothing: dict[str, tuple[int, ...]] = {}
        parameters, directives = head["parameters"] or "", head["directives"]
        declared = attempt(partial(read_parameters, parameters), self._line, parameters, none)
        results = attempt(partial(read_parameters, head["results"] or ""), self._line, parameters, none)
        declared, self._results = self._formals(declared, True), self._formals(results, False)
        header = attempt(partial(_directives, directives), self._line, directives, nothing)
        position, counted, end = 0, 0, len(body)
        match_at = _STATEMENT.match
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
        self._store_results(None, False)
        # Registers of a range come to be when an operand first names them.
        read = self._instruction if self._reading.strict else self._instruction_or_bare
        instructions = tuple(read(i, *item) for i, item in enumerate(self._pending))
        variables = tuple(self._variables)
        return Function(head["name"], declared, tuple(self._registers), instructions, variables, header, self._results)

    def _statement(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if match["opcode"] is not None:
            guard = match["guard"]
            operands = match["operands"]
            negated = bool(match["negated"])
            if match["opcode"].startswith("brx.idx"):
                self._branch_by_index(operands, guard, negated)
                return
            if match["opcode"].startswith("call"):
                self._call(match["opcode"], operands, guard, negated)
                return
            if match["opcode"].startswith("ret"):
                self._store_results(guard, negated)
            self._append(match["opcode"], operands, guard, negated)
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

    def _append(self, opcode: str, operands: str, guard: str | None = None, negated: bool = False) -> None:
        self._pending.append((usual(opcode), operands, guard, negated, self._scope, self._source, self._line))

    def _formals(self, declared: tuple[Parameter, ...], are_read: bool) -> tuple[Parameter, ...]:
        """Declare formal parameters or results; those in registers have a place in memory too, by another name."""
        found = []
        for formal in declared:
            if formal.is_register:
                self._scope.registers[formal.name] = self._new(formal.name, formal.type)
                name = f"{formal.name}.formal"
                if are_read:
                    self._append(f"ld.param.b{8 * formal.size_bytes}", f"{formal.name}, [{name}]")
                formal = replace(formal, name=name)
            self._outer[formal.name] = Variable(formal.name, "param", formal.size_bytes, formal.alignment)
            found.append(formal)
        return tuple(found)

    def _store_results(self, guard: str | None, negated: bool) -> None:
        """Write the results that are in registers where who called looks for them."""
        for formal in self._results:
            if formal.is_register:
                operands = f"[{formal.name}], {formal.name.removesuffix('.formal')}"
                self._append(f"st.param.b{8 * formal.size_bytes}", operands, guard, negated)

    def _call(self, opcode: str, operands: str, guard: str | None, negated: bool) -> None:
        """Write a call; what is passed in registers, or as a number, goes by way of memory."""
        parts = _split(operands)
        results = parts.pop(0) if parts and parts[0].startswith("(") else "()"
        if not parts:
            raise PtxSyntaxError(f"call {' '.join(operands.split())} names no function")
        target, *rest = parts
        arguments = rest[0] if rest and rest[0].startswith("(") else "()"
        signature = self._called.get(target)
        places: list[list[str]] = []
        after: list[tuple[str, str]] = []
        for text, formals in ((results, "results"), (arguments, "parameters")):
            declared = read_parameters((signature[formals] or "") if signature else "")
            places.append([])
            for number, item in enumerate(_split(text[1:-1])):
                variable = self._variable(item, self._scope)
                if variable is not None and variable.space == "param":
                    places[-1].append(item)
                    continue
                register = self._find(item, self._scope)
                if register is None and number >= len(declared):
                    raise PtxSyntaxError(f"the type of {item} is not known in call {' '.join(operands.split())}")
                size = register.bits // 8 if register is not None else declared[number].size_bytes
                place = f"call{len(self._pending)}.{formals}{number}"
                self._declare(Variable(place, "param", size, size))
                places[-1].append(place)
                if formals == "results":
                    after.append((f"ld.param.b{8 * size}", f"{item}, [{place}]"))
                else:
                    self._append(f"st.param.b{8 * size}", f"[{place}], {item}", guard, negated)
        self._append(opcode, f"({', '.join(places[0])}), {target}, ({', '.join(places[1])})", guard, negated)
        for other, its in after:
            self._append(other, its, guard, negated)

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

    def _branch_by_index(self, operands: str, guard: str | None, negated: bool) -> None:
        """Write ``brx.idx index, table`` as comparisons and branches, behind a branch if it is guarded."""
        index, table = _split(operands)
        scope: _Scope | None = self._scope
        while scope is not None and table not in scope.tables:
            scope = scope.parent
        if scope is None:
            raise PtxSyntaxError(f"no .branchtargets {table} before brx.idx {operands}")
        *targets, last = scope.tables[table]
        predicate = f"%brx{len(self._pending)}"
        if guard is not None:
            self._append("bra", f"$after{predicate[1:]}", guard, not negated)
        self._scope.registers[predicate] = self._new(predicate, "pred")
        for number, target in enumerate(targets):
            self._append("setp.eq.u32", f"{predicate}, {index}, {number}")
            self._append("bra", target, predicate)
        self._append("bra", last)
        if guard is not None:
            self._scope.labels[f"$after{predicate[1:]}"] = len(self._pending)

    def _directive(self, text: str) -> None:
        if text.startswith(".branchtargets"):
            names = text.removeprefix(".branchtargets").strip(" ;\n\t")
            self._scope.tables[self._label] = [name.strip() for name in names.split(",")]
            return
        if text.startswith(".reg"):
            for name, kind, elements, count in read_registers(text):
                if kind == "b128":
                    for number in [""] if count is None else [str(n) for n in range(count)]:
                        self._new_vector(name + number, "b64", 2)
                elif elements:
                    self._new_vector(name, kind, elements)
                elif count is not None:
                    self._scope.ranges[name] = (count, kind, {})
                else:
                    self._scope.registers[name] = self._new(name, kind)
        elif text.startswith((*SPACES, *LINKING)):
            for variable in read_variables(text):
                self._declare(variable)
        elif not text.startswith(_WITHOUT_EFFECT):
            raise PtxSyntaxError(f"unknown directive {' '.join(text.split())[:80]!r}")

    def _declare(self, variable: Variable) -> None:
        """Note a variable of this block; blocks may give several the same name.

        Of calls, blocks that follow each other share one: as large as the largest.
        """
        known = {one.name: n for n, one in enumerate(self._variables)}
        name = unique = variable.name
        taken = set(self._outer) | (self._names_around() if variable.space == "param" else set(known))
        while unique in taken:
            unique += "'"
        self._scope.variables[name] = variable = replace(variable, name=unique)
        if unique in known:
            shared = self._variables[known[unique]]
            size = max(shared.size_bytes or 0, variable.size_bytes or 0)
            alignment = max(shared.alignment, variable.alignment)
            self._variables[known[unique]] = replace(shared, size_bytes=size, alignment=alignment)
        else:
            self._variables.append(variable)

    def _names_around(self) -> set[str]:
        """Return the names of the variables of this block and of those around it."""
        names: set[str] = set()
        scope: _Scope | None = self._scope
        while scope is not None:
            names |= {variable.name for variable in scope.variables.values()}
            scope = scope.parent
        return names

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
        if not text:
            raise PtxSyntaxError(f"an operand of {opcode} is missing")
        register = self._find(text, scope)
        if register is not None:
            return register
        first = text[0]
        selected = _SELECTED.match(text) if opcode[0] == "v" and not _CONSTANT.fullmatch(text) else None
        if selected and (selected["parts"] or selected["sign"]) and not selected["operand"].isdigit():
            inner = self._operand(selected["operand"], scope, opcode)
            assert isinstance(inner, Register | Immediate)
            return Selected(inner, selected["parts"] or "", bool(selected["sign"]))
        if first == "[":
            return self._address(text[1:-1].strip(), scope, opcode)
        if _CONSTANT.match(text):
            return _immediate(text)
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
        if (vector := self._vector(text, scope)) is not None:
            return vector
        if first == "%":
            if text[1:].split(".")[0] in _SPECIALS:
                return Special(text[1:])
            raise PtxSyntaxError(f"unknown register {text} in {opcode}")
        inner_scope: _Scope | None = scope
        while inner_scope is not None:
            if text in inner_scope.labels:
                return Label(text, inner_scope.labels[text])
            inner_scope = inner_scope.parent
        return self._symbol(text, scope, opcode)

    def _vector(self, name: str, scope: _Scope | None) -> Vector | None:
        while scope is not None:
            if name in scope.vectors:
                return scope.vectors[name]
            scope = scope.parent
        return None

    def _symbol(self, text: str, scope: _Scope, opcode: str) -> Operand:
        """Read the address of a variable: ``a``, ``a+8``, or of an element, ``a[2]``, as loads take it too."""
        match = _INDEXED.match(text)
        name = match["name"] if match else text
        variable = self._variable(name, scope)
        if variable is None:
            if opcode.startswith("call") or text in self._called:
                return Symbol(text)
            raise PtxSyntaxError(f"unknown name {text} in {opcode}")
        if match is None:
            return Symbol(variable.name)
        if match["offset"]:
            return Symbol(variable.name, _integer(match["offset"]))
        if match["index"].strip()[:1] == "%":
            raise PtxSyntaxError(f"an index in a register, {text} in {opcode}, is not read; compute the address")
        offset = _integer(match["index"]) * variable.element_bytes
        symbol = Symbol(variable.name)
        return Symbol(variable.name, offset) if opcode.startswith("mov") else Address(symbol, offset)

    def _variable(self, name: str, scope: _Scope | None) -> Variable | None:
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.parent
        return self._outer.get(name)

    def _address(self, text: str, scope: _Scope, opcode: str) -> Address:
        parts = _split(text)
        if len(parts) == 2:
            base = self._address(parts[0], scope, opcode)
            vector = self._operand(parts[1], scope, opcode)
            items = vector.items if isinstance(vector, Vector) else (vector,)
            return Address(base.base, base.offset, items)
        match = _ADDRESS.match(text)
        if match is None:
            return Address(_immediate(text))
        operand = self._operand(match["base"], scope, opcode)
        if not isinstance(operand, Register | Symbol):
            raise PtxSyntaxError(f"cannot read the address [{text}] in {opcode}")
        return Address(operand, _integer(match["offset"]) if match["offset"] else 0)


def _refuse_alias(name: str, other: str) -> None:
    raise PtxSyntaxError(f"{name} is an alias of {other}, which is not defined in this module")


def _refuse(text: str) -> None:
    raise PtxSyntaxError(f"cannot read {text[:80]!r}")


def _directives(text: str) -> dict[str, tuple[int, ...]]:
    """Read the performance directives of an entry."""
    found, position, end = {}, 0, len(text.rstrip())
    while position < end:
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise PtxSyntaxError(f"unknown directive {' '.join(text[position:].split())[:80]!r}")
        if match["name"]:
            found[match["name"]] = tuple(int(value) for value in match["values"].split(",") if value.strip())
        position = match.end()
    return found


def _split(text: str) -> list[str]:
    """Split operands at the commas that no bracket encloses."""
    if not any(mark in text for mark in "[{("):
        return [part.strip() for part in text.split(",")] if text.strip() else []
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
    return parts


@lru_cache(maxsize=4096)
def _immediate(text: str) -> Immediate:
    return evaluate(text).immediate


def _integer(text: str) -> int:
    value = evaluate(text).value
    if not isinstance(value, int):
        raise PtxSyntaxError(f"expected an integer, got {text.strip()!r}")
    return value
