"""The names in a function: its scopes, one inside the other, and the declarations of the module around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, Union

from cutepy.sim.ptx.declarations import read_registers
from cutepy.sim.ptx.heads import Head
from cutepy.sim.ptx.model import Register, Variable, Vector
from cutepy.sim.ptx.reading import refuse

WIDE = "b128"
"""The type of registers that are kept as two of 64 bits."""
_CARRY = "CC.CF"
"""As the ISA calls it."""
_NO_LABELS = frozenset(("_", "$", "%", "WARP_SZ"))
_MOST_DIGITS = 18
"""Of the number of a register in a range."""


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Registers by one stem and a number below `count`: each comes to be when it is first named.

    `outer` is the innermost range around it of the same stem that has more registers.
    """

    type: str
    elements: int
    count: int
    scope: Scope
    outer: Range | None = None


Declared = Union["Scope", Range]
"""Entry of a symbol table: a block, which has what is declared, or a range."""


@dataclass(eq=False)
class Scope:
    """Names that a block in braces declares: `declared` has all but those of ranges.

    `names` has the lists of the symbol tables in which the block stands. `late` has those of ranges, and of names that
    are declared behind the block's first instruction, each with the index of the instruction before which it is
    unknown; of these `come` are known.
    """

    parent: Scope | None
    start: int = 0
    depth: int = 0
    names: list[list[Scope]] = field(default_factory=list)
    late: list[tuple[int, list[Any], Declared]] = field(default_factory=list)
    come: int = 0
    declared: set[str] = field(default_factory=set)
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    signatures: dict[str, tuple[Head, ...]] = field(default_factory=dict)


