"""PTX cut into tokens, for its declarations and constant expressions."""

from __future__ import annotations

import re

_LONGEST_REASON = 1000
"""Characters: of a longer reason, which quotes a very long word, the middle is left out."""


class PtxSyntaxError(ValueError):
    """Text that is not the PTX this parser knows.

    Parameters
    ----------
    reason : str
        Requirement, and value.
    token : str
        The word of the statement that it is about, if it is one.
    file : str
        File of the text; empty if the text is from no file.
    line, column : int
        First character of the word, or else of the statement, from 1; 0 where that is not known.
    statement : str

    Attributes
    ----------
    reason, token, file, line, column, statement
        As given.

    Examples
    --------
    >>> print(PtxSyntaxError("unknown register %x", "%x", "a.ptx", 3, 14, "mov.u32 %r1, %x;"))
    a.ptx:3:14: unknown register %x
      in `mov.u32 %r1, %x;`
    """

    def __init__(
        self, reason: str, token: str = "", file: str = "", line: int = 0, column: int = 0, statement: str = ""
    ) -> None:
        if len(reason) > _LONGEST_REASON:
            reason = f"{reason[: _LONGEST_REASON // 2]} ... {reason[-_LONGEST_REASON // 2 :]}"
        self.reason, self.token, self.file, self.line = reason, token, file, line
        self.column, self.statement = column, statement
        where = f"{file}:{line}:{column}: " if file else f"line {line}, column {column} of the PTX: "
        super().__init__(f"{where}{reason}\n  in `{statement}`" if line else reason)


_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<word>\.[A-Za-z_]\w*(?:::\w+)*)
    | (?P<name>[A-Za-z][\w$]*|[_$%][\w$]+|_(?![\w$]))
    | (?P<number>0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?(?!\w)|0[bB][01]+U?(?!\w)
        |(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w)|\d+[eE][-+]?\d+(?!\w)|\d+U?(?!\w))
    | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^!~?:(){}\[\],=;])
    )""",
    re.X,
)
_END = ("end", "")
_MOST_DIGITS = 1000
Token = tuple[str, str]
"""Kind and text: "word" begins with a dot."""


class Tokens:
    """The tokens of a text, taken from the front.

    Parameters
    ----------
    text : str

    Raises
    ------
    PtxSyntaxError
        If something is no token.

    Examples
    --------
    >>> tokens = Tokens(".align 8 a[2]")
    >>> tokens.take_if(".align"), tokens.integer(), tokens.take("name"), tokens.take_if("{")
    (True, 8, 'a', False)
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens: list[Token] = []
        self._at = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                rest = text[position : position + 40].strip()
                raise PtxSyntaxError(f"cannot read {rest!r}", rest)
            assert match.lastgroup is not None
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()

    @property
    def next(self) -> Token:
        """The token at the front, or ("end", "")."""
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def pop(self) -> Token:
        """Take the token at the front."""
        token = self.next
        self._at += 1
        return token

    def take(self, kind: str) -> str:
        """Take a token of a kind, and return its text."""
        found, text = self.pop()
        if found != kind:
            raise self.error(f"expected a {kind}, got {text!r}")
        return text

    def take_if(self, text: str) -> bool:
        """Take a token if it is this one; tells whether it was."""
        if self.next[1] != text:
            return False
        self._at += 1
        return True

    def expect(self, text: str) -> None:
        """Take a token that must be this one."""
        found = self.pop()[1]
        if found != text:
            raise self.error(f"expected {text!r}, got {found!r}")

    def integer(self) -> int:
        """Take a literal integer."""
        return integer(self.take("number"))

    def finish(self) -> None:
        """Refuse remaining tokens."""
        if self.next is not _END:
            raise self.error(f"unexpected {self.next[1]!r}")

    def error(self, reason: str, token: str = "") -> PtxSyntaxError:
        """Make the error for this text, about a token or the one that was taken last."""
        here = token or (self._tokens[self._at - 1][1] if 0 < self._at <= len(self._tokens) else "")
        return PtxSyntaxError(f"{reason} in {' '.join(self.text.split())[:80]!r}", here)


def integer_of_32(text: str) -> int:
    """Return the value of a literal integer, without a sign, that must have at most 32 bits.

    Raises
    ------
    PtxSyntaxError
        If it has more, or is none.
    """
    value = integer(text)
    if value >> 32:
        raise PtxSyntaxError(f"expected an integer of 32 bits, got {text[:40]}", text[:40])
    return value


def integer(text: str) -> int:
    """Return the value of a literal integer, without a sign.

    An integer of more than 64 bits loses its upper bits, as in ptxas, which refuses a further digit only where the
    digits before it reach 2^63.

    Examples
    --------
    >>> integer("0x1f"), integer("010"), integer("0b11U"), integer("9"), integer("18446744073709551617")
    (31, 8, 3, 9, 1)
    """
    digits = text.removesuffix("U")
    base = 8 if digits[0] == "0" and digits.isdigit() else 0
    if len(digits) > _MOST_DIGITS:
        raise PtxSyntaxError(f"expected an integer of at most {_MOST_DIGITS} digits, got {len(digits)} digits", text)
    try:
        value = int(digits, base)
    except ValueError:
        raise PtxSyntaxError(f"expected an integer, got {text[:40]!r}", text) from None
    if value >> 64:
        base = base or {"x": 16, "b": 2}.get(digits[1].lower(), 10)
        while value >= base:
            value //= base
            if value >> 63 & 1:
                raise PtxSyntaxError(f"an integer has at most 64 bits, got {text}", text)
        value = int(digits, 8 if base == 8 else 0) % (1 << 64)
    return value
