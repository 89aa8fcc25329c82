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

from collections.abc import Sequence

from .errors import ParseError
from .reader import Reader, Value
from .unknowns import Given


def parse(text: str, *, given: Sequence[int] = ()) -> Value:
    """TODO"""
    if not isinstance(text, str):
        raise TypeError(f"parse reads a str, got {type(text).__name__}: {text!r}")
    try:
        return Reader(text, given=Given(given)).read()
    except RecursionError:
        raise ParseError(text, 0, "nested too deeply for Python's recursion limit") from None
