"""Parse PTX text into a `Module`: what is outside of functions, and where these are.

References
----------
PTX ISA, "Syntax", "Directives".
"""

from __future__ import annotations

import re
from functools import partial

from cutepy.sim.ptx.bodies import Body
from cutepy.sim.ptx.declarations import read_variables
from cutepy.sim.ptx.model import Function, Module, Unread, Variable
from cutepy.sim.ptx.names import Names
from cutepy.sim.ptx.reading import Reading, closing_brace, refuse
from cutepy.sim.ptx.tokens import PtxSyntaxError

_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
_INLINE_ASSEMBLY = re.compile(r"// begin inline asm\n.*?// end inline asm", re.S)
_LOCATION = re.compile(r"^[ \t]*\.loc\b[^\n]*", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_FUNCTION = re.compile(
    r"\s*(?:\.(?:extern|visible|weak)\s+)*\.(?P<kind>entry|func)\b\s*(?:\((?P<results>[^)]*)\)\s*)?"
    r"(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{};]*)(?P<end>[{;])"
)
_OUTSIDE = re.compile(
    r"""\s*(?:
      \.version\s+[\d.]+ | \.target\s+(?P<target>\w+)(?:\s*,\s*\w+)* | \.address_size\s+(?P<address>\d+)
    | \.file\s+\d+\s+"[^"]*"(?:\s*,\s*\d+)* | \.loc\s[^\n]* | @@[^\n]*
    | \.pragma\s+"[^"]*"\s*; | \.alias\s+(?P<alias>[\w$]+)\s*,\s*(?P<aliasee>[\w$]+)\s*;
    | (?P<section>\.section\s+[.\w$]+\s*\{)
    | (?P<variables>(?:\.(?:extern|visible|weak|common)\s+)*\.(?:global|const|shared)\b[^;]*;) | ;
    )""",
    re.X,
)
"""What is outside of functions."""


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
    # LLVM counts the lines of an inline assembly as lines of the source, from its own line on: only that is one.
    text = _INLINE_ASSEMBLY.sub(lambda found: _LOCATION.sub("", found[0]), text)
    text = without_comments(text)
    reading = Reading(unread)
    files = {int(number): name for number, name in _FILE.findall(text)}
    outside = Outside(text, reading)
    functions: dict[str, Function] = {}
    called: dict[str, Function] = {}
    for match, line, body in outside.bodies:
        found = functions if match["kind"] == "entry" else called
        if match["name"] in found:
            reading.attempt(partial(_refuse_second, match["name"]), line, match[0], None)
        found[match["name"]] = Body(files, reading, line, Names(outside.variables, outside.called)).parse(match, body)
    for name, other in outside.aliases.items():
        if other in called:
            called[name] = called[other]
        else:
            reading.attempt(partial(_refuse_alias, name, other), 1, f".alias {name}, {other};", None)
    return Module(outside.target, functions, tuple(outside.variables), called, tuple(outside.called))


def without_comments(text: str) -> str:
    """Strip comments, and keep the lines as they are."""
    return _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)


class Outside:
    """What a module says outside of its functions, and where these are: the head, first line and text of each body."""

    def __init__(self, text: str, reading: Reading) -> None:
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
        elif match["address"]:
            self._reading.attempt(partial(_check_address_size, match["address"]), 1, match[0], None)
        elif match["alias"]:
            self.aliases[match["alias"]] = match["aliasee"]
        elif match["section"]:
            return closing_brace(text, match.end())
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
            attempt(partial(refuse, rest), text.count("\n", 0, start) + 1, rest.partition("\n")[0], None)
            return start + len(re.match(r"[^;\n]*[;\n]?", rest)[0])  # type: ignore[index]
        if match["kind"] == "func":
            self.called[match["name"]] = match
        if match["end"] == ";":
            return match.end()
        line = text.count("\n", 0, match.end()) + 1
        end = attempt(partial(closing_brace, text, match.end()), line, match[0], len(text) + 1)
        self.bodies.append((match, line, text[match.end() : end - 1]))
        return end


def _refuse_alias(name: str, other: str) -> None:
    raise PtxSyntaxError(f"{name} is an alias of {other}, which is not defined in this module")


def _refuse_second(name: str) -> None:
    raise PtxSyntaxError(f"{name} is defined twice")


def _check_address_size(bits: str) -> None:
    if bits != "64":
        raise PtxSyntaxError(f"addresses of {bits} bits, which no GPU since sm_90 has; write .address_size 64")
