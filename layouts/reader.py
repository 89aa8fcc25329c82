"""The reader behind ``parse``: tokens, and a recursive descent over them. ``notation`` says what it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from .basis import ScaledBasis
from .composed import ComposedLayout, SmemPtr, Swizzle
from .errors import LayoutError, ParseError
from .layout import Layout
from .modes import LayoutBase

# int | None | tuple[Value, ...] | Layout | ScaledBasis | Swizzle | SmemPtr | ComposedLayout
Value: TypeAlias = Any


class _Token(NamedTuple):
    kind: str  # name of the alternative in _TOKEN; for punctuation the character itself
    start: int
    text: str
    match: Any  # re.Match; None at the end


class _Engine(NamedTuple):
    """The left side of a printed tensor ``ENGINE o LAYOUT``; by itself a value only if a plain pointer to smem."""

    swizzle: Swizzle | None = None
    pointer: SmemPtr | None = None


# Earlier alternatives win: a pointer before `_64`, `_64` before `_`, `o` before a word.
_TOKEN = re.compile(
    r"""
      (?P<space>   (?: \s | \xa0 | &nbsp; )+ )
    | (?P<pointer> _? (?: (?P<memory>[gsr])mem_ )? ptr \[ (?P<bits>\d+) b \]
                   \( (?: unset | (?P<address> 0x[0-9a-fA-F]+ ) | (?P<null> \(nil\) ) ) \) )
    | (?P<pycute>  SW_ (?P<b>\d+) _ (?P<m>\d+) _ (?P<s>-?\d+) )
    | (?P<swizzle> Sw? (?= < | &lt; ) )
    | (?P<tensor>  tensor (?= < | &lt; ) )
    | (?P<dslptr>  ptr (?= < | &lt; ) )
    | (?P<arith>   ArithTuple (?= \( ) )
    | (?P<iterator> GMMA::DescriptorIterator )
    | (?P<int>     _? -? \d+ )
    | (?P<none>    None \b | _ )
    | (?P<dynamic> \? (?: \{ [^{}]* \} )? )
    | (?P<o>       o \b )
    | (?P<word>    [A-Za-z] \w* )
    | (?P<lt>      < | &lt; )
    | (?P<gt>      > | &gt; )
    | (?P<symbol>  [][():;,@] )
    """,
    re.VERBOSE | re.ASCII,
)
_KINDS = {"lt": "<", "gt": ">", "symbol": ""}  # "": the character itself
_CLOSING = {"(": ")", "<": ">", "[": "]"}
_IN_SHAPE = frozenset(("int", "(", ")", ","))
_IN_STRIDE = _IN_SHAPE | {"@"}


class Reader:
    """Recursive descent over the tokens of one text.

    .. code-block:: text

        value   = operand [ "o" operand "o" value ]  |  engine [ "o" value ]
        operand = atom [ ":" atom ]
        atom    = int { "@" int } | "_" | tuple | swizzle | engine | "tensor" "<" engine "o" value ">"
        tuple   = "(" [ value { "," value } [ "," ] ] ")", the same in "<" ">", and in "[" "]" with ";"
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._scan()
        self.index = 0

    def read(self) -> Value:
        """Read the whole text as one value."""
        value = self._value()
        self._expect("end", "the end of the text")
        return value

    def _scan(self) -> list[_Token]:
        tokens = []
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise ParseError(self.text, position, f"{self.text[position]!r} is not part of the notation")
            kind = match.lastgroup or ""
            text = match.group()
            if kind != "space":
                tokens.append(_Token(_KINDS.get(kind, kind) or text, position, text, match))
            position = match.end()
        tokens.append(_Token("end", position, "", None))
        return tokens

    def _kind(self) -> str:
        return self.tokens[self.index].kind

    def _start(self) -> int:
        return self.tokens[self.index].start

    def _advance(self) -> _Token:
        self.index += 1
        return self.tokens[self.index - 1]

    def _accept(self, kind: str) -> bool:
        if self._kind() != kind:
            return False
        self.index += 1
        return True

    def _expect(self, kind: str, expected: str = "") -> _Token:
        if self._kind() != kind:
            raise self._unexpected(expected or repr(kind))
        return self._advance()

    def _unexpected(self, expected: str) -> ParseError:
        token = self.tokens[self.index]
        if token.kind == "dynamic":
            return ParseError(self.text, token.start, _dynamic_condition(token))
        found = repr(token.text) if token.text else "the end of the text"
        return ParseError(self.text, token.start, f"expected {expected}, got {found}")

    def _build(self, start: int, make: Callable[..., Value], *operands: Value) -> Value:
        """Call a constructor; what it rejects is an error of the text that starts at `start`."""
        try:
            return make(*operands)
        except LayoutError as error:
            raise ParseError(self.text, start, error.condition) from error
        except (TypeError, ValueError) as error:
            raise ParseError(self.text, start, str(error)) from error

    def _value(self) -> Value:
        """Read an operand, or a chain of them grouped to the right: ``A o OFFSET o (B o OFFSET o C)``."""
        start = self._start()
        first = self._operand()
        if isinstance(first, _Engine):
            return self._under_engine(start, first)
        if not self._accept("o"):
            return first
        offset_start = self._start()
        offset = self._operand()
        if isinstance(offset, _Engine):
            if offset.pointer is None or offset.swizzle is not None:
                raise ParseError(self.text, offset_start, "an offset is an integer, a coordinate or smem_ptr")
            offset = offset.pointer
        self._expect("o", "'o' and the right operand (a composed layout is A o OFFSET o B)")
        right_start = self._start()
        right = self._value()
        if not isinstance(right, (LayoutBase, Swizzle)):
            raise ParseError(self.text, right_start, "the right operand of 'o' must be a layout")
        if not isinstance(first, (LayoutBase, Swizzle)):
            raise ParseError(self.text, start, "the left operand of 'o' must be a layout or a swizzle")
        return self._build(offset_start, ComposedLayout, first, offset, right)

    def _under_engine(self, start: int, engine: _Engine) -> Value:
        """Read on after an engine: a tensor's layout, composed with the engine's swizzle if it has one."""
        if engine.pointer is not None and engine.swizzle is None and self._kind() != "o":
            return engine.pointer
        self._expect("o", "'o' and a layout after the pointer")
        layout = self._value()
        if engine.swizzle is None:
            return layout
        return self._build(start, ComposedLayout, engine.swizzle, engine.pointer, layout)

    def _operand(self) -> Value:
        first = self.index
        shape = self._atom()
        if not self._accept(":"):
            return shape
        for token in self.tokens[first : self.index - 1]:
            if "-" in token.text and token.kind == "int":
                raise ParseError(self.text, token.start, f"extents must be >= 0, got {token.text}")
        self._check_only(first, self.index - 1, _IN_SHAPE, "a shape holds integers only")
        second = self.index
        stride = self._atom()
        self._check_only(second, self.index, _IN_STRIDE, "a stride holds integers and scaled bases only")
        return self._build(self.tokens[second].start, Layout, shape, stride)

    def _check_only(self, first: int, end: int, kinds: frozenset[str], message: str) -> None:
        for token in self.tokens[first:end]:
            if token.kind not in kinds:
                raise ParseError(self.text, token.start, f"{message}, got {token.text!r}")

    def _atom(self) -> Value:
        kind = self._kind()
        if kind == "int":
            return self._integer_or_basis()
        if kind in _CLOSING:
            return self._tuple()
        if kind == "none":
            self._advance()
            return None
        reader = _READERS.get(kind)
        if reader is None:
            raise self._unexpected("an integer, '_', '(', '<' or a swizzle")
        return reader(self)

    def _integer(self) -> int:
        token = self._expect("int", "an integer")
        return int(self._build(token.start, int, token.text.lstrip("_")))

    def _integer_or_basis(self) -> int | ScaledBasis:
        value = self._integer()
        modes: list[int] = []
        while self._accept("@"):
            mode_start = self._start()
            modes.insert(0, self._integer())
            if modes[0] < 0:
                raise ParseError(self.text, mode_start, f"expected a mode >= 0, got {modes[0]}")
        return ScaledBasis(value, tuple(modes)) if modes else value

    def _tuple(self) -> Value:
        after_o = self.index > 0 and self.tokens[self.index - 1].kind == "o"
        opening = self._advance().kind
        closing = _CLOSING[opening]
        separator = ";" if opening == "[" else ","
        items: list[Value] = []
        more = self._kind() != closing
        while more:
            items.append(self._value())
            more = self._accept(separator) and self._kind() != closing
        self._expect(closing, f"{separator!r} or {closing!r}")
        # Round brackets around one composed layout, or around any layout beside an 'o', only group.
        if opening == "(" and len(items) == 1:
            beside_o = after_o or self._kind() == "o"
            if isinstance(items[0], ComposedLayout) or (beside_o and isinstance(items[0], Layout | Swizzle)):
                return items[0]
        return tuple(items)

    def _swizzle(self) -> Swizzle:
        head = self._advance()
        self._expect("<")
        bits = self._integer()
        self._expect(",")
        base = self._integer()
        self._expect(",")
        shift = self._integer()
        # The DSL prints the first 8 characters of a swizzle: S<3,0,-3 and S<5,10,7 lose their bracket.
        if not (head.text == "S" and len(f"S<{bits},{base},{shift}") == 8 and self._kind() != ">"):
            self._expect(">")
        swizzle: Swizzle = self._build(head.start, Swizzle, bits, base, shift)
        return swizzle

    def _swizzle_or_pointer(self) -> Swizzle | _Engine:
        """Read a swizzle, or a swizzled pointer: ``Sw<3,4,3>_smem_ptr[16b](0x400)``."""
        swizzle = self._swizzle()
        token = self.tokens[self.index]
        if token.kind == "pointer" and token.text.startswith("_smem"):
            return _Engine(swizzle, self._pointer().pointer)
        return swizzle

    def _pycute_swizzle(self) -> Swizzle:
        token = self._advance()
        swizzle: Swizzle = self._build(token.start, Swizzle, *map(int, token.match.group("b", "m", "s")))
        return swizzle

    def _pointer(self) -> _Engine:
        token = self._advance()
        memory, bits, address, null = token.match.group("memory", "bits", "address", "null")
        if memory != "s":
            return _Engine()
        value = int(address, 16) if address else 0 if null else None
        return _Engine(pointer=self._build(token.start, SmemPtr, int(bits), value))

    def _dsl_pointer(self) -> _Engine:
        """Read ``ptr<f16, smem, align<1024>, S<3,4,3>>``."""
        start = self._advance().start
        self._expect("<")
        element = self._expect("word", "an element type").text
        self._expect(",")
        memory = self._expect("word", "a memory space").text
        swizzle = None
        while self._accept(","):
            if self._kind() == "swizzle":
                swizzle = self._swizzle()
            else:
                self._expect("word", "'align<BYTES>' or a swizzle")
                self._expect("<")
                self._integer()
                self._expect(">")
        self._expect(">")
        bits = re.search(r"\d+", element)
        if swizzle is None or memory != "smem":
            return _Engine()
        if bits is None:
            raise ParseError(self.text, start, f"the element type {element} names no width in bits")
        return _Engine(swizzle, self._build(start, SmemPtr, int(bits.group())))

    def _descriptor_iterator(self) -> _Engine:
        self._advance()
        return _Engine()

    def _coordinate(self) -> _Engine:
        """Read the coordinate where a coordinate tensor starts; only zeros leave nothing but its layout."""
        self._accept("arith")
        first = self.index
        self._atom()
        for token in self.tokens[first : self.index]:
            if token.kind == "int" and int(token.text.lstrip("_")) != 0:
                message = (
                    f"this tensor starts at {token.text}, not 0, which no layout holds; parse what follows its 'o'"
                )
                raise ParseError(self.text, token.start, message)
        return _Engine()

    def _tensor(self) -> Value:
        self._advance()
        self._expect("<")
        if self._kind() in ("(", "int"):
            value = self._under_engine(self._start(), self._coordinate())
        else:
            value = self._value()
        self._expect(">")
        return value

    def _dynamic(self) -> Value:
        token = self._advance()
        raise ParseError(self.text, token.start, _dynamic_condition(token))


def _dynamic_condition(token: _Token) -> str:
    return f"{token.text} is known only at run time; a layout here holds integers"


_READERS: dict[str, Callable[[Reader], Value]] = {
    "swizzle": Reader._swizzle_or_pointer,
    "pycute": Reader._pycute_swizzle,
    "pointer": Reader._pointer,
    "dslptr": Reader._dsl_pointer,
    "iterator": Reader._descriptor_iterator,
    "arith": Reader._coordinate,
    "tensor": Reader._tensor,
    "dynamic": Reader._dynamic,
}
