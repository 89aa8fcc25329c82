"""The one notation for layouts: ``parse`` reads it, ``to_text`` writes it.

=================  ======================================  ===============================
value              text                                    Python
=================  ======================================  ===============================
IntTuple           ``4``, ``(8,(2,4))``, ``(4)``, ``()``   ``4``, ``(8, (2, 4))``, ``(4,)``, ``()``
keep this mode     ``_``                                   ``None``
scaled basis       ``1@0``, ``3@0@1``                      ``ScaledBasis(3, (1, 0))``
layout             ``(2,(4,2)):(1,(2,8))``                 ``Layout``
tiler, slice       ``<8,_,(2,2):(1,4)>``                   a tuple that holds a layout or ``None``
swizzle            ``Sw<3,4,3>``                           ``Swizzle``
smem pointer       ``smem_ptr[16b](unset)``                ``SmemPtr``
composed layout    ``Sw<3,4,3> o 0 o (8,8):(1,8)``         ``ComposedLayout``
=================  ======================================  ===============================

``A o OFFSET o B`` maps a coordinate ``c`` to ``A(OFFSET + B(c))`` and groups to the right, so a composed ``A`` is
written in parentheses: ``(A o 0 o B) o 0 o C``.

``parse`` also reads, in upper or lower case, what other tools print for the same values:

- C++ CuTe's static integers (``_64``), tilers in round brackets, null pointers (``(nil)``), and text copied from a
  web page (``Sw&lt;3,4,3&gt;``, full-width brackets, a ring for ``o``) or a terminal (colours);
- the CuTe DSL's ``S<3,4,3>``, its ``S<3,0,-3`` (it prints 8 characters of a swizzle and no more), the tiles of its IR
  (``[2:1;_]``) and its types (``!cute.layout<"(8,4):(1,8)">``);
- pycute's ``SW_3_4_3``, ``(2, 3):(1, 2)``, ``(4,)`` and ``None``;
- tensors: ``ENGINE o LAYOUT`` in C++; ``tensor<ENGINE o LAYOUT>``, ``raw_ptr(0x400: f16, smem, align<128>) o LAYOUT``
  and ``tensor(ENGINE o LAYOUT, data=...`` in the DSL. What a tensor says about the *layout* is kept: a swizzled pointer
  to shared memory gives the composed layout whose swizzle acts on byte addresses, an iterator or coordinate that starts
  elsewhere than at 0 (``counting_iter(5)``, ``ArithTuple(8,16)``) the composed layout that starts there; any other
  pointer only says where the data are and is dropped;
- a printed MMA_Atom, TiledMMA, Copy_Atom or TiledCopy, of either: see `PrintedMMA` and `PrintedCopy`;
- the name of an atom, ``SM90_64x64x16_F16F16F16_SS`` or ``SM100_TMEM_LOAD_32dp32b8x``, which gives its traits: see
  `atom_named`;
- types and calls: ``cute::Layout<cute::tuple<cute::C<8>, ...>, ...>``, ``cute.make_layout((8, 4), stride=(4, 1))``, and
  the ``repr`` of cutepy's values; a shape and a stride of one tensor by name, ``x.shape=(4,8) x.stride=(8,1)``;
- Triton's and Gluon's layouts: a printed ``LinearLayout``, ``#ttg.linear<...>``, and encodings, ``#ttg.blocked<...>``
  or ``BlockedLayout(...)``, with the shape of a tensor, or in its type: ``tensor<64x64xf16, #blocked>``.

Each token is part of the value, or refused at its place. A name before the value (``sA: ``), a comment, and the whole
table of its elements below it may stand; `parse_all` reads values among other text, and tells what it skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LayoutError, ParseError
from .atoms import atom_in, names_atom
from .meaning import as_meant
from .reader import Reader, Value, stands_open
from .shapes import checked_shape, is_encoding, unused, with_shape
from .tokens import plain
from .unknowns import GivenNumbers, RuntimeValue


def parse(
    text: str, *, bits: int | None = None, given: Sequence[int] = (), shape: Sequence[int] | None = None
) -> Value:
    """Read a value of the notation.

    text -> the value it writes; ``parse(to_text(x)) == x`` for every ``x`` of extents >= 0 (CuTe's complements and left
    inverses of negative strides may have others). Spaces and line breaks between symbols don't matter. The module's
    docstring lists the forms of other tools that are read as well.

    Parameters
    ----------
    text : str
        It holds one value; a name before it, and a table of its elements after it, are left out.
    bits : int, optional
        Width of an element. With it the swizzle that the DSL prints, ``S<3,4,3> o 0 o``, is read as it means it, on
        byte addresses; C++ CuTe's ``Sw<>`` acts on elements.
    given : sequence of int, optional
        Values for numbers known only at run time: one for each ``?``, from left to right.
    shape : sequence of int, optional
        Extents of the tensor whose encoding the text holds, ``#ttg.blocked<...>`` or ``BlockedLayout(...)``: an
        encoding describes tensors of any shape. The layout is the linear one of that tensor.

    Returns
    -------
    int, None, tuple, Layout, ScaledBasis, Swizzle, SmemPtr, ComposedLayout, LinearLayout, PrintedMMA or PrintedCopy
        Or the traits of the atom that the text names, or the value whose ``repr`` it is.

    Raises
    ------
    ParseError
        If ``text`` is not in the notation, with a caret under the offending character, or other text stands beside the
        value; for an encoding without a shape, and a shape without an encoding; also for a ``?`` that is not
        given, or whose value contradicts what is known of it (``?{div=8}``), for operands that fit no layout
        (``(2,3):1``, ``(-4,8):(1,2)``), for a second value, and for the name of no atom.
    LayoutError
        If `bits` is no width of an element on which the swizzle could act.

    Examples
    --------
    >>> parse("(2,(4,2)):(1,(2,8))")
    Layout((2, (4, 2)),(1, (2, 8)))
    >>> parse("<8,_>")
    (8, None)
    >>> parse("(_64,_8)")
    (64, 8)
    >>> print(parse("tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o (64,8):(1,64)>"))
    Sw<3,4,3> o smem_ptr[16b](unset) o (64,8):(1,64)
    >>> print(parse("gA: tensor<ptr<f16, gmem> o (?,?{div=8}):(?{i64},1)>", given=(4, 8, 8)))
    (4,8):(8,1)
    >>> print(parse("S<3,4,3> o 0 o (8,64):(64,1)", bits=16))
    Sw<3,3,3> o 0 o (8,64):(64,1)
    >>> parse("(2,3]:(1,2)")
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.ParseError: expected ',' or ')', got ']' at character 4:
      (2,3]:(1,2)
          ^
    """
    if not isinstance(text, str):
        raise TypeError(f"parse reads a str, got {type(text).__name__}: {text!r}")
    if bits is not None and (isinstance(bits, bool) or not isinstance(bits, int) or bits < 1):
        raise LayoutError("parse", (text,), f"bits must be a positive int, got {bits!r}")
    shape = checked_shape(shape)
    if names_atom(text):
        if shape is not None:
            raise unused(text, shape)
        return atom_in(text)
    numbers = GivenNumbers(given)
    try:
        value = Reader(text, given=numbers).read()
    except RecursionError:
        raise ParseError(text, 0, "nested too deeply for Python's recursion limit") from None
    except ParseError as error:
        value = _pasted(text, given, shape, error)
        return value if bits is None else as_meant(value, text, bits)[0]
    if is_encoding(value):
        value = with_shape(value, text, len(text) - len(text.lstrip()), shape)
    elif shape is not None:
        raise unused(text, shape)
    if numbers.taken < len(given):
        raise ParseError(text, 0, f"{len(given)} values are given for {numbers.taken} ? in the text; give one for each")
    return value if bits is None else as_meant(value, text, bits)[0]


def _pasted(text: str, given: Sequence[int], shape: Sequence[int] | None, error: ParseError) -> Value:
    """Read the single value beside its name, comments and table; on failure the error is `error`'s."""
    if stands_open(error):
        raise error
    from .findings import COMMENT, VALUES
    from .paste import may_name, parse_all  # few texts need these modules, and they take longer to load

    try:
        paste = parse_all(text, given=given, shape=shape)
    except ParseError as other:
        raise (other if shape is not None else error) from None
    if paste.errors:
        raise error if not paste.values and text[: error.position].strip() else paste.errors[0]
    if len(paste.values) > 1:
        second = paste.values[1]
        position = text.index(second.text, text.index(paste.values[0].text) + len(paste.values[0].text))
        raise ParseError(text, position, "one value was expected, another begins here; parse_all reads several")
    found = paste.values[0]
    value = found.value
    for skipped in paste.skipped:
        if skipped.text.strip() and skipped.why not in (COMMENT, VALUES):
            nor = ", nor the table of its elements" if skipped.first > found.line else ""
            told = f"this is no part of the value{nor}; parse_all reads values in other text"
            raise ParseError(text, skipped.position, told)
    start = text.index(found.text)
    line = text.rfind("\n", 0, start) + 1
    prefix = plain(text[line:start])
    if not may_name(prefix):
        told = "words before a value are its name only with ':' or '=' after them; parse_all reads values in other text"
        raise ParseError(text, line + len(prefix) - len(prefix.lstrip()), told)
    if isinstance(value, RuntimeValue):
        GivenNumbers().take(text, value.unknowns[0])
    return value
