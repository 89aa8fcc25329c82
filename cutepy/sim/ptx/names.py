"""The names in a function: its scopes, one inside the other, and what the module around it declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    `unique` has the names that the function knows the block's variables by.
    """

    parent: Scope | None
    start: int = 0
    late: dict[str, int] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    unique: set[str] = field(default_factory=set)
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    signatures: dict[str, tuple[Head, ...]] = field(default_factory=dict)


class Names:
    """Names of a function's registers, variables and labels.

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
        self._module = module
        self.formals: dict[str, Variable] = {}
        self.index = 0
        self.functions = functions
        self.kernels = kernels
        self.scope = Scope(None)
        self.registers: list[Register] = []
        self.variables: list[Variable] = []
        self._numbers: dict[str, int] = {}
        self._carry: Register | None = None

    def open(self) -> None:
        """Enter a block."""
        self.scope = Scope(self.scope, self.index)

    def close(self) -> None:
        """Leave it."""
        assert self.scope.parent is not None
        self.scope = self.scope.parent

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
        known = self._numbers
        name = unique = variable.name
        is_passed = variable.space == "param"
        while (
            unique in self.formals
            or unique in self._module
            or (self._is_around(unique) if is_passed else unique in known)
        ):
            unique += "'"
        self.scope.variables[name] = variable = replace(variable, name=unique)
        self.scope.unique.add(unique)
        if unique in known:
            shared = self.variables[known[unique]]
            size = max(shared.size_bytes or 0, variable.size_bytes or 0)
            alignment = max(shared.alignment, variable.alignment)
            self.variables[known[unique]] = replace(shared, size_bytes=size, alignment=alignment)
        else:
            known[unique] = len(self.variables)
            self.variables.append(variable)

    def _is_around(self, unique: str) -> bool:
        """Tell whether a variable of this block or of one around it has a name of its own."""
        scope: Scope | None = self.scope
        while scope is not None:
            if unique in scope.unique:
                return True
            scope = scope.parent
        return False

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
        for letters in ("xyzw", "rgba"):
            scope.registers |= {f"{name}.{x}": item for x, item in zip(letters, items, strict=False)}
        return vector

    # Looking up.

    def register(self, name: str, scope: Scope) -> Register | None:
        """Return the register of a name, if it is one."""
        inner: Scope | None = scope
        while inner is not None:
            known = inner.registers.get(name)
            if known is not None and (not inner.late or self._is_before(name, inner)):
                return known
            if inner.ranges and name[-1] in "0123456789xyzwrgba":
                found = _in_ranges(name, inner.ranges)
                if found is not None and not found.elements and known is None and found.index <= self.index:
                    register = inner.registers[name] = self._new(name, found.type)
                    return register
                if name[-2:-1] == "." and self._vector_of_range(name[:-2], inner) is not None:
                    return inner.registers.get(name)
            inner = inner.parent
        return None

    def register_type(self, name: str) -> str:
        """Return the type of the register of a name here; empty if it is none."""
        scope: Scope | None = self.scope
        while scope is not None:
            known = scope.registers.get(name) or _in_ranges(name, scope.ranges)
            if known is not None:
                return known.type
            scope = scope.parent
        return ""

    def _vector_of_range(self, name: str, scope: Scope) -> Vector | None:
        """Make the vector of a name that is in a range of them."""
        found = _in_ranges(name, scope.ranges)
        if found is None or not found.elements or name in scope.vectors or found.index > self.index:
            return None
        return self._add_vector(scope, name, found.type, found.elements)

    def vector(self, name: str, scope: Scope | None) -> Vector | None:
        """Return the vector of registers of a name, if it is one."""
        while scope is not None:
            vector = scope.vectors.get(name) or self._vector_of_range(name, scope)
            if vector is not None and self._is_before(name, scope):
                return vector
            scope = scope.parent
        return None

    def variable(self, name: str, scope: Scope | None) -> Variable | None:
        """Return the variable of a name, if it is one."""
        while scope is not None:
            if name in scope.variables and self._is_before(name, scope):
                return scope.variables[name]
            scope = scope.parent
        return self.formals.get(name) or self._module.get(name)

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

    def label(self, name: str, scope: Scope | None) -> int | None:
        """Return the index of the instruction behind a label, if the name is one."""
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None

    def table(self, name: str) -> list[str] | None:
        """Return the labels of a .branchtargets directive in this scope or one around it, if there is one."""
        scope: Scope | None = self.scope
        while scope is not None and name not in scope.tables:
            scope = scope.parent
        return None if scope is None else scope.tables[name]

    def signatures(self, name: str) -> tuple[Head, ...]:
        """Return what a .callprototype or .calltargets directive of a name says of functions; nothing without one."""
        scope: Scope | None = self.scope
        while scope is not None and name not in scope.signatures:
            scope = scope.parent
        return () if scope is None else scope.signatures[name]


def _in_ranges(name: str, ranges: Mapping[str, Range]) -> Range | None:
    """Return the range that a name is of; names of a range have numbers without leading zeros."""
    start = len(name.rstrip("0123456789")) if ranges else len(name)
    for at in range(max(start, len(name) - _MOST_DIGITS), len(name)):
        found = ranges.get(name[:at])
        digits = name[at:]
        if found is not None and (digits[0] != "0" or digits == "0") and int(digits) < found.count:
            return found
    return None
