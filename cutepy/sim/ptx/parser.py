"""Parse PTX text into a `Module`: the statements outside of functions, and the positions of functions.

References
----------
PTX ISA, "Syntax", "Directives".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from cutepy.sim.ptx.bodies import Body
from cutepy.sim.ptx.declarations import LINKING, check_redeclared_variable, read_nameless, read_variables
from cutepy.sim.ptx.forms import Checks
from cutepy.sim.ptx.header import Header, shortfall
from cutepy.sim.ptx.heads import HEAD, Head, check_redeclared, read_head
from cutepy.sim.ptx.model import Function, Module, Reference, UnreadStatement, Variable
from cutepy.sim.ptx.names import Names
from cutepy.sim.ptx.operands import SPECIAL_VECTORS, SPECIALS
from cutepy.sim.ptx.reading import StatementReader, closing_brace, fail, refuse, refuse_statement
from cutepy.sim.ptx.tokens import PtxSyntaxError as PtxSyntaxError, integer, integer_of_32

_COMMENT = re.compile(
    r""""[^"]*"|//[^\n]*|/\*.*?(?:\*/|\Z)|\x1a
    | \#[ \t]*(?:line[ \t]+)?\d+[ \t]+"[^"\n]*"(?:[ \t]+\d+)*[ \t]*(?=\n|\Z)""",
    re.S | re.X,
)
"""A string, a comment, the end of a file of DOS, or a preprocessor's line marker: ptxas takes these for white space."""
_INLINE_ASSEMBLY = re.compile(r"// begin inline asm\n.*?(?:// end inline asm|\Z)", re.S)
_TORN_VERSION = re.compile(r"\.version(?:[ \t]*\n|\s*/[/*])")
_LOCATION = re.compile(r"^[ \t]*+(\.loc)\b", re.M)
_FILE = re.compile(r'\.file\s+(0x[0-9a-fA-F]{1,8}|[1-9]\d{0,9}|0)\s*"([^"]*)"')
_ESCAPED = re.compile(r"\\([0-7]{3})|\\(.)")
"""A byte of a file's name, as LLVM writes those that are not ASCII."""
_SPACE = re.compile(r"\s*+")
_OUTSIDE = re.compile(
    r"""(?:
      \.version\s+(?P<version>\d+\.\d+|[\d.]+) | \.target\s+(?P<target>[A-Za-z_][\w$]*)(?P<options>(?:\s*,\s*[\w$]+)*)
    | \.address_size\s+(?P<address_size>\w+)
    | \.file\s+(?P<file>\d\w*)\s*"[^"]*"(?:\s*,\s*\d+){0,2}
    | \.pragma\s*"[^"]*"\s*; | \.alias\s+(?P<alias>[\w$]+)\s*,\s*(?P<aliasee>[\w$]+)\s*;
    | (?P<section>\.section\s*\.[\w$]+\s*\{)
    | (?P<variables>(?:\.(?:extern|visible|weak|common)\b\s*+)*\.(?:global|const|shared)\b[^;]*;)
    | (?P<nameless>(?:\.(?:extern|visible|weak|common)\b\s*+)*\.(?:reg|local|param)\b[^;]*;)
    )""",
    re.X,
)
"""Statements outside of functions."""
_OF_A_SECTION = re.compile(
    r"""\s*+(?:(?P<label>[A-Za-z][\w$]*|[_$%][\w$]+)\s*:
      | \.b(?P<bits>8|16|32|64)\s+(?P<values>VALUE(?:\s*,\s*VALUE)*)(?![\w$.]))""".replace(
        "VALUE",
        r"(?:-?\s*\d\w*+(?!\.)|[.A-Za-z_$%][\w$]*+(?![.])(?:\s*\+\s*\d\w*+|\s*-\s*[A-Za-z_$%][\w$]*+)?)",
    ),
    re.X,
)
"""A label or data of a section: numbers, labels, sections, and differences."""
_ADDRESS_BITS = ("32", "64")


