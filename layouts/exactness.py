"""Exactness: the first coordinate at which a result of the algebra differs from its defining function.

``composition(A, B)`` is computed mode by mode, as in CuTe, and so is all that is made of it. The result is the function
``c -> A(B(c))`` if adding the steps of B never carries in the mixed radix of A's shape. docs/layout_algebra.md states
the two conditions: 1, each step lies within one mode of A; 2, the digits of all steps add up to less than each extent.
The names of the proof:

- A is coalesced: extents ``s_0 .. s_r`` and strides ``d_0 .. d_r``, whose last mode has no end. The *boundaries* are
  ``S_i = s_0 * .. * s_(i-1)`` for ``0 < i <= r``, and for x >= 0
  ``A(x) = d_0 x + sum_i (d_i - s_(i-1) d_(i-1)) floor(x / S_i)``. For x < 0, ``A(x) = -A(-x)``.
- The modes of the result are *terms*: for each ``0 <= e < extent``, a term adds ``e * step`` to the index that A is
  given, and ``e * stride`` to the result.

The result is A(B(c)) at every coordinate if each term is right by itself, ``A(step) == stride``, and no boundary S is
reached by remainders: ``sum (extent - 1) (step mod S) < S``.

Proof. By condition 1 a term takes steps in one mode i only, and ``A(q S_i) = q d_i``. By condition 2 the digits of all
terms add up to less than ``s_i``, so the digits of the sum are the sums of the digits. Condition 2 is necessary where
1 holds and the steps have one sign: let it fail in mode i, and take coordinates of least sum whose digits reach
``s_i``. A 1 is carried, and ``A(B(c))`` is the result ``+ d_(i+1) - s_i d_i``, which differs, since A is coalesced.
Where condition 1 fails in mode i, take the first step that leaves the mode, ``n q = s_i + x`` with ``0 < x < s_i``: A
gives ``x d_i + d_(i+1)``, and the result gives ``d_(i+1)``. Only strides of 0 make up for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from .basis import ScaledBasis, basis_get, has_basis
from .composed import ComposedLayout, Swizzle
from .coordinates import idx2crd
from .errors import InexactError, LayoutError
from .int_tuple import IntTuple, flatten_to_tuple, product
from .layout import Layout, complement_layout, compose_layouts, with_rest
from .modes import IndexFunction
from .shape_stride import coalesce_by_profile, coalesce_unbounded, coprofile
from .writer import to_text

MAX_SCANNED = 1 << 16
"""Largest number of coordinates that are compared one by one where the condition above decides nothing."""

AnyLayout = Any
Tiler = Any


# ---------------------------------------------------------------------------------------------------------------------
# Checks of operations
# ---------------------------------------------------------------------------------------------------------------------


def check_composition(name: str, a: AnyLayout, tiler: Tiler, result: AnyLayout) -> None:
    """Raise the InexactError of operation `name` unless `result` is the function ``c -> a(tiler(c))``."""
    index = first_difference(a, tiler, result)
    if index is None:
        return
    crd = idx2crd(index, result.shape)
    element = image(a, tiler, index, result)
    expected, got = a(element), result(index)
    raise InexactError(
        name,
        (a, tiler),
        f"at coordinate {to_text(crd)} the right operand is {to_text(element)}, of which the left operand is "
        f"{to_text(expected)}, but the result is {to_text(got)}",
        f"leave out exact=True for CuTe's result {to_text(result)}",
        coordinate=crd,
        element=element,
        expected=expected,
        got=got,
    )


def check_division(name: str, layout: AnyLayout, tiler: Tiler, result: AnyLayout) -> None:
    """Raise the InexactError of operation `name` unless `result`, a logical divide, has each element of `layout` once.

    `result` must be the composition that defines it, point at no element beyond `layout`, and repeat or leave out none.
    """
    parts = tile_and_rest(layout, tiler)
    check_composition(name, layout, parts, result)
    hint = f"leave out exact=True for CuTe's result {to_text(result)}"
    terms = Terms(layout, parts, result)
    index = terms.first_beyond()
    if index is not None:
        crd, element = idx2crd(index, result.shape), image(layout, parts, index, result)
        condition = (
            f"cells beyond the layout: coordinate {to_text(crd)} of the logical divide points at {to_text(element)}, "
            f"but the layout has shape {to_text(layout.shape)}"
        )
        raise InexactError(name, (layout, tiler), condition, hint, coordinate=crd, element=element)
    repeated = any(t.extent > 1 and t.step == 0 and t.group is not None for t in terms.terms)
    for mode, divided in _divided_modes(layout, parts, result):
        if repeated or mode.size() != divided.size():
            what = "are repeated" if repeated or divided.size() > mode.size() else "are left out"
            condition = f"elements of {mode} {what}: it has {mode.size()}, its tiles and rests {divided.size()}"
            raise InexactError(name, (layout, tiler), condition, hint)


def _divided_modes(layout: AnyLayout, parts: Tiler, result: AnyLayout) -> Iterator[tuple[AnyLayout, AnyLayout]]:
    """Yield each divided mode with its quotient."""
    if isinstance(parts, tuple):
        for mode, part, divided in zip(layout, parts, result, strict=True):
            yield from _divided_modes(mode, part, divided)
    elif parts is not None:
        yield layout, result


def check_product(name: str, block: AnyLayout, tiler: Tiler, result: AnyLayout) -> None:
    """Raise the InexactError of operation `name` unless the copies in `result` are where `tiler` places them.

    `result` is a logical product; copy c begins at ``free(tiler(c))``, where `free` is the block's complement.
    """
    if isinstance(block, ComposedLayout):
        return check_product(name, block.layoutA, tiler, _inner(result))
    if isinstance(tiler, ComposedLayout):
        return check_product(name, block, tiler.layoutA, _inner(result))
    if isinstance(tiler, tuple):
        for mode, t, r in zip(block, tiler, result, strict=False):
            check_product(name, mode, t, r)
        return None
    if tiler is None:
        return None
    arrangement = Layout(tiler) if isinstance(tiler, int) else tiler
    free = complement_layout(block, block.size() * arrangement.cosize())
    copies = result[1]
    index = first_difference(free, arrangement, copies)
    if index is None:
        return None
    crd, element = idx2crd(index, copies.shape), arrangement(index)
    raise InexactError(
        name,
        (block, tiler),
        f"copy {to_text(crd)} is number {to_text(element)} of those that the block leaves room for, at "
        f"{to_text(free(element))}, but the result has it at {to_text(copies(index))}",
        f"leave out exact=True for CuTe's result {to_text(result)}",
        coordinate=crd,
        element=element,
        expected=free(element),
        got=copies(index),
    )


def tile_and_rest(layout: AnyLayout, tiler: Tiler) -> Tiler:
    """Return the operands of a divide's composition: (tile, rest) for each tile; None for kept modes."""
    while isinstance(layout, ComposedLayout):
        layout = layout.layoutA
    if tiler is None:
        return None
    if isinstance(tiler, tuple):
        kept = (None,) * (layout.rank() - len(tiler))
        return (*(tile_and_rest(mode, t) for mode, t in zip(layout, tiler, strict=False)), *kept)
    return with_rest(Layout(tiler) if isinstance(tiler, int) else tiler, layout)


