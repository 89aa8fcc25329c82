"""Writer behind ``to_text`` and ``str``: each value writes itself, and tuples are written around them."""

from __future__ import annotations


class NotationValue:
    """Value of the notation other than an integer, tuple or None: its ``str`` is its text."""

    __slots__ = ()


class ReadOnly:
    """Value whose attributes are read-only."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name}: make a new one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot delete {name}")


class FrozenValue(ReadOnly, NotationValue):
    """Read-only value of the notation."""

    __slots__ = ()


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
    >>> from cutepy.layouts import ComposedLayout, Layout, Swizzle
    >>> to_text((8, (2, 4)))
    '(8,(2,4))'
    >>> to_text((4,))
    '(4)'
    >>> to_text((8, None, Layout((2, 2), (1, 4))))
    '<8,_,(2,2):(1,4)>'
    >>> to_text(ComposedLayout(Swizzle(3, 4, 3), 0, Layout((8, 8))))
    'Sw<3,4,3> o 0 o (8,8):(1,8)'
    """
    if value.__class__ is int or isinstance(value, NotationValue):
        return str(value)
    if isinstance(value, tuple):
        body = ",".join([str(x) if x.__class__ is int else to_text(x) for x in value])
        # Only layouts hold ':', only swizzles and tuples already written with '<' hold '<', only '_' and smem_ptr '_'.
        return f"<{body}>" if ":" in body or "_" in body or "<" in body else f"({body})"
    if value is None:
        return "_"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    raise TypeError(
        f"to_text writes int, None, tuple, Layout, ScaledBasis, Swizzle, SmemPtr and ComposedLayout, "
        f"got {type(value).__name__}: {value!r}"
    )
