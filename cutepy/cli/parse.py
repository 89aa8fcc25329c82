"""`cutepy parse`: the values in a pasted text, in words and as pictures."""

from collections.abc import Sequence

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    LinearLayout,
    ParseError,
    cosize,
    depth,
    rank,
    size,
    to_layout,
    to_text,
)
from cutepy.layouts.grids.of_layouts import layout_grid
from cutepy.layouts.grids.text import render_text, wrapped
from cutepy.layouts.notation.atoms import names_atom
from cutepy.layouts.notation.findings import PastedValue
from cutepy.layouts.notation.meaning import as_meant
from cutepy.layouts.notation.paste import parse_all
from cutepy.layouts.notation.printed import PrintedCopy, PrintedMMA
from cutepy.layouts.notation.unknowns import RuntimeValue
from cutepy.layouts.render.drawing import picture_of
from cutepy.layouts.render.output import HEIGHT
from cutepy.layouts.writer import NotationValue


def describe(
    text: str,
    width: int = 80,
    *,
    bits: int | None = None,
    given: Sequence[int] = (),
    shape: Sequence[int] | None = None,
) -> tuple[str, tuple[ParseError, ...]]:
    """Describe the values in a text.

    Parameters
    ----------
    text : str
        Anything that `cutepy.layouts.parse_all` reads.
    width : int
        Columns of characters to which lines and pictures are fitted.
    bits : int, optional
        Width of an element. Default: the width in the text's pointer.
    given : sequence of int, optional
        Values for numbers that the text leaves open.
    shape : sequence of int, optional
        Extents of the tensors whose encodings the text holds.

    Returns
    -------
    (description, errors)
        The description has the canonical text and the kind of each value. A layout also has its extents and a table of
        its offsets. An MMA or a copy has a table of the threads that hold each element. Large tables are folded. The
        skipped parts of the text come last. The errors name the parts that look like a value and can't be read.

    Raises
    ------
    ParseError
        If there is no value in it.
    LayoutError
        If `bits` contradicts a pointer in the text, or a printed MMA or copy doesn't fit together.

    Examples
    --------
    >>> print(describe("(_2,_3):(_3,_1)")[0])
    (2,3):(3,1)
    Layout: rank 2, depth 1, size 6, cosize 6
        0 1 2
      +-------+
    0 | 0 1 2 |
    1 | 3 4 5 |
      +-------+
    mode 0 down, mode 1 across; offsets in elements
    >>> print(describe("Sw&lt;3,4,3&gt;")[0])
    Sw<3,4,3>
    Swizzle
    >>> print(describe("(?{div=8},4):(4,1)")[0])
    (?{div=8},4):(4,1)
    Layout, of which the text leaves open:
      1. ?{div=8}, extent of mode 0: 32 bits, a multiple of 8
    It can be computed with and drawn once each ? has a value, from left to right:
    --set 8
    """
    paste = parse_all(text, given=given, shape=shape)
    if not paste.values:
        raise paste.errors[0]
    parts = []
    for found in paste.values:
        lines = _described(found, width, bits)
        if len(paste.values) > 1 or found.name:
            lines[:0] = wrapped(f"line {found.line}{', ' if found.name else ''}{found.name}:", width)
        parts.append("\n".join(lines))
    if paste.skipped:
        parts.append("\n".join(line for skipped in paste.skipped for line in wrapped(str(skipped), width)))
    return "\n\n".join(parts), paste.errors


