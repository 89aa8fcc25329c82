"""Reader of pasted text: several lines, names before values, tables after them; returns values and skipped parts."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..basis import ScaledBasis
from ..errors import ParseError
from ..modes import LayoutBase
from .atoms import atom_in, names_atom
from .findings import COMMENT, VALUES, Paste, PastedValue, SkippedLines, merged
from .linear_lines import linear_blocks
from .printed_reader import Block, read_blocks
from .reader import Reader
from .shapes import checked_shape, is_encoding, unused, with_shape
from .tables import ValueBeforeTable
from .terms import known
from .tokens import Tokens, plain, zero_width
from .unknowns import GivenNumbers, RuntimeValue

FORMS = (
    "layouts such as (4,8):(8,1) and Sw<3,4,3> o 0 o (8,64):(64,1), tensors such as "
    "gmem_ptr[16b](0x7f00) o (4,8):(8,1) and tensor<ptr<f16, smem> o (4,8):(8,1)>, the printed MMA_Atom, "
    "TiledMMA, Copy_Atom or TiledCopy of C++ CuTe and the CuTe DSL, types such as cute::Layout<...>, calls such as "
    "make_layout((4,8), stride=(8,1)), and the linear layouts and encodings of Triton and Gluon"
)
"""Readable forms, in words."""

_CANDIDATE = re.compile(
    r"""(?<![\w.@:\#!]) (?: !?cute\.\w+(?=<|&lt;) | !?(?:composed_)?layout(?=<"|&lt;")
    | tensor(?=<|&lt;|\() | (?P<shape>(?:\w+\.)*shape)(?=\s*(?:\(\)\s*)?(?:[=:(\[]|torch\.Size))
    | Sw?(?=<|&lt;) | SW_\d | raw_ptr\( | ptr(?=<|&lt;)
    | (?:[gsrt]mem_)?(?:sub)?ptr\[ | tmem_\[ | [GU]MMA:: | ArithTuple\( | counting_iter\( | &lt;
    | (?P<term>[#!]?[a-z]\w*(?:(?:::|\.)[a-z_]\w*)*)(?=\s*(?:<|&lt;|\(|\{)) | cute::_\d | [(\[<?] | _?-?\d
    | _(?!\w) )""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_ENCLOSED = re.compile(
    r"!?cute\.|tensor|!?(?:composed_)?layout|cute::(?:Composed)?Layout|[#!](?:ttg|triton_gpu)\.", re.IGNORECASE
)
# A name, perhaps called, indexed or numbered, `[thread 0]` or a quoted key; then a colon, an equals sign or an arrow.
_NAMED = re.compile(
    r"""(?: (?<!\w) (?!o\b) _* [^\W\d_] \w* (?: \([^()]*\) | \[[^][]*\] | \s+\#?\d+ )*
    | \[ [^][]* [^\W\d_] [^][]* \] | \w["'] ) \s* (?: [:=] | -> ) \s* $""",
    re.VERBOSE,
)
_COMMON_NAMES = frozenset("tuple Tile Shape Stride Step Coord C E Int constant integral_constant".split())
_NAMED_TUPLE = re.compile(r"[\s,;]*[^\W\d]\w*(?:\.\w+)*\s*[:=]\s*\([\d\s,()_-]*\)(?!\s*:)")
_NOTATION = re.compile(
    r"[\w)>\]]\s*:\s*[_(?\d]\S*\)|\bSw?(?:<|&lt;)\s*\d|ptr(?:\[|<|&lt;).*\so\s"
    r"|\#(?:ttg|triton_gpu)\.\w+\s*(?:<|&lt;)|!(?:ttg|triton_gpu)\.memdesc|\bcute::\w+\s*(?:<|&lt;)"
    r"|\bmake_(?:\w+_)?layout\(|(?:\b|\d)[a-z]*(?:Linear|Blocked|Slice|Operand|Distributed|Shared|Composed)Layout\(",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"\s*(?://|\#(?!\w+\s*=|(?:ttg|triton_gpu)\.)|<-|/\*|--(?![-\d(]))")
_CLOSED_COMMENT = re.compile(r"(?:\s*/\*(?:(?!\*/).)*\*/)+(?=.*[^\s:=,;.])")
_PUNCTUATION = re.compile(r"[\s:=,;.()\[\]{}<>\"'|\\/#*`-]*")
_ENDING = re.compile(r"\s*[:=,;.]?\s*")
_GOES_ON = re.compile(r"\s*(?:[+*%^&~@)\]}]|>(?!\s)|/(?![/*])|-\s*\d)")
"""Text behind a value that would change it, or close an unopened bracket."""
_UNREAD = re.compile(
    r"(?<![\w.:])(?:\w+\.)*(?:Auto|Coalesced|Padded\w*|Partitioned\w*|TensorMemory\w*|AMD\w+)Layout(?=\()"
    r"|(?<![\w.:])(?:cute::)?(?:SM\d+::)?[GU]MMA::Layout_\w+(?=<|&lt;)",
    re.ASCII,
)
"""Constructors of layouts by Gluon and CuTe that `parse` does not support."""
_SEPARATORS = re.compile(r"^\s*[,;]\s*")
_POINTER_ALONE = "'o' and a layout after the pointer, got the end of the"


_BULLETS = re.compile(r"^(?:\s|//+|#+|\*+|--+)+")
_ALIAS = re.compile(r"\s*(#\w+)\s*=\s*")
# A label: bullets, a context in brackets, a time or a list number, words and their numbers, and a colon. Words are
# separated by spaces, commas or colons, so that a text matches in one way only.
_WORD = r"(?:_*[^\W\d]\w*(?:(?:\.|::|-|/)\w+)*(?:\([^()]*\)|\[[^][]*\])*|(?:\"\w+\"|'\w+')(?=\s*[:=]))"
_LABEL = re.compile(
    rf"""\s* (?:(?: //+ (?!/) | \#+ (?!\#) | \*+ (?!\*) | --+ (?!-) | - (?=\s) | /\* ) \s*)*
    (?: \[ [^][]* \] \s* | \( \w+ \) \s* | \d+ : \d+ (?: : \d+ )? (?: \.\d+ )? \s+ | \d+ [.):] \s+ )*
    (?: {_WORD} (?: (?: \s*[,:]\s+ | \s+ ) (?: {_WORD} | \#?\d+ ) )* )?
    \s* (?: (?: := | = | : | -> | --+ (?!-) ) \s* )? (?: \{{\}} \s* )? ["'`]? """,
    re.VERBOSE,
)
_BEFORE_NAME = re.compile(
    r"""\s* (?: (?: //+ | \#+ | \*+ | --+ | /\* | - (?=\s+\S) ) \s* )*
    (?: \[ [^][]* [^\W\d] [^][]* \] \s* | \d+ : \d+ (?: : \d+ )? (?: \.\d+ )? (?:\s+|$) | \d+ [.):] (?:\s+|$)
    | const (?:\s+|$) )*""",
    re.VERBOSE,
)
"""Text allowed before a name: bullets, a context in brackets, a time, a list number, and C++'s const."""

_MARKED = re.compile(r"[A-Z](?!\w)|\w*(?:[0-9_]|[a-z][A-Z])")
_KINDS_OF_VALUES = frozenset("layout tensor shape swizzle type DEBUG INFO WARNING TRACE".split())

_NOT_IN_LABELS = frozenset(
    "pointer pycute swizzle mlir tensor dslptr rawptr arith counter result iterator hex none dynamic o".split()
)
"""Tokens of the notation: before a value they are an unreadable part of it, and no name."""

_LAST_LABEL = re.compile(r"[^\W\d]\w*(?:\.\w+)*\s*(?:[:=]|->)?\s*$")

NO_VALUE = "no value in it"
"""Reason for skipping other text."""

POINTER = "a pointer without a layout"
"""Reason for skipping a pointer that stands alone: it is a location of data, and no layout."""

_TRIES = 100
"""Number of words of a line to try: a line of thousands of numbers is a table."""


def parse_all(text: str, *, given: Sequence[int] = (), shape: Sequence[int] | None = None) -> Paste:
    r"""Read all values of a text: several lines, with names before them, tables after them, other text between.

    text -> values, and what was skipped and why. Nothing is dropped without a word, and what looks like a value but
    can't be read is an error, not skipped.

    Parameters
    ----------
    text : str
        As copied from a terminal, a web page or a debugger: with colours, HTML's entities, full-width brackets.
    given : sequence of int, optional
        Values for the ``?`` of all lines, from left to right. Default: a value that leaves numbers open is a Runtime.
    shape : sequence of int, optional
        Extents of the tensors whose encodings the text holds; see `parse`.

    Returns
    -------
    Paste

    Raises
    ------
    ParseError
        If the text holds nothing that can be read; or values are given for more ``?`` than there are, or a shape for
        no encoding.

    Examples
    --------
    >>> paste = parse_all('''sA: Sw<3,4,3>_smem_ptr[16b](0x400) o (_64,_8):(_1,_64)
    ... gC: gmem_ptr[32b](0x7f00) o (2,4):(4,_1):
    ...   0.00e+00  1.00e+00  2.00e+00  3.00e+00
    ...   4.00e+00  5.00e+00  6.00e+00  7.00e+00''')
    >>> for found in paste.values:
    ...     print(found.line, found.name, found.bits, found.value)
    1 sA 16 Sw<3,4,3> o smem_ptr[16b](0x400) o (64,8):(1,64)
    2 gC 32 (2,4):(4,1)
    >>> print(*paste.skipped)
    skipped lines 3-4, a table of values
    """
    if not isinstance(text, str):
        raise TypeError(f"parse reads a str, got {type(text).__name__}: {text!r}")
    if names_atom(text):
        if shape is not None:
            raise unused(text, shape)
        line = text[: len(text) - len(text.lstrip())].count("\n") + 1
        return Paste((PastedValue(atom_in(text), text.strip(), line),), (), ())
    scan = _Scan(text, tuple(given), checked_shape(shape))
    try:
        paste = scan.run()
    except RecursionError:
        raise ParseError(text, 0, "nested too deeply for Python's recursion limit") from None
    if not paste.values and not paste.errors:
        if scan.whole is not None and "\n" not in text.strip() and scan.whole.position > len(text) - len(text.lstrip()):
            raise scan.whole
        start = len(text) - len(text.lstrip())
        raise ParseError(text, start, f"nothing here is a layout or another value; what can be read: {FORMS}")
    if scan.given is not None and scan.given.taken < len(given) and not paste.errors:
        counts = f"{len(given)} values are given for {scan.given.taken} ?"
        raise ParseError(text, 0, f"{counts} in the text; give one for each, from left to right")
    if shape is not None and not scan.shaped and not paste.errors:
        raise unused(text, shape)
    return paste


class _Scan:
    """One reading of one text."""

    def __init__(self, text: str, given: tuple[int, ...], shape: tuple[int, ...] | None) -> None:
        self.text = text
        self.plain = plain(text)
        self._ends = [match.start() for match in re.finditer("\n", self.plain)]
        self.given = GivenNumbers(given) if given else None
        self.shape = shape
        self.shaped = False
        self._defined: dict[str, int] = {}
        self._used: set[str] = set()
        self.values: list[tuple[int, PastedValue]] = []
        self.skipped: list[SkippedLines] = []
        self.errors: list[ParseError] = []
        self.whole: ParseError | None = None
        self._has_strong = False
        self._below: ValueBeforeTable | None = None
        self._opened: list[tuple[int, str]] = []

    def run(self) -> Paste:
        whole = self._whole()
        if whole is not None:
            return Paste((whole,), (), ())
        blocks, self.errors = read_blocks(self.text)
        layouts, errors = linear_blocks(self.text)
        blocks, self.errors = [*blocks, *layouts], [*self.errors, *errors]
        covered = sorted(span for block in blocks for span in self._keep(block))
        position = 0
        while position < len(self.plain):
            end = self.plain.find("\n", position)
            end = len(self.plain) if end < 0 else end
            span = next((span for span in covered if span[1] > position), None)
            if span is not None and span[0] <= position:
                position = span[1]
            elif position == end:
                position += 1
            elif self._below is not None and (table := self._below.table(self.plain, position)) is not None:
                lines = self._line(position), self._line(table)
                self.skipped.append(SkippedLines(*lines, self.plain[position:end], VALUES, position=position))
                position, self._below = table, None
            else:
                position = self._segment(position, min(end, span[0]) if span is not None else end)
        for position, bracket in self._opened:
            line = self._line(position)
            self.skipped.append(SkippedLines(line, line, bracket, NO_VALUE, position=position))
        values = tuple(self._shaped_values())
        return Paste(values, merged(self.skipped), tuple(sorted(self.errors, key=lambda error: error.position)))

    def _whole(self) -> PastedValue | None:
        """Read the text as one value, without any other text."""
        start = len(self.plain) - len(self.plain.lstrip())
        try:
            value, reader = self._read(0)
            reader.expect("end")
        except ParseError as error:
            self.whole = error
            self._restore()
            return None
        return self._shaped(self._found(value, reader, start, ""), start)

    def _shaped(self, found: PastedValue, position: int) -> PastedValue:
        """Return a value, with an encoding as the layout of a tensor of the shape."""
        if not is_encoding(found.value):
            return found
        self.shaped = True
        return found._replace(value=with_shape(found.value, self.text, position, self.shape))

    def _shaped_values(self) -> Iterator[PastedValue]:
        """Return the values in the order of the text, without aliases that others of them refer to."""
        parts = {self._defined[name] for name in self._used & set(self._defined)}
        for position, found in sorted(self.values, key=lambda found: found[0]):
            if position in parts:
                continue
            try:
                yield self._shaped(found, position)
            except ParseError as error:
                self.errors.append(error)

    def _keep(self, block: Block) -> tuple[tuple[int, int], ...]:
        """Add a block's values, and return the span of text that it covers."""
        if block.value is None:
            lines = self._line(block.start), self._line(block.end)
            self.skipped.append(SkippedLines(*lines, "", block.why, position=block.start))
            return ()
        start = self.plain.rfind("\n", 0, block.start) + 1
        if not self.plain[start : block.start].strip():
            start = self._label_above(start)
        context, name = "", ""
        if not self._overlaps(start, block.start):
            context, name = _parted_label(self.plain[start : block.start])
        if context:
            line = self._line(start)
            self.skipped.append(SkippedLines(line, line, context, NO_VALUE, True, start))
        found = PastedValue(block.value, self.text[block.start : block.end], self._line(block.start), name)
        self.values.append((block.start, found))
        self._has_strong = True
        return ((start, block.start), *block.spans) if name else block.spans

    def _label_above(self, start: int) -> int:
        """Return the start of the line above, if it ends as a label does; else `start`."""
        above = self.plain.rfind("\n", 0, max(start - 1, 0)) + 1
        label = self.plain[above:start].strip()
        return above if label and label[-1] in ":=" and not re.search(r"[()\[\]<>]", label) else start

    def _overlaps(self, start: int, end: int) -> bool:
        return any(start <= position < end for position, _ in self.values)

    def _segment(self, start: int, end: int) -> int:
        """Read the beginning of a line, or of a part of one; return the position to continue at."""
        furthest: ParseError | None = None
        candidates = (m for m in _CANDIDATE.finditer(self.plain, start, end) if not m["term"] or known(m["term"]))
        for match in itertools.islice(candidates, _TRIES):
            prefix = self.plain[start : match.start()]
            if not _may_precede(prefix, match.group()):
                continue
            try:
                value, reader = self._read(match.start())
                self._check_end(reader)
            except ParseError as error:
                self._restore()
                if _is_meant(match, self.plain, error):
                    self.errors.append(error)
                    return end
                if furthest is None or error.position > furthest.position:
                    furthest = error
                if match["term"] and self.plain[match.end()] in "(<{":
                    break  # the bracketed text is a part of it
                continue
            text = self.plain[match.start() : reader.end]
            strong = _is_strong(value, text)
            alone = isinstance(value, LayoutBase) and not prefix.strip() and not self._rest(reader.end).strip()
            if strong or alone or self._fills(prefix, reader.end):
                self._has_strong |= strong
                behind = start > 0 and self.plain[start - 1] != "\n"
                context, name = _parted_label(_SEPARATORS.sub("", prefix) if behind else prefix)
                if context:
                    line = self._line(start)
                    self.skipped.append(SkippedLines(line, line, context, NO_VALUE, True, start))
                self.values.append((match.start(), self._found(value, reader, match.start(), name)))
                self._below = ValueBeforeTable.of(value, reader, self.text[match.start() : reader.end])
                self._used |= reader.aliases
                if alias := _ALIAS.fullmatch(prefix):
                    self._defined[alias[1]] = match.start()
                return reader.end
            self._restore()
        self._skip(start, end, furthest)
        return end

    def _within(self, start: int, end: int, error: ParseError | None) -> ParseError | None:
        """Return an error between two positions, where a value seemed to continue beyond them."""
        text = self.plain[start:end]
        if error is None and not re.search(r"\so\s+[_(\d]", text, re.IGNORECASE):
            return None
        if error is not None and error.position <= end:
            return error
        first = start + len(text) - len(text.lstrip())
        found = None if error is None else next(iter(_CANDIDATE.finditer(self.plain, start, end)), None)
        try:
            Reader(self.text[:end], first if found is None else found.start(), GivenNumbers(None)).read()
        except ParseError as confined:
            return ParseError(self.text, confined.position, confined.condition)
        return error

    def _read(self, start: int) -> tuple[Any, Reader]:
        self._before = 0 if self.given is None else self.given.taken
        reader = Reader(self.text, start, self.given or GivenNumbers(None))
        return reader.value(), reader

    def _restore(self) -> None:
        if self.given is not None:
            self.given.taken = self._before

    def _check_end(self, reader: Reader) -> None:
        """Refuse a value followed by an unknown continuation."""
        following = self.plain[reader.end : reader.end + 1]
        rest = self._rest(reader.end)
        if (
            following.isalnum()
            or following in ("(", "@", "_", "[", "?")
            or re.match(r"\s*(?::\s*[(_\d]|o\b)", rest, re.I)
        ):
            raise reader.unexpected("the end of the value")

    def _fills(self, prefix: str, end: int) -> bool:
        """Return whether a number or tuple is alone on its line, so that it is no part of a sentence.

        Several tuples, each with a name, may share a line.
        """
        rest = self._rest(end)
        if rest.strip() and not (_NAMED.search(prefix) and self.plain[end - 1] == ")" and _NAMED_TUPLE.match(rest)):
            return False
        return bool(_NAMED.search(prefix)) or (not prefix.strip() and not self._has_strong)

    def _found(self, value: Any, reader: Reader, start: int, name: str) -> PastedValue:  # noqa: ANN401 - any value
        text = self.text[start : reader.end]
        notes = [told for engine in reader.engines if (told := engine.told())]
        bits = next((engine.bits for engine in reader.engines if engine.bits), None)
        if reader.unknowns and self.given is None:
            if all(unknown.role == "start" for unknown in reader.unknowns):
                zeros = [0] * len(reader.unknowns)
                value = Reader(self.text, start, GivenNumbers(zeros)).value()
                shown = ", ".join(unknown.text for unknown in reader.unknowns)
                notes.append(f"it starts at {shown}, known only at run time: taken as 0 here")
            else:
                value = RuntimeValue(text, tuple(reader.unknowns), type(value).__name__)
        if unseen := zero_width(text):
            notes.append(f"{unseen}, which shows nothing, is read as a space")
        return PastedValue(value, text, self._line(start), name, bits, tuple(dict.fromkeys(notes)))

    def _skip(self, start: int, end: int, error: ParseError | None) -> None:
        text = self.plain[start:end]
        line = self._line(start)
        if closed := _CLOSED_COMMENT.match(text):
            self.skipped.append(SkippedLines(line, line, closed.group(), COMMENT, True, start))
            self._skip(start + closed.end(), end, error)
            return
        whole_line = start == 0 or self.plain[start - 1] == "\n"
        position = start + len(text) - len(text.lstrip())
        if _PUNCTUATION.fullmatch(text) and (
            self._parts(text, position) if whole_line else self._ends_value(start, text)
        ):
            return
        if error is not None and error.condition.startswith("expected " + _POINTER_ALONE):
            self.skipped.append(SkippedLines(line, line, text, POINTER, self._is_part(start, end), position))
        elif (unread := _UNREAD.search(text)) and not _COMMENT.match(text):
            self._read_error(start + unread.start())
        elif not whole_line and _GOES_ON.match(text) and self._follows_value(start, text):
            self.errors.append(ParseError(self.text, position, "this is no part of the value, and can't be read"))
        elif _NOTATION.search(text) and not _COMMENT.match(text) and (error := self._within(start, end, error)):
            self.errors.append(error)
        else:
            why = COMMENT if _COMMENT.match(text) else NO_VALUE
            self.skipped.append(SkippedLines(line, line, text, why, self._is_part(start, end), position))

    def _read_error(self, position: int) -> None:
        """Keep the error of reading a value at a position."""
        try:
            Reader(self.text, position, GivenNumbers(None)).value()
        except ParseError as error:
            self.errors.append(error)

    def _parts(self, text: str, position: int) -> bool:
        """Return whether a line of punctuation separates lines, or opens or closes the brackets around several.

        Brackets that are never closed are reported at the end of the text.
        """
        signs = "".join(text.split())
        if not signs or re.fullmatch(r"([-=*#_/|.`'\"])\1{2,}", signs):
            return True
        if re.fullmatch(r"[(\[{]+", signs):
            self._opened += [(position, sign) for sign in signs]
            return True
        if re.fullmatch(r"[)\]}]+[,;]?", signs) and self._opened:
            opened = "".join(sign for _, sign in self._opened)
            closing = signs.rstrip(",;").translate(str.maketrans(")]}", "([{"))[::-1]
            if opened.endswith(closing):
                del self._opened[len(opened) - len(closing) :]
                return True
        return False

    def _ends_value(self, start: int, text: str) -> bool:
        """Return whether punctuation behind a value only ends it, or closes quotes and braces opened before it."""
        before = self.plain[self.plain.rfind("\n", 0, start) + 1 : start]
        opened = {quote for quote in "\"'`" if before.count(quote) % 2}
        if "/*" in before:
            text = text.replace("*/", "", 1)
        if before.rstrip().endswith("="):
            opened.add("(")  # of the elements, which follow in lines of their own
        rest = text.lstrip()
        rest = rest[1:] if rest[:1] in opened else rest
        return _ENDING.fullmatch(rest) is not None

    def _follows_value(self, position: int, text: str) -> bool:
        """Return whether a value ends at a position, and no bracket opened before it is closed there."""
        for start, found in self.values:
            if start + len(found.text) == position:
                return _is_balanced(self.plain[:start]) or text.lstrip()[0] not in ")]>}"
        return False

    def _is_part(self, start: int, end: int) -> bool:
        """Return whether the line has more than punctuation outside two positions."""
        before = self.plain[self.plain.rfind("\n", 0, start) + 1 : start]
        return not (_PUNCTUATION.fullmatch(before) and _PUNCTUATION.fullmatch(self._rest(end)))

    def _rest(self, position: int) -> str:
        """Return the rest of the line."""
        end = self.plain.find("\n", position)
        return self.plain[position:] if end < 0 else self.plain[position:end]

    def _line(self, position: int) -> int:
        return bisect.bisect_left(self._ends, position) + 1


def _is_meant(match: re.Match[str], text: str, error: ParseError) -> bool:
    """Return whether unreadable text is certainly a term, or a shape and a stride: then no part of it is read."""
    if match["shape"]:
        return "stride=' after the shape" not in error.condition
    name = re.split(r"::|\.", match["term"] or "")[-1]
    return bool(name) and text[match.end()] in "(<" and name not in _COMMON_NAMES


def may_name(prefix: str) -> bool:
    """Return whether the text before a value on its line is written as printers write a name.

    That is with a colon, an equals sign or an arrow after it; or, where nothing parts it from the value, with a mark
    that words of a sentence don't have: a digit, an underscore, or a capital letter after another. Beside such a name
    the kind of the value may stand, and the level of a log.

    >>> may_name("tCrA "), may_name("layout of A: "), may_name("sA: layout "), may_name("not "), may_name("sA not ")
    (True, True, True, False, False)
    """
    bare = re.sub(r"(?:\s|[\"'`]|\{\})+$", "", prefix)
    if not bare or bare.endswith((":", "=", "->", "--")):
        return True
    words = _BEFORE_NAME.sub("", bare, count=1)
    if not words:
        return re.search(r"\w", bare) is not None or bare.strip() in ("//", "#", "*", "/*")
    parts = re.split(r"[:=]\s*|->\s*", words)
    behind = parts[-1].split()
    named = any(map(_MARKED.match, " ".join(parts).split()))
    return named and all(_MARKED.match(word) or word in _KINDS_OF_VALUES for word in behind)


def _parted_label(prefix: str) -> tuple[str, str]:
    """Split the text before a value on its line: (other text, label)."""
    if _is_label(prefix):
        return "", _name(prefix)
    label = _LAST_LABEL.search(prefix)
    if label is None or not _is_label(label.group()):
        return prefix.strip(), ""
    return prefix[: label.start()].strip(), _name(label.group())


def _is_label(prefix: str) -> bool:
    if _LABEL.fullmatch(re.sub(r"\s+", " ", prefix)) is None or prefix.strip() in ("=", ":", ":=", "->"):
        return False
    tokens, inner = Tokens(prefix, len(prefix) - len(_BULLETS.sub("", prefix))), 0
    while (token := tokens.advance()).kind != "end":
        inner += (token.kind in ("(", "[")) - (token.kind in (")", "]"))
        if not inner and (token.kind in _NOT_IN_LABELS or names_atom(token.text)):
            return False
    return True


def _may_precede(prefix: str, candidate: str) -> bool:
    """Return whether a value may begin after this text: a name or other words, but no open bracket."""
    if _ENCLOSED.match(candidate):
        return True
    bare = prefix.rstrip()
    if not bare.strip():
        return True
    if re.search(r"(?:^|[\s)>\]\d])o$", bare, re.IGNORECASE) or not _is_balanced(bare):
        return False
    if bare[-1] in ":=":
        return _NAMED.search(prefix) is not None
    return prefix[-1].isspace() or bare[-1] in "-|,;}\"'`*/#"


def _is_balanced(text: str) -> bool:
    open_brackets: list[str] = []
    for character in re.sub(r"(?<=\s)<(?=[\s=-])|[-=]>|(?<=\s)>", "", text):
        if character in "([<":
            open_brackets.append(character)
        elif character in ")]>" and (not open_brackets or open_brackets.pop() + character not in ("()", "[]", "<>")):
            return False
    return not open_brackets


def _is_strong(value: Any, text: str) -> bool:  # noqa: ANN401 - any value
    """Return whether a value is unmistakable: numbers and tuples are not, as tables and sentences hold them too."""
    if isinstance(value, LayoutBase):
        return any(bracket in text for bracket in "(<[")  # 12:30 may be a time
    if isinstance(value, tuple):
        return re.search(r"[\w)]:[_(\d]", text) is not None
    return value is not None and not isinstance(value, int | ScaledBasis)


def _name(prefix: str) -> str:
    name = _BULLETS.sub("", prefix)
    name = re.sub(r"(?:\s|[:=,{}|\"'`*-])+$", "", name).strip()
    return re.sub(r"\s+", " ", name)
