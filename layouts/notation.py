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

``parse`` also reads what other tools print for the same values:

- C++ CuTe's static integers (``_64``), tilers in round brackets, null pointers (``(nil)``), and text copied from a
  web page (``Sw&lt;3,4,3&gt;``);
- the CuTe DSL's ``S<3,4,3>``, its ``S<3,0,-3`` (it prints 8 characters of a swizzle and no more), and the tiles of
  its IR (``[2:1;_]``);
- pycute's ``SW_3_4_3``, ``(2, 3):(1, 2)``, ``(4,)`` and ``None``;
- tensors, ``ENGINE o LAYOUT`` in C++ and ``tensor<ENGINE o LAYOUT>`` in the DSL. What a tensor says about the *layout*
  is kept: a swizzled pointer to shared memory gives the composed layout whose swizzle acts on byte addresses, any
  other pointer and a coordinate of zeros only say where the data start and are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .basis import ScaledBasis
from .composed import ComposedLayout, SmemPtr
from .errors import ParseError
from .layout import Layout
from .reader import Reader, Value
from .swizzle import Swizzle

__all__ = ["parse", "to_text"]


def to_text(value: object) -> str:
    """Write a value of the notation.

    value -> the text that :func:`parse` reads back as an equal value, and that C++ CuTe prints but for its ``_`` before
    static integers.

    Parameters
    ----------
    value : int, None, tuple, Layout, ScaledBasis, Swizzle, SmemPtr or ComposedLayout
        Tuples may hold any of these, at any depth.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If ``value`` is none of these.

    Examples
    --------
    >>> to_text((8, (2, 4)))
    '(8,(2,4))'
    >>> to_text((4,))
    '(4)'
    >>> to_text((8, None, Layout((2, 2), (1, 4))))
    '<8,_,(2,2):(1,4)>'
    >>> to_text(ComposedLayout(Swizzle(3, 4, 3), 0, Layout((8, 8))))
    'Sw<3,4,3> o 0 o (8,8):(1,8)'
    """
    kind = type(value)
    if kind is int:
        return str(value)
    writer = _WRITERS.get(kind)
    if writer is None:
        for known, writer in _WRITERS.items():
            if isinstance(value, known) and kind is not bool:
                return writer(value)
        raise TypeError(
            f"to_text writes int, None, tuple, Layout, ScaledBasis, Swizzle, SmemPtr and ComposedLayout, "
            f"got {kind.__name__}: {value!r}"
        )
    return writer(value)


def _write_tuple(value: tuple[Any, ...]) -> str:
    body = ",".join([str(x) if type(x) is int else to_text(x) for x in value])
    # Only layouts hold ':', only swizzles and tuples already written with '<' hold '<', only '_' and smem_ptr hold '_'.
    return f"<{body}>" if ":" in body or "_" in body or "<" in body else f"({body})"


def _write_composed(value: ComposedLayout) -> str:
    left = to_text(value.layoutB)
    if isinstance(value.layoutB, ComposedLayout):
        left = f"({left})"
    return f"{left} o {to_text(value.offset)} o {to_text(value.layoutA)}"


_WRITERS: dict[type, Callable[[Any], str]] = {
    int: lambda value: str(int(value)),
    tuple: _write_tuple,
    type(None): lambda value: "_",
    Layout: lambda value: f"{to_text(value.shape)}:{to_text(value.stride)}",
    ScaledBasis: str,
    Swizzle: str,
    SmemPtr: str,
    ComposedLayout: _write_composed,
}


def parse(text: str) -> Value:
    """Read a value of the notation.

    text -> the value it writes; ``parse(to_text(x)) == x`` for every ``x``. Spaces and line breaks between symbols
    don't matter. The module's docstring lists the forms of other tools that are read as well.

    Parameters
    ----------
    text : str

    Returns
    -------
    int, None, tuple, Layout, ScaledBasis, Swizzle, SmemPtr or ComposedLayout

    Raises
    ------
    ParseError
        If ``text`` is not in the notation, with a caret under the offending character; also for a value known only at
        run time (``?``), and for operands that fit no layout (``(2,3):1``).

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
    >>> parse("(2,3]:(1,2)")
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.ParseError: expected ',' or ')', got ']' at character 4:
      (2,3]:(1,2)
          ^
    """
    if not isinstance(text, str):
        raise TypeError(f"parse reads a str, got {type(text).__name__}: {text!r}")
    try:
        return Reader(text).read()
    except RecursionError:
        raise ParseError(text, 0, "nested too deeply for Python's recursion limit") from None