def told(error: ParseError, width: int) -> str:
    """Format an error for the command, with a long line cut to the part at the caret.

    >>> from cutepy.layouts import parse
    >>> try:
    ...     parse("(2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,x):(1,2)")
    ... except ParseError as error:
    ...     print(told(error, 30))
    expected an integer, '_', '(',
    '<' or a swizzle, got 'x' at
    character 33:
      ...,2,2,2,2,2,2,2,2,x):(1,2)
                          ^
    """
    at, line = error.column, error.line
    room = max(width - 2, 10)  # with fewer, the dots would hide the character at the caret
    if len(line) > room:
        first = max(0, min(at - room * 2 // 3, len(line) - room))
        shown = line[first : first + room]
        if first:
            shown = "..." + shown[3:]
        if first + room < len(line):
            shown = shown[:-3] + "..."
        line, at = shown, at - first
    return "\n".join(
        (*wrapped(f"{_as_options(error.condition)} at {error.place}:", width), f"  {line}", f"  {' ' * at}^")
    )


def _as_options(message: str) -> str:
    """Replace the names of arguments in a message by the command's options."""
    message = message.replace("parse(text, given=...)", "--set")
    return message.replace("parse(text, shape=...) takes one, as shape=(64, 64)", "--shape 64,64 tells one")


def _described(found: PastedValue, width: int, bits: int | None) -> list[str]:
    value = found.value
    if isinstance(value, PrintedMMA | PrintedCopy):
        return [*str(value).split("\n"), "", render_text(picture_of(value), width=width, height=HEIGHT)]
    if names_atom(found.text):
        return [value.name, type(value).__name__, "", render_text(picture_of(value), width=width, height=HEIGHT)]
    if isinstance(value, RuntimeValue):
        return _left_open(value, width)
    if isinstance(value, LinearLayout):
        return _linear(value, width)
    if not isinstance(value, int | tuple | NotationValue | None):
        return _other(value, width)
    value, remarks = as_meant(value, found.text, bits)
    lines = [*wrapped(to_text(value), width), type(value).__name__]
    if isinstance(value, Layout | ComposedLayout):
        lines[-1] += f": rank {rank(value)}, depth {depth(value)}, size {size(value)}"
        if isinstance(value, Layout):
            lines[-1] += f", cosize {cosize(value)}"
        lines += [part for note in (*found.notes, *remarks) for part in wrapped(note, width)]
        picture = layout_grid(value, title="", bits=bits or found.bits).but(colours="")
        lines.append(render_text(picture, width=width, height=HEIGHT))
    return lines


def _linear(value: LinearLayout, width: int) -> list[str]:
    """Describe a linear layout: its bases, the layout of CuTe's that is the same function, and its matrix."""
    lines = [line.rstrip() for line in str(value).split("\n")]
    words = f"LinearLayout: {', '.join(f'{name} {size}' for name, size in value.in_dims.items())} -> "
    lines += wrapped(words + ", ".join(f"{name} {size}" for name, size in value.out_dims.items()), width)
    offsets = "offset" in value.in_dims and value.is_invertible
    try:
        layout = to_layout(value.invert() if offsets else value)
    except (LayoutError, ValueError):
        pass  # a linear function that is no layout of CuTe's is described by its bases alone
    else:
        told = "element -> offset" if offsets else "inputs -> index"
        lines += wrapped(f"in CuTe's notation, {told}: {to_text(layout)}", width)
    return [*lines, "", render_text(picture_of(value), width=width, height=HEIGHT)]


def _other(value: object, width: int) -> list[str]:
    """Describe another value of cutepy's by its repr, and draw it if there is a picture."""
    lines = [*wrapped(repr(value), width), type(value).__name__]
    try:
        return [*lines, "", render_text(picture_of(value), width=width, height=HEIGHT)]
    except TypeError:  # it has no picture
        return lines


def _left_open(value: RuntimeValue, width: int) -> list[str]:
    """Describe the unknown numbers of a value, with known divisors, and the option to set them."""
    lines = [*wrapped(str(value), width), f"{value.kind}, of which the text leaves open:"]
    for number, unknown in enumerate(value.unknowns, 1):
        lines += wrapped(f"  {number}. {unknown.text}, {unknown}", width)
    lines += wrapped("It can be computed with and drawn once each ? has a value, from left to right:", width)
    example = ",".join(str(unknown.divisor * (8 if unknown.divisor == 1 else 1)) for unknown in value.unknowns)
    return [*lines, f"--set {example}"]
