"""TMA copies of channel-interleaved tensors: pixels of 16 or 32 bytes, one slice of channels a copy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cutepy.layouts.sm90 import TensorMap
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import (
    LOADS,
    START,
    adopted,
    aligned,
    dump,
    fill,
    load_body,
    set_coordinates,
    store_body,
    swizzled,
)

CASES = [
    # Shape with the pixel's elements last, type, coordinates, box, element strides, swizzle.
    ((2, 3, 20, 8), "u2", (3, 1, 0), (8, 8, 2), (1, 1, 1), "INTER"),
    ((2, 3, 20, 8), "u2", (-2, 2, 1), (8, 64, 2), (1, 1, 1), "SW64"),
    ((2, 3, 20, 8), "u2", (15, 3, 0), (8, 1, 1), (1, 1, 1), "INTER"),
    ((2, 4, 5, 12, 4), "f4", (1, 2, 3, 0), (8, 3, 4, 2), (1, 1, 1, 1), "SW128"),
    ((2, 4, 5, 12, 4), "f4", (9, -1, -1, 1), (8, 3, 4, 2), (1, 1, 1, 1), "INTER"),
    ((2, 4, 5, 12, 32), "u1", (4, 1, 3, 0), (32, 2, 9, 1), (1, 1, 1, 1), "SW32"),
    ((2, 3, 2, 3, 20, 16), "f2", (3, 1, 0, 2, 0), (8, 2, 2, 16, 2), (1, 1, 1, 1, 1), "SW32"),
    ((2, 3, 2, 5, 20, 8), "f2", (3, -1, 1, 1, 1), (8, 3, 2, 16, 2), (2, 2, 1, 1, 1), "INTER"),
    ((3, 3, 20, 8), "u2", (0, 0, 0), (16, 8, 3), (3, 1, 2), "INTER"),
]


def interleaved_map(array, box, steps, swizzle, **options):
    """Encode the map of an array of pixels; `box` counts from the pixels' axis on."""
    dtype = {"u1": "u8", "u2": "u16", "f2": "f16", "f4": "f32"}[array.dtype.str[1:]]
    pixel = array.itemsize * array.shape[-1]
    tensor = TensorMap(
        dtype,
        array.shape[-2::-1],
        array.strides[-3::-1],
        box,
        global_address=array.ctypes.data,
        element_strides=steps,
        swizzle=swizzle,
        interleave={16: "16B", 32: "32B"}[pixel],
        **options,
    )
    return tensor, np.array([*tensor.encode(), *[0] * 8], np.uint64).tobytes()


def image(shape, kind, seed):
    """Make an image of pixels without gaps, with random elements."""
    count = int(np.prod(shape))
    flat = aligned((count,), kind, seed)
    return flat[:count].reshape(shape)


def taken(shape, at, box, steps):
    """Return, for each pixel of a copy in order, its index in the image, or None outside of it."""
    counts = [-(-b // s) for b, s in zip(box, steps, strict=True)]
    counts[-2] = 1  # slices of channels are copied one by one
    for position in itertools.product(*(range(n) for n in counts[::-1])):
        index = tuple(c + s * p for c, s, p in zip(at[::-1], steps[::-1], position, strict=True))
        yield index if all(0 <= k < e for k, e in zip(index, shape[:-1], strict=True)) else None


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{len(c[0]) - 1}d-{c[1]}-{c[5]}")
def test_interleaved_load(case):
    shape, kind, at, box, steps, swizzle = case
    array = image(shape, kind, len(shape))
    tensor, words = interleaved_map(array, box, steps, swizzle)
    rows = [array[index] if index is not None else np.zeros(shape[-1], kind) for index in taken(shape, at, box, steps)]
    expected = swizzled(np.array(rows), swizzle)
    assert tensor.box_bytes == len(expected)
    out = np.zeros(len(expected) // 4, np.uint32)
    body = load_body(f"cp.async.bulk.tensor.{len(at)}d.{LOADS[0]}", at, len(expected))
    launch(
        body, words, out, before=START + set_coordinates(at), after=dump(len(out)), smem_bytes=16384, run=adopted(array)
    )
    np.testing.assert_array_equal(out.view(np.uint8), expected)


WRITTEN = [case for case in CASES if min(case[2]) >= 0]


@pytest.mark.parametrize("case", WRITTEN, ids=lambda c: f"{len(c[0]) - 1}d-{c[1]}-{c[5]}")
@pytest.mark.parametrize("operation", ["store", "add"])
def test_interleaved_store(case, operation):
    shape, kind, at, box, steps, swizzle = case
    if operation == "add" and kind != "f4":
        pytest.skip("one type is enough")
    array = image(shape, kind, len(shape))
    expected = array.copy()
    where = list(taken(shape, at, box, steps))
    values = np.random.default_rng(5).integers(0, 99, (len(where), shape[-1])).astype(kind)
    for value, index in zip(values, where, strict=True):
        if index is not None:
            expected[index] = value + (expected[index] if operation == "add" else 0)
    _, words = interleaved_map(array, box, steps, swizzle)
    data = swizzled(values, swizzle).view(np.uint32)
    opcode = "cp.async.bulk.tensor" if operation == "store" else "cp.reduce.async.bulk.tensor"
    after = "" if operation == "store" else ".add"
    launch(
        store_body(f"{opcode}.{len(at)}d.global.shared::cta{after}.tile.bulk_group", at),
        words,
        data,
        before=START + set_coordinates(at) + fill(len(data)),
        smem_bytes=16384,
        run=adopted(array),
    )
    np.testing.assert_array_equal(array, expected)


def test_nan_outside_of_interleaved_tensors():
    array = image((2, 3, 20, 4), "f4", 0)
    _, words = interleaved_map(array, (8, 4, 1), (1, 1, 1), "INTER", oob_fill="nan")
    out = np.zeros(8 * 4, np.uint32)
    launch(
        load_body(f"cp.async.bulk.tensor.3d.{LOADS[0]}", (16, 1, 0), 128),
        words,
        out,
        before=START + set_coordinates((16, 1, 0)),
        after=dump(len(out)),
        smem_bytes=16384,
        run=adopted(array),
    )
    got = out.view(np.float32).reshape(8, 4)
    np.testing.assert_array_equal(got[:4], array[0, 1, 16:])
    assert np.isnan(got[4:]).all()
