"""The names in a function: its scopes, one inside the other, and what the module around it declares."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import merge

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


@dataclass(frozen=True, slots=True)
class Range:
    """Registers by one stem and a number below `count`: each comes to be when it is first named.

    `index` is that of the first instruction that may name one.
    """

    type: str
    elements: int
    count: int
    index: int = 0


@dataclass
class Scope:
    """Names that a block in braces declares: `declared` has all but those of ranges.

    `late` has names that are declared behind the block's first instruction: these are unknown before an index.
    `names` has all names and stems by which `Names` finds the block.
    """

    parent: Scope | None
    start: int = 0
    depth: int = 0
    names: list[str] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)
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

    It knows of each name the blocks around the current place that declare it, so that a lookup takes no longer in a
    deep block. Blocks are opened and closed as they are read, and entered again, with all that they declare, when the
    operands of their instructions are read.

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
        self._declaring: dict[str, list[Scope]] = {}
        """By a name, or the stem of a range, the blocks around here that declare it, the innermost last."""
        self._ranged: list[Scope] = []
        self._carry: Register | None = None

    def open(self) -> None:
        """Begin a block."""
        self.scope = Scope(self.scope, self.index, self.scope.depth + 1)

    def close(self) -> None:
        """Leave the innermost block."""
        scope = self.scope
        for name in scope.names:
            self._declaring[name].pop()
        if scope.ranges:
            self._ranged.pop()
        assert scope.parent is not None
        self.scope = scope.parent

    def enter(self, scope: Scope) -> None:
        """Go to a block that was read: leave those that it is not in, and enter those around it and it."""
        entered = []
        while scope is not self.scope:
            if scope.depth >= self.scope.depth:
                entered.append(scope)
                assert scope.parent is not None
                scope = scope.parent
            else:
                self.close()
        for one in reversed(entered):
            for name in one.names:
                self._declaring.setdefault(name, []).append(one)
            if one.ranges:
                self._ranged.append(one)
            self.scope = one

    # Declaring.

    def _claim(self, name: str, count: int | None = None) -> None:
        """Refuse a name, or the names of a range, that this scope has declared."""
        scope = self.scope
        taken = name if name in scope.declared else None
        if count is None:
            taken = name if _in_ranges(name, scope.ranges) is not None else taken
            scope.declared.add(name)
        else:
            taken = name if name in scope.ranges else None
            alone = {name: Range("", 0, count)}
            taken = next((one for one in scope.declared if _in_ranges(one, alone) is not None), taken)
        if count is None and scope.parent is None and name in self.formals:
            taken = name
        if taken is not None:
            refuse(f"{taken} is declared twice in one scope", name)
        self._declare(name)

    def _declare(self, name: str) -> None:
        """Note that this block declares a name, or a range by its stem."""
        around = self._declaring.setdefault(name, [])
        if not around or around[-1] is not self.scope:
            around.append(self.scope)
            self.scope.names.append(name)

    def add_register(self, name: str, kind: str) -> None:
        """Declare a register in this scope."""
        self._claim(name)
        if kind == WIDE:
            self._add_vector(self.scope, name, kind, 2)
        else:
            self.scope.registers[name] = self._new(name, kind)

    def add_registers(self, text: str) -> None:
        """Declare what a .reg directive does."""
        for name, kind, elements, count in read_registers(text):
            elements = 2 if kind == WIDE else elements
            self._claim(name, count)
            self._note_late(name)
            if count is not None:
                if not self.scope.ranges:
                    self._ranged.append(self.scope)
                self.scope.ranges[name] = Range(kind, elements, count, self.index)
            elif elements:
                self._add_vector(self.scope, name, kind, elements)
            else:
                self.scope.registers[name] = self._new(name, kind)

    def add_label(self, name: str, target: int) -> None:
        """Declare a label before an instruction of this scope."""
        if name in _NO_LABELS:
            refuse(f"{name} is no name of a label; write $L or another name with a letter", name)
        self._claim(name)
        self.scope.labels[name] = target

    @property
    def carry(self) -> Register:
        """The condition code register's carry, which comes to be when it is first named."""
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
        self._claim(variable.name)
        if "." not in variable.name:
            self._note_late(variable.name)
        known, is_passed = self._numbers, variable.space == "param"
        name = variable.name
        self._counts[name] += not is_passed
        number = len(self._declaring[name]) if is_passed else self._counts[name]
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
        """Tell whether a name of the function's variables is free, or that of another that is passed to functions."""
        number = self._numbers.get(unique)
        return number is None or (is_passed and self.variables[number].space == "param")

    def _new(self, name: str, kind: str) -> Register:
        register = Register(name, kind, len(self.registers))
        self.registers.append(register)
        return register

    def _add_vector(self, scope: Scope, name: str, kind: str, elements: int) -> Vector:
        """Make a vector, whose elements are registers by two names each; the words of a wide register have none."""
        is_wide = kind == WIDE
        items = [self._new(f"{name}.{letter}", "b64" if is_wide else kind) for letter in "xyzw"[:elements]]
        vector = scope.vectors[name] = Vector(tuple(items), is_wide)
        if is_wide:
            return vector
        # ptxas takes the third and the fourth of a vector of two, too: both are one register beside its elements.
        named = items if elements == 4 else [*items, *(self._new(f"{name}.z", kind),) * 2]
        for letters in ("xyzw", "rgba"):
            scope.registers |= {f"{name}.{x}": item for x, item in zip(letters, named, strict=True)}
        return vector

    # Looking up.

    def _around(self, name: str) -> Iterator[Scope]:
        """Return the blocks around here that may declare a name, the innermost first.

        They declare the name, its vector, or a range of its stem. A block may come more than once.
        """
        stem, _, element = name.partition(".")
        stems = [name, stem] if element else [name]
        if self._ranged and stem[-1:].isdigit():
            start = len(stem.rstrip("0123456789"))
            stems += [stem[:at] for at in range(max(start, len(stem) - _MOST_DIGITS), len(stem))]
        found = [around for around in map(self._declaring.get, stems) if around]
        if len(found) < 2:
            return reversed(found[0]) if found else iter(())
        return merge(*map(reversed, found), key=lambda scope: -scope.depth)

    def register(self, name: str) -> Register | None:
        """Return the register of a name, if it is one."""
        declaring = self._declaring.get(name)
        ranged = self._ranged[-1] if self._ranged else None
        if declaring and (ranged is None or declaring[-1].depth >= ranged.depth):
            scope = declaring[-1]
            known = scope.registers.get(name)
            if known is not None and (not scope.late or self._is_before(name, scope)):
                return known
        elif ranged is not None and not declaring and (register := self._of_range(name, ranged)) is not None:
            return register
        for scope in self._around(name):
            known = scope.registers.get(name)
            if known is not None and (not scope.late or self._is_before(name, scope)):
                return known
            if known is None and (register := self._of_range(name, scope)) is not None:
                return register
            if name[-2:-1] == "." and self._vector_of_range(name[:-2], scope) is not None:
                return scope.registers.get(name)
        return None

    def _of_range(self, name: str, scope: Scope) -> Register | None:
        """Make the register of a name that is in a range of a block."""
        found = _in_ranges(name, scope.ranges) if name[-1].isdigit() else None
        if found is None or found.elements or found.index > self.index:
            return None
        register = scope.registers[name] = self._new(name, found.type)
        scope.names.append(name)
        insort(self._declaring.setdefault(name, []), scope, key=lambda one: one.depth)
        return register

    def register_type(self, name: str) -> str:
        """Return the type of the register of a name here; empty if it is none."""
        for scope in self._around(name):
            known = scope.registers.get(name) or _in_ranges(name, scope.ranges)
            if known is not None:
                return known.type
        return ""

    def _vector_of_range(self, name: str, scope: Scope) -> Vector | None:
        """Make the vector of a name that is in a range of them."""
        found = _in_ranges(name, scope.ranges)
        if found is None or not found.elements or name in scope.vectors or found.index > self.index:
            return None
        return self._add_vector(scope, name, found.type, found.elements)

    def vector(self, name: str) -> Vector | None:
        """Return the vector of registers of a name, if it is one."""
        for scope in self._around(name):
            vector = scope.vectors.get(name) or self._vector_of_range(name, scope)
            if vector is not None and self._is_before(name, scope):
                return vector
        return None

    def variable(self, name: str) -> Variable | None:
        """Return the variable of a name, if it is one."""
        for scope in reversed(self._declaring.get(name, ())):
            if name in scope.variables and self._is_before(name, scope):
                return scope.variables[name]
        return self.formals.get(name) or self.module.get(name)

    def _is_before(self, name: str, scope: Scope) -> bool:
        """Tell whether the instruction that is read stands behind the declaration of a name, or of its vector."""
        late = scope.late
        if not late:
            return True
        return late.get(name.partition(".")[0] if "." in name else name, 0) <= self.index

    def _note_late(self, name: str) -> None:
        """Note a name that instructions of its block before it do not know."""
        if self.index > self.scope.start:
            self.scope.late[name] = self.index

    def label(self, name: str) -> int | None:
        """Return the index of the instruction behind a label, if the name is one."""
        return next((s.labels[name] for s in reversed(self._declaring.get(name, ())) if name in s.labels), None)

    def table(self, name: str) -> list[str] | None:
        """Return the labels of a .branchtargets directive in this scope or one around it, if there is one."""
        return next((s.tables[name] for s in reversed(self._declaring.get(name, ())) if name in s.tables), None)

    def signatures(self, name: str) -> tuple[Head, ...]:
        """Return what a .callprototype or .calltargets directive of a name says of functions; nothing without one."""
        return next((s.signatures[name] for s in reversed(self._declaring.get(name, ())) if name in s.signatures), ())


def _in_ranges(name: str, ranges: Mapping[str, Range]) -> Range | None:
    """Return the range that a name is of; names of a range have numbers without leading zeros."""
    start = len(name.rstrip("0123456789")) if ranges else len(name)
    for at in range(max(start, len(name) - _MOST_DIGITS), len(name)):
        found = ranges.get(name[:at])
        digits = name[at:]
        if found is not None and (digits[0] != "0" or digits == "0") and int(digits) < found.count:
            return found
    return None
