"""The text of PTX as statements: where each is, which registers it reads and writes, and which parts hang together.

This knows just as much of PTX as moving statements takes, and shares no code with the simulator's parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*\.(loc|file|pragma|section|branchtargets|callprototype)\b[^\n]*")
_LABEL = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)")
_GUARD = re.compile(r"@!?([\w$%]+)\s+")
_REGISTER = re.compile(r"%[A-Za-z_$][\w$]*(?:\.[xyzw]\b)?|\b[pP]\d*\b|\b[A-Z]\w*\b(?=\s*[,;])")
_SYNCHRONISES = re.compile(
    r"mbarrier\.|fence\b|membar\b|bar\.|barrier\.|wgmma\.(fence|commit_group|wait_group)|"
    r"cp\.async\.(bulk\.)?(commit_group|wait_group|wait_all)|cp\.async\.mbarrier|griddepcontrol|setmaxnreg|elect\.sync|"
    r"tcgen05\.(commit|dealloc)"
)
_ACCESSES = re.compile(
    r"(ld|st|atom|red|ldmatrix|stmatrix|cp|wgmma\.mma_async|tcgen05\.(ld|st|mma|cp|shift)|multimem|tensormap)\b(?!\.param)"
)
_WRITES_NONE = re.compile(
    r"(st|red|bra|brx|cp|fence|membar|bar|barrier|stmatrix|prefetch|ret|exit|trap|setmaxnreg|"
    r"tcgen05\.(st|mma|cp|shift|commit|dealloc))\b"
)


def is_synchronisation(opcode: str) -> bool:
    """Tell whether mutants change an instruction."""
    return _SYNCHRONISES.match(opcode) is not None


@dataclass(frozen=True)
class Statement:
    """A statement, from `start` to `end` of the text, its semicolon included."""

    start: int
    end: int
    text: str

    @cached_property
    def body(self) -> str:
        """The statement without its guard."""
        return _GUARD.sub("", self.text, count=1) if self.text.startswith("@") else self.text

    @cached_property
    def opcode(self) -> str:
        """Such as "bar.sync"."""
        return re.split(r"[\s;]", self.body, maxsplit=1)[0]

    @property
    def guard(self) -> str | None:
        """The name of its predicate."""
        found = _GUARD.match(self.text)
        return None if found is None else found[1]

    @property
    def synchronises(self) -> bool:
        """True for a statement that mutants change."""
        return is_synchronisation(self.opcode)

    @property
    def matters(self) -> bool:
        """True if another statement may be ordered by it: it synchronises, or accesses memory."""
        pure = self.opcode.startswith("elect") or self.opcode.startswith("ld.param")
        return not pure and (self.synchronises or _ACCESSES.match(self.opcode) is not None)

    @cached_property
    def _registers(self) -> list[str]:
        return _REGISTER.findall(self.body[len(self.opcode) :])

    @cached_property
    def written(self) -> frozenset[str]:
        """Registers that it writes."""
        if _WRITES_NONE.match(self.opcode) or self.opcode.startswith("."):
            return frozenset()
        operands = self.body[len(self.opcode) :].strip()
        first = operands[: operands.index("}") + 1] if operands.startswith("{") else re.split(r",", operands)[0]
        return frozenset() if "[" in first else frozenset(_REGISTER.findall(first + ","))

    @cached_property
    def read(self) -> frozenset[str]:
        """Registers that it may read."""
        guard = self.guard
        return frozenset(self._registers) | ({guard} if guard else frozenset())


@dataclass(frozen=True)
class Unit:
    """Statements that move together: one, or all of a scope in braces, or of what a branch forward jumps over."""

    start: int
    end: int
    statements: tuple[Statement, ...]

    @property
    def matters(self) -> bool:
        """True if another statement may be ordered by one of these."""
        return any(s.matters for s in self.statements)

    @property
    def key(self) -> Statement:
        """The statement that it is named after: the first that synchronises, or accesses memory, or is."""
        ranked = sorted(self.statements, key=lambda s: (not s.synchronises, not s.matters))
        return next((s for s in self.statements if s.synchronises and s.matters), ranked[0])

    @property
    def read(self) -> frozenset[str]:
        """Registers that it may read."""
        return frozenset().union(*(s.read for s in self.statements))

    @property
    def written(self) -> frozenset[str]:
        """Registers that it may write."""
        return frozenset().union(*(s.written for s in self.statements))


@dataclass(frozen=True)
class _Mark:
    """A brace, or a label."""

    start: int
    end: int
    name: str


def statements(ptx: str, kernel: str) -> list[Statement]:
    """Return the statements of a kernel's body, in order."""
    return [item for item in _items(ptx, kernel) if isinstance(item, Statement)]