def _inner(result: AnyLayout) -> AnyLayout:
    """Return the inner layout of a composed layout; any other layout unchanged: an identity swizzle vanishes."""
    return result.layoutA if isinstance(result, ComposedLayout) else result


# ---------------------------------------------------------------------------------------------------------------------
# Functions
# ---------------------------------------------------------------------------------------------------------------------


def image(a: AnyLayout, tiler: Tiler, index: int, result: AnyLayout) -> IntTuple:
    """Return the coordinate of `a` that `tiler` points at, for a colexicographic coordinate of their composition."""
    if tiler is None:
        return index
    if isinstance(tiler, int):
        return index
    if isinstance(tiler, tuple):
        found = []
        for mode, t, r in zip(a, tiler, result, strict=False):
            found.append(image(mode, t, index % r.size(), r))
            index //= r.size()
        return (*found, *(0,) * (a.rank() - len(found)))
    return _fitted(tiler(index), a.shape)


def _fitted(crd: IntTuple, shape: IntTuple) -> IntTuple:
    """Return a coordinate made by scaled bases as one of `shape`: zeros for the modes that no basis names."""
    if not isinstance(crd, tuple):
        return crd
    if not isinstance(shape, tuple):
        return _fitted(crd[0], shape)
    return (*map(_fitted, crd, shape), *(0,) * (len(shape) - len(crd)))


