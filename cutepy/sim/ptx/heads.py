"""The heads of functions: linking, results, parameters and performance directives.

References
----------
PTX ISA, "Kernel and Function Directives", "Performance-Tuning Directives", "Cluster Dimension Directives",
"Linking Directives", "Alias"; what ptxas 13.0 takes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cutepy.sim.ptx.declarations import LARGEST_PARAMETER_BYTES, read_parameters
from cutepy.sim.ptx.model import Parameter
from cutepy.sim.ptx.tokens import PtxSyntaxError, integer

HEAD = re.compile(
    r"""(?P<linking>(?:\.(?:extern|visible|weak|common)\b\s*+)*)\.(?P<kind>entry|func)\b\s*+
    (?:\.attribute\s*\(\s*\.unified\s*\(\s*\w+\s*,\s*\w+\s*\)\s*\)\s*+)?
    (?:\((?P<results>[^)]*)\)\s*+)?(?P<name>[\w$%]+)\s*+(?:\((?P<parameters>[^)]*)\))?
    (?P<directives>[^{};"]*+(?:"[^"]*"\s*;?[^{};"]*+)*+)(?P<end>[{;])""",
    re.X,
)
"""A head, up to the brace that opens the body, or the semicolon of a declaration."""
PROTOTYPE = re.compile(r"\.callprototype\s*(?:\((?P<results>[^)]*)\))?\s*_\s*(?:\((?P<parameters>[^)]*)\))?")
_NAME = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+")
_DIRECTIVE = re.compile(
    r"""\s*+(?:(?P<pragma>\.pragma\s*"[^"]*"(?:\s*,\s*"[^"]*")*\s*;)
      | \.(?P<name>\w+)\s*+(?P<values>(?:\w+(?:\s*,\s*\w+)*)?))\s*+""",
    re.X,
)


class _Directive(NamedTuple):
    """A directive of a head.

    Attributes
    ----------
    kind : str
        Kind of function that has it.
    counts : range
        Allowed counts of numbers.
    least : int
        The least of these.
    is_none_at_0 : bool
        True if a first number of 0 asks for nothing, as if the directive were not there.
    """

    kind: str
    counts: range
    least: int = 0
    is_none_at_0: bool = False


_DIRECTIVES = {
    "maxntid": _Directive("entry", range(1, 4), 1),
    "reqntid": _Directive("entry", range(1, 4), 1),
    "minnctapersm": _Directive("entry", range(1, 2), 1),
    "maxnreg": _Directive("entry", range(1, 2), 1),
    "explicitcluster": _Directive("entry", range(1)),
    "reqnctapercluster": _Directive("entry", range(1, 4), 1, is_none_at_0=True),
    "maxclusterrank": _Directive("entry", range(1, 2), 1, is_none_at_0=True),
    "blocksareclusters": _Directive("entry", range(1)),
    "noreturn": _Directive("func", range(1)),
    "abi_preserve": _Directive("func", range(1, 2)),
    "abi_preserve_control": _Directive("func", range(1, 2)),
}
_ONCE = frozenset(("noreturn", "abi_preserve", "abi_preserve_control"))
"""Directives that ptxas refuses to read twice; of the others it takes the last."""
_CONFLICTS = (("maxntid", "reqntid"), ("reqnctapercluster", "maxclusterrank"))
_NEEDED = {"blocksareclusters": ("reqntid", "reqnctapercluster")}


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a function.

    Attributes
    ----------
    name : str
    kind : str
        "entry", "func", or "prototype" of what a call through a register says.
    linking : str
        ".visible" and the like; empty without.
    results, parameters : tuple of Parameter
    directives : dict of str to tuple of int
    """

    name: str
    kind: str
    linking: str = ""
    results: tuple[Parameter, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)


def read_head(match: re.Match[str]) -> Head:
    """Read the head that a match of `HEAD` holds.

    Raises
    ------
    PtxSyntaxError
        If ptxas would not take it.

    Examples
    --------
    >>> head = read_head(HEAD.match(".visible .entry k(.param .u32 n) .maxntid 32 {"))
    >>> head.name, head.linking, [p.name for p in head.parameters], head.directives
    ('k', '.visible', ['n'], {'maxntid': (32,)})
    """
    kind, name, linking = match["kind"], match["name"], re.findall(r"\.\w+", match["linking"])
    if not _NAME.fullmatch(name) or name == "WARP_SZ":
        raise PtxSyntaxError(f"a name begins with a letter, or with _ $ % and another character, got {name}", name)
    if len(linking) > 1 or ".common" in linking:
        said = " ".join(linking)
        raise PtxSyntaxError(f"a function has at most one of .extern .visible .weak, got {said}", linking[-1])
    if ".extern" in linking and match["end"] == "{":
        raise PtxSyntaxError(f"{name} is .extern and has a body; write .visible", ".extern")
    if kind == "entry" and match["results"] is not None:
        raise PtxSyntaxError(f"{name} is a kernel, which has no results; write .func", name)
    results, parameters = (read_parameters(match[part] or "", kind) for part in ("results", "parameters"))
    _check_complete(kind, results, parameters)
    if len(results) > 1 and not all(formal.is_register for formal in results):
        raise PtxSyntaxError(f"{name} has {len(results)} results, which must be in .reg; write one in .param", name)
    if kind == "entry" and (size := sum(formal.size_bytes for formal in parameters)) > LARGEST_PARAMETER_BYTES:
        raise PtxSyntaxError(f"a kernel has at most {LARGEST_PARAMETER_BYTES} bytes of parameters, got {size}", name)
    if kind == "func" and match["end"] == ";" and any(p.name == "_" for p in (*results, *parameters)):
        raise PtxSyntaxError("a parameter of a function needs a name, got _", "_")
    directives = dict(_directives(match["directives"], kind))
    if kind == "entry" and match["end"] == ";" and directives:
        raise PtxSyntaxError(f"a declaration has no directives, got .{next(iter(directives))}")
    _check_together(name, directives, bool(results))
    asked = {one: values for one, values in directives.items() if not (_DIRECTIVES[one].is_none_at_0 and not values[0])}
    return Head(name, kind, "".join(linking), results, parameters, asked)


def read_prototype(match: re.Match[str]) -> Head:
    """Read the head in a match of `PROTOTYPE`."""
    results, parameters = (read_parameters(match[part] or "", "prototype") for part in ("results", "parameters"))
    _check_complete("prototype", results, parameters)
    return Head("_", "prototype", "", results, parameters)


def _check_complete(kind: str, results: tuple[Parameter, ...], parameters: tuple[Parameter, ...]) -> None:
    """Refuse arrays without elements: only the last parameter of a function may be one, for any number of arguments."""
    for formal in (*results, *(parameters if kind == "entry" else parameters[:-1])):
        if not formal.size_bytes and formal.type not in ("texref", "samplerref", "surfref"):
            what = "a kernel's parameter" if kind == "entry" else "a result, or a parameter before the last,"
            raise PtxSyntaxError(
                f"{what} must have at least one element, got the empty array {formal.name}", formal.name
            )


def _directives(text: str, kind: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    position, end = 0, len(text.rstrip())
    said: set[str] = set()
    while position < end:
        match = _DIRECTIVE.match(text, position)
        rest = " ".join(text[position:].split())[:80]
        if match is None:
            raise PtxSyntaxError(f"unknown directive {rest!r}")
        position = match.end()
        if match["pragma"] is not None and kind == "entry":
            continue
        name, values = match["name"], match["values"] or ""
        known = _DIRECTIVES.get(name)
        if known is None:
            advice = "; it has no use since PTX 2.1, delete it" if name == "maxnctapersm" else ""
            raise PtxSyntaxError(f"unknown directive {rest!r}{advice}", f".{name}" if name else ".pragma")
        if known.kind != kind:
            raise PtxSyntaxError(f".{name} is a directive of .{known.kind}, and this is .{kind}", f".{name}")
        if name in said & _ONCE:
            raise PtxSyntaxError(f".{name} comes twice", f".{name}")
        said.add(name)
        yield name, _numbers(name, values, known)


def _numbers(name: str, text: str, known: _Directive) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    values = tuple(32 if word == "WARP_SZ" else integer(word) for word in words)
    if len(values) not in known.counts:
        least, most = known.counts[0], known.counts[-1]
        said = f"{least} to {most} numbers" if least != most else ("a number" if most else "no number")
        raise PtxSyntaxError(f".{name} takes {said}, got {text or 'none'}", f".{name}")
    if any(value >> 32 for value in values):
        raise PtxSyntaxError(f".{name} takes numbers of 32 bits, got {text}", f".{name}")
    is_none = known.is_none_at_0 and values[0] == 0
    if not is_none and any(value < known.least for value in (values[:1] if known.is_none_at_0 else values)):
        raise PtxSyntaxError(f".{name} takes numbers from {known.least} on, got {text}", f".{name}")
    return values


def _check_together(name: str, directives: dict[str, tuple[int, ...]], has_results: bool) -> None:
    for first, second in _CONFLICTS:
        if first in directives and second in directives:
            raise PtxSyntaxError(f"{name} has .{first} and .{second}, which exclude each other", f".{second}")
    for one, needed in _NEEDED.items():
        missing = [f".{other}" for other in needed if not directives.get(other, (0,))[0]]
        if one in directives and missing:
            raise PtxSyntaxError(f".{one} needs {' and '.join(missing)} beside it", f".{one}")
    if has_results and "noreturn" in directives:
        raise PtxSyntaxError(f"{name} has results and .noreturn, which exclude each other", ".noreturn")


def check_redeclared(known: Head, is_defined: bool, head: Head, is_definition: bool) -> None:
    """Refuse a head that contradicts an earlier one of the same name.

    Raises
    ------
    PtxSyntaxError
    """
    name = head.name
    if is_defined:
        raise PtxSyntaxError(f"{name} is defined twice", name)
    if known.kind != head.kind:
        raise PtxSyntaxError(f"{name} is declared as .{known.kind} and as .{head.kind}", name)
    may_be = {known.linking, ""} if known.linking != ".extern" and is_definition else {known.linking}
    if head.linking not in may_be:
        said, got = (one.linking or "no linking directive" for one in (known, head))
        raise PtxSyntaxError(f"{name} is declared with {said} before, and here with {got}", name)
    for what, ours, theirs in (
        ("results", head.results, known.results),
        ("parameters", head.parameters, known.parameters),
    ):
        if len(ours) != len(theirs):
            raise PtxSyntaxError(
                f"{name} is declared with {len(theirs)} {what} before, and here with {len(ours)}", name
            )
        for one, other in zip(ours, theirs, strict=True):
            if _kept(one) != _kept(other):
                raise PtxSyntaxError(
                    f"{name} is declared with other {what} before: {described(other)}, and here {described(one)}", name
                )


def _kept(formal: Parameter) -> tuple[object, ...]:
    return formal.type, formal.size_bytes, formal.alignment, formal.is_register, formal.is_array


def described(formal: Parameter) -> str:
    """Return a parameter as it is declared, without its name.

    Examples
    --------
    >>> described(Parameter("x", 16, 8, "b8", is_array=True))
    '.param .align 8 .b8[16]'
    """
    if formal.is_register:
        return f".reg .{formal.type}"
    if not formal.is_array:
        return f".param .{formal.type}"
    return f".param .align {formal.alignment} .{formal.type}[{formal.size_bytes // max(formal.element_bytes, 1)}]"
