"""The header of a module: the version of the PTX ISA, the target and the size of addresses.

ptxas reads the directives in this order. Of several targets the last one counts, and a target within a function counts
from its line on.

References
----------
PTX ISA, "PTX Module Directives", "Release Notes": the version that brought each target; what ptxas 13.0 takes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cutepy.sim.ptx.tokens import PtxSyntaxError, integer

_NEWEST_MAJOR = 9
"""Newest major version of the PTX ISA; a minor one adds instructions, each of which is refused where it is unknown."""
_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8}
"""Of earlier major versions."""
_TARGETS_BY_VERSION = """
1.0 sm_10 sm_11 | 1.2 sm_12 sm_13 | 2.0 sm_20 sm_21 | 3.0 sm_30 | 3.1 sm_35 | 4.0 sm_32 sm_50 | 4.1 sm_37 sm_52 |
4.2 sm_53 | 5.0 sm_60 sm_61 sm_62 | 5.1 sm_70 | 6.1 sm_72 | 6.3 sm_75 | 7.0 sm_80 | 7.1 sm_86 | 7.3 sm_88 | 7.4 sm_87 |
7.8 sm_89 sm_90 | 8.0 sm_90a | 8.6 sm_100 sm_100a sm_101 sm_101a | 8.7 sm_120 sm_120a |
8.8 sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f | 9.0 sm_110 sm_110a sm_110f
"""
Version = tuple[int, int]
TARGETS: dict[str, Version] = {
    target: (int(version[0]), int(version[2]))
    for version, *targets in map(str.split, _TARGETS_BY_VERSION.split("|"))
    for target in targets
}
"""The targets that modules may have, and the version that each needs."""
_MODES = ("texmode_unified", "texmode_independent")
_NEWEST_NUMBER = 121
"""Of the targets above; which ones later GPUs have is not known here."""
_ADDRESS_SIZE = (2, 3)
_BEHIND = {"version": ("target", "address_size"), "target": ("address_size",), "address_size": ()}
"""Directives of the header that each may not follow."""
_DIRECTIVES_BY_NEEDS = """
1.5 sm_10 .texref .samplerref .surfref | 2.0 sm_10 .minnctapersm .pragma | 2.1 sm_10 .reqntid | 2.2 sm_10 .ptr |
2.1 sm_20 .calltargets .callprototype | 3.1 sm_10 .weak | 4.0 sm_30 .attribute | 1.0 sm_53 .f16x2 | 5.0 sm_10 .common |
6.0 sm_30 .branchtargets | 6.3 sm_30 .alias | 6.4 sm_30 .noreturn |
7.8 sm_90 .explicitcluster .reqnctapercluster .maxclusterrank | 8.0 sm_90 .unified | 8.3 sm_70 .b128 |
9.0 sm_80 .abi_preserve .abi_preserve_control | 9.0 sm_90 .blocksareclusters
"""
_DIRECTIVES: dict[str, tuple[Version, str]] = {
    name: ((int(version[0]), int(version[2])), target)
    for version, target, *names in map(str.split, _DIRECTIVES_BY_NEEDS.split("|"))
    for name in names
}
"""Directives and types of declarations, and the version and the target that each needs."""
_DIRECTIVE = re.compile("|".join(rf"\{name}(?!\w)" for name in _DIRECTIVES))
_ADVICE = {
    "map_f64_to_f32": "; it is for GPUs before sm_13, delete it",
}


_NAMED = re.compile(r"(?:sm|compute)_0*(?P<number>\d{1,4})(?P<rest>[\w$]*)")


def architecture(target: str) -> str:
    """Return a target as ptxas reads its name: for a real GPU, the number, and an ``a`` or ``f`` at the end.

    Examples
    --------
    >>> architecture("compute_90"), architecture("sm_90a"), architecture("sm_90A"), architecture("foo")
    ('sm_90', 'sm_90a', 'sm_90', 'foo')
    """
    match = _NAMED.fullmatch(target)
    if match is None:
        return target
    return f"sm_{match['number']}{match['rest'][-1:] if match['rest'].endswith(('a', 'f')) else ''}"


class Target(NamedTuple):
    """A target: its number, and the ``a`` or ``f`` behind it.

    Attributes
    ----------
    number : int
        0 of no target.
    suffix : str
        "a" has instructions that only GPUs of this number run, "f" those of its family; "" runs on later GPUs too.
    """

    number: int
    suffix: str

    @property
    def family(self) -> int:
        """The number of the family's first GPU: ``sm_103`` is of the family of ``sm_100``."""
        return {103: 100, 121: 120}.get(self.number, self.number)