def _equal(x: IntTuple, y: IntTuple) -> bool:
    """Compare two indices or coordinates; the shorter coordinate is padded with zeros."""
    if isinstance(x, tuple) and isinstance(y, tuple):
        rank = max(len(x), len(y))
        return all(map(_equal, x + (0,) * (rank - len(x)), y + (0,) * (rank - len(y))))
    if isinstance(x, tuple) or isinstance(y, tuple):
        return not any(flatten_to_tuple((x, y)))
    return bool(x == y)


def first_difference(a: AnyLayout, tiler: Tiler, result: AnyLayout) -> int | None:
    """Return the first colexicographic coordinate c at which ``result(c) != a(tiler(c))``; None if there is none.

    Raises
    ------
    InexactError
        If neither the condition above nor MAX_SCANNED coordinates decide it.
    """
    if isinstance(a, Swizzle) or tiler is None:
        return None  # a swizzle stays; two swizzles of one shift are one exclusive or

    def differs(index: int) -> bool:
        return not _equal(a(image(a, tiler, index, result)), result(index))

    if isinstance(a, ComposedLayout):
        index = first_difference(a.layoutA, tiler, _inner(result))
        if index is None or differs(index):
            return index
    elif _is_plain(tiler) and isinstance(result, Layout):
        return Terms(a, tiler, result).first_difference()
    elif _carries_swizzle(a, tiler, result):
        return None
    size = result.size()
    for index in range(min(size, MAX_SCANNED)):
        try:
            if differs(index):
                return index
        except TypeError as error:  # an outer swizzle maps a coordinate
            condition = f"the right operand has no value at coordinate {index}: {error}"
            raise InexactError("composition", (a, tiler), condition) from error
    if size > MAX_SCANNED:
        raise _undecided(a, tiler, size)
    return None


def _is_plain(tiler: Tiler) -> bool:
    if isinstance(tiler, tuple):
        return all(map(_is_plain, tiler))
    return isinstance(tiler, Layout) or not isinstance(tiler, IndexFunction)


