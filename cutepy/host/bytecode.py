"""What a code object is, as a digest, and what it reads while it runs, as names."""

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from cutepy.host.encoding import encode_scalar, frame, text
from cutepy.host.sources import lasting_name

# With these, code reaches attributes and globals by names that it computes.
_BY_COMPUTED_NAME = frozenset(
    {"__dict__", "__getattribute__", "attrgetter", "eval", "exec", "format", "format_map", "getattr_static"}
    | {"globals", "locals", "methodcaller", "modules", "vars"}
)
# With these, it makes objects of classes it does not name.
_CONSTRUCTS = frozenset({"__class__", "__new__", "copy", "deepcopy", "replace", "type", "_replace"})

LINKED = (".bc", ".cubin", ".fatbin", ".ll", ".ltoir", ".ptx")
"""What the names of files end with whose code may be linked to a kernel."""

_MATCH_CLASS = dis.opmap["MATCH_CLASS"]
_OTHER = ("", None)
_LOAD_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_LOAD_FREE = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST"})
_LOAD_LOCAL = _PAIRS | {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}
_LOAD_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})

_BY_CONSTANT = (("LOAD_GLOBAL", "getattr"), ("LOAD_GLOBAL", "hasattr"))

Operation = tuple[str, Any]
"""The name of an instruction that loads, stores or imports, and its operand; "" and None for all others."""


@dataclass(frozen=True)
class Chain:
    """A name and the attributes read from it: `os.path.join` is ("os", "path", "join").

    Attributes
    ----------
    scope : "global", "free" or "local"
        Where the first name lives; of local ones there are only those bound by an import.
    """

    scope: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Import:
    """An import statement in a function's body.

    Attributes
    ----------
    level, module : int, str
        Leading dots, and the dotted name after them.
    bindings : tuple of (attribute, variable)
        What of the module is bound to which variable: "" is the module itself, "." its outermost package.
    """

    level: int
    module: str
    bindings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """A code object's content and reads, those of the code nested in it included.

    Attributes
    ----------
    digest : bytes
        Of instructions, constants, names, file name and lines.
    chains, imports : tuple
        What it reads by name.
    names : frozenset of str
        Attributes that it may use, among them all strings in it that could name one.
    attributes : frozenset of str
        Those of `names` that it may read from a value, rather than as variables.
    computed : bool
        Whether it looks names up that it computes.
    constructs : bool
        Whether it may make objects of classes that it does not name.
    linked : tuple of str
        Strings that name files of code to link.
    """

    digest: bytes
    chains: tuple[Chain, ...]
    imports: tuple[Import, ...]
    names: frozenset[str]
    attributes: frozenset[str]
    computed: bool
    constructs: bool
    linked: tuple[str, ...]


_known: dict[int, tuple[CodeType, Code]] = {}  # by identity, since code objects compare by value, and slowly


def read(code: CodeType) -> Code:
    """Analyse a code object; once for each of a process."""
    found = _known.get(id(code))
    if found is None:
        found = _known[id(code)] = (code, _analyse(code))
    return found[1]