def sequences(ptx: str, kernel: str) -> list[list[Unit]]:
    """Return units that are executed one after the other, for all of a kernel: runs that no branch enters or leaves."""
    found: list[list[Unit]] = []
    _cut(_items(ptx, kernel), found)
    return found


def _items(ptx: str, kernel: str) -> list[Statement | _Mark]:
    text = _COMMENTS.sub(lambda m: " " * len(m[0]), ptx)
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\b", text)
    if entry is None:
        raise ValueError(f"the PTX has no kernel {kernel}")
    at = text.index("{", entry.end())
    return list(_scan(text, at + 1))


def _scan(text: str, at: int) -> Iterator[Statement | _Mark]:
    depth = 1
    while depth:
        while text[at].isspace():
            at += 1
        if directive := _DIRECTIVE.match(text, at):
            at = directive.end()
        elif text[at] in "{}":
            depth += 1 if text[at] == "{" else -1
            if depth:
                yield _Mark(at, at + 1, text[at])
            at += 1
        elif label := _LABEL.match(text, at):
            yield _Mark(at, label.end(), label[1])
            at = label.end()
        else:
            end = text.index(";", at) + 1
            if not text.startswith(".", at):
                yield Statement(at, end, " ".join(text[at:end].split()))
            at = end


def _cut(items: Sequence[Statement | _Mark], found: list[list[Unit]]) -> None:
    """Group items into units, and begin a new sequence where a branch comes or goes."""
    run: list[Unit] = []
    n = 0
    targets = [_target(item) for item in items]
    while n < len(items):
        item = items[n]
        end = _end_of_unit(items, n, targets)
        if end is None:
            found.append(run)
            run = []
            n += 1
            continue
        inside = items[n:end]
        whole = tuple(s for s in inside if isinstance(s, Statement))
        if whole:
            run.append(Unit(item.start, inside[-1].end, whole))
        if end - n > 1:
            inner = inside[1:-1]
            _cut([i for i in inner if isinstance(i, Statement) or i.name not in "{}"], found)
        n = end
    found.append(run)


def _target(item: Statement | _Mark) -> str | None:
    if isinstance(item, Statement) and item.opcode.startswith("bra"):
        return item.body.rstrip(" ;").split()[-1]
    return None


def _end_of_unit(items: Sequence[Statement | _Mark], n: int, targets: Sequence[str | None]) -> int | None:
    """Return where the unit ends that begins at an item; None if none does."""
    item = items[n]
    if isinstance(item, _Mark):
        if item.name != "{":
            return None
        depth = 0
        for m in range(n, len(items)):
            other = items[m]
            depth += {"{": 1, "}": -1}.get(other.name, 0) if isinstance(other, _Mark) else 0
            if not depth:
                return m + 1
        return None
    target = targets[n]
    if target is None:
        return None if item.opcode.split(".")[0] in ("ret", "exit", "trap", "brx", "call") else n + 1
    if item.guard is None:
        return None
    for m in range(n + 1, len(items)):
        other = items[m]
        if isinstance(other, _Mark) and other.name == target:
            labels = {i.name for i in items[n : m + 1] if isinstance(i, _Mark)}
            inside = all(t is None or t in labels for t in targets[n:m])
            entered = any(t in labels for t in (*targets[:n], *targets[m:]))
            return m + 1 if inside and not entered else None
    return None
