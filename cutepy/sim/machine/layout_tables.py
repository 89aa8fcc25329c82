"""Layouts as arrays: the values of the layouts of `cutepy.layouts`, for all indices at once."""

from __future__ import annotations

import numpy as np

from cutepy.layouts import Layout, flatten
from cutepy.sim.machine.lanes import Array


def values(layout: Layout) -> Array:
    """Return the values of a layout, by colexicographic index.

    Examples
    --------
    >>> values(Layout((2, (2, 2)), (4, (1, 2))))
    array([0, 4, 1, 5, 2, 6, 3, 7])
    """
    shape, stride = flatten(layout.shape), flatten(layout.stride)
    shapes = shape if isinstance(shape, tuple) else (shape,)
    strides = stride if isinstance(stride, tuple) else (stride,)
    result: Array = np.zeros(1, np.int64)
    for extent, step in zip(shapes, strides, strict=True):
        result = (np.arange(extent)[:, None] * step + result).reshape(-1)
    return result


def by_value_and_thread(layout: Layout) -> Array:
    """Return a thread-value layout as an array, (value, thread)."""
    threads, held = values(layout[0]), values(layout[1])
    return held[:, None] + threads[None, :]