def parsed_target(target: str) -> Target:
    """Return the number of a target and its suffix.

    Examples
    --------
    >>> parsed_target("sm_90a"), parsed_target("compute_80"), parsed_target("")
    (Target(number=90, suffix='a'), Target(number=80, suffix=''), Target(number=0, suffix=''))
    """
    number = re.search(r"\d+", target)
    suffix = target[-1:] if target.endswith(("a", "f")) and number is not None else ""
    return Target(int(number[0]) if number is not None else 0, suffix)


def has_instructions(target: str, needed: str) -> bool:
    """Return whether a target has the instructions that need another one, or one of several with ``/`` between.

    ``sm_90`` stands for all GPUs from there on, ``sm_90a`` for this one alone, ``sm_100f`` for its family.

    Examples
    --------
    >>> [has_instructions(target, "sm_90a/sm_100f") for target in ("sm_90", "sm_90a", "sm_103a", "sm_103", "sm_120a")]
    [False, True, True, False, False]
    >>> has_instructions("sm_100a", "sm_90"), has_instructions("sm_100a", "sm_90a")
    (True, False)
    """
    has = parsed_target(target)
    for one in needed.split("/"):
        least = parsed_target(one)
        if least.suffix == "":
            found = has.number >= least.number
        elif least.suffix == "a":
            found = has == least
        else:
            found = has.suffix != "" and has.family == least.family and has.number >= least.number
        if found:
            return True
    return False


def shortfall(what: str, least: Version, gpu: str, version: Version | None, target: str) -> str:
    """Return why a module of a version and a target does not have something; nothing if it has.

    Parameters
    ----------
    what : str
    least, gpu : tuple of (int, int), str
        The version and the target that it needs, as `has_instructions` has it; "" where any target will do.
    version, target : tuple of (int, int) or None, str
        Those of the module; None and "" where it names none. Targets later than all that are known have all.
    """
    if version is not None and version < least:
        return f"{what} needs .version {_said(least)} or later, got {_said(version)}"
    if target and parsed_target(target).number <= _NEWEST_NUMBER and not has_instructions(target, gpu):
        return f"{what} needs .target {said_target(gpu)}, got {target}"
    return ""


def said_target(needed: str) -> str:
    """Name the targets that have the instructions of a required target.

    Examples
    --------
    >>> said_target("sm_90"), said_target("sm_90a"), said_target("sm_90a/sm_100f")
    ('sm_90 or later', 'sm_90a', 'sm_90a or sm_100a or sm_100f')
    """
    said = []
    for one in needed.split("/"):
        of = parsed_target(one)
        said += [f"{one} or later"] if of.suffix == "" else [one] if of.suffix == "a" else [f"{one[:-1]}a", one]
    return " or ".join(said)