class Names:
    """Names of a function's registers, variables and labels: a symbol table.

    It has a table of each kind of name: the blocks around the current place that declare it, the innermost last, so
    that a lookup takes no longer in a deep block. Blocks are opened and closed as they are read, and entered again,
    with what they have declared so far, when the operands of their instructions are read, in order.

    Parameters
    ----------
    module : mapping of str to Variable
        The variables that the module has declared so far, by name.
    functions : mapping of str to Head
        The functions that may be called, which it has declared so far.
    kernels : mapping of str to Head
        The entries that it has declared so far.

    Attributes
    ----------
    scope : Scope
        The innermost, where something is declared.
    module : mapping of str to Variable
        As given.
    registers : list of Register
        All of the function; those of a range come to be when they are first looked up.
    variables : list of Variable
        All that the function declares, by names of their own.
    index : int
        Of the instruction that is read, or of the next one: names that are declared behind it are unknown.
    """

    def __init__(
        self, module: Mapping[str, Variable], functions: Mapping[str, Head], kernels: Mapping[str, Head]
    ) -> None:
        self.module = module
        self.formals: dict[str, Variable] = {}
        self.index = 0
        self.functions = functions
        self.kernels = kernels
        self.scope = Scope(None)
        self.registers: list[Register] = []
        self.variables: list[Variable] = []
        self._numbers: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._registers: dict[str, list[Scope]] = {}
        self._vectors: dict[str, list[Scope]] = {}
        self._variables: dict[str, list[Scope]] = {}
        self._labels: dict[str, list[Scope]] = {}
        self._tables: dict[str, list[Scope]] = {}
        self._signatures: dict[str, list[Scope]] = {}
        self._ranges: dict[str, list[Range]] = {}
        """By stem: ranges of registers; and of vectors."""
        self._vector_ranges: dict[str, list[Range]] = {}
        self._ranged: list[Scope] = []
        self._carry: Register | None = None

    def open(self) -> None:
        """Begin a block."""
        self.scope = Scope(self.scope, self.index, self.scope.depth + 1)

    def close(self) -> None:
        """Leave the innermost block."""
        around = self.scope.parent
        assert around is not None
        self._leave()
        self.scope = around

    def _leave(self) -> None:
        scope = self.scope
        for table in scope.names:
            table.pop()
        for _, table, _ in scope.late[: scope.come]:
            table.pop()
        if scope.ranges:
            self._ranged.pop()

    def _come(self, scope: Scope) -> None:
        """Go into a block, with all that its first instruction knows."""
        for table in scope.names:
            table.append(scope)
        if scope.ranges:
            self._ranged.append(scope)
        scope.come = 0
        self.scope = scope
        self._know_late()

    def _know_late(self) -> None:
        """Give the innermost block its declarations up to the instruction that is read."""
        scope = self.scope
        while scope.come < len(scope.late) and scope.late[scope.come][0] <= self.index:
            _, table, entry = scope.late[scope.come]
            table.append(entry)
            scope.come += 1

    def rewind(self) -> None:
        """Go back to the function's first instruction."""
        while self.scope.parent is not None:
            self.close()
        self._leave()
        self.index = 0
        self._come(self.scope)

    def go_to(self, scope: Scope, index: int) -> None:
        """Go on to an instruction of a block that was read: leave those that it is not in, and enter those around."""
        self.index = index
        if scope is not self.scope:
            self._enter(scope)
        elif scope.come < len(scope.late):
            self._know_late()

    def _enter(self, scope: Scope) -> None:
        entered = []
        while scope is not self.scope:
            if scope.depth >= self.scope.depth:
                entered.append(scope)
                assert scope.parent is not None
                scope = scope.parent
            else:
                self.close()
        self._know_late()
        for one in reversed(entered):
            self._come(one)

    # Declaring.

    def _claim(self, name: str, count: int | None = None) -> None:
        """Refuse a name, or the names of a range, that this scope has declared."""
        scope = self.scope
        taken = name if name in scope.declared else None
        if count is None:
            found = (_in_ranges(name, ranges) for ranges in (self._ranges, self._vector_ranges))
            taken = name if any(one is not None and one.scope is scope for one in found) else taken
            scope.declared.add(name)
        else:
            taken = name if name in scope.ranges else None
            alone = {name: (Range("", 0, count, scope),)}
            taken = next((one for one in scope.declared if _in_ranges(one, alone) is not None), taken)
        if count is None and scope.parent is None and name in self.formals:
            taken = name
        if taken is not None:
            refuse(f"{taken} is declared twice in one scope", name)

    def _declare(self, table: dict[str, list[_D]], name: str, scope: Scope, entry: _D, *, is_late: bool) -> None:
        """Note that a block declares a name: instructions of the block before it do not know one that is late."""
        around = table.setdefault(name, [])
        around.append(entry)
        if isinstance(entry, Range) or (is_late and self.index > scope.start):
            scope.late.append((self.index, around, entry))
            scope.come += 1
        else:
            scope.names.append(around)

    def add_register(self, name: str, kind: str) -> None:
        """Declare a register in this scope, which all of its instructions know."""
        self._claim(name)
        if kind == WIDE:
            self._add_vector(self.scope, name, kind, 2)
        else:
            self._add_register(name, kind, self.scope, is_late=False)

    def _add_register(self, name: str, kind: str, scope: Scope, *, is_late: bool) -> Register:
        register = scope.registers[name] = self._new(name, kind)
        self._declare(self._registers, name, scope, scope, is_late=is_late)
        return register

    def add_registers(self, text: str) -> None:
        """Declare the registers of a .reg directive."""
        scope = self.scope
        for name, kind, elements, count in read_registers(text):
            elements = 2 if kind == WIDE else elements
            self._claim(name, count)
            if count is not None:
                if not scope.ranges:
                    self._ranged.append(scope)
                table = self._vector_ranges if elements else self._ranges
                outer = _of_more(table.get(name), count)
                scope.ranges[name] = made = Range(kind, elements, count, scope, outer)
                self._declare(table, name, scope, made, is_late=True)
            elif elements:
                self._add_vector(scope, name, kind, elements, is_late=True)
            else:
                self._add_register(name, kind, scope, is_late=True)

    def add_label(self, name: str, target: int) -> None:
        """Declare a label before an instruction of this scope."""
        if name in _NO_LABELS:
            refuse(f"{name} is no name of a label; write $L or another name with a letter", name)
        self._claim(name)
        self.scope.labels[name] = target
        self._declare(self._labels, name, self.scope, self.scope, is_late=False)

    def add_table(self, name: str, labels: list[str]) -> None:
        """Let the label that was just declared be the name of a .branchtargets directive."""
        del self.scope.labels[name]
        self.scope.names.pop().pop()
        self.scope.tables[name] = labels
        self._declare(self._tables, name, self.scope, self.scope, is_late=False)

    def add_signatures(self, name: str, heads: tuple[Head, ...]) -> None:
        """Let a label be the name of a .callprototype or .calltargets directive, too."""
        self.scope.signatures[name] = heads
        self._declare(self._signatures, name, self.scope, self.scope, is_late=False)

    @property
    def carry(self) -> Register:
        """Carry of the condition code register, declared at its first use."""
        if self._carry is None:
            self._carry = self._new(_CARRY, "pred")
        return self._carry

    def add_outer(self, variable: Variable) -> None:
        """Declare a variable around all scopes, as formal parameters are."""
        self.formals[variable.name] = variable

    def add_variable(self, variable: Variable) -> None:
        """Note a variable of this block; blocks may give several the same name.

        Of calls, blocks that follow each other share one: as large as the largest.
        """
        name = variable.name
        self._claim(name)
        self._declare(self._variables, name, self.scope, self.scope, is_late="." not in name)
        known, is_passed = self._numbers, variable.space == "param"
        self._counts[name] += not is_passed
        number = len(self._variables[name]) if is_passed else self._counts[name]
        unique = f"{name}'{number}" if number > 1 else name
        while unique in self.formals or unique in self.module or not self._may_share(unique, is_passed):
            unique += "'"
        self.scope.variables[name] = variable = replace(variable, name=unique)
        if unique in known:
            shared = self.variables[known[unique]]
            size = max(shared.size_bytes or 0, variable.size_bytes or 0)
            alignment = max(shared.alignment, variable.alignment)
            self.variables[known[unique]] = replace(shared, size_bytes=size, alignment=alignment)
        else:
            known[unique] = len(self.variables)
            self.variables.append(variable)

    def _may_share(self, unique: str, is_passed: bool) -> bool:
        """Return whether a name of the function's variables is free, or that of another that is passed to functions."""
        number = self._numbers.get(unique)
        return number is None or (is_passed and self.variables[number].space == "param")

    def _new(self, name: str, kind: str) -> Register:
        register = Register(name, kind, len(self.registers))
        self.registers.append(register)
        return register

    def _add_vector(self, scope: Scope, name: str, kind: str, elements: int, *, is_late: bool = False) -> Vector:
        """Make a vector, whose elements are registers by two names each; the words of a wide register have none."""
        is_wide = kind == WIDE
        items = [self._new(f"{name}.{letter}", "b64" if is_wide else kind) for letter in "xyzw"[:elements]]
        vector = scope.vectors[name] = Vector(tuple(items), is_wide)
        self._declare(self._vectors, name, scope, scope, is_late=is_late)
        if is_wide:
            return vector
        # ptxas takes the third and the fourth of a vector of two, too: both are one register beside its elements.
        named = items if elements == 4 else [*items, *(self._new(f"{name}.z", kind),) * 2]
        for letters in ("xyzw", "rgba"):
            for letter, item in zip(letters, named, strict=True):
                scope.registers[f"{name}.{letter}"] = item
                self._declare(self._registers, f"{name}.{letter}", scope, scope, is_late=is_late)
        return vector

    # Looking up.

    def register(self, name: str) -> Register | None:
        """Return the register of a name, if it is one."""
        around = self._registers.get(name)
        scope = around[-1] if around else None
        if self._ranged and (scope is None or scope.depth < self._ranged[-1].depth):
            if name[-2:-1] == ".":
                self.vector(name[:-2])
                around = self._registers.get(name)
                return around[-1].registers[name] if around else None
            found = _in_ranges(name, self._ranges)
            if found is not None and (scope is None or scope.depth < found.scope.depth):
                return self._add_register(name, found.type, found.scope, is_late=False)
        return scope.registers[name] if scope is not None else None

    def register_type(self, name: str) -> str:
        """Return the type of the register of a name here; empty if it is none."""
        around = self._registers.get(name)
        scope = around[-1] if around else None
        for ranges in (self._ranges, self._vector_ranges):
            found = _in_ranges(name, ranges)
            if found is not None and (scope is None or scope.depth < found.scope.depth):
                return found.type
        return scope.registers[name].type if scope is not None else ""

    def vector(self, name: str) -> Vector | None:
        """Return the vector of registers of a name, if it is one."""
        around = self._vectors.get(name)
        scope = around[-1] if around else None
        found = _in_ranges(name, self._vector_ranges) if self._vector_ranges else None
        if found is not None and (scope is None or scope.depth < found.scope.depth):
            return self._add_vector(found.scope, name, found.type, found.elements)
        return scope.vectors[name] if scope is not None else None

    def variable(self, name: str) -> Variable | None:
        """Return the variable of a name, if it is one."""
        if around := self._variables.get(name):
            return around[-1].variables[name]
        return self.formals.get(name) or self.module.get(name)

    def label(self, name: str) -> int | None:
        """Return the index of the instruction behind a label, if the name is one."""
        return around[-1].labels[name] if (around := self._labels.get(name)) else None

    def table(self, name: str) -> list[str] | None:
        """Return the labels of a .branchtargets directive in this scope or one around it, if there is one."""
        return around[-1].tables[name] if (around := self._tables.get(name)) else None

    def signatures(self, name: str) -> tuple[Head, ...]:
        """Return the function heads of a .callprototype or .calltargets directive by its name; nothing without one."""
        return around[-1].signatures[name] if (around := self._signatures.get(name)) else ()


_D = TypeVar("_D", Scope, Range)


def _in_ranges(name: str, ranges: Mapping[str, Sequence[Range]]) -> Range | None:
    """Return the innermost range that a name is of; names of a range have numbers without leading zeros."""
    best, end = None, len(name)
    for at in range(max(len(name.rstrip("0123456789")), end - _MOST_DIGITS), end):
        around = ranges.get(name[:at])
        if around and (name[at] != "0" or at == end - 1):
            found = _of_more(around, int(name[at:]))
            if found is not None and (best is None or best.scope.depth < found.scope.depth):
                best = found
    return best


def _of_more(around: Sequence[Range] | None, count: int) -> Range | None:
    """Return the innermost of the ranges of a stem that has more than so many registers."""
    found = around[-1] if around else None
    while found is not None and found.count <= count:
        found = found.outer
    return found
