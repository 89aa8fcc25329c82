"""Turn the text notation of the reference vectors into C++ expressions of CuTe values.

This reader is deliberately not `cutepy.layouts.parse`: the oracle must not share a line with what it judges.
"""

import re

_TOKEN = re.compile(r"\s*(Sw<-?\d+,-?\d+,-?\d+>|smem_ptr\[\d+b\]\(unset\)|-?\d+(?:@\d+)+|-?\d+|[()<>,:_o])")


class _Reader:
    """Recursive descent over the tokens of one value."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"the oracle cannot read {text!r} at {position}")
            self.tokens.append(match[1])
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if expected and token != expected:
            raise ValueError(f"expected {expected!r}, got {token!r} in {self.tokens}")
        self.at += 1
        return token

    def value(self) -> str:
        """A term, a layout `S:D`, or a composed layout `A o O o B`."""
        left = self.layout()
        if self.peek() != "o":
            return left
        self.take("o")
        offset = self.layout()
        self.take("o")
        return f"composed({left},{offset},{self.value()})"

    def layout(self) -> str:
        if self.peek() == "(" and self._is_parenthesised_composed():
            self.take("(")
            inner = self.value()
            self.take(")")
            return inner
        shape = self.term()
        if self.peek() != ":":
            return shape
        self.take(":")
        return f"make_layout({shape},{self.term()})"

    def _is_parenthesised_composed(self) -> bool:
        depth = 0
        for i in range(self.at, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[i], 0)
            if depth == 1 and self.tokens[i] == "o":
                return True
            if depth == 0:
                return False
        return False

    def term(self) -> str:
        token = self.take()
        if token in "(<" and token:
            close = ")" if token == "(" else ">"
            items = []
            while self.peek() != close:
                items.append(self.value())
                if self.peek() == ",":
                    self.take(",")
            self.take(close)
            return f"cute::make_tuple({','.join(items)})"
        if token == "_":
            return "Underscore{}"
        if token.startswith("Sw"):
            return f"Swizzle{token[2:]}{{}}"
        if token.startswith("smem_ptr"):
            return f"smem_ptr_flag_bits<{token[9 : token.index('b')]}>{{}}"
        if "@" in token:
            value, *path = token.split("@")
            return f"ScaledBasis<Int<{value}>,{','.join(reversed(path))}>{{}}"
        return f"Int<{int(token)}>{{}}"


def to_cpp(value: int | str) -> str:
    """Write a vector's operand (a JSON number or a string of the notation) as a C++ expression."""
    if isinstance(value, int):
        return f"Int<{value}>{{}}"
    reader = _Reader(value)
    expression = reader.value()
    if reader.peek():
        raise ValueError(f"the oracle cannot read past {reader.tokens[: reader.at]} of {value!r}")
    return expression


def integers(value: int | str) -> list[int]:
    """The flat integers of a text tuple, for operands that are template arguments in C++."""
    return [value] if isinstance(value, int) else [int(x) for x in re.findall(r"-?\d+", value)]