class Header:
    """The directives that a module begins with, as they are read.

    Attributes
    ----------
    version : tuple of (int, int) or None
        None if none was read, or none that there is.
    target : str
    at : int
        The place of .target.
    version_end : int
        The place behind .version.
    debugs : bool
        True if the module has a section for debuggers.
    opcodes : set of str
        Those that were found to be of the version and the target.
    labels : set of str
        Those of sections.
    named : dict of str to int
        The labels that lines name as those of functions, and where one first does.
    """

    def __init__(self) -> None:
        self.version: Version | None = None
        self.target = ""
        self.at = 0
        self.version_end = 0
        self._is_over = False
        self.debugs = False
        self.opcodes: set[str] = set()
        self.labels: set[str] = set()
        self.named: dict[str, int] = {}
        self._said: set[str] = set()
        self._options: set[str] = set()

    def end(self) -> None:
        """Note that the module's declarations begin."""
        self._is_over = True

    def read(self, match: re.Match[str]) -> None:
        """Read a directive, of a match with the groups version, target with options, and address_size.

        Raises
        ------
        PtxSyntaxError
            If there is no such version, target or size, or they do not go together.
        """
        name = next(one for one in ("version", "target", "address_size") if match[one])
        if name in self._said and name != "target":
            raise PtxSyntaxError(f".{name} comes twice")
        if self._is_over:
            raise PtxSyntaxError(f".{name} stands before all declarations of a module; move it to the beginning")
        behind = next((one for one in _BEHIND[name] if one in self._said), "")
        if behind:
            raise PtxSyntaxError(f".{name} stands before .{behind}; move it there")
        self._said.add(name)
        if match["version"]:
            self.version, self.version_end = _version(match["version"]), match.end()
        elif match["target"]:
            self.at = match.start()
            self._set_target(match["target"])
            self._read_options(match["options"])
        else:
            self.need(_ADDRESS_SIZE, ".address_size")
            if integer(match["address_size"]) != 64:
                bits = match["address_size"]
                reason = f"addresses of {bits} bits, which no GPU since sm_90 has; write .address_size 64"
                raise PtxSyntaxError(reason, bits)

    def read_target(self, target: str, options: str) -> None:
        """Read a .target directive within a function, which may begin with an option.

        Raises
        ------
        PtxSyntaxError
            If there is no such target or option, or they do not go together.
        """
        if not self._options.intersection(_MODES):
            self._options.add(_MODES[0])
        self._read_options(f"{target}{options}")

    def _set_target(self, name: str) -> None:
        named, real = _NAMED.fullmatch(name), architecture(name)
        if named is None or not (real in TARGETS or int(named["number"]) > _NEWEST_NUMBER):
            raise PtxSyntaxError(f"no GPU is named {name}; write sm_90a", name)
        self.target = real.replace("sm_", name[: name.index("_") + 1], 1)
        self.opcodes.clear()
        self.need(TARGETS.get(architecture(name)), f".target {name}", name)

    def _read_options(self, text: str) -> None:
        for option in re.findall(r"[\w$]+", text):
            if architecture(option) in TARGETS:
                self._set_target(option)
                continue
            if option not in (*_MODES, "debug"):
                advice = _ADVICE.get(option, f"; there is debug {' '.join(_MODES)}")
                raise PtxSyntaxError(f".target has no option {option}{advice}", option)
            self._options.add(option)
            if self._options.issuperset(_MODES):
                raise PtxSyntaxError(f"{' and '.join(_MODES)} exclude each other", option)

    @property
    def has_samplers(self) -> bool:
        """True if samplers are variables: in the mode of textures that is not the default."""
        return _MODES[1] in self._options

    def need(self, version: Version | None, what: str, token: str = "") -> None:
        """Refuse a feature that came with a newer PTX version than the module's.

        Raises
        ------
        PtxSyntaxError
        """
        if version is not None and self.version is not None and self.version < version:
            raise PtxSyntaxError(f"{what} needs .version {_said(version)}, got {_said(self.version)}", token)

    def check_directives(self, text: str) -> None:
        """Refuse directives and types that a statement has, and the version or the target of the module has not.

        Raises
        ------
        PtxSyntaxError
        """
        for found in _DIRECTIVE.finditer(text):
            if reason := shortfall(found[0], *_DIRECTIVES[found[0]], self.version, self.target):
                raise PtxSyntaxError(reason, found[0])

    def check(self) -> None:
        """Refuse directives that the rest of the module lacks.

        Raises
        ------
        PtxSyntaxError
            If the target is to be debugged, and no section tells how.
        """
        if "debug" in self._options and not self.debugs:
            reason = "the option debug needs a .section .debug_info, as compilers write it; delete the option"
            raise PtxSyntaxError(reason, "debug")


def _version(text: str) -> Version:
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text)
    version = (int(match[1]), int(match[2])) if match is not None else (0, 0)
    # ptxas looks for ten times the first number and the second: 8.10 exists, as 9.0 does.
    major, minor = divmod(10 * version[0] + version[1], 10) if version[0] < _NEWEST_MAJOR else version
    if not 1 <= major <= _NEWEST_MAJOR or minor > _LAST_MINOR.get(major, minor):
        raise PtxSyntaxError(f"expected a version of the PTX ISA up to {_NEWEST_MAJOR}.x, got {text}", text)
    return version


def _said(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