def _analyse(code: CodeType) -> Code:
    nested = [read(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    operations = _operations(code)
    chains, imports, computed = _scan(code, operations)
    strings = set(_identifiers(code.co_consts))
    names = {*code.co_names, *strings}
    attributes = strings | {name for operation, name in operations if operation in _LOAD_ATTRIBUTE}
    for inner in nested:
        chains += inner.chains
        imports += inner.imports
        names |= inner.names
        attributes |= inner.attributes
        computed |= inner.computed
    linked = [text for text in code.co_consts if isinstance(text, str) and text.endswith(LINKED)]
    return Code(
        _digest(code),
        tuple(dict.fromkeys(chains)),
        tuple(imports),
        frozenset(names),
        frozenset(attributes),
        computed,
        not names.isdisjoint(_CONSTRUCTS),
        (*linked, *(name for inner in nested for name in inner.linked)),
    )


def _digest(code: CodeType) -> bytes:
    return frame(
        "code",
        code.co_code,
        code.co_linetable,  # lines go into the PTX
        code.co_exceptiontable,
        *(_constant(constant) for constant in code.co_consts),
        *(
            frame("names", *map(text, names))
            for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        ),
        text(lasting_name(code.co_filename)),
        text(code.co_qualname),
        b"%d %d %d" % (code.co_firstlineno, code.co_flags, code.co_stacksize),
        b"%d %d %d" % (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
    )


def _constant(value: object) -> bytes:
    scalar = encode_scalar(value)
    if scalar is not None:
        return scalar
    if isinstance(value, CodeType):
        return read(value).digest
    if isinstance(value, tuple):
        return frame("tuple", *map(_constant, value))
    if isinstance(value, frozenset):  # its order depends on the process
        return frame("frozenset", *sorted(map(_constant, value)))
    if isinstance(value, slice):
        return frame("slice", *map(_constant, (value.start, value.stop, value.step)))
    raise AssertionError(f"a compiler's constant of type {type(value).__name__}")


def _identifiers(constants: tuple[object, ...]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, tuple):
            yield from _identifiers(constant)


def _operations(code: CodeType) -> list[Operation]:
    """Decode the instructions that load, store or import, with their operands, and mark all others by "".

    `dis` would do, at ten times the cost; a test compares the two.
    """
    raw, names, constants = code.co_code, code.co_names, code.co_consts
    variables = code.co_varnames + tuple(c for c in code.co_cellvars if c not in code.co_varnames) + code.co_freevars
    found: list[Operation] = []
    extended = 0
    for opcode, low in zip(raw[::2], raw[1::2], strict=True):
        kind, name = _DECODED[opcode]
        if kind == "skipped":
            continue
        argument = low | extended
        if kind == "extended":
            extended = argument << 8
            continue
        extended = 0
        if not kind:
            found.append(_OTHER)
            continue
        operand: Any = None
        if kind == "name":
            operand = names[argument]
        elif kind == "shifted name":
            operand = names[argument >> 1]
        elif kind == "variable":
            operand = (variables[argument],)
        elif kind == "two variables":
            operand = (variables[argument >> 4], variables[argument & 15])
        elif kind == "constant":
            operand = constants[argument]
        elif kind == "number":
            operand = argument
        found.append((name, operand))
    return found


def _decodings() -> list[tuple[str, str]]:
    """Tell for this version of Python, by opcode, how the operands of its instructions are to be read."""
    attribute = "shifted name" if sys.version_info >= (3, 12) else "name"
    kinds = [
        ("skipped", ("CACHE", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME")),
        ("extended", ("EXTENDED_ARG",)),
        ("name", ("IMPORT_FROM", "IMPORT_NAME", "LOAD_METHOD", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME")),
        ("name", ("LOAD_FROM_DICT_OR_GLOBALS",)),
        ("shifted name", ("LOAD_GLOBAL",)),
        (attribute, ("LOAD_ATTR",)),
        ("constant", ("LOAD_CONST",)),
        ("number", ("CALL", "LOAD_SMALL_INT")),
        ("variable", (*_LOAD_FREE, "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "STORE_DEREF", "STORE_FAST")),
        ("two variables", (*_PAIRS, "STORE_FAST_STORE_FAST")),
    ]
    found = {dis.opmap[name]: (kind, name) for kind, names in kinds for name in names if name in dis.opmap}
    return [found.get(opcode, ("", "")) for opcode in range(256)]


_DECODED = _decodings()


def _scan(code: CodeType, operations: list[Operation]) -> tuple[list[Chain], list[Import], bool]:
    """Go through the instructions of one code object: its chains, its imports, and whether it computes names."""
    imports = [_import(operations, index) for index, (name, _) in enumerate(operations) if name == "IMPORT_NAME"]
    imported = {variable for statement in imports for _, variable in statement.bindings}
    chains: list[Chain] = []
    # A pattern such as `Point(1, 2)` reads what `__match_args__` names.
    computed = not _BY_COMPUTED_NAME.isdisjoint(code.co_names) or _MATCH_CLASS in code.co_code[::2]
    for index, (operation, operand) in enumerate(operations):
        if operation in _LOAD_GLOBAL:
            scope, first = "global", operand
        elif operation in _LOAD_FREE:
            scope, first = "free", operand[0]
        elif imported and operation in _LOAD_LOCAL:
            # Of a pair of loads the second is on top, from which attributes are read; the first may be a module too.
            chains += [Chain("local", (name,)) for name in operand[:-1] if name in imported]
            scope, first = "local", operand[-1]
            if first not in imported:
                continue
        else:
            continue
        names, after = [first], index + 1
        while after < len(operations) and operations[after][0] in _LOAD_ATTRIBUTE:
            names.append(operations[after][1])
            after += 1
        if index and operations[index - 1] in _BY_CONSTANT and _names_a_constant(operations, index):
            names.append(operations[after][1])  # `getattr(x, "name")` reads `x.name`
        chains.append(Chain(scope, tuple(names)))
        if names == ["getattr"] and not _names_a_constant(operations, after):
            computed = True
    return chains, imports, computed


def _names_a_constant(operations: list[Operation], index: int) -> bool:
    """Tell whether the call `getattr(x, ...)` whose arguments start at `index` names its attribute by a constant."""
    name, operand = operations[index]
    if name in _PAIRS or not name:
        return False
    index += 1
    while operations[index][0] in _LOAD_ATTRIBUTE:
        index += 1
    name, operand = operations[index]
    if name != "LOAD_CONST" or not isinstance(operand, str):
        return False
    default, call = operations[index + 1][0], operations[index + 2][0]
    return default == "CALL" or (call == "CALL" and default.startswith("LOAD_") and default not in _LOAD_ATTRIBUTE)


def _import(operations: list[Operation], index: int) -> Import:
    """Read one import statement, whose IMPORT_NAME stands at `index` behind its level and its list of names."""
    level, names = operations[index - 2][1], operations[index - 1][1]
    module = operations[index][1]
    after = index + 1
    if not names:
        whole = operations[after][0] == "IMPORT_FROM"  # `import a.b as c` digs for b; `import a.b` binds a
        while not operations[after][0].startswith("STORE_"):
            after += 1
        return Import(level, module, (("" if whole or "." not in module else ".", _target(operations[after])),))
    bindings = []
    while operations[after][0] == "IMPORT_FROM":
        bindings.append((operations[after][1], _target(operations[after + 1])))
        after += 2
    return Import(level, module, tuple(bindings))


def _target(store: Operation) -> str:
    return str(store[1] if isinstance(store[1], str) else store[1][0])


def line_of(code: CodeType, name: str) -> int:
    """Find the first line of a code object, or of code nested in it, on which a name is used."""
    for instruction in dis.get_instructions(code):
        if instruction.argval == name and instruction.positions and instruction.positions.lineno:
            return instruction.positions.lineno
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and name in read(constant).names:
            return line_of(constant, name)
    return code.co_firstlineno
