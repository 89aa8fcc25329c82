"""Parse PTX text into a `Module`: what is outside of functions, and where these are.

References
----------
PTX ISA, "Syntax", "Directives".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial

from cutepy.sim.ptx.bodies import Body
from cutepy.sim.ptx.declarations import read_variables
from cutepy.sim.ptx.forms import Checks
from cutepy.sim.ptx.model import Function, Module, Unread, Variable
from cutepy.sim.ptx.names import Names
from cutepy.sim.ptx.reading import Reading, closing_brace, fail, refuse, refuse_statement
from cutepy.sim.ptx.tokens import PtxSyntaxError as PtxSyntaxError, integer

_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
_INLINE_ASSEMBLY = re.compile(r"// begin inline asm\n.*?(?:// end inline asm|\Z)", re.S)
_LOCATION = re.compile(r"^[ \t]*+\.loc[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]*(?:,[^\n/]*)?(?://[^\n]*)?$", re.M)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"\n]*)"')
_SPACE = re.compile(r"\s*+")
_FUNCTION = re.compile(
    r"(?:\.(?:extern|visible|weak)\s+)*\.(?P<kind>entry|func)\b\s*+(?:\((?P<results>[^)]*)\)\s*+)?"
    r"(?P<name>[\w$%]+)\s*+(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{};]*)(?P<end>[{;])"
)
_OUTSIDE = re.compile(
    r"""(?:
      \.version\s+(?P<version>[\d.]+) | \.target\s+(?P<target>\w+)(?:\s*,\s*\w+)*
    | \.address_size\s+(?P<address_size>\d+)
    | \.file\s+\d+\s+"[^"]*"(?:\s*,\s*\d+){0,2} | @@[^\n]*+
    | \.pragma\s+"[^"]*"\s*; | \.alias\s+(?P<alias>[\w$]+)\s*,\s*(?P<aliasee>[\w$]+)\s*;
    | (?P<section>\.section\s+\.[.\w$]+\s*\{)
    | (?P<variables>(?:\.(?:extern|visible|weak|common)\s+)*\.(?:global|const|shared)\b[^;]*;)
    )""",
    re.X,
)
"""Statements outside of functions."""
_OF_A_SECTION = re.compile(
    r"""\s*+(?:(?P<label>[\w$.]+)\s*:
      | \.b(?P<bits>8|16|32|64)\s+
        (?P<values>-?[\w$.]+(?:\s*[-+]\s*[\w$.]+)?(?:\s*,\s*-?[\w$.]+(?:\s*[-+]\s*[\w$.]+)?)*))""",
    re.X,
)
"""A label or data of a section."""
_NEWEST_MAJOR = 9
"""Newest major version of the PTX ISA; a minor one adds instructions, each of which is refused where it is unknown."""
_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8}
"""Of earlier major versions."""


def parse_module(text: str, unread: list[Unread] | None = None, file: str = "", checks: Checks | None = None) -> Module:
    """Parse a PTX module.

    Parameters
    ----------
    text : str
        As the compiler wrote it.
    unread : list of Unread, optional
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
    # LLVM counts the lines of an inline assembly as lines of the source, from its own line on: only that is one.
    original = _INLINE_ASSEMBLY.sub(lambda found: _LOCATION.sub(_blank, found[0]), text)
    text = without_comments(original)
    reading = Reading(text, file, unread, checks)
    if (start := _open_comment(original)) >= 0:
        line, column = reading.place(start)
        reason, statement = "the comment that begins here does not end; write */", original[start:].partition("\n")[0]
        error = PtxSyntaxError(reason, "", file, line, column, statement[:200])
        reading.attempt(partial(fail, error), start, None)
    reading.check_characters()
    files = {int(number): name for number, name in _FILE.findall(text)}
    outside = Outside(text, reading)
    functions: dict[str, Function] = {}
    called: dict[str, Function] = {}
    kernels = {match["name"] for match, *_ in outside.bodies if match["kind"] == "entry"}
    for match, line, start, end in outside.bodies:
        found = functions if match["kind"] == "entry" else called
        if match["name"] in found:
            reading.attempt(partial(refuse, f"{match['name']} is defined twice", match["name"]), match.start(), None)
        names = Names(outside.variables, outside.called, kernels)
        found[match["name"]] = Body(files, reading, line, names).parse(match, start, end)
    for name, (other, at) in outside.aliases.items():
        if other in called:
            called[name] = called[other]
        else:
            reason = f"{name} is an alias of {other}, which is not defined in this module"
            reading.attempt(partial(refuse, reason, other), at, None)
    outside.check_references({*outside.called, *outside.aliases})
    return Module(outside.target, functions, tuple(outside.variables), called, tuple(outside.called))


def without_comments(text: str) -> str:
    """Replace comments by blanks, so that all else stays where it is."""
    return _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else _blank(found), text)


def _open_comment(text: str) -> int:
    """Return where a comment begins that does not end, or -1."""
    for found in _COMMENT.finditer(text) if "/*" in text else ():
        if found.end() == len(text) and found[0][:2] == "/*" and (len(found[0]) < 4 or found[0][-2:] != "*/"):
            return found.start()
    return -1


def _blank(found: re.Match[str]) -> str:
    return "\n".join(" " * len(line) for line in found[0].split("\n"))