def parse_module(
    text: str, unread: list[UnreadStatement] | None = None, file: str = "", checks: Checks | None = None
) -> Module:
    """Parse a PTX module.

    Parameters
    ----------
    text : str
        As the compiler wrote it.
    unread : list of UnreadStatement, optional
        Gets what is not understood, and the rest is read: statements without their operands, or not at all.
    file : str
        That it was read from, for errors.
    checks : Checks, optional
        Of the operands of instructions; by default by their forms only.

    Raises
    ------
    PtxSyntaxError
        If a statement is not understood, and there is no such list: with the statement and its place.

    Examples
    --------
    >>> module = parse_module('''.target sm_90a
    ... .visible .entry k(.param .u32 k_param_0) { .reg .b32 %r<3>; add.s32 %r1, %r2, 5; ret; }''')
    >>> [i.opcode for i in module.functions["k"].instructions]
    ['add.s32', 'ret']
    """
    text, original = without_comments(text), text
    reading = StatementReader(text, file, unread, checks)
    # LLVM counts the lines of an inline assembly as lines of the source, from its own line on: only that is one.
    for assembly in _INLINE_ASSEMBLY.finditer(original):
        reading.inlined |= {assembly.start() + line.start(1) for line in _LOCATION.finditer(assembly[0])}
    if (start := _open_comment(original)) >= 0:
        line, column = reading.place(start)
        reason, statement = "the comment that begins here does not end; write */", original[start:].partition("\n")[0]
        error = PtxSyntaxError(reason, "", file, line, column, statement[:200])
        reading.attempt(partial(fail, error), start, None)
    reading.check_characters(original)
    if (torn := _TORN_VERSION.search(original)) is not None and text.startswith(".version", torn.start()):
        reason = ".version and its number stand on one line, without a comment between them"
        reading.attempt(partial(refuse, reason), torn.start(), None)
    functions: dict[str, Function] = {}
    called: dict[str, Function] = {}

    def read_body(outside: ModuleStatements, head: Head, at: int, line: int, start: int, end: int) -> None:
        names = Names(outside.declared, outside.called, outside.kernels)
        found = functions if head.kind == "entry" else called
        found[head.name] = Body(files, reading, line, names, outside.header, outside.declare).parse(
            head, at, start, end
        )

    files = {int(number, 0): _unescaped(name) for number, name in _FILE.findall(text)}
    outside = ModuleStatements(text, reading, read_body)
    called |= {name: called[other] for name, other in outside.aliases.items() if other in called}
    header = outside.header
    return Module(
        outside.target,
        functions,
        tuple(outside.variables),
        called,
        tuple(outside.called),
        header.version,
        header.at,
        header.version_end,
    )


def without_comments(text: str) -> str:
    """Replace comments by blanks, so that all else stays where it is."""
    return _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else _blank(found), text)


def _open_comment(text: str) -> int:
    """Return where a comment begins that does not end, or -1."""
    for found in _COMMENT.finditer(text) if "/*" in text else ():
        if found.end() == len(text) and found[0][:2] == "/*" and (len(found[0]) < 4 or found[0][-2:] != "*/"):
            return found.start()
    return -1


def _unescaped(name: str) -> str:
    r"""Return the name of a file, of which LLVM writes the bytes that are not ASCII as octal numbers.

    Examples
    --------
    >>> _unescaped(r"jos\303\251.py")
    'jos\xe9.py'
    """
    if "\\" not in name:
        return name
    data = _ESCAPED.sub(lambda found: chr(int(found[1], 8) % 256) if found[1] else found[2], name)
    return data.encode("latin-1", errors="replace").decode(errors="replace")


def _blank(found: re.Match[str]) -> str:
    return "\n".join(" " * len(line) for line in found[0].split("\n"))


_MOST_CONSTANT_BYTES = 1 << 16
_MOST_EARLY_PARAMETER_BYTES = 4352
"""Of a kernel, before version 8.1."""


