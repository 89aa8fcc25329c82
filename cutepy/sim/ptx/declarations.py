"""Declarations of variables and parameters, with their initial values.

References
----------
PTX ISA, "Variables": "Variable Declarations", "Vectors", "Array Declarations", "Initializers", "Alignment",
"Parameterized Variable Names", "Variable and Function Attribute Directive"; "Linking Directives".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from cutepy.sim.ptx.constants import Constant, expression
from cutepy.sim.ptx.model import Parameter, Reference, Variable, type_bits
from cutepy.sim.ptx.tokens import Tokens

SPACES = (".global", ".const", ".shared", ".local", ".param")
LINKING = (".extern", ".visible", ".weak", ".common")
_VECTORS = {".v2": 2, ".v4": 4}
_OPAQUE = (".texref", ".samplerref", ".surfref")
_OF_REGISTERS = re.compile("pred|[bus](8|16|32|64)|b128|f(16|32|64)|bf16|b?f16x2")
_FLOATS = {"f32": "<f", "f64": "<d"}
_LARGEST_BYTES = 1 << 38
"""Of a variable: more than any GPU has."""
_LARGEST_PARAMETER_BYTES = 32764
_MOST_VARIABLES = 1 << 16
"""That one declaration of numbered names makes."""

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
    alignment, kind, vector = _type(tokens)
    found: list[Variable] = []
    while True:
        found += _one(tokens, space[1:], alignment, kind, vector, ".extern" in linking)
        if not tokens.take_if(","):
            break
    tokens.expect(";")
    tokens.finish()
    return found


def read_registers(text: str) -> list[tuple[str, str, int, int | None]]:
    """Read the declaration of registers: of each its name, type, elements if it is a vector, and how many there are.

    Examples
    --------
    >>> read_registers(".reg .b32 %r<3>, x;"), read_registers(".reg .v2.f32 v;")
    ([('%r', 'b32', 0, 3), ('x', 'b32', 0, None)], [('v', 'f32', 2, None)])
    """
    tokens = Tokens(text)
    tokens.expect(".reg")
    _, kind, vector = _type(tokens)
    if not _OF_REGISTERS.fullmatch(kind):
        raise tokens.error(f"there are no registers of type .{kind}")
    found = []
    while True:
        name = tokens.take("name")
        count = None
        if tokens.take_if("<"):
            count = tokens.integer()
            tokens.expect(">")
        found.append((name, kind, vector, count))
        if not tokens.take_if(","):
            break
    tokens.expect(";")
    tokens.finish()
    return found


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """Read what is between the parentheses of a function.

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
        is_register = bool(tokens.take_if(".reg"))
        if not is_register:
            tokens.expect(".param")
        alignment, kind, vector = _type(tokens)
        if tokens.take_if(".ptr"):
            while tokens.next[1] in (".const", ".global", ".local", ".shared"):
                tokens.pop()
            if tokens.take_if(".align"):
                tokens.integer()
        name, extents = tokens.take("name"), _extents(tokens)
        if None in extents:
            raise tokens.error(f"the parameter {name} has no extent")
        element = _bytes(kind) * (vector or 1)
        if _product(extents) * element > _LARGEST_PARAMETER_BYTES:
            raise tokens.error(f"the parameter {name} would have more than {_LARGEST_PARAMETER_BYTES} bytes")
        found.append(Parameter(name, _product(extents) * element, alignment or element, kind, is_register))
    return tuple(found)


def _linking(tokens: Tokens) -> list[str]:
    found: list[str] = []
    while tokens.next[1] in LINKING:
        if found:
            raise tokens.error(f"a variable has one linking directive, got {found[0]} and {tokens.next[1]}")
        found.append(tokens.pop()[1])
    return found


def _type(tokens: Tokens) -> tuple[int | None, str, int]:
    """Take alignment, attributes, vector and type, in any order that ends with the type."""
    alignment, vector = None, 0
    while True:
        word = tokens.take("word")
        if word == ".align":
            alignment = _alignment(tokens)
        elif word == ".attribute":
            tokens.expect("(")
            while not tokens.take_if(")"):
                if tokens.pop()[0] == "end":
                    raise tokens.error("expected ')'")
        elif word in _VECTORS:
            vector = _VECTORS[word]
        elif word in _OPAQUE:
            return alignment, word[1:], vector
        else:
            try:
                type_bits(word[1:])
            except (ValueError, IndexError):
                raise tokens.error(f"unknown type {word!r}") from None
            if tokens.take_if(".align"):
                alignment = _alignment(tokens)
            return alignment, word[1:], vector


