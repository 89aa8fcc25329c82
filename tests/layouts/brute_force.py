"""Layouts as tables, computed from their definition alone: the oracle of the property tests.

Nothing here calls the algebra: a table comes from nested loops over extents and strides.
"""

from collections import Counter
from itertools import product as cartesian

from cutepy.layouts import ComposedLayout, Layout, ScaledBasis, SmemPtr, Swizzle


def leaves(t):
    """The integers of a nested tuple, left to right."""
    return [leaf for mode in t for leaf in leaves(mode)] if isinstance(t, tuple) else [t]


def modes(layout):
    """The (extent, stride) of each integer mode, left to right."""
    return list(zip(leaves(layout.shape), leaves(layout.stride), strict=True))


def size(t):
    """The product of the integers of a nested tuple."""
    result = 1
    for leaf in leaves(t):
        result *= leaf
    return result


def congruent(a, b):
    """Return True if two nested tuples have one nesting."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def coordinates(shape):
    """All coordinates of the full nesting of a shape, in colexicographic order: the first mode is the fastest."""
    if not isinstance(shape, tuple):
        return list(range(shape))
    return [tuple(reversed(c)) for c in cartesian(*(coordinates(mode) for mode in reversed(shape)))]


def at(shape, stride, crd):
    """The inner product of a coordinate of the full nesting with the strides."""
    if isinstance(shape, tuple):
        return sum(at(s, d, c) for s, d, c in zip(shape, stride, crd, strict=True))
    return crd * stride


def mode_table(pairs):
    """The table of integer modes [(extent, stride), ...], the first the fastest."""
    result = [0]
    for extent, stride in pairs:
        result = [x + i * stride for i in range(extent) for x in result]
    return result


def table(layout):
    """The value at each integer coordinate 0, 1, ... size - 1."""
    if isinstance(layout, Swizzle):
        return [swizzle(layout, i) for i in range(layout.size())]
    if isinstance(layout, ComposedLayout):
        return [extended(layout.layoutB, layout.offset + i) for i in table(layout.layoutA)]
    return mode_table(modes(layout))


def extended(layout, i):
    """The value at any integer: beyond the domain the last integer mode goes on; below 0 divisions round towards 0."""
    if isinstance(layout, Swizzle):
        return swizzle(layout, i)
    if isinstance(layout, ComposedLayout):
        return extended(layout.layoutB, layout.offset + extended(layout.layoutA, i))
    if i < 0:
        return -extended(layout, -i)
    pairs = modes(layout)
    result = 0
    for extent, stride in pairs[:-1]:
        result += i % extent * stride
        i //= extent
    return result + i * pairs[-1][1]


def swizzle(sw, i):
    """Exclusive-or each bit of the ZZZ field with its partner in the YYY field, one by one."""
    low, gap = sw.base, abs(sw.shift)
    for bit in range(sw.bits):
        z, y = (low + bit, low + gap + bit) if sw.shift >= 0 else (low + gap + bit, low + bit)
        if i >> y & 1:
            i = i - (1 << z) if i >> z & 1 else i + (1 << z)
    return i


def basis_table(layout):
    """The table of a layout with scaled bases: for each coordinate, {path of a mode: what is added there}."""
    pairs = modes(layout)
    result = []
    for crd in cartesian(*(range(extent) for extent, _ in reversed(pairs))):
        value = Counter()
        for c, (_, stride) in zip(reversed(crd), pairs, strict=True):
            assert isinstance(stride, ScaledBasis)
            value[stride.modes] += c * stride.value
        result.append({path: x for path, x in value.items() if x})
    return result


def coordinate_entries(crd, path=()):
    """The same for a coordinate: {path: integer} of its non-zero integers."""
    if isinstance(crd, tuple):
        return {p: x for i, mode in enumerate(crd) for p, x in coordinate_entries(mode, (*path, i)).items()}
    return {path: crd} if crd else {}


def greedy_complement(indices, count):
    """The first `count` integers r >= 0, ascending, whose copies ``r + indices`` never overlap: what tiles the rest."""
    taken, found, r = set(), [], 0
    while len(found) < count:
        if all(r + i not in taken for i in indices):
            taken.update(r + i for i in indices)
            found.append(r)
        r += 1
    return found


def is_plain_swizzled(layout):
    """Return True for a swizzle of element indices over a plain layout."""
    return (
        isinstance(layout, ComposedLayout)
        and isinstance(layout.layoutB, Swizzle)
        and not isinstance(layout.offset, SmemPtr)
        and isinstance(layout.layoutA, Layout)
    )


def small_layouts(max_rank=2, max_extent=4, max_stride=4, strides=None):
    """Every flat layout of rank 1 to `max_rank` with extents 1 to `max_extent` and the strides given."""
    steps = range(max_stride + 1) if strides is None else strides
    for rank in range(1, max_rank + 1):
        for shape in cartesian(range(1, max_extent + 1), repeat=rank):
            for stride in cartesian(steps, repeat=rank):
                yield Layout(shape, stride)