class ModuleStatements:
    """Statements of a module outside of its functions, read in one pass: names are declared before their use.

    Parameters
    ----------
    text : str
        Without comments.
    reading : StatementReader
    read_body : callable, optional
        Called for each body as it is found, with this object, the function's head, the place of that, the line on which
        the body begins, and where in the text this begins and ends.

    Attributes
    ----------
    target : str
    variables : list of Variable
    declared : dict of str to Variable
        The variables by name.
    called, kernels : dict of str to Head
        The functions and the entries, by name.
    header : Header
    aliases : dict of str to str
        Name -> the function.
    bodies : list of (str, int, int, int)
        Of each function the name, the line on which its body begins, and where in the text this begins and ends.
    """

    def __init__(
        self,
        text: str,
        reading: StatementReader,
        read_body: Callable[[ModuleStatements, Head, int, int, int, int], None] | None = None,
    ) -> None:
        self.target = ""
        self.variables: list[Variable] = []
        self.declared: dict[str, Variable] = {}
        self.called: dict[str, Head] = {}
        self.kernels: dict[str, Head] = {}
        self.aliases: dict[str, str] = {}
        self.bodies: list[tuple[str, int, int, int]] = []
        self._text, self._reading, self._read_body = text, reading, read_body
        self._line, self._counted = 1, 0
        self.header = Header()
        self._defined: set[str] = set()
        self._files: set[int] = set()
        self._constant_bytes = 0
        self._declarations: dict[str, int] = {}
        position, end = 0, len(text.rstrip())
        while (position := _SPACE.match(text, position).end()) < end:  # type: ignore[union-attr]
            position = self._one(position)
        self._check_defined()

    def _one(self, position: int) -> int:
        """Read the statement at a position; return its end."""
        text, attempt = self._text, self._reading.attempt
        match = _OUTSIDE.match(text, position)
        if match is None:
            self.header.end()
            return self._function(position)
        if match["version"] or match["target"] or match["address_size"]:
            attempt(partial(self.header.read, match), position, None)
            self.target = self.header.target
            return match.end()
        if match["file"]:
            attempt(partial(self._file, match["file"]), position, None)
        elif match["alias"]:
            self._check_directives(match, position)
            attempt(partial(self._alias, match["alias"], match["aliasee"]), position, None)
        elif match["section"]:
            self.header.end()
            end = attempt(partial(closing_brace, text, match.end()), position, len(text))
            self._check_section(match.end(), end - 1)
            self.header.debugs |= ".debug_" in match["section"]
            return end
        elif match["nameless"]:
            attempt(partial(read_nameless, match["nameless"]), position, None)
        elif match["variables"]:
            self._check_directives(match, position)
            attempt(partial(self._variables, match["variables"]), position, None)
        self.header.end()
        return match.end()

    def _check_directives(self, match: re.Match[str], position: int) -> None:
        self._reading.attempt(partial(self.header.check_directives, match[0]), position, None)

    def _file(self, text: str) -> None:
        index = integer_of_32(text)
        if index in self._files:
            refuse(f"the .file {index} is declared before; give each its own number", text)
        self._files.add(index)

    def _alias(self, name: str, other: str) -> None:
        for one in (name, other):
            if one not in self.called:
                refuse(f".alias takes functions that are declared before it, got {one}", one)
        if other not in self._defined:
            refuse(f"{name} is an alias of {other}, which is not defined before it", other)
        self.aliases[name] = other
        self._defined.add(name)

    def _check_section(self, position: int, end: int) -> None:
        """Refuse contents that are no data of a debugger's section."""
        text, attempt = self._text, self._reading.attempt
        while position < end and (match := _OF_A_SECTION.match(text, position, end)) is not None:
            if match["label"] is not None:
                attempt(partial(self._section_label, match["label"]), position, None)
            else:
                for value in match["values"].split(","):
                    attempt(partial(_check_section_value, value.strip(), match["bits"]), match.start("values"), None)
            position = match.end()
        if position < end and text[position:end].strip():
            attempt(partial(refuse_statement, text[position : min(end, position + 200)]), position, None)

    def _section_label(self, name: str) -> None:
        self.header.need((7, 0), "a label in a section", name)
        if name in self.header.labels:
            refuse(f"the label {name} is declared twice", name)
        self.header.labels.add(name)

    def _variables(self, text: str) -> None:
        for variable in read_variables(text):
            known = self.declared.get(variable.name)
            if known is not None:
                check_redeclared_variable(known, variable)
                if known.is_extern and not text.startswith(LINKING):
                    reason = f"{variable.name} is .extern before; write .visible before what defines it"
                    refuse(reason, variable.name)
            elif variable.name in self.called or variable.name in self.kernels:
                refuse(f"{variable.name} is a function, and declared again", variable.name)
            for reference in variable.references:
                self._check_reference(variable.name, reference)
            if variable.name[0] == "%" and variable.name[1:] in SPECIALS | SPECIAL_VECTORS:
                refuse(f"{variable.name} is a special register, and no name of a variable", variable.name)
            if variable.space == "samplerref" and not self.header.has_samplers:
                refuse(".samplerref needs the option texmode_independent of .target", variable.name)
            if variable.space == "const" and not variable.is_extern:
                self._constant_bytes += variable.size_bytes or 0
                if self._constant_bytes > _MOST_CONSTANT_BYTES:
                    reason = f"constant memory has {_MOST_CONSTANT_BYTES} bytes, and the variables up to here"
                    refuse(f"{reason} {self._constant_bytes}; move some to .global", variable.name)
            self.declared[variable.name] = variable
            self.variables.append(variable)

    def _check_reference(self, name: str, reference: Reference) -> None:
        """Refuse an initial value that is the address of an object without one, or of one declared behind it."""
        other = reference.name
        if other in self.called or other in self.kernels:
            if not reference.is_plain:
                refuse(f"the address of the function {other} is a value by its name alone", other)
            return
        known = self.declared.get(other)
        if known is None or known.space in ("shared", "local", "param"):
            refuse(
                f"{name} is initialised with the address of {other}, which is no variable of global or constant "
                "memory, and no function, that is declared before it",
                other,
            )

    def _function(self, position: int) -> int:
        text, attempt = self._text, self._reading.attempt
        match = HEAD.match(text, position)
        if match is None and text.startswith("@@", position):
            attempt(partial(refuse, "@@DWARF is for PTX before 2.0; write a .section"), position, None)
            return (text.find("\n", position) + 1) or len(text)
        if match is None:
            attempt(partial(refuse_statement, text[position : position + 200]), position, None)
            end = re.compile(r"[^;\n]*[;\n]?").match(text, position)
            assert end is not None
            return max(end.end(), position + 1)
        self._check_directives(match, position)
        head = attempt(partial(self.declare, match), position, None)
        if match["end"] == ";":
            return match.end()
        end_at = attempt(partial(closing_brace, text, match.end()), position, len(text) + 1)
        self._line += text.count("\n", self._counted, match.end())
        self._counted = match.end()
        if head is not None:
            self.bodies.append((head.name, self._line, match.end(), end_at - 1))
            if self._read_body is not None:
                self._read_body(self, head, position, self._line, match.end(), end_at - 1)
        return end_at

    def declare(self, match: re.Match[str]) -> Head:
        """Note the function of a match of `HEAD`, which may stand in the body of another.

        Raises
        ------
        PtxSyntaxError
            If ptxas would not take it.
        """
        head = read_head(match)
        if head.name[0] == "%" and head.name[1:] in SPECIALS | SPECIAL_VECTORS:
            refuse(f"{head.name} is a special register, and no name of a function", head.name)
        name, is_definition = head.name, match["end"] == "{"
        size = sum(formal.size_bytes for formal in head.parameters) if head.kind == "entry" else 0
        what = f"a kernel with {size} bytes of parameters"
        if size > _MOST_EARLY_PARAMETER_BYTES and (
            reason := shortfall(what, (8, 1), "sm_70", self.header.version, self.header.target)
        ):
            refuse(reason, name)
        known = self.called.get(name) or self.kernels.get(name)
        if known is not None:
            check_redeclared(known, name in self._defined, head, is_definition)
        elif name in self.declared:
            refuse(f"{name} is a variable, and declared again as a function", name)
        (self.kernels if head.kind == "entry" else self.called)[name] = head
        if is_definition:
            self._defined.add(name)
        elif head.linking != ".extern":
            self._declarations.setdefault(name, match.start())
        return head

    def _check_defined(self) -> None:
        """Refuse functions that are declared as of this module, and not defined in it."""
        for name, at in self._declarations.items():
            if name not in self._defined:
                reason = f"{name} is declared here, and not defined; write .extern before what another module defines"
                self._reading.attempt(partial(refuse, reason, name), at, None)
        for name, at in self.header.named.items():
            if name not in self.header.labels:
                reason = f"function_name takes a label of a .section .debug_str, and {name} is none"
                self._reading.attempt(partial(refuse, reason, name), at, None)
        self._reading.attempt(self.header.check, self.header.at, None)


def _check_section_value(value: str, bits: str) -> None:
    if value[0] not in "-0123456789":
        if bits not in _ADDRESS_BITS:
            refuse(f".b{bits} takes numbers, got {value}; an address has 32 or 64 bits", value)
        return
    magnitude = integer(value.lstrip("- \t\n\r\f"))
    if magnitude > (1 << int(bits) - 1 if value[0] == "-" else (1 << int(bits)) - 1):
        refuse(f".b{bits} takes a number of {bits} bits, got {value}", value)