def _carries_swizzle(a: Layout, tiler: Tiler, result: AnyLayout) -> bool:
    """Return whether ``a(swizzle(x))`` is the result's swizzle of ``a(x)`` for each given x; False if undecided.

    It is, if `a` adds up over the swizzle's fields of bits, keeps the two masks' fields as runs of bits, and no other
    field reaches into these runs.
    """
    if isinstance(tiler, tuple):
        return False
    swizzle, domain = (tiler, None) if isinstance(tiler, Swizzle) else (tiler.layoutB, tiler.layoutA)
    if not isinstance(swizzle, Swizzle) or not isinstance(domain, Layout | None):
        return False
    if domain is not None:
        backwards = has_basis(domain.stride) or any(d < 0 for d in flatten_to_tuple(domain.stride))
        if backwards or first_difference(a, domain, _inner(result)) is not None:
            return False
    if swizzle.bits == 0:
        return True
    mask, extent = 1 << swizzle.bits, a.size() if domain is None else domain.cosize()
    extents = (1 << swizzle.base, mask, 1 << abs(swizzle.shift) - swizzle.bits, mask)
    fields = Layout((*extents, -(-extent // prod(extents))))
    try:
        modes = compose_layouts(a, fields)
        if first_difference(a, fields, modes) is not None:
            return False
    except LayoutError:
        return False
    moved = sorted(mode.stride if isinstance(mode.stride, int) else 0 for mode in (modes[1], modes[3]))
    if any(start < 1 or start & (start - 1) for start in moved):
        return False
    others = [
        pair for i in (0, 2, 4) for pair in zip(*map(flatten_to_tuple, (modes[i].shape, modes[i].stride)), strict=True)
    ]
    below, above = moved
    reach = {limit: 0 for limit in (below, above)}
    for extent, step in others:
        if extent == 1 or step % (above * mask) == 0:
            continue
        limit = above if step % (below * mask) == 0 else below
        if step < 0:
            return False
        reach[limit] += (extent - 1) * step
    return reach[below] < below and reach[above] + below * mask <= above


def _undecided(a: AnyLayout, tiler: Tiler, size: int) -> InexactError:
    return InexactError(
        "composition",
        (a, tiler),
        f"not shown to be exact: the first {MAX_SCANNED} of {size} coordinates are right, and steps carry or borrow",
        "leave out exact=True for CuTe's result",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Terms and boundaries
# ---------------------------------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """Part of the left operand that one mode of its argument reaches: a function of one integer."""

    boundaries: tuple[int, ...]
    size: int


class _Term(NamedTuple):
    """A mode of the result: `place` is the colexicographic index of its coordinate 1."""

    extent: int
    step: int
    group: int | None
    place: int


class _Bound(NamedTuple):
    """Limit that a sum over the terms must stay below; `parts` has the summand of each term."""

    limit: int
    parts: tuple[int, ...]


class Terms:
    """Modes of a composition's result, each with its step in the left operand.

    Parameters
    ----------
    a : Layout
        Left operand; of a composed layout, the layout under its outer functions.
    tiler : Layout, int, None or tuple
        Right operand.
    result : Layout
        Their composition. A mode that a None kept has no group: it is unchanged.
    """

    def __init__(self, a: AnyLayout, tiler: Tiler, result: AnyLayout) -> None:
        while isinstance(a, ComposedLayout):
            a, result = a.layoutA, _inner(result)
        self.a, self.tiler, self.result = a, tiler, result
        self.groups: list[_Group] = []
        self.terms: list[_Term] = []
        self._size = 1
        self._add(a, tiler, result)

    def _add(self, a: Layout, tiler: Tiler, result: Layout) -> None:
        if isinstance(tiler, tuple):
            for mode, t, r in zip(a, tiler, result, strict=False):
                self._add(mode, t, r)
        elif tiler is None:
            for extent in flatten_to_tuple(result.shape):
                self._append(extent, 0, None)
        else:
            right = Layout(tiler, 1) if isinstance(tiler, int) else tiler
            profile = coprofile(right.stride)
            if profile == 0:
                shapes, _ = coalesce_unbounded(a.shape, a.stride)
            else:
                shapes, _ = coalesce_by_profile(a.shape, a.stride, profile)
            self._add_modes(right.shape, right.stride, result.shape, (a.shape, shapes), {})

    def _add_modes(
        self,
        shape: IntTuple,
        stride: IntTuple,
        result: IntTuple,
        left: tuple[IntTuple, IntTuple],
        known: dict[Any, int],
    ) -> None:
        """Add the terms of each integer mode of ``shape:stride``; `known` has the group of each basis that occurs."""
        if isinstance(shape, tuple):
            for s, d, r in zip(shape, stride, result, strict=True):
                self._add_modes(s, d, r, left, known)
            return
        path = stride.modes if isinstance(stride, ScaledBasis) else ()
        if path not in known:
            whole, shapes = (basis_get(stride, part) for part in left)
            boundaries, reached = [], 1
            for extent in flatten_to_tuple(shapes)[:-1]:
                reached *= extent
                boundaries.append(reached)
            known[path] = len(self.groups)
            self.groups.append(_Group(tuple(boundaries), product(whole)))
        step = stride.value if isinstance(stride, ScaledBasis) else stride
        for extent in flatten_to_tuple(result):
            self._append(extent, step, known[path])
            step *= extent

    def _append(self, extent: int, step: int, group: int | None) -> None:
        self.terms.append(_Term(extent, step, group, self._size))
        self._size *= extent

    def first_beyond(self) -> int | None:
        """Return the first coordinate that the left operand maps from outside its domain."""
        if self._size == 0:
            return None
        bounds = [
            _Bound(group.size, tuple(max(t.step, 0) if t.group == number else 0 for t in self.terms))
            for number, group in enumerate(self.groups)
        ]
        found = [t.place for t in self.terms if t.extent > 1 and t.step < 0]
        reaching = self._first_reaching(bounds)
        return min([*found, *([] if reaching is None else [reaching])], default=None)

    def first_difference(self) -> int | None:
        """Return the first coordinate at which the result is not the composition of the functions."""
        if self._size == 0:
            return None
        wrong = next(
            (t.place for t in self.terms if t.extent > 1 and t.group is not None and self._differs(t.place)), None
        )
        stop = self._size if wrong is None else wrong
        bounds, unsure = self._bounds()
        carry = self._first_reaching(bounds)
        start = 0
        if not unsure:
            if carry is None or carry >= stop:
                return wrong
            if self._differs(carry):
                return carry
            start = carry
        reached = [
            b for b in bounds if sum((t.extent - 1) * p for t, p in zip(self.terms, b.parts, strict=True)) >= b.limit
        ]
        moving = [
            t
            for i, t in enumerate(self.terms)
            if t.extent > 1 and t.place < stop and (t.group in unsure or any(b.parts[i] for b in reached))
        ]
        return self._scan(moving, start, wrong)

    def _bounds(self) -> tuple[list[_Bound], set[int | None]]:
        """Return the bounds on remainders, and the groups that mix signs and so may borrow."""
        bounds: list[_Bound] = []
        unsure: set[int | None] = set()
        for number, group in enumerate(self.groups):
            steps = [t.step if t.group == number and t.extent > 1 else 0 for t in self.terms]
            of_group = [
                [_Bound(limit, tuple(max(sign * step, 0) % limit for step in steps)) for sign in (1, -1)]
                for limit in group.boundaries
            ]
            if min(steps) < 0 < max(steps) and any(self._borrows(steps, *pair) for pair in of_group):
                unsure.add(number)
            else:
                bounds += [bound for pair in of_group for bound in pair]
        return bounds, unsure

    def _borrows(self, steps: Sequence[int], forward: _Bound, backward: _Bound) -> bool:
        """Return whether a sum of steps of both signs may lie across a multiple of the limit."""
        limit = forward.limit
        over, under = (any(sign * step >= limit for step in steps) for sign in (1, -1))
        return (over and any(backward.parts)) or (under and any(forward.parts))

    def _first_reaching(self, bounds: Sequence[_Bound]) -> int | None:
        """Return the first colexicographic coordinate at which one of the sums reaches its limit."""
        sums = [0] * len(bounds)  # maximum of the sum over the terms up to `last`
        for last, term in enumerate(self.terms):
            sums = [total + (term.extent - 1) * bound.parts[last] for total, bound in zip(sums, bounds, strict=True)]
            if any(total >= bound.limit for total, bound in zip(sums, bounds, strict=True)):
                break
        else:
            return None
        index, missing = 0, [bound.limit for bound in bounds]
        for i in range(last, -1, -1):
            term = self.terms[i]
            parts = [bound.parts[i] for bound in bounds]
            sums = [total - (term.extent - 1) * part for total, part in zip(sums, parts, strict=True)]
            least = min(
                0 if gap <= 0 else -(-gap // part)
                for gap, part in ((m - total, part) for m, total, part in zip(missing, sums, parts, strict=True))
                if gap <= 0 or part > 0
            )
            missing = [m - least * part for m, part in zip(missing, parts, strict=True)]
            index += least * term.place
        return index

    def _scan(self, moving: Sequence[_Term], start: int, otherwise: int | None) -> int | None:
        """Compare coordinates from `start` on, those that move along some terms only; else return `otherwise`."""
        first, place = 0, 1
        for term in moving:
            first += start // term.place % term.extent * place
            place *= term.extent
        for number in range(first, min(place, first + MAX_SCANNED)):
            index, rest = 0, number
            for term in moving:
                index += rest % term.extent * term.place
                rest //= term.extent
            if self._differs(index):
                return index
        if otherwise is None and place - first > MAX_SCANNED:
            raise _undecided(self.a, self.tiler, self._size)
        return otherwise

    def _differs(self, index: int) -> bool:
        expected = self.a(image(self.a, self.tiler, index, self.result))
        return not _equal(expected, self.result(index))