def _alignment(tokens: Tokens) -> int:
    alignment = tokens.integer()
    if alignment < 1 or alignment & (alignment - 1):
        raise tokens.error(f"an alignment must be a power of two, got {alignment}")
    return alignment


def _one(
    tokens: Tokens, space: str, alignment: int | None, kind: str, vector: int, is_extern: bool
) -> Iterator[Variable]:
    name = tokens.take("name")
    if f".{kind}" in _OPAQUE:
        _extents(tokens)
        yield Variable(name, kind, 0, 1)
        return
    element = _bytes(kind)
    default = alignment or element * (vector or 1)
    if tokens.take_if("<"):
        count = tokens.integer()
        if count > _MOST_VARIABLES:
            raise tokens.error(f"expected at most {_MOST_VARIABLES} variables, got {count}")
        tokens.expect(">")
        for number in range(count):
            yield Variable(f"{name}{number}", space, element * (vector or 1), default, element_bytes=element)
        return
    extents = _extents(tokens)
    extents += [vector] if vector else []
    data: bytes | None = None
    references: tuple[Reference, ...] = ()
    if 0 in extents:
        raise tokens.error(f"the array {name} has an extent of 0")
    if _product([e for e in extents if e is not None]) * element > _LARGEST_BYTES:
        raise tokens.error(f"{name} would have more than {_LARGEST_BYTES} bytes, which no GPU has")
    if tokens.take_if("="):
        if space not in ("global", "const"):
            raise tokens.error(f"{name} is in .{space}, where no variable has an initial value; store it in the kernel")
        tree = _tree(tokens)
        if None in extents:
            if not isinstance(tree, list):
                raise tokens.error(f"the array {name} needs a list of values")
            extents[0] = len(tree)
        data, references = _filled(tokens, kind, [e for e in extents if e is not None], tree)
    size = None if None in extents else _product(extents) * element
    if size is None and not is_extern:
        raise tokens.error(f"the array {name} has no extent")
    yield Variable(name, space, size, default, data, references, is_extern, element)


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
            found.append(tokens.integer())
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
    if not isinstance(constant.value, int) or constant.value <= 0:
        raise tokens.error("the mask of an address must be a positive integer")
    found = _address(tokens, constant.value % (1 << 64))
    tokens.expect(")")
    return found


def _address(tokens: Tokens, mask: int) -> Reference:
    name = tokens.take("name")
    if name == "generic" and tokens.take_if("("):
        name = tokens.take("name")
        tokens.expect(")")
    addend = 0
    while tokens.next[1] in ("+", "-"):
        sign = tokens.pop()[1]
        addend += tokens.integer() if sign == "+" else -tokens.integer()
    return Reference(name, addend, mask)


def _filled(tokens: Tokens, kind: str, extents: list[int], tree: _Tree) -> tuple[bytes, tuple[Reference, ...]]:
    """Lay initial values out: what is not given at the end is zero."""
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
            references.append(Reference(value.name, value.addend, value.mask, at, element))
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


def _encoded(tokens: Tokens, kind: str, constant: Constant) -> bytes:
    if kind in _FLOATS:
        if not isinstance(constant.value, float):
            raise tokens.error(f"a value of type {kind} must be a float, got {constant.value}")
        if constant.bits is not None and constant.bits[1] == type_bits(kind):
            return constant.bits[0].to_bytes(constant.bits[1] // 8, "little")
        return struct.pack(_FLOATS[kind], constant.value)
    size = _bytes(kind)
    if isinstance(constant.value, float):
        if kind not in ("b8", "b16", "b32", "b64"):
            raise tokens.error(f"a value of type {kind} must be an integer, got {constant.value}")
        bits = constant.immediate
        if kind == "b32" and bits.float_bits == 64:
            return struct.pack("<f", constant.value)
        return (bits.value % (1 << 8 * size)).to_bytes(size, "little")
    return (constant.value % (1 << 8 * size)).to_bytes(size, "little")
