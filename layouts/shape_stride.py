"""Layout algebra on congruent shapes and strides, without Layout objects.

Functions take and return shapes and strides, so that only final results become layouts. A violated condition is a
MismatchError, to which callers that hold the layouts add the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import itemgetter
from typing import Any

from .basis import ScaledBasis, add_coordinates, as_coordinate, basis_get, has_basis
from .errors import MismatchError
from .int_tuple import IntTuple, ceil_div, flatten_modes, flatten_to_tuple, product, repeat_like, truncated_div, wrap

Pair = tuple[IntTuple, IntTuple]


def coalesce(shape: IntTuple, stride: IntTuple) -> Pair:
    """Merge modes: the same function on integers within the domain."""
    if shape.__class__ is not tuple:
        return (1, 0) if shape == 1 else (shape, stride)
    return merge(*flatten_modes(shape, stride))


def merge(shapes: Sequence[Any], strides: Sequence[Any]) -> Pair:
    """Drop modes of size 1 and merge neighbours that continue one another."""
    new_shapes: list[Any] = []
    new_strides: list[Any] = []
    follow: Any = None  # stride with which a mode would continue the last one
    for s, d in zip(shapes, strides):  # noqa: B905 - hot; lengths are equal
        if s == 1:
            continue
        if d == follow:
            new_shapes[-1] *= s
        else:
            new_shapes.append(s)
            new_strides.append(d)
        follow = s * d
    if len(new_shapes) > 1:
        return tuple(new_shapes), tuple(new_strides)
    return (new_shapes[0], new_strides[0]) if new_shapes else (1, 0)


def coalesce_unbounded(shape: IntTuple, stride: IntTuple) -> Pair:
    """Coalesce keeping the function also beyond the domain, where the last mode goes on."""
    if shape.__class__ is not tuple:
        return (shape, stride) if shape != 1 else (2, stride)
    shapes, strides = flatten_modes(shape, stride)
    if shapes and shapes[-1] == 1:
        shapes = (*shapes[:-1], 2)  # any extent but 1, so that the last stride survives
    return merge(shapes, strides)


def coalesce_by_profile(shape: IntTuple, stride: IntTuple, profile: IntTuple) -> Pair:
    """Coalesce unboundedly at each leaf of `profile`, as composition with scaled bases requires."""
    if not isinstance(profile, tuple):
        return coalesce_unbounded(shape, stride)
    shapes, strides = wrap(shape), wrap(stride)
    if len(profile) > len(shapes):
        raise MismatchError(f"too many modes: rank must be <= {len(shapes)}, got {len(profile)}")
    done = list(map(coalesce_by_profile, shapes, strides, profile))  # one mode for each of the profile's
    kept = len(done)
    return (*(s for s, _ in done), *shapes[kept:]), (*(d for _, d in done), *strides[kept:])


def coprofile(stride: IntTuple) -> IntTuple:
    """Return the profile of the codomain, as zeros: 0 for integer strides, a tuple for scaled bases."""
    if not has_basis(stride):
        return 0
    total = reduce(add_coordinates, map(abs, flatten_to_tuple(stride)))
    return repeat_like(as_coordinate(total), 0)


def filter(shape: IntTuple, stride: IntTuple) -> Pair:
    """Remove modes of stride 0 and size 1 and coalesce."""
    if shape.__class__ is not tuple:
        return (1, 0) if shape == 1 or stride == 0 else (shape, stride)
    shapes, strides = flatten_modes(shape, stride)
    if 0 in strides:
        shapes = tuple([s if d != 0 else 1 for s, d in zip(shapes, strides)])  # noqa: B905 - hot
    return merge(shapes, strides)


def compose(shapes: IntTuple, strides: IntTuple, shape: IntTuple, stride: IntTuple) -> Pair:
    """Compose coalesced modes ``shapes:strides`` with each leaf of ``shape:stride``."""
    if shape.__class__ is not tuple:
        return _compose_leaf(shapes, strides, shape, stride)
    if not shape:
        raise MismatchError("the right operand must have a mode", shape, stride)
    new_shapes, new_strides = [], []
    for s, d in zip(shape, stride):  # noqa: B905 - hot; a layout is congruent
        compose_mode = compose if s.__class__ is tuple else _compose_leaf
        new_shape, new_stride = compose_mode(shapes, strides, s, d)
        new_shapes.append(new_shape)
        new_strides.append(new_stride)
    return tuple(new_shapes), tuple(new_strides)


def _compose_leaf(shapes: IntTuple, strides: IntTuple, shape: int, stride: Any) -> Pair:  # noqa: ANN401
    """Walk the modes of the left operand with one integer mode: divide its stride out, then its shape."""
    if stride.__class__ is ScaledBasis:
        shapes, strides = basis_get(stride, shapes), basis_get(stride, strides)
        stride = stride.value
    if stride == 0:
        return shape, 0
    if shapes.__class__ is not tuple:
        return shape, stride * strides
    new_shapes: list[int] = []
    new_strides: list[Any] = []
    rest, step = shape, stride
    for mode in range(len(shapes) - 1):
        extent = shapes[mode]
        if step >= extent:
            if extent == 0 or step % extent:
                raise MismatchError(
                    f"stride divisibility: the step of {step} that the right operand takes at mode {mode} of the left "
                    f"operand must divide by, or be smaller than, its shape {extent}",
                    shape,
                    stride,
                )
            if extent > 0:
                step //= extent
                continue
        magnitude = step if step > 0 else -step
        if extent > 0:
            reach = -(-extent // magnitude)  # number of steps that fit into this mode
            left = -(-magnitude // extent)
        else:  # complements of negative strides have such extents; CuTe divides them like any other
            reach, left = ceil_div(extent, magnitude), ceil_div(magnitude, extent)
        if reach != 1 and rest != 1:
            taken = reach if reach < rest else rest
            if taken == 0 or rest % taken:
                raise MismatchError(
                    f"shape divisibility: the {rest} elements left of the right operand must be a multiple of the "
                    f"{reach} that mode {mode} of the left operand (shape {extent}) takes at step {step}",
                    shape,
                    stride,
                )
            new_shapes.append(taken)
            new_strides.append(step * strides[mode])
            rest //= taken
        step = left if step > 0 else -left
    if not new_shapes:
        return rest, step * strides[-1]
    if rest != 1:
        new_shapes.append(rest)
        new_strides.append(step * strides[-1])
    if len(new_shapes) == 1:
        return new_shapes[0], new_strides[0]
    return tuple(new_shapes), tuple(new_strides)


def complement(shape: IntTuple, stride: IntTuple, cotarget: IntTuple) -> Pair:
    """Return the indices below `cotarget` that a filtered shape and stride leave free."""
    if stride == 0:
        return coalesce(product(cotarget), 1)
    if stride.__class__ is int:
        pairs = [(stride, shape)]
    else:
        # of equal strides the first comes first, as in CuTe
        pairs = sorted(zip(stride, shape), key=_first)  # noqa: B905 - hot; lengths are equal
    new_shapes: list[int] = []
    new_strides: list[int] = []
    reached = 1
    for d, s in pairs:
        gap = d // reached if d > 0 < reached else truncated_div(d, reached)
        if gap == 0:
            raise MismatchError(
                f"layout must be injective: stride {d} falls below {reached}, which smaller strides already reach"
            )
        new_shapes.append(gap)
        new_strides.append(reached)
        reached = d * s
    left = (
        -(-cotarget // reached) if cotarget.__class__ is int and reached > 0 else product(ceil_div(cotarget, reached))
    )
    new_shapes.append(left)
    new_strides.append(reached)
    return merge(new_shapes, new_strides)


_first = itemgetter(0)


def right_inverse(shape: IntTuple, stride: IntTuple) -> Pair:
    """Return R of most elements with ``f(R(i)) == i``."""
    shapes, strides, prefix, order = _by_stride(shape, stride)
    new_shapes: list[int] = []
    new_strides: list[int] = []
    reached = 1
    for mode in order:
        if strides[mode] == reached:
            new_shapes.append(shapes[mode])
            new_strides.append(prefix[mode])
            reached = shapes[mode] * strides[mode]
    return merge(new_shapes, new_strides)


def left_inverse(shape: IntTuple, stride: IntTuple) -> Pair:
    """Return L with ``f(L(f(i))) == f(i)`` within the domain."""
    shapes, strides, prefix, order = _by_stride(shape, stride)
    new_shapes: list[int] = []
    new_strides: list[int] = [0]
    filled = 1
    for mode in order:
        step = strides[mode]
        if step == 0:
            continue
        if step % filled:
            raise MismatchError(f"stride divisibility: stride {step} must be a multiple of {filled}")
        gap = truncated_div(step, filled)
        new_shapes.append(gap)
        new_strides.append(prefix[mode])
        filled *= gap
    return merge((*new_shapes, shapes[order[-1]]), new_strides)


def _by_stride(shape: IntTuple, stride: IntTuple) -> tuple[tuple[Any, ...], tuple[Any, ...], list[int], Sequence[int]]:
    """Return coalesced shapes and strides, their prefix products, and the order of the modes by stride."""
    shape, stride = coalesce(shape, stride)
    if has_basis(stride):
        raise MismatchError("strides must be integers, not scaled bases")
    if shape.__class__ is int:
        return (shape,), (stride,), [1], (0,)
    prefix, total = [], 1
    for s in shape:
        prefix.append(total)
        total *= s
    order = list(range(len(stride)))
    if len(set(stride)) == len(order):
        order.sort(key=stride.__getitem__)
        return shape, stride, prefix, order
    for i in range(len(order)):  # CuTe's exchange sort, which does not keep the order of equal strides
        for j in range(i + 1, len(order)):
            if stride[order[j]] < stride[order[i]]:
                order[i], order[j] = order[j], order[i]
    return shape, stride, prefix, order
