"""Declarations of variables and parameters, with their initial values.

References
----------
PTX ISA, "Variables": "Variable Declarations", "Vectors", "Array Declarations", "Initializers", "Alignment",
"Parameterized Variable Names", "Variable and Function Attribute Directive"; "Linking Directives".
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from cutepy.layouts.sm90.arch import WARP_THREADS
from cutepy.sim.ptx.constants import Constant, expression
from cutepy.sim.ptx.model import Parameter, Reference, Variable, type_bits
from cutepy.sim.ptx.tokens import PtxSyntaxError, Tokens, integer_of_32

SPACES = (".global", ".const", ".shared", ".local", ".param")
LINKING = (".extern", ".visible", ".weak", ".common")
_VECTORS = {".v2": 2, ".v4": 4}
_OPAQUE = (".texref", ".samplerref", ".surfref")
_OF_VARIABLES = re.compile("[bus](8|16|32|64)|b128|f(16|32|64)|f16x2")
"""Types that can be declared: the others are of instructions only."""
_NOT_PASSED = re.compile("[us](8|16)|pred")
"""Types that no parameter of a function has: ptxas passes .b8 and .b16 in their place."""
_MOST_VECTOR_BITS = 128
_LARGEST_PASSED_ALIGNMENT = 128
"""Of a parameter of a function."""
_REFERENCED_WHOLE = ("u32", "u64")
_REFERENCED_BYTES = ("u8", "u32", "u64")
"""Types of variables that hold addresses, and bytes of them."""
_MASKS = frozenset(0xFF << 8 * n for n in range(8))
_NO_INITIAL = ("f16", "f16x2")
"""Types of variables that begin as zeros only."""
_FLOATS = {"f32": "<f", "f64": "<d"}
LARGEST_PARAMETER_BYTES = 32764
_MOST_VARIABLES = 1 << 20
"""Most variables of one declaration of numbered names."""

_Tree: TypeAlias = "Constant | Reference | list[_Tree]"


def read_variables(text: str) -> list[Variable]:
    """Read the declaration of variables: ``.shared .align 8 .b32 a, b[2][3];``.

    Raises
    ------
    PtxSyntaxError
        If something in it is not understood.

    Examples
    --------
    >>> a, b = read_variables(".visible .global .align 8 .u16 a = 5, b[2][2] = {{1, 2}, {3}};")
    >>> a.size_bytes, a.initial.hex(), b.size_bytes, b.initial.hex()
    (2, '0500', 8, '010002000300')
    """
    tokens = Tokens(text)
    linking = _linking(tokens)
    space = tokens.take("word")
    if space not in SPACES:
        raise tokens.error(f"expected one of {' '.join(SPACES)}, got {space!r}")
    if ".common" in linking and space != ".global":
        raise tokens.error(f".common is of variables in .global, got one in {space}")
    alignment, kind, vector = _type(tokens, space)
    found: list[Variable] = []
    if tokens.take_if(";"):  # it may declare nothing, as `.global .u32;`
        tokens.finish()
        return found
    while True:
        found += _one(tokens, space[1:], alignment, kind, vector, ".extern" in linking)
        if not tokens.take_if(","):
            break
    tokens.expect(";")
    tokens.finish()
    return found


def read_nameless(text: str) -> None:
    """Refuse nameless declarations in a state space of functions, except the empty ``.reg .u32;``.

    Raises
    ------
    PtxSyntaxError
    """
    tokens = Tokens(text)
    _linking(tokens)
    space = tokens.take("word")
    _type(tokens, space)
    if not tokens.take_if(";"):
        raise tokens.error(f"{space} is declared in a function, got {tokens.next[1]!r} outside of one")
    tokens.finish()


def check_redeclared_variable(known: Variable, variable: Variable) -> None:
    """Refuse a variable that contradicts an earlier declaration of its name, or is defined again.

    Raises
    ------
    PtxSyntaxError
    """
    name = variable.name
    if not (known.is_extern or variable.is_extern):
        raise PtxSyntaxError(f"{name} is declared twice", name)
    sizes = {known.size_bytes, variable.size_bytes} - {None}
    if known.type != variable.type or len(sizes) > 1 or known.is_array != variable.is_array:
        raise PtxSyntaxError(f"{name} is declared before with another type or extent", name)


def read_registers(text: str) -> list[tuple[str, str, int, int | None]]:
    """Read the declaration of registers: of each its name, type, elements if it is a vector, and how many there are.

    Examples
    --------
    >>> read_registers(".reg .b32 %r<3>, x;"), read_registers(".reg .v2.f32 v;")
    ([('%r', 'b32', 0, 3), ('x', 'b32', 0, None)], [('v', 'f32', 2, None)])
    """
    tokens = Tokens(text)
    tokens.expect(".reg")
    _, kind, vector = _type(tokens, ".reg")
    found: list[tuple[str, str, int, int | None]] = []
    if tokens.take_if(";"):  # it may declare nothing, as `.reg .b32;`
        tokens.finish()
        return found
    while True:
        name = _name(tokens)
        count = None
        if tokens.take_if("<"):
            count = WARP_THREADS if tokens.take_if("WARP_SZ") else integer_of_32(tokens.take("number"))
            tokens.expect(">")
        found.append((name, kind, vector, count))
        if not tokens.take_if(","):
            break
    tokens.expect(";")
    tokens.finish()
    return found


def read_parameters(text: str, kind: str = "") -> tuple[Parameter, ...]:
    """Read the parameters between the parentheses of a function.

    Parameters
    ----------
    text : str
    kind : str
        Of the function: "entry", "func" or "prototype"; by default parameters of any kind are taken.

    Examples
    --------
    >>> read_parameters(".param.u32 a, .param .align 64 .b8 map[128]")
    (Parameter(name='a', size_bytes=4, alignment=4), Parameter(name='map', size_bytes=128, alignment=64))
    """
    tokens = Tokens(text)
    found: list[Parameter] = []
    while tokens.next[0] != "end":
        if found:
            tokens.expect(",")
        found.append(_parameter(tokens, kind))
    return tuple(found)


def _parameter(tokens: Tokens, of: str) -> Parameter:
    is_register = of != "entry" and tokens.take_if(".reg")
    if not is_register:
        tokens.expect(".param")
    alignment, kind, vector = _type(tokens, ".reg" if is_register else ".param", of)
    if not is_register and of != "func" and tokens.take_if(".align"):
        alignment = _alignment(tokens)
    if tokens.next[1] == ".ptr":
        if of not in ("", "entry"):
            raise tokens.error(".ptr is of a kernel's parameters only")
        tokens.pop()
        if tokens.next[1] in (".const", ".global", ".local", ".shared"):
            tokens.pop()
        if tokens.take_if(".align"):
            _alignment(tokens)
    if of in ("func", "prototype") and _NOT_PASSED.fullmatch(kind):
        wanted = f"write .b{max(type_bits(kind), 8)}" if kind != "pred" else "pass it as .b32"
        raise tokens.error(f"a function takes and gives no .{kind}; {wanted}", f".{kind}")
    if of in ("func", "prototype") and alignment and alignment > _LARGEST_PASSED_ALIGNMENT:
        most = _LARGEST_PASSED_ALIGNMENT
        raise tokens.error(f"a parameter of a function is aligned to at most {most} bytes, got {alignment}")
    name, extents = _name(tokens, "_"), _extents(tokens)
    if extents == [None] and of in ("func", "prototype"):
        extents = [0]  # what a function takes a varying number of
    if None in extents or (of and len(extents) > 1):
        raise tokens.error(f"the parameter {name} has one extent and a number there, or none", name)
    element = _bytes(kind) * (vector or 1)
    size = _product(extents) * element
    if any(extent is not None and extent >> 32 for extent in extents):
        raise tokens.error(f"the parameter {name} has an extent of at most 32 bits, got {extents[0]}", name)
    if of in ("", "entry") and size > LARGEST_PARAMETER_BYTES:
        raise tokens.error(f"the parameter {name} would have more than {LARGEST_PARAMETER_BYTES} bytes", name)
    return Parameter(name, size, alignment or element, kind, bool(is_register), bool(extents))


def _name(tokens: Tokens, also: str = "") -> str:
    name = tokens.take("name")
    if name in ("_", "WARP_SZ") and name != also:
        raise tokens.error(f"{name} is no name that can be declared", name)
    return name


def _linking(tokens: Tokens) -> list[str]:
    found: list[str] = []
    while tokens.next[1] in LINKING:
        if found:
            raise tokens.error(f"a variable has one linking directive, got {found[0]} and {tokens.next[1]}")
        found.append(tokens.pop()[1])
    return found


def _type(tokens: Tokens, space: str, of: str = "") -> tuple[int | None, str, int]:
    """Take alignment, attributes, vector and type, in any order that ends with the type."""
    alignment, vector = None, 0
    while True:
        word = tokens.take("word")
        if word == ".align":
            alignment = _alignment(tokens)
        elif word == ".attribute":
            _attributes(tokens, space)
        elif word in _VECTORS:
            vector = _VECTORS[word]
        else:
            _check_type(tokens, word, vector, space, of)
            return alignment, word[1:], vector


def _check_type(tokens: Tokens, word: str, vector: int, space: str, of: str) -> None:
    """Refuse a type that a variable, parameter or register of a state space does not have."""
    kind = word[1:]
    if word in _OPAQUE:
        if vector or not (space == ".global" or (space == ".param" and of in ("", "entry"))):
            raise tokens.error(f"{word} is of variables in .global and of a kernel's parameters only, got {space}")
        return
    if not _OF_VARIABLES.fullmatch(kind) and not (kind == "pred" and space == ".reg"):
        what = "registers" if space == ".reg" else f"variables in {space}"
        raise tokens.error(f"there are no {what} of type {word}; write .b16, .b32 or .b64 for other types of that size")
    if space == ".param" and (vector or kind == "f16x2"):
        raise tokens.error(f"a parameter is no vector, got {f'.v{vector} ' * bool(vector)}{word}; write an array")
    if vector and (kind == "pred" or vector * type_bits(kind) > _MOST_VECTOR_BITS):
        raise tokens.error(f"a vector has at most {_MOST_VECTOR_BITS} bits, and no predicates, got .v{vector} {word}")


def _attributes(tokens: Tokens, space: str) -> None:
    """Take ``(.managed, .unified(1, 2))``."""
    if space != ".global":
        raise tokens.error(f".attribute is of variables in .global, got one in {space}")
    tokens.expect("(")
    while True:
        word = tokens.take("word")
        if word == ".unified":
            tokens.expect("(")
            tokens.integer()
            tokens.expect(",")
            tokens.integer()
            tokens.expect(")")
        elif word != ".managed":
            raise tokens.error(f"expected .managed or .unified, got {word}")
        if not tokens.take_if(","):
            break
    tokens.expect(")")


def _alignment(tokens: Tokens) -> int:
    alignment = tokens.integer()
    if alignment < 1 or alignment & (alignment - 1) or alignment >> 32:
        raise tokens.error(f"an alignment must be a power of two of 32 bits, got {alignment}")
    return alignment


def _one(
    tokens: Tokens, space: str, alignment: int | None, kind: str, vector: int, is_extern: bool
) -> Iterator[Variable]:
    name = _name(tokens)
    if f".{kind}" in _OPAQUE:
        _extents(tokens)
        yield Variable(name, kind, 0, 1)
        return
    if space == "param" and alignment and alignment > _LARGEST_PASSED_ALIGNMENT:
        most = _LARGEST_PASSED_ALIGNMENT
        raise tokens.error(f"{name} is passed to functions, and is aligned to at most {most} bytes, got {alignment}")
    element = _bytes(kind)
    default = alignment or element * (vector or 1)
    if tokens.take_if("<"):
        count = tokens.integer()
        if count > _MOST_VARIABLES:
            raise tokens.error(f"expected at most {_MOST_VARIABLES} variables, got {count}")
        tokens.expect(">")
        for number in range(count):
            yield Variable(f"{name}{number}", space, element * (vector or 1), default, element_bytes=element, type=kind)
        return
    extents = _extents(tokens)
    is_array = bool(extents)
    extents += [vector] if vector else []
    data: bytes | None = None
    references: tuple[Reference, ...] = ()
    if 0 in extents:
        raise tokens.error(f"the array {name} has an extent of 0")
    if tokens.take_if("="):
        if space not in ("global", "const"):
            raise tokens.error(f"{name} is in .{space}, where no variable has an initial value; store it in the kernel")
        if is_extern:
            raise tokens.error(f"{name} is .extern, and what another module defines has no initial value here")
        tree = _tree(tokens)
        if None in extents:
            if not isinstance(tree, list):
                raise tokens.error(f"the array {name} needs a list of values")
            if not tree:
                raise tokens.error(f"the array {name} has no extent, and needs a value at least")
            extents[0] = len(tree)
        data, references = _filled(tokens, kind, [e for e in extents if e is not None], tree)
    size = None if None in extents else _product(extents) * element
    if size is None and not is_extern:
        raise tokens.error(f"the array {name} has no extent")
    yield Variable(name, space, size, default, data, references, is_extern, element, kind, is_array)


def _bytes(kind: str) -> int:
    return max(type_bits(kind), 8) // 8


def _extents(tokens: Tokens) -> list[int | None]:
    found: list[int | None] = []
    while tokens.take_if("["):
        if tokens.take_if("]"):
            if found:
                raise tokens.error("only the first extent of an array may be missing")
            found.append(None)
        else:
            found.append(32 if tokens.take_if("WARP_SZ") else tokens.integer())
            tokens.expect("]")
    return found


def _product(extents: Sequence[int | None]) -> int:
    size = 1
    for extent in extents:
        assert extent is not None
        size *= extent
    return size


def _tree(tokens: Tokens) -> _Tree:
    """Take an initial value, or a list of them in braces."""
    if not tokens.take_if("{"):
        return _value(tokens)
    found: list[_Tree] = []
    while not tokens.take_if("}"):
        if found:
            tokens.expect(",")
        found.append(_tree(tokens))
    return found


def _value(tokens: Tokens) -> Constant | Reference:
    """Take a constant, or the address of a variable: ``a``, ``generic(a)+4``, or bytes of it, ``0xFF00(a)``."""
    if tokens.next[0] == "name" and tokens.next[1] != "WARP_SZ":
        return _address(tokens, 0)
    constant = expression(tokens)
    if not tokens.take_if("("):
        return constant
    mask = constant.value
    if not isinstance(mask, int) or mask % (1 << 64) not in _MASKS:
        raise tokens.error(f"the mask of an address is 0xFF, shifted by whole bytes, got {mask}")
    found = _address(tokens, mask % (1 << 64))
    tokens.expect(")")
    return found


def _address(tokens: Tokens, mask: int) -> Reference:
    name = tokens.take("name")
    is_generic = name == "generic" and tokens.take_if("(")
    if is_generic:
        name = tokens.take("name")
        tokens.expect(")")
    addend: int | float = expression(tokens).value if tokens.take_if("+") else 0
    if not isinstance(addend, int):
        raise tokens.error(f"what is added to an address is an integer, got {addend}")
    return Reference(name, addend, mask, is_plain=not is_generic and not addend)


def _filled(tokens: Tokens, kind: str, extents: list[int], tree: _Tree) -> tuple[bytes, tuple[Reference, ...]]:
    """Lay initial values out; the rest of the bytes is zero."""
    element = _bytes(kind)
    data, references = bytearray(), []
    for number, (position, value) in enumerate(_leaves(tokens, extents, tree, 0)):
        data += bytes(element)  # what follows is zero
        if position != number:
            # The ISA leaves zeros there, as C does, and ptxas puts what follows in their place.
            raise tokens.error(
                "initial values may be missing at the very end only, for ptxas puts those that follow in their place; "
                "write the zeros"
            )
        at = position * element
        if isinstance(value, Reference):
            taken = _REFERENCED_BYTES if value.mask else _REFERENCED_WHOLE
            if kind not in taken:
                said = " or ".join(f".{one}" for one in taken)
                raise tokens.error(f"the address of {value.name} is a value of type {said}, got .{kind}", value.name)
            references.append(replace(value, position=at, size_bytes=element))
        else:
            data[at : at + element] = _encoded(tokens, kind, value)
    return bytes(data), tuple(references)


def _leaves(tokens: Tokens, extents: list[int], tree: _Tree, start: int) -> Iterator[tuple[int, Constant | Reference]]:
    if not extents:
        if isinstance(tree, list):
            raise tokens.error("one value is a list")
        yield start, tree
        return
    if not isinstance(tree, list) or len(tree) > extents[0]:
        raise tokens.error(f"expected a list of at most {extents[0]} values")
    inner = _product(extents[1:])
    for number, item in enumerate(tree):
        yield from _leaves(tokens, extents[1:], item, start + number * inner)


def _packed(code: str, value: float) -> bytes:
    """Return the bytes of a float; a value beyond the largest float32 becomes infinity, as in ptxas."""
    try:
        return struct.pack(code, value)
    except OverflowError:
        return struct.pack(code, math.copysign(math.inf, value))


def _encoded(tokens: Tokens, kind: str, constant: Constant) -> bytes:
    if kind in _FLOATS:
        if not isinstance(constant.value, float):
            raise tokens.error(f"a value of type {kind} must be a float, got {constant.value}")
        if constant.bits is not None and constant.bits[1] == type_bits(kind):
            return constant.bits[0].to_bytes(constant.bits[1] // 8, "little")
        return _packed(_FLOATS[kind], constant.value)
    if kind in _NO_INITIAL:
        raise tokens.error(f"a variable of type .{kind} has no initial value; write .b{type_bits(kind)} and its bits")
    size = _bytes(kind)
    if isinstance(constant.value, float):
        if kind not in ("b8", "b16", "b32", "b64", "b128"):
            raise tokens.error(f"a value of type {kind} must be an integer, got {constant.value}")
        bits = constant.immediate
        if kind == "b32" and bits.float_bits == 64:
            return _packed("<f", constant.value)
        return (bits.value % (1 << 8 * size)).to_bytes(size, "little")
    return (constant.value % (1 << 8 * size)).to_bytes(size, "little")
