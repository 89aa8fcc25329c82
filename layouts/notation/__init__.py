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
- a printed MMA_Atom, TiledMMA, Copy_Atom or TiledCopy, of either: see `PrintedMMA` and `PrintedCopy`.

A name before the value (``sA: ``) and the table after it may stand; `parse_all` reads texts of several values.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ParseError
from .reader import Reader, Value, stands_open
from .unknowns import Given, Runtime


def parse(text: str, *, given: Sequence[int] = ()) -> Value:
    """Read a value of the notation.

    text -> the value it writes; ``parse(to_text(x)) == x`` for every ``x`` of extents >= 0 (CuTe's complements and left
    inverses of negative strides may have others). Spaces and line breaks between symbols don't matter. The module's
    docstring lists the forms of other tools that are read as well.

    Parameters
    ----------
    text : str
        It holds one value; a name before it, and a table of its elements after it, are left out.
    given : sequence of int, optional
        Values for what is known only at run time: one for each ``?``, from left to right.

    Returns
    -------
    int, None, tuple, Layout, ScaledBasis, Swizzle, SmemPtr, ComposedLayout, PrintedMMA or PrintedCopy

    Raises
    ------
    ParseError
        If ``text`` is not in the notation, with a caret under the offending character; also for a ``?`` that is not
        given, or whose value contradicts what is known of it (``?{div=8}``), for operands that fit no layout
        (``(2,3):1``, ``(-4,8):(1,2)``), and for a second value.

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
    >>> parse("(2,3]:(1,2)")
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.ParseError: expected ',' or ')', got ']' at character 4:
      (2,3]:(1,2)
          ^
    """
    if not isinstance(text, str):
        raise TypeError(f"parse reads a str, got {type(text).__name__}: {text!r}")
    numbers = Given(given)
    try:
        value = Reader(text, given=numbers).read()
    except RecursionError:
        raise ParseError(text, 0, "nested too deeply for Python's recursion limit") from None
    except ParseError as error:
        return _pasted(text, given, error)
    if numbers.taken < len(given):
        raise ParseError(text, 0, f"{len(given)} values are given for {numbers.taken} ? in the text; give one for each")
    return value


def _pasted(text: str, given: Sequence[int], error: ParseError) -> Value:
    """Read the one value among other text; where there is not one, or it can't be read, `error` says why."""
    if stands_open(error):
        raise error
    from .paste import parse_all  # which few texts need, and takes longer to load

    try:
        paste = parse_all(text, given=given)
    except ParseError:
        raise error from None
    if paste.errors:
        raise error if not paste.values and text[: error.position].strip() else paste.errors[0]
    if len(paste.values) > 1:
        second = paste.values[1]
        position = text.index(second.text, text.index(paste.values[0].text) + len(paste.values[0].text))
        raise ParseError(text, position, "one value was expected, another begins here; parse_all reads several")
    value = paste.values[0].value
    if isinstance(value, Runtime):
        Given().take(text, value.unknowns[0])
    return value
