"""Linear algebra over F2, the field of two elements: vectors are ints, one bit a coordinate; exclusive or adds them.

A matrix is the list of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Echelon:
    """Independent set of vectors in echelon form, each with the added vectors that sum to it.

    >>> span = Echelon([0b011, 0b110])
    >>> span.add(0b101), span.dimension
    (0, 2)
    >>> bin(span.solve(0b101))
    '0b11'
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        # Highest bit -> vector, and the mask of the added vectors that sum to it. Only independent ones are in masks.
        self._rows: dict[int, tuple[int, int]] = {}
        self._added = 0
        self.kernel: list[int] = []
        """Masks of added vectors that sum to zero: one for each that was dependent on those before it."""
        for vector in vectors:
            self.add(vector)

    @property
    def dimension(self) -> int:
        """Dimension of the span."""
        return len(self._rows)

    def reduce(self, vector: int) -> tuple[int, int]:
        """Reduce a vector modulo the span: the remainder, and the mask of the vectors added; (0, mask) in the span."""
        mask, rest = 0, 0
        while vector:
            top = vector.bit_length() - 1
            row = self._rows.get(top)
            if row is None:
                rest |= 1 << top
                vector ^= 1 << top
            else:
                vector ^= row[0]
                mask ^= row[1]
        return rest, mask

    def add(self, vector: int) -> int:
        """Add a vector to the span; return its remainder, 0 if it was in the span."""
        rest, mask = self.reduce(vector)
        mask ^= 1 << self._added
        self._added += 1
        if rest:
            self._rows[rest.bit_length() - 1] = rest, mask
        else:
            self.kernel.append(mask)
        return rest

    def __contains__(self, vector: int) -> bool:
        return not self.reduce(vector)[0]

    def solve(self, target: int) -> int | None:
        """Return the mask of independent vectors, the earliest ones, that sum to `target`; None if there is none."""
        rest, mask = self.reduce(target)
        return None if rest else mask


def rank(columns: Iterable[int]) -> int:
    """Return the dimension of the columns' span.

    >>> rank([1, 2, 3])
    2
    """
    return Echelon(columns).dimension


def kernel(columns: Iterable[int]) -> list[int]:
    """Return a basis of the inputs that a matrix maps to zero.

    >>> kernel([1, 2, 3, 0])
    [7, 8]
    """
    return Echelon(columns).kernel


def times(columns: Sequence[int], vector: int) -> int:
    """Multiply a matrix with a vector.

    >>> times([4, 2, 1], 0b101)
    5
    """
    result = 0
    for i in bits_of(vector):
        result ^= columns[i]
    return result


def bits_of(vector: int) -> Iterator[int]:
    """Yield the positions of a vector's ones, ascending."""
    while vector:
        low = vector & -vector
        yield low.bit_length() - 1
        vector ^= low


def independent(vectors: Iterable[int]) -> list[int]:
    """Return the vectors that are independent of those before them: a basis of the span.

    >>> independent([3, 3, 0, 1, 2])
    [3, 1]
    """
    span = Echelon()
    return [vector for vector in vectors if span.add(vector)]


def complement(vectors: Iterable[int], dimension: int, prefer: Iterable[int] = ()) -> list[int]:
    """Extend `vectors` to a basis of the whole space, by `prefer` first, then unit vectors; return the added ones.

    >>> complement([0b011], 3)
    [1, 4]
    """
    span = Echelon(vectors)
    return [vector for vector in (*prefer, *(1 << i for i in range(dimension))) if span.add(vector)]


def intersection(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return a basis of the vectors in both spans; members of `a` first, where they are.

    >>> intersection([1, 2], [3, 4])
    [3]
    >>> intersection([1, 2, 4], [4, 1])
    [1, 4]
    """
    a, b = independent(a), independent(b)
    in_b = Echelon(b)
    # A dependency between the two bases is a vector of both: its part in `a`.
    both = (times(a, mask & ((1 << len(a)) - 1)) for mask in kernel([*a, *b]))
    return independent([*(vector for vector in a if vector in in_b), *both])


def span_of(vectors: Iterable[int]) -> list[int]:
    """Return every vector of a span, in the order of the masks of its basis.

    >>> span_of([1, 4])
    [0, 1, 4, 5]
    """
    result = [0]
    for vector in independent(vectors):
        result += [x ^ vector for x in result]
    return result
