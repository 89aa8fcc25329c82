"""Recursive-descent parser behind ``parse``; the docstring of ``notation`` specifies the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from ..basis import ScaledBasis
from ..composed import ComposedLayout, Swizzle
from ..errors import ParseError
from ..layout import Layout
from ..modes import LayoutBase
from . import engines
from .engines import Engine
from .tokens import Token, Tokens
from .unknowns import GivenNumbers, Unknown

# int | None | tuple[Value, ...] | Layout | ScaledBasis | Swizzle | SmemPtr | ComposedLayout
Value: TypeAlias = Any

_CLOSING = {"(": ")", "<": ">", "[": "]"}
_DIGITS_X = re.compile(r"\s*\d+x", re.ASCII)
_NUMBER = re.compile(r"(?:cute::)?_\d+", re.ASCII)
_IN_SHAPE = frozenset(("int", "dynamic", "(", ")", ","))
_IN_STRIDE = _IN_SHAPE | {"@"}


class Reader(Tokens):
    """Recursive descent over the tokens of one text.

    .. code-block:: text

        value   = operand [ "o" operand "o" value ]  |  engine [ "o" value ]
        operand = atom [ ":" atom ]
        atom    = int { "@" int } | "_" | tuple | swizzle | engine | "tensor" "<" engine "o" value ">" | term
        tuple   = "(" [ value { "," value } [ "," ] ] ")", the same in "<" ">", and in "[" "]" with ";"

    Parameters
    ----------
    text : str
    start : int
        Index of the character to begin with.
    given : GivenNumbers, optional
        Values for numbers that the text leaves open. Default: none.

    Attributes
    ----------
    unknowns : list of Unknown
        Unknown numbers of the text read so far.
    engines : list of Engine
        Engines of the tensors read so far.
    aliases : set of str
        The aliases of MLIR that the text read so far refers to.
    within : set of str
        The aliases whose definitions are being read.
    """

    def __init__(self, text: str, start: int = 0, given: GivenNumbers | None = None) -> None:
        super().__init__(text, start)
        self.given = given or GivenNumbers()
        self.unknowns: list[Unknown] = []
        self.engines: list[Engine] = []
        self.aliases: set[str] = set()
        self.within: set[str] = set()

    def read(self) -> Value:
        """Read the whole text as one value."""
        value = self.value()
        self.expect("end", "the end of the text")
        return value

    def value(self) -> Value:
        """Read an operand, or a chain of them grouped to the right: ``A o OFFSET o (B o OFFSET o C)``."""
        start = self.token.start
        first = self._operand()
        if isinstance(first, Engine):
            return self.under_engine(start, first)
        if not self.accept("o"):
            return first
        offset_start = self.token.start
        offset = self._operand()
        if isinstance(offset, Engine):
            if offset.pointer is None or offset.swizzle is not None:
                raise self.error(offset_start, "an offset is an integer, a coordinate or smem_ptr")
            offset = offset.pointer
        self.expect("o", "'o' and the right operand (a composed layout is A o OFFSET o B)")
        right_start = self.token.start
        right = self.value()
        if not isinstance(right, (LayoutBase, Swizzle)):
            raise self.error(right_start, "the right operand of 'o' must be a layout")
        if not isinstance(first, (LayoutBase, Swizzle)):
            raise self.error(start, "the left operand of 'o' must be a layout or a swizzle")
        return self.build(offset_start, ComposedLayout, first, offset, right)

    def under_engine(self, start: int, engine: Engine) -> Value:
        """Read a tensor's layout after its engine, and apply the engine's start and swizzle."""
        if engine.pointer is not None and engine.swizzle is None and self.token.kind != "o":
            return engine.pointer
        self.expect("o", "'o' and a layout after the pointer")
        self.engines.append(engine)
        return self.on_engine(start, engine, self.value())

    def on_engine(self, start: int, engine: Engine, layout: Value) -> Value:
        """Return the map of a tensor from its engine and layout."""
        if not engine.moves:
            return layout
        if not isinstance(layout, LayoutBase):
            raise self.error(start, "a pointer stands before a layout")
        return self.build(start, engine.under, layout)

    def _operand(self) -> Value:
        first = self.index
        shape = self._atom()
        if self.token.kind != ":" or isinstance(shape, Engine | LayoutBase | Swizzle):
            return shape
        self.advance()
        for token in self.tokens[first:]:
            if "-" in token.text and token.kind == "int":
                raise self.error(token.start, f"extents must be >= 0, got {token.text}")
        self._check_only(first, self.index - 1, _IN_SHAPE, "a shape holds integers only")
        second = self.index
        stride = self._atom()
        self._check_only(second, self.index, _IN_STRIDE, "a stride holds integers and scaled bases only")
        self._place(first, second - 1, "extent")
        self._place(second, self.index, "stride")
        return self.build(self.tokens[second].start, Layout, shape, stride)

    def _check_only(self, first: int, end: int, kinds: frozenset[str], message: str) -> None:
        for token in self.tokens[first:end]:
            if token.kind not in kinds:
                raise self.error(token.start, f"{message}, got {token.text!r}")

    def _place(self, first: int, end: int, role: Any) -> None:  # noqa: ANN401 - as Unknown's
        """Set the role and the mode of the unknowns among some tokens."""
        path: list[int] = []
        for token in self.tokens[first:end]:
            if token.kind == "(":
                path.append(0)
            elif token.kind == ")":
                path.pop()
            elif token.kind == "," and path:
                path[-1] += 1
            elif token.kind == "dynamic":
                self.unknowns = [
                    unknown._replace(role=role, mode=tuple(path)) if unknown.position == token.start else unknown
                    for unknown in self.unknowns
                ]

    def _atom(self) -> Value:
        kind = self.token.kind
        if kind in ("int", "dynamic"):
            return self._integer_or_basis()
        if kind in _CLOSING:
            return self._tuple()
        if kind == "none":
            self.advance()
            return None
        reader = _READERS.get(kind)
        if reader is None:
            raise self.unexpected("an integer, '_', '(', '<' or a swizzle")
        return reader(self)

    def integer(self) -> int:
        """Read an integer, or take the value given for a ``?``."""
        if self.token.kind == "dynamic":
            return self.open_number(self.advance())
        token = self.expect("int", "an integer")
        return int(self.build(token.start, int, token.text.lstrip("_")))

    def open_number(self, token: Token) -> int:
        """Return the value given for an unknown number."""
        unknown = Unknown(token.text, token.start)
        self.unknowns.append(unknown)
        return self.given.take(self.text, unknown)

    def _integer_or_basis(self) -> int | ScaledBasis:
        value = self.integer()
        modes: list[int] = []
        while self.accept("@"):
            mode_start = self.token.start
            modes.insert(0, self.integer())
            if modes[0] < 0:
                raise self.error(mode_start, f"expected a mode >= 0, got {modes[0]}")
        return ScaledBasis(value, tuple(modes)) if modes else value

    def _tuple(self) -> Value:
        after_o = self.index > 0 and self.tokens[self.index - 1].kind == "o"
        opening = self.advance().kind
        closing = _CLOSING[opening]
        separator = ";" if opening == "[" else ","
        items: list[Value] = []
        more = self.token.kind != closing
        while more:
            items.append(self.value())
            more = self.accept(separator) and self.token.kind != closing
        self.expect(closing, f"{separator!r} or {closing!r}")
        for item in items:
            if hasattr(item, "to_linear"):
                raise self.error(self.tokens[self.index - 1].start, "an encoding of Triton's is no part of a tuple")
        # Round brackets around one composed layout, or around any layout beside an 'o', only group.
        if opening == "(" and len(items) == 1:
            beside_o = after_o or self.token.kind == "o"
            if isinstance(items[0], ComposedLayout) or (beside_o and isinstance(items[0], Layout | Swizzle)):
                return items[0]
        return tuple(items)

    def swizzle(self) -> Swizzle:
        """Read ``Sw<3,4,3>``, or the DSL's ``S<3,4,3>``."""
        head = self.advance()
        self.expect("<")
        bits = self.integer()
        self.expect(",")
        base = self.integer()
        self.expect(",")
        shift = self.integer()
        # The DSL prints the first 8 characters of a swizzle: S<3,0,-3 and S<5,10,7 lose their bracket.
        if not (head.text in "Ss" and len(f"S<{bits},{base},{shift}") == 8 and self.token.kind != ">"):
            self.expect(">")
        swizzle: Swizzle = self.build(head.start, Swizzle, bits, base, shift)
        return swizzle

    def _swizzle_or_pointer(self) -> Swizzle | Engine:
        """Read a swizzle, or a swizzled pointer: ``Sw<3,4,3>_smem_ptr[16b](0x400)``."""
        swizzle = self.swizzle()
        token = self.token
        if token.kind == "pointer" and token.text.lower().startswith("_smem"):
            return engines.pointer(self)._replace(swizzle=swizzle)
        return swizzle

    def _pycute_swizzle(self) -> Swizzle:
        token = self.advance()
        swizzle: Swizzle = self.build(token.start, Swizzle, *map(int, token.match.group("b", "m", "s")))
        return swizzle

    def coordinate(self) -> Value:
        """Read the coordinate at which a tensor starts."""
        first = self.index
        start = self._atom()
        self._check_only(first, self.index, _IN_SHAPE, "a coordinate holds integers only")
        self._place(first, self.index, "start")
        return start

    def _tensor(self) -> Value:
        """Read ``tensor<ENGINE o LAYOUT>``, ``Tensor<ADDRESS@MEMORY o LAYOUT>``, ``tensor(ENGINE o LAYOUT, data=``."""
        self.advance()
        closing = ">" if self.token.kind == "<" else ")"
        self.advance()
        if closing == ">" and _DIGITS_X.match(self.text, self.end):
            from .terms import shaped_type

            value = shaped_type(self)
            if value is not None:
                self.expect(closing)
                return value
        if self.token.kind in ("(", "int", "dynamic"):
            start = self.token.start
            value = self.under_engine(start, Engine(start=self.coordinate()))
        else:
            value = self.value()
        if closing == ")" and self.accept(","):  # the values follow: data=
            if self.token.text != "data":
                raise self.unexpected("'data=' and the values")
            self.advance()
            self.expect("=", "'=' and the values")
        else:
            self.expect(closing)
        return value

    def _mlir(self) -> Value:
        """Read a type of the DSL's IR: ``!cute.layout<"(8,4):(1,8)">``, ``!cute.memref<f16, smem, "...">``."""
        token = self.advance()
        kind = token.match["type"].lower()
        self.expect("<")
        if kind == "memref":
            engine = engines.described(self)
            self.engines.append(engine)
            value = self.on_engine(token.start, engine, self._quoted())
        elif kind == "coord_tensor":
            start = self.token.start
            self.expect('"')
            engine = Engine(start=self.coordinate())
            self.expect('"')
            self.expect(",")
            self.engines.append(engine)
            value = self.on_engine(start, engine, self._quoted())
        else:
            value = self._quoted()
        self.expect(">")
        return value

    def _word(self) -> Value:
        """Read a term, or a shape and a stride by their names."""
        from .terms import (
            SHAPE_AND_STRIDE,
            known,
            shape_and_stride,
            term,
            unread,
        )  # few texts need these modules: they load sm90

        name = self.token.text
        if SHAPE_AND_STRIDE.fullmatch(name) and name.lower().endswith("shape"):
            return shape_and_stride(self)
        if not known(name) and name[0] not in "#!" and not _NUMBER.fullmatch(name):
            raise unread(self)
        value = term(self)
        if self.tokens[self.index - 1].kind == ">":
            while self.token.text == "&":  # a reference, in the signatures that compilers print
                self.advance()
        return value

    def _quoted(self) -> Value:
        self.expect('"', "a text in quotation marks")
        value = self.value()
        self.expect('"')
        return value


_READERS: dict[str, Callable[[Reader], Value]] = {
    "swizzle": Reader._swizzle_or_pointer,
    "pycute": Reader._pycute_swizzle,
    "tensor": Reader._tensor,
    "mlir": Reader._mlir,
    "pointer": engines.pointer,
    "dslptr": engines.dsl_pointer,
    "rawptr": engines.raw_pointer,
    "hex": engines.address,
    "iterator": engines.descriptors,
    "result": engines.descriptors,
    "arith": engines.counted,
    "counter": engines.counted,
    "word": Reader._word,
}


def stands_open(error: ParseError) -> bool:
    """Return whether an error's cause is a number known only at run time."""
    return "is known only at run time" in error.condition