class Outside:
    """Statements of a module outside of its functions, and the places of the functions.

    Parameters
    ----------
    text : str
        Without comments.
    reading : Reading

    Attributes
    ----------
    target : str
    variables : list of Variable
    called : dict of str to match
        The heads of functions that are no entries, by name.
    aliases : dict of str to (str, int)
        Name -> the function, and where this is said.
    bodies : list of (match, int, int, int)
        Of each function the head, the line on which its body begins, and where in the text this begins and ends.
    """

    def __init__(self, text: str, reading: Reading) -> None:
        self.target = ""
        self.variables: list[Variable] = []
        self.called: dict[str, re.Match[str]] = {}
        self.aliases: dict[str, tuple[str, int]] = {}
        self.bodies: list[tuple[re.Match[str], int, int, int]] = []
        self._text, self._reading = text, reading
        self._declared: dict[str, Variable] = {}
        self._line, self._counted = 1, 0
        self._said: set[str] = set()
        self._references: list[tuple[str, str, int]] = []
        position, end = 0, len(text.rstrip())
        while (position := _SPACE.match(text, position).end()) < end:  # type: ignore[union-attr]
            position = self._one(position)

    def _one(self, position: int) -> int:
        """Read what is at a position; tells where it ends."""
        text, attempt = self._text, self._reading.attempt
        match = _OUTSIDE.match(text, position)
        if match is None:
            return self._function(position)
        head = next((name for name in ("version", "target", "address_size") if match[name]), "")
        if head in self._said:
            attempt(partial(refuse, f".{head} comes twice"), position, None)
        self._said |= {head} - {""}
        if match["target"]:
            self.target = match["target"]
        elif match["version"]:
            attempt(partial(_check_version, match["version"]), position, None)
        elif match["address_size"]:
            attempt(partial(_check_address_size, match["address_size"]), position, None)
        elif match["alias"]:
            self.aliases[match["alias"]] = match["aliasee"], position
        elif match["section"]:
            end = attempt(partial(closing_brace, text, match.end()), position, len(text))
            self._check_section(match.end(), end - 1)
            return end
        elif match["variables"]:
            attempt(partial(self._variables, match["variables"], position), position, None)
        return match.end()

    def _check_section(self, position: int, end: int) -> None:
        """Refuse what is no data of a debugger's section."""
        text = self._text
        while position < end and (match := _OF_A_SECTION.match(text, position, end)) is not None:
            if match["bits"] is not None:
                bits, values = int(match["bits"]), re.findall(r"(?<![\w$.])-?\d\w*", match["values"])
                for value in values:
                    reading = partial(_check_section_value, value, bits)
                    self._reading.attempt(reading, match.start("values"), None)
            position = match.end()
        if position < end and text[position:end].strip():
            self._reading.attempt(partial(refuse_statement, text[position : min(end, position + 200)]), position, None)

    def _variables(self, text: str, position: int) -> None:
        for variable in read_variables(text):
            known = self._declared.get(variable.name)
            if known is not None and not (known.is_extern or variable.is_extern):
                refuse(f"{variable.name} is declared twice", variable.name)
            self._declared[variable.name] = variable
            self.variables.append(variable)
            self._references += [(reference.name, variable.name, position) for reference in variable.references]

    def check_references(self, functions: Collection[str]) -> None:
        """Refuse initial values that are addresses of what has none in this module."""
        known = {v.name for v in self.variables if v.space in ("global", "const") and not v.is_extern}
        for name, variable, position in self._references:
            if name not in known and name not in functions:
                reason = (
                    f"{variable} is initialised with the address of {name}, which is no variable of global or constant "
                    "memory, and no function, of this module"
                )
                self._reading.attempt(partial(refuse, reason, name), position, None)

    def _function(self, position: int) -> int:
        text, attempt = self._text, self._reading.attempt
        match = _FUNCTION.match(text, position)
        if match is None:
            attempt(partial(refuse_statement, text[position : position + 200]), position, None)
            end = re.compile(r"[^;\n]*[;\n]?").match(text, position)
            assert end is not None
            return max(end.end(), position + 1)
        if match["kind"] == "func":
            self.called[match["name"]] = match
        if match["end"] == ";":
            return match.end()
        end_at = attempt(partial(closing_brace, text, match.end()), position, len(text) + 1)
        self._line += text.count("\n", self._counted, match.end())
        self._counted = match.end()
        self.bodies.append((match, self._line, match.end(), end_at - 1))
        return end_at


def _check_section_value(value: str, bits: int) -> None:
    number = integer(value.lstrip("-"))
    if number >> bits:
        refuse(f".b{bits} takes a number of {bits} bits, got {value}", value)


def _check_version(version: str) -> None:
    match = re.fullmatch(r"(\d{1,4})\.\d{1,4}", version)
    major, minor = map(int, version.split(".")) if match is not None else (0, 0)
    if not 1 <= major <= _NEWEST_MAJOR or minor > _LAST_MINOR.get(major, minor):
        refuse(f"expected a version of the PTX ISA up to {_NEWEST_MAJOR}.x, got {version}", version)


def _check_address_size(bits: str) -> None:
    if bits != "64":
        refuse(f"addresses of {bits} bits, which no GPU since sm_90 has; write .address_size 64", bits)
