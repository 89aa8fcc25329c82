"""Tokenizer of the notation, one token at a time, with errors at the current position."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import LayoutError, ParseError


class Token(NamedTuple):
    """A piece of a text."""

    kind: str  # name of the alternative in _TOKEN; for punctuation the character itself
    start: int
    text: str
    match: Any  # re.Match; None at the end

    @property
    def end(self) -> int:
        """Index of the character after it."""
        return self.start + len(self.text)


# Earlier alternatives win: a pointer before `_64`, `_64` before `_`, `o` before a word.
_TOKEN = re.compile(
    r"""
      (?P<space>   (?: \s | &nbsp; )+ )
    | (?P<pointer> _? (?: (?: (?P<memory> [gsrt]mem ) _ )? (?: sub )? ptr | (?P<tmem> tmem ) _ ) \[ (?P<bits> \d+ ) b \]
                   \( (?: unset | (?P<address> 0x[0-9a-f]+ ) (?: \. [0-9a-f]+ )? | (?P<null> \(nil\) | nullptr ) ) \) )
    | (?P<pycute>  SW_ (?P<b>\d+) _ (?P<m>\d+) _ (?P<s>-?\d+) )
    | (?P<swizzle> Sw? (?= < | &lt; ) )
    | (?P<mlir>    !? (?: cute\. | (?= (?:composed_)? layout (?: < | &lt; ) " ) ) (?P<type> \w+ ) (?= < | &lt; ) )
    | (?P<tensor>  tensor (?= < | &lt; | \( ) )
    | (?P<dslptr>  ptr (?= < | &lt; ) )
    | (?P<rawptr>  raw_ptr (?= \( ) )
    | (?P<arith>   ArithTuple (?= \( ) )
    | (?P<counter> counting_iter (?= \( ) )
    | (?P<result>  OpResult (?= \( ) )
    | (?P<iterator> [GU]MMA::DescriptorIterator )
    | (?P<hex>     0x[0-9a-f]+ )
    | (?P<int>     _? -? \d+ )
    | (?P<none>    None \b | _ )
    | (?P<dynamic> \? (?: \{ (?P<known> [^{}]* ) \} )? )
    | (?P<o>       o \b )
    | (?P<word>    [#!]? [a-z] \w* (?: (?: \. | :: ) [a-z_] \w* )* )
    | (?P<string>  ' [^'\n]* ' )
    | (?P<lt>      < | &lt; )
    | (?P<gt>      > | &gt; )
    | (?P<symbol>  [][(){}=:;,@"] )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE | re.DOTALL,
)
_KINDS = {"lt": "<", "gt": ">", "symbol": ""}  # "": the character itself

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Terminal sequences: colours, the cursor, titles and links."""

_PLAIN: dict[int, int | str] = {
    **{0xFF00 + code: 0x20 + code for code in range(1, 0x5F)},  # full-width forms of ASCII
    **dict.fromkeys(map(ord, "\u2218\u25e6\u25cb\u26ac"), "o"),  # ring operator, bullet and circles
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033"), '"'),
    **dict.fromkeys(map(ord, "\u2329\u27e8\u3008"), "<"),
    **dict.fromkeys(map(ord, "\u232a\u27e9\u3009"), ">"),
    **dict.fromkeys(map(ord, "\xa0\xad\u1680\u180e\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"), " "),
    **dict.fromkeys(range(0x2000, 0x2010), " "),
}
"""Substitutes that editors, terminals and web pages make for the notation's characters: one character for one.
that errors show keeps its positions."""


@lru_cache(maxsize=8)
def plain(text: str) -> str:
    r"""Return a text of the same length, without colours, and with ASCII in place of look-alike characters.

    >>> plain("\x1b[1m(4,8)\x1b[0m:(\uff11,4) \u2218")
    '    (4,8)    :(1,4) o'
    """
    if text.isascii() and "\x1b" not in text:
        return text
    return _ESCAPES.sub(lambda match: " " * len(match.group()), text).translate(_PLAIN)


_ZERO_WIDTH = re.compile("[\xad\u180e\u200b-\u200f\u2060\ufeff]")


def zero_width(text: str) -> str:
    """List the invisible characters of a text, each once: ``"U+200B, U+FEFF"``; empty if there are none."""
    return ", ".join(dict.fromkeys(f"U+{ord(sign):04X}" for sign in _ZERO_WIDTH.findall(text)))


class Tokens:
    """Position in a text, from which tokens are taken one by one.

    Parameters
    ----------
    text : str
    start : int
        Index of the character to begin with.
    """

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.index = 0
        self._plain = plain(text)
        self._scanned = start

    @property
    def token(self) -> Token:
        """The next token; of kind ``end`` at the end of the text."""
        while self.index >= len(self.tokens):
            self._scan()
        return self.tokens[self.index]

    @property
    def end(self) -> int:
        """Index of the character after the last token taken."""
        return self.tokens[self.index - 1].end if self.index else self._scanned

    def _scan(self) -> None:
        while self._scanned < len(self._plain):
            match = _TOKEN.match(self._plain, self._scanned)
            assert match is not None  # any character is a token
            kind, text = match.lastgroup or "", match.group()
            start, self._scanned = self._scanned, match.end()
            if kind != "space":
                self.tokens.append(Token(_KINDS.get(kind, kind) or text, start, text, match))
                return
        self.tokens.append(Token("end", self._scanned, "", None))

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        self.index += 1
        return token

    def accept(self, kind: str) -> bool:
        """Take the next token if it is of this kind."""
        if self.token.kind != kind:
            return False
        self.index += 1
        return True

    def expect(self, kind: str, expected: str = "") -> Token:
        """Take the next token; raise ParseError if it is of another kind."""
        if self.token.kind != kind:
            raise self.unexpected(expected or repr(kind))
        return self.advance()

    def skip_to(self, position: int) -> None:
        """Skip the text up to a position."""
        del self.tokens[self.index :]
        self._scanned = position

    def unexpected(self, expected: str) -> ParseError:
        """Return the error for an unexpected next token."""
        token = self.token
        if self.index and "\n" in self.text[self.end : token.start]:
            return self.error(self.end, f"expected {expected}, got the end of the line")
        if token.kind == "other":
            return self.error(token.start, f"{self.text[token.start]!r} is not part of the notation")
        found = repr(token.text) if token.text else "the end of the text"
        if unseen := zero_width(self.text[self.end : token.start]) if self.index else "":
            found += f" behind {unseen}, which shows nothing"
        return self.error(token.start, f"expected {expected}, got {found}")

    def error(self, position: int, condition: str) -> ParseError:
        """Return an error with a caret under a position."""
        return ParseError(self.text, position, condition)

    def build(self, start: int, make: Callable[..., Any], *operands: Any) -> Any:  # noqa: ANN401 - as `make`
        """Call a constructor; a rejection becomes an error of the text that starts at `start`."""
        try:
            return make(*operands)
        except LayoutError as error:
            raise self.error(start, error.condition) from error
        except (TypeError, ValueError) as error:
            raise self.error(start, str(error)) from error
