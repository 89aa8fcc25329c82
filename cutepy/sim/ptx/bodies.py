"""The bodies of functions: statements, one after the other, become instructions.

The text is cut into statements by one regular expression. Blocks in braces, as inline assembly writes them, scope
their registers and labels; `.loc` lines give each instruction its line of Python. Calls, returns and branches by an
index are written as simpler instructions.

References
----------
PTX ISA, "Syntax", "Directives".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cutepy.layouts.sm90.arch import SMEM_BYTES_PER_CTA
from cutepy.sim.ptx.declarations import SPACES, read_variables
from cutepy.sim.ptx.features import lacking, used
from cutepy.sim.ptx.forms import check_spaces
from cutepy.sim.ptx.header import Header
from cutepy.sim.ptx.heads import HEAD, PROTOTYPE, Head, described, read_prototype
from cutepy.sim.ptx.instruction_set import ROWS, traits
from cutepy.sim.ptx.model import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Parameter,
    SourceLine,
    Special,
    Symbol,
    Variable,
    Vector,
    type_bits,
)
from cutepy.sim.ptx.modifiers import check_modifiers
from cutepy.sim.ptx.names import WIDE, Names, Scope
from cutepy.sim.ptx.operands import SPECIAL_VECTORS, Operands, split
from cutepy.sim.ptx.reading import NOT_UNDERSTOOD, StatementReader, fail, refuse_statement
from cutepy.sim.ptx.refusals import refusal
from cutepy.sim.ptx.source_lines import placed
from cutepy.sim.ptx.spelling import OPCODE, usual, without_blanks
from cutepy.sim.ptx.tokens import PtxSyntaxError, integer_of_32

STATEMENT = re.compile(
    rf"""\s*+(?:
      (?P<loc>\.loc\s+(?P<file>\d\w*)\s+(?P<line>\d\w*)\s+(?P<column>\d\w*)
        (?:\s*,\s*function_name\s+(?P<function>[\w$.]+)\s*(?:\+\s*\d\w*\s*)?,
          \s*(?P<inlined>inlined_at\s+\d\w*\s+\d\w*\s+\d\w*))?
        (?!\s*[,\d]))
    | (?P<open>\{{) | (?P<close>\}})
    | (?P<label>[$%A-Za-z_][\w$]*)\s*:(?!:)
    | \.target\s+(?P<target>[A-Za-z_][\w$]*+)(?P<options>(?:\s*,\s*[\w$]++)*+)(?!\s*[,;])
    | (?P<directive>\.[a-z](?:[^;{{}}"]|"[^"]*")*(?:\{{[^;]*)?;)
    | (?:@\s*(?P<negated>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>{OPCODE})(?P<operands>[^;]*);
    )""",
    re.X,
)
_TARGET = r"[A-Za-z_$%][\w$]*\s*(?:<\s*\d{1,4}\s*>)?"
_TARGETS = re.compile(rf"\.branchtargets\s+({_TARGET}(?:\s*,\s*{_TARGET})*)\s*;")
_MOST_MODIFIERS = 64
"""More than any instruction has, with those that may be there twice: to put them in order takes the square of it."""
_OF_128_BITS = ".b128"
_STEM = re.compile(r"[\s+\[].*", re.S)
"""Text behind the name of a variable."""
_WORD = re.compile(r"[\w$%]+")
_OPAQUE = re.compile(r"\.(?:texref|samplerref|surfref)\b")
_MOVES_VECTOR = re.compile(r"\.v[24]\b")
_SPELLED = frozenset(name.partition(".")[0] for name in ROWS)
"""First words of instructions whose rows tell their operands."""
_TAKE_CARRY = ("addc", "subc", "madc")
BEYOND = "%beyond"
"""The opcode of what is executed where the index of a branch is beyond its targets."""
_REST = re.compile(r"\s*[^;\n]*[;\n]?")
_PRAGMA = re.compile(r'\.pragma\s*"[^"]*"(?:\s*,\s*"[^"]*")*\s*;')
"""Directive that the simulator ignores: all its pragmas are hints."""


class Body:
    """The parser of one function's body.

    Parameters
    ----------
    files : mapping of int to str
        Files that .file directives name.
    reading : StatementReader
    line : int
        Line on which the body begins.
    names : Names
        With what the module declares.
    header : Header
        Tells which instructions there are.
    declare : callable
        Declares a function of the module, of a match of `HEAD`.
    """

    def __init__(
        self,
        files: Mapping[int, str],
        reading: StatementReader,
        line: int,
        names: Names,
        header: Header,
        declare: Callable[[re.Match[str]], Head],
    ) -> None:
        self._header = header
        self._declare = declare
        self._checked = header.opcodes
        self._files = files
        self._names = names
        self._operands = Operands(names)
        self._reading = reading
        self._check = reading.checks.check
        self._line = line
        self._label = ""
        self._function: tuple[str, int] | None = None
        self._tables: list[tuple[list[str], Scope, int]] = []
        self._source: SourceLine | None = None
        self._at = 0
        self._formal_names: set[str] = set()
        self._inputs: frozenset[str] = frozenset()
        self._pending: list[tuple[str, str, str | None, bool, Scope, int, SourceLine | None, int]] = []
        self._results: tuple[Parameter, ...] = ()
        self._returned: list[tuple[str, Parameter]] = []  # results in registers, behind where they go
        self._sources: dict[tuple[int, int, int], SourceLine] = {}
        self._places: dict[tuple[int, ...], SourceLine] = {}
        self._inlined: dict[tuple[int, ...], SourceLine] = {}
        self._vague: set[SourceLine] = set()

    def parse(self, head: Head, at: int, start: int, end: int) -> Function:
        """Read the function of a head at a place in the text, whose body is between two others."""
        none: tuple[Parameter, ...] = ()
        formals = {}
        for what, declared in (("parameter", head.parameters), ("result", head.results)):
            formals[what] = self._reading.attempt(partial(self._formals, declared, what), at, none)
        self._results = formals["result"]
        self._inputs = frozenset(p.name for p in formals["parameter"])
        self._names.scope.start = self._names.index
        self._statements(start, end)
        for labels, scope, place in self._tables:
            self._reading.attempt(partial(self._check_targets, labels, scope), place, None)
        if not self._pending:
            self._append("ret", "")
        self._store_results(None, False)
        self._place_the_vague()
        # Registers of a range come to be when an operand first names them.
        instructions = self._instructions()
        if head.kind == "entry":
            self._reading.attempt(partial(self._check_shared, head.name), at, None)
            self._reading.attempt(partial(_check_groups, head.name, instructions), at, None)
        variables = tuple(self._names.variables)
        registers = tuple(self._names.registers)
        head_at = self._reading.text.index(f".{head.kind}", at)
        return Function(
            head.name,
            formals["parameter"],
            registers,
            instructions,
            variables,
            head.directives,
            self._results,
            at=head_at,
        )

    def _check_shared(self, name: str) -> None:
        """Refuse more shared memory in the variables that a kernel declares or names than a CTA has."""
        named = (self._names.module.get(one) for one, space in self._operands.spaces.items() if space == "shared")
        variables = [*self._names.variables, *(one for one in named if one is not None)]
        size = sum(one.size_bytes or 0 for one in variables if one.space == "shared")
        if size > SMEM_BYTES_PER_CTA:
            reason = f"a CTA has {SMEM_BYTES_PER_CTA} bytes of shared memory, and the variables of {name} take {size}"
            raise PtxSyntaxError(reason, name)

    def _statements(self, position: int, end: int) -> None:
        text, reading, match_at, statement = self._reading.text, self._reading, STATEMENT.match, self._statement
        counted, end = position, position + len(text[position:end].rstrip())
        while position < end:
            match = match_at(text, position, end)
            if match is None:
                reading.attempt(partial(refuse_statement, text[position : position + 200].lstrip()), position, None)
                # What ends the statement that can't be read, or its line.
                rest = _REST.match(text, position, end)
                assert rest is not None
                position = rest.end()
                continue
            begin, position = position, match.end()
            self._at = start = match.start("opcode") if match["opcode"] is not None else position
            self._line += text.count("\n", counted, start)
            counted = start
            try:
                statement(match)
            except NOT_UNDERSTOOD as error:
                reading.attempt(partial(fail, error), begin, None)

    def _instructions(self) -> tuple[Instruction, ...]:
        """Read the operands of the instructions; one that can't be read is given without them."""
        found: list[Instruction] = []
        read, pending, names = self._instruction, self._pending, self._names
        names.rewind()
        while len(found) < len(pending):
            try:
                for index in range(len(found), len(pending)):
                    opcode, operands, guard, negated, scope, at, source, line = pending[index]
                    names.go_to(scope, index)
                    found.append(read(index, opcode, operands, guard, negated, at, source, line))
            except NOT_UNDERSTOOD as error:
                opcode, operands, _, _, _, at, source, line = pending[len(found)]
                self._reading.attempt(partial(fail, error), at, None)
                text = f"{opcode} {' '.join(operands.split())}"
                found.append(Instruction(len(found), opcode, (), None, text, source, line))
        return tuple(found)

    def _statement(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if match["opcode"] is not None:
            self._label = ""
            opcode = without_blanks(match["opcode"])
            guard = match["guard"]
            operands = match["operands"]
            negated = bool(match["negated"])
            if opcode.startswith("brx.idx"):
                check_modifiers(opcode)
                self._branch_by_index(operands, guard, negated)
                return
            if opcode.startswith("call"):
                self._call(opcode, operands, guard, negated)
                return
            if opcode.startswith("mov.") and _MOVES_VECTOR.search(opcode):
                self._move_vector(opcode, operands, guard, negated)
                return
            if opcode == "mov.b128":
                self._move_wide(operands, guard, negated)
                return
            if opcode.startswith("ret"):
                self._store_results(guard, negated)
            self._append_statement(opcode, operands, guard, negated)
        elif match["loc"] is not None:
            self._locate(match)
        elif match["target"] is not None:
            self._header.read_target(match["target"], match["options"])
        elif kind == "open":
            self._names.open()
        elif kind == "close":
            self._names.close()
        elif match["label"] is not None:
            self._names.add_label(match["label"], len(self._pending))
            self._label = match["label"]
        else:
            self._directive(match["directive"], match.start("directive"))
        if match["label"] is None:
            self._label = ""

    def _append(self, opcode: str, operands: str, guard: str | None = None, negated: bool = False) -> None:
        at, line = self._at, self._line
        if (count := opcode.count(".")) > _MOST_MODIFIERS:
            name = opcode[: opcode.index(".")]
            raise PtxSyntaxError(f"{name} takes at most {_MOST_MODIFIERS} modifiers, got {count}", name)
        opcode = usual(opcode)
        self._check_version(used(opcode, operands))
        if self._function is not None:  # ptxas looks up the labels of lines that have instructions
            self._header.named.setdefault(*self._function)
            self._function = None
        self._pending.append((opcode, operands, guard, negated, self._names.scope, at, self._source, line))
        self._names.index = len(self._pending)

    def _check_version(self, what: str) -> None:
        """Refuse an opcode or a special register that the version or the target of the module does not have."""
        if what not in self._checked:
            if reason := lacking(what, self._header.version, self._header.target):
                raise PtxSyntaxError(reason)
            self._checked.add(what)

    def _formals(self, declared: tuple[Parameter, ...], what: str) -> tuple[Parameter, ...]:
        """Declare formal parameters or results; those in registers have a place in memory too, by another name."""
        found = []
        for number, formal in enumerate(declared):
            if formal.name in self._formal_names:
                raise PtxSyntaxError(f"{formal.name} is declared twice", formal.name)
            self._formal_names.add(formal.name)
            if formal.is_register:
                self._names.add_register(formal.name, formal.type)
                name = f"formal.{what}{number}"  # no name of PTX has a point
                if what == "parameter":
                    self._append(f"ld.param.b{8 * formal.size_bytes}", f"{formal.name}, [{name}]")
                else:
                    self._returned.append((name, formal))
                formal = replace(formal, name=name)
            self._names.add_outer(Variable(formal.name, "param", formal.size_bytes, formal.alignment))
            found.append(formal)
        return tuple(found)

    def _store_results(self, guard: str | None, negated: bool) -> None:
        """Write the results in registers to the place where the caller reads them."""
        for name, result in self._returned:
            self._append(f"st.param.b{8 * result.size_bytes}", f"[{name}], {result.name}", guard, negated)

    def _call(self, opcode: str, operands: str, guard: str | None, negated: bool) -> None:
        """Write a call; arguments in registers, and numbers, go by way of memory."""
        parts = split(operands)
        results = parts.pop(0) if parts and parts[0].startswith("(") else "()"
        if not parts:
            raise PtxSyntaxError(
                f"{' '.join(['call', *operands.split()])} names no function; write call (results), f, (arguments)"
            )
        target, *rest = parts
        arguments = rest.pop(0) if rest and rest[0].startswith("(") else "()"
        heads = self._called(target, rest)
        places: list[list[str]] = []
        after: list[tuple[str, str]] = []
        for text, what in ((results, "results"), (arguments, "parameters")):
            items = split(text[1:-1])
            for head in heads:
                self._check_passed(target, items, what, head)
            formals = getattr(heads[0], what)
            places.append([])
            for number, (item, formal) in enumerate(zip(items, formals, strict=True)):
                if self._is_passed_in_memory(item, formal):
                    places[-1].append(item)
                    continue
                size = formal.size_bytes
                place = f"call{len(self._pending)}.{what}{number}"
                self._names.add_variable(Variable(place, "param", size, size))
                places[-1].append(place)
                if what == "parameters":
                    self._append(f"st.param.b{8 * size}", f"[{place}], {item}", guard, negated)
                elif item != "_":
                    after.append((f"ld.param.b{8 * size}", f"{item}, [{place}]"))
        self._append(opcode, f"({', '.join(places[0])}), {target}, ({', '.join(places[1])})", guard, negated)
        for other, its in after:
            self._append(other, its, guard, negated)

    def _check_passed(self, target: str, items: list[str], what: str, head: Head) -> None:
        """Refuse results or arguments that are not those of a function."""
        formals: tuple[Parameter, ...] = getattr(head, what)
        if len(items) != len(formals):
            said = f"{target} has {len(formals)} {what if len(formals) != 1 else what[:-1]}"
            raise PtxSyntaxError(f"{said}, and the call has {len(items)}; write as many as it declares", target)
        for item, formal in zip(items, formals, strict=True):
            self._is_passed_in_memory(item, formal)

    def _called(self, target: str, rest: list[str]) -> tuple[Head, ...]:
        """Return the heads of the called functions: declared before the call, or named behind its arguments."""
        names = self._names
        if target in names.kernels:
            raise PtxSyntaxError(f"call takes a function, and {target} is a kernel", target)
        if len(rest) > 1 or (rest and not re.fullmatch(r"[\w$%]+", rest[0])):
            raise PtxSyntaxError(f"the arguments of a call stand in parentheses, got {', '.join(rest)[:80]}")
        head = names.functions.get(target)
        if rest:
            said = names.signatures(rest[0])
            if not said:
                raise PtxSyntaxError(f"no .callprototype or .calltargets {rest[0]} before the call", rest[0])
            return (head,) if head is not None else said
        if head is None:
            advice = (
                "a .callprototype before it, and its name behind the arguments"
                if names.register(target) is not None
                else f"the declaration of a function before it, such as .extern .func {target};"
            )
            raise PtxSyntaxError(f"a call of {target[:80]} needs {advice}", target[:80])
        return (head,)

    def _is_passed_in_memory(self, item: str, formal: Parameter) -> bool:
        """Return whether an argument or a result is a variable in .param, rather than a register or a number.

        Raises
        ------
        PtxSyntaxError
            If it does not agree with what the function declares.
        """
        names = self._names
        wanted = f"{formal.name}, which is {described(formal)}"
        variable = names.variable(item)
        if variable is not None and variable.space == "param":
            if names.formals.get(item) is variable:
                raise PtxSyntaxError(f"a call passes no parameter of the caller; copy {item} to a .param", item)
            agrees = variable.size_bytes == formal.size_bytes and variable.is_array == formal.is_array
            if formal.size_bytes and not (agrees and _passes(variable.type, formal.type)):
                raise PtxSyntaxError(f"{item} is of another type than {wanted}", item)
            if formal.is_array and formal.size_bytes and variable.alignment != formal.alignment:
                reason = f"{item} is aligned to {variable.alignment} bytes, and {wanted}; give it the same .align"
                raise PtxSyntaxError(reason, item)
            return True
        if formal.is_array:
            raise PtxSyntaxError(f"{item} is no variable in .param for {wanted}", item)
        if variable is not None or item in names.functions:
            raise PtxSyntaxError(f"a call passes no address of {item}; move it to a register", item)
        register = names.register(item)
        if register is not None and (
            register.bits != type_bits(formal.type) or not _passes(register.type, formal.type)
        ):
            raise PtxSyntaxError(f"{item} of type .{register.type} is of another type than {wanted}", item)
        return False

    def _move_vector(self, opcode: str, operands: str, guard: str | None, negated: bool) -> None:
        """Write a move of a vector as one of each element, all of which are read before any is written."""
        (count,) = (int(word[1]) for word in opcode.split(".") if word in ("v2", "v4"))
        simple = _MOVES_VECTOR.sub("", opcode)
        destination, source = (self._elements(text, count) for text in split(operands))
        between = [f"%mov{len(self._pending)}.{n}" for n in range(count)]
        for name, item in zip(between, source, strict=True):
            self._names.add_register(name, simple.split(".")[-1])
            self._append(simple, f"{name}, {item}")
        for item, name in zip(destination, between, strict=True):
            if item != "_":
                self._append(simple, f"{item}, {name}", guard, negated)

    def _move_wide(self, operands: str, guard: str | None, negated: bool) -> None:
        """Write a move of four registers into one of 128 bits, or from it, and of an address, as moves of 64 bits."""
        parts = split(operands)
        if len(parts) != 2:
            raise PtxSyntaxError(f"mov.b128 takes 2 operands, got {len(parts)}")
        destination, source = parts
        names, at = self._names, len(self._pending)
        into, four = self._four(destination), self._four(source)
        if (into or destination[:1] == "{") and (four or source[:1] == "{"):
            raise PtxSyntaxError("mov.b128 takes one vector, got two", source)
        halves = [f"%mov{at}.{n}" for n in range(2)]
        is_address = names.variable(_STEM.sub("", source)) is not None or source in names.kernels
        if into or four or is_address:
            for name in halves:
                names.add_register(name, "b64")
        if four:
            for half, pair in zip(halves, (four[:2], four[2:]), strict=True):
                self._append("mov.b64", f"{half}, {{{', '.join(pair)}}}", guard, negated)
            source = f"{{{', '.join(halves)}}}"
        elif is_address:
            names.add_register(f"%mov{at}.wide", WIDE)
            self._append("mov.u64", f"{halves[0]}, {source}", guard, negated)
            self._append("mov.b128", f"%mov{at}.wide, {{{halves[0]}, 0}}", guard, negated)
            source = f"%mov{at}.wide"
        target = f"{{{', '.join(halves)}}}" if into else destination
        self._append("mov.b128", f"{target}, {source}", guard, negated)
        for half, pair in zip(halves, (into[:2], into[2:]), strict=True):
            if pair and pair != ["_", "_"]:
                self._append("mov.b64", f"{{{', '.join(pair)}}}, {half}", guard, negated)

    def _four(self, text: str) -> list[str]:
        """Name the elements of a vector of four, of which one at least is kept; nothing of another operand."""
        vector = self._names.vector(text)
        if vector is not None and not vector.is_wide and len(vector.items) == 4:
            return self._elements(text, 4)
        items = split(text[1:-1]) if text[:1] == "{" else []
        return items if len(items) == 4 and {*items} != {"_"} else []

    def _append_statement(self, opcode: str, operands: str, guard: str | None, negated: bool) -> None:
        """Write an instruction; a predicate in a vector is a register of 32 bits, all of them ones where it holds."""
        names = self._names
        if "{" not in operands or "pred" not in map(names.register_type, _WORD.findall(operands)):
            self._append(opcode, operands, guard, negated)
            return
        form = traits(usual(opcode)).form
        parts, after = split(operands), []
        for place, part in enumerate(parts):
            items = split(part[1:-1]) if part[:1] == "{" else []
            types = [names.register_type(item) for item in items]
            if "pred" not in types or not _takes_predicates(opcode, place, {*types} - {"pred"}):
                continue
            is_result = place == 0 and form is not None and form.words[:1] == ("result",)
            for number, item in enumerate(items):
                if types[number] == "pred":
                    items[number] = name = f"%word{len(self._pending)}.{place}.{number}"
                    names.add_register(name, "b32")
                    if is_result:
                        after.append(f"{item}, {name}, 0")
                    else:
                        self._append("selp.b32", f"{name}, -1, 0, {item}")
            parts[place] = f"{{{', '.join(items)}}}"
        self._append(opcode, ", ".join(parts), guard, negated)
        for written in after:
            self._append("setp.ne.u32", written, guard, negated)

    def _elements(self, text: str, count: int) -> list[str]:
        """Name the elements of a vector: written out, of a register, or of a special register."""
        if text.startswith("{"):
            items = split(text[1:-1])
        elif self._names.vector(text) is not None or text[1:] in SPECIAL_VECTORS:
            items = [f"{text}.{letter}" for letter in "xyzw"[: 4 if text[0] == "%" else count]]
        else:
            raise PtxSyntaxError(f"{text} is no vector: write its {count} elements in braces")
        if len(items) != count:
            raise PtxSyntaxError(f"expected a vector of {count} elements, got {text}")
        return items

    def _locate(self, match: re.Match[str]) -> None:
        """Note the line of the next statements; `inlined_at` is the place of its caller, by a .loc before it."""
        file, line, column = (integer_of_32(match[part]) for part in ("file", "line", "column"))
        self._function = None
        caller = None
        if match["inlined"]:
            if not match["function"].startswith(".debug_"):  # the beginning of a section
                self._function = match["function"], match.start("loc")
            at = tuple(integer_of_32(word) for word in match["inlined"].split()[1:])
            caller = self._places.get(at) or self._inlined.get(at)
            if caller is None:
                said = " ".join(map(str, at))
                raise PtxSyntaxError(f"inlined_at names a place that a .loc before it gives, got {said}")
        key = file, line, id(caller)  # a caller is kept by what it calls
        place = self._sources.get(key)
        if place is None:
            place = self._sources[key] = SourceLine(self._files.get(file, "?"), line, caller)
        if match.start("loc") in self._reading.inlined:
            self._inlined[file, line, column] = place
            return
        self._source = place
        self._places[file, line, column] = self._source
        if column == 0 and caller is None:
            self._vague.add(self._source)

    def _place_the_vague(self) -> None:
        """Give a line to instructions without one of the kernel's: the DSL names the host's function for atomics.

        Such a line has no column, and is outside of those that have one, or the only one of a file that has none.
        """
        lines: dict[str, list[int]] = {}
        for file, line, column in self._places:
            if column:
                lines.setdefault(self._files.get(file, "?"), []).append(line)
        named = Counter(s.file for s in self._vague if s.line)
        of_hosts = {file for file, count in named.items() if lines and file not in lines and count == 1}
        bounds = {file: (min(found), max(found)) for file, found in lines.items()}
        vague = {s for s in self._vague if s.file in of_hosts}
        vague |= {s for s in self._vague if s.file in bounds and not bounds[s.file][0] <= s.line <= bounds[s.file][1]}
        if vague:
            sources = placed([(opcode, source) for opcode, *_, source, _ in self._pending], vague)
            self._pending = [
                (*item[:-2], source, item[-1]) for item, source in zip(self._pending, sources, strict=True)
            ]

    def _branch_by_index(self, operands: str, guard: str | None, negated: bool) -> None:
        """Write ``brx.idx index, table`` as comparisons and branches, behind a branch if it is guarded."""
        parts = split(operands)
        if len(parts) != 2:
            raise PtxSyntaxError(f"brx.idx takes 2 operands, an index and a table, got {len(parts)}")
        index, table = parts
        labels = self._names.table(table)
        if labels is None:
            raise PtxSyntaxError(f"no .branchtargets {table} before brx.idx", table)
        *targets, last = labels
        predicate = f"%brx{len(self._pending)}"
        if guard is not None:
            self._append("bra", f"$after{predicate[1:]}", guard, not negated)
        self._names.add_register(predicate, "pred")
        self._append("setp.ge.u32", f"{predicate}, {index}, {len(labels)}")
        self._append(BEYOND, f"{index}, {len(labels)}", predicate)
        for number, target in enumerate(targets):
            self._append("setp.eq.u32", f"{predicate}, {index}, {number}")
            self._append("bra", target, predicate)
        self._append("bra", last)
        if guard is not None:
            self._names.add_label(f"$after{predicate[1:]}", len(self._pending))

    def _check_targets(self, labels: list[str], scope: Scope) -> None:
        self._names.go_to(scope, self._names.index)
        for label in labels:
            if self._names.label(label) is None:
                raise PtxSyntaxError(f".branchtargets takes labels of the function, and {label} is none", label)

    def _directive(self, text: str, at: int) -> None:
        if text.startswith((".branchtargets", ".calltargets", ".callprototype")) and not self._label:
            raise PtxSyntaxError(f"a label stands before {text.split()[0]}, by which it is named")
        self._header.check_directives(text)
        if text.startswith(".branchtargets"):
            if (listed := _TARGETS.fullmatch(text)) is None:
                raise PtxSyntaxError(f".branchtargets takes labels, got {' '.join(text.split()[1:])[:80]}")
            labels = [name for part in listed[1].split(",") for name in _numbered(part)]
            self._names.add_table(self._label, labels)
            self._tables.append((labels, self._names.scope, at))
            return
        if text.startswith(".calltargets"):
            heads = []
            for name in split(text.removeprefix(".calltargets").removesuffix(";")):
                known = self._names.functions.get(name) or self._names.kernels.get(name)
                if known is None:
                    reason = f".calltargets takes functions and kernels that are declared before it, got {name}"
                    raise PtxSyntaxError(reason, name)
                heads.append(known)
            if not heads:
                raise PtxSyntaxError(".calltargets takes a function at least")
            self._names.add_signatures(self._label, tuple(heads))
            return
        if (prototype := PROTOTYPE.match(text)) is not None:
            self._names.add_signatures(self._label, (read_prototype(prototype),))
            return
        if (function := HEAD.fullmatch(text)) is not None and function["kind"] == "func":
            name, names = function["name"], self._names
            if names.register(name) is not None or names.variable(name) is not None:
                raise PtxSyntaxError(f"{name} is declared before, and again as a function", name)
            self._declare(function)
            return
        if text.startswith(".reg"):
            self._names.add_registers(text)
        elif text.startswith(SPACES):
            if (opaque := _OPAQUE.search(text)) is not None:
                raise PtxSyntaxError(f"a {opaque[0]} is declared in a function; move it out of it", opaque[0])
            for variable in read_variables(text):
                self._names.add_variable(variable)
        elif not _PRAGMA.fullmatch(text):
            raise PtxSyntaxError(f"unknown directive {' '.join(text.split())[:80]!r}")

    def _instruction(
        self,
        index: int,
        opcode: str,
        text: str,
        guard: str | None,
        negated: bool,
        at: int,
        source: SourceLine | None,
        line: int,
    ) -> Instruction:
        predicate = None
        if guard is not None:
            register = self._names.register(guard)
            if register is None:
                raise PtxSyntaxError(f"unknown predicate {guard} of {opcode}", guard)
            if register.type != "pred":
                raise PtxSyntaxError(f"the guard of {opcode} must be a predicate, got {guard}", guard)
            predicate = register, negated
        is_refused = bool(refusal(opcode)) and opcode.partition(".")[0] not in _SPELLED  # operands of any form
        operands = () if is_refused else tuple([self._operands.read(part, opcode) for part in split(text)])
        operands = self._with_carry(opcode, operands)
        for operand in operands:
            if type(operand) is Special:
                self._check_version(f"%{operand.name}")
        if ".sp" in opcode:
            operands = _with_plain_metadata(opcode, operands)
        if is_wide := opcode.endswith(_OF_128_BITS):
            operands = tuple([_widened(opcode, operand) for operand in operands])
        if opcode.startswith("st.param"):
            self._check_stored(opcode, operands)
        if not is_refused:
            check_spaces(opcode, operands, self._operands.spaces)
        prefix = f"@{'!' if negated else ''}{guard} " if guard else ""
        whole = f"{prefix}{opcode} {' '.join(text.split())}"
        column, file = at - self._reading.text.rfind("\n", 0, at), self._reading.file
        instruction = Instruction(index, opcode, operands, predicate, whole, source, line, column, file)
        if not is_refused:
            self._check(instruction)
        if is_wide and opcode.startswith(("ld", "st")):
            return replace(instruction, opcode=f"{opcode.removesuffix(_OF_128_BITS)}.v2.b64")
        return instruction

    def _check_stored(self, opcode: str, operands: tuple[Operand, ...]) -> None:
        """Refuse to write to a parameter that the function is given."""
        to = operands[0].base if operands and isinstance(operands[0], Address) else None
        if isinstance(to, Symbol) and to.name in self._inputs:
            raise PtxSyntaxError(f"{opcode} writes to {to.name}, which is an input of the function", to.name)

    def _with_carry(self, opcode: str, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Add the carry to the operands: last where it is taken, beside the result where it is set."""
        if opcode.startswith(_TAKE_CARRY):
            operands = (*operands, self._names.carry)
        if ".cc." in opcode and operands:
            operands = (Pair(operands[0], self._names.carry), *operands[1:])
        return operands


def _numbered(text: str) -> list[str]:
    """Return the names that ``L`` or ``L<2>`` stands for."""
    name, _, count = text.replace(">", "").partition("<")
    return [f"{name.strip()}{n}" for n in range(int(count))] if count else [name.strip()]


def _with_plain_metadata(opcode: str, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Return the operands of a sparse product: its metadata may be written as a vector of one register."""
    place = 4 if opcode.startswith("mma") else 3
    for one in operands[place : place + 1]:
        if isinstance(one, Vector) and len(one.items) == 1:
            return (*operands[:place], one.items[0], *operands[place + 1 :])
    return operands


def _takes_predicates(opcode: str, place: int, others: set[str]) -> bool:
    """Return whether ptxas takes a vector of predicates and of registers of other types as an operand."""
    are_all = not others
    first, *modifiers = opcode.split(".")
    if first == "wgmma" and place == 0:
        return False  # written later
    if first in ("mma", "wgmma"):
        if place in (0, 3):
            return not are_all and "f32" not in (modifiers[-1], modifiers[-4 if first == "mma" else -3])
        if {"e4m3", "e5m2"} & {*modifiers} and first == "mma":
            return False
        return not are_all or not {"s8", "u8", "s4", "u4", "b1"}.isdisjoint(modifiers)
    if are_all:
        return first in ("ldmatrix", "stmatrix")
    return others == {"b32"} or (others == {"b32", ""} and place == 0)


def _widened(opcode: str, operand: Operand) -> Operand:
    """Return an operand of an instruction of 128 bits: a number is one of 64 bits and zeros, as in ptxas."""
    if isinstance(operand, Immediate) and not operand.float_bits:
        return Vector((operand, Immediate(0)), is_wide=True)
    is_alone = isinstance(operand, Vector) and len(operand.items) == 1 and opcode.startswith(("ld", "st"))
    if is_alone and isinstance(one := operand.items[0], Vector) and one.is_wide:  # type: ignore[union-attr]
        return one
    return operand


def _passes(one: str, other: str) -> bool:
    """Return whether types of one width agree in a call: not integers with floats."""
    return "b" in (one[0], other[0]) or (one[0] == "f") == (other[0] == "f")


def _check_groups(name: str, instructions: Sequence[Instruction]) -> None:
    """Refuse a kernel whose tcgen05 instructions are of one CTA and of a pair, as ptxas does."""
    of_tensor_core = (i for i in instructions if i.parts[0] == "tcgen05")
    groups = {part: i for i in of_tensor_core for part in i.parts if part.startswith("cta_group")}
    if len(groups) > 1:
        one, pair = (groups[f"cta_group::{n}"].text.strip() for n in (1, 2))
        reason = f"the tcgen05 instructions of {name} must all be of one CTA, or of a pair, got `{one}` and `{pair}`"
        raise PtxSyntaxError(reason, name)
