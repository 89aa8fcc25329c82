"""Textures and surfaces by their objects, against the formulas of the CUDA guide, and against what an H200 gives.

The formulas leave the rounding of linear filtering open: what is filtered is near them, and equal to the recording.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import cutepy
from cutepy.sim import DescriptorError, Image, MemoryAccessError, Surface, Texture, UnknownInstructionError
from cutepy.sim.mechanisms.filtering import corner_weight, filtered

LANES = 32


def image(shape, kind="f4", channels=1, seed=0, layers=0):
    """An image of an array that lies somewhere in memory with padded rows: (layers,) (z,) (y,) x, channel."""
    rng = np.random.default_rng(seed)
    whole = (*((layers,) if layers else ()), *shape[:-1], shape[-1] + 3, channels)
    dtype = np.dtype(kind)
    data = rng.integers(-9, 9, whole).astype(dtype) if kind[0] != "u" else rng.integers(0, 200, whole).astype(dtype)
    if kind == "i1":
        data = rng.integers(-128, 128, whole).astype(dtype)
    inner = data[..., : shape[-1], :]
    strides = data.strides[-3::-1] if len(shape) + bool(layers) > 1 else ()
    form = {"f": "f", "i": "s", "u": "u"}[kind[0]]
    spatial = tuple(strides[: len(shape) - 1])
    made = Image(
        data.ctypes.data,
        shape[::-1],
        form,
        8 * dtype.itemsize,
        channels,
        spatial,
        layers,
        data.strides[0] if layers else 0,
    )
    return made, inner, data


def fetched(texture, data, instruction, coordinates, kind="f4"):
    """Run one instruction on every lane's coordinates, %c0, %c1, ...; returns the four channels of each lane."""
    out = np.zeros((LANES, 4), kind)
    given = [np.ascontiguousarray(c) for c in coordinates]
    loads = ""
    for n, c in enumerate(given):
        letter = "f32" if c.dtype.kind == "f" else "b32"
        loads += f".reg .{letter} %c{n}; ld.param.u64 %rd1, [p{n + 2}]; mad.wide.u32 %rd1, %t, 4, %rd1; "
        loads += f"ld.global.{letter} %c{n}, [%rd1];\n"
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(given) + 2))
    letter = "f32" if kind == "f4" else "b32"
    text = f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k({parameters}) {{
    .reg .b64 %rd<8>; .reg .b32 %t; .reg .{letter} %d<4>; .reg .pred %p;
    mov.u32 %t, %tid.x; ld.param.u64 %rd0, [p0];
    {loads}
    {instruction}
    ld.param.u64 %rd2, [p1]; mad.wide.u32 %rd2, %t, 16, %rd2;
    st.global.v4.{letter} [%rd2], {{%d0, %d1, %d2, %d3}};
    ret; }}"""
    cutepy.load_ptx(text).launch("k", 1, LANES, args=(texture, out, *given), known=[data])
    return out


def expected_index(x, extent, mode):
    """The element of an index, None outside of a border."""
    if mode == "wrap":
        return x % extent
    if mode == "mirror":
        return [*range(extent), *reversed(range(extent))][x % (2 * extent)]
    if mode == "border":
        return x if 0 <= x < extent else None
    return min(max(x, 0), extent - 1)


def expected(values, mode, filters, normalized, at, border):
    """One lane's value of a (z, y, x) array of scalars, by the guide's formulas."""
    positions = []
    for x, extent in zip(at, values.shape[::-1], strict=True):
        if normalized:
            x = float(np.float32(np.float32(x) * np.float32(extent)))
        positions.append(x)

    def element(indices):
        found = [expected_index(i, e, mode) for i, e in zip(indices, values.shape[::-1], strict=True)]
        return border if None in found else float(values[tuple(found[::-1])])

    if not filters:
        return element([math.floor(x) for x in positions])
    total = 0.0
    lows = [math.floor(x - 0.5) for x in positions]
    fractions = [math.floor((x - 0.5 - low) * 256 + 0.5) / 256 for x, low in zip(positions, lows, strict=True)]
    for corner in itertools.product((0, 1), repeat=len(lows)):
        weight = math.prod(f if up else 1 - f for f, up in zip(fractions, corner, strict=True))
        total += weight * element([low + up for low, up in zip(lows, corner, strict=True)])
    # One dimension is filtered as the lower edge of two.
    return (total + border) / 2 if mode == "border" and len(at) == 1 else total


@settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.sampled_from(["clamp", "border", "wrap", "mirror"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_fetches(dimensions, mode, filters, normalized, seed):
    if mode in ("wrap", "mirror"):
        normalized = True
    shape = (3, 5, 7)[-dimensions:]
    made, values, data = image(shape, seed=seed)
    texture = Texture(made, (mode,) * 3, filters, normalized, border=(5.0, 0, 0, 0))
    rng = np.random.default_rng(seed)
    # Multiples of 2^-12 keep clear of where float32 decides on which side of an element a coordinate is.
    at = [rng.integers(-3 * 4096, 3 * 4096, LANES) / 4096 for _ in shape]
    if not normalized:
        at = [x * 4 for x in at]
    coordinates = [x.astype(np.float32) for x in at]
    listed = [*(f"%c{n}" for n in range(dimensions)), *["%c2"] * (dimensions == 3)]
    fetch = f"tex.{dimensions}d.v4.f32.f32 {{%d0, %d1, %d2, %d3}}, [%rd0, {{{', '.join(listed)}}}];"
    found = fetched(texture, data, fetch, coordinates)
    for lane in range(LANES):
        where = [float(c[lane]) for c in coordinates]
        wanted = expected(values[..., 0], mode, filters, normalized, where, 5.0)
        # Elements are 9 at most; their weights in 256ths are rounded, in three dimensions twice.
        near = 9 / 256 * {1: 2, 2: 2, 3: 8}[dimensions] if filters else 1e-6
        assert found[lane, 0] == pytest.approx(wanted, abs=near), where
    np.testing.assert_array_equal(found[:, 1:], 0)


_H200 = json.loads((Path(__file__).parent / "fixtures" / "textures_h200.json").read_text())
_RECORDED = {
    "1d": "tex.1d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0}];",
    "2d": "tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1}];",
    "gather": "tld4.r.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1}];",
}


@pytest.mark.parametrize("fetch", _RECORDED)
@pytest.mark.parametrize("mode", ["wrap", "clamp", "mirror", "border"])
def test_filtering_is_as_recorded(mode, fetch):
    """Bit for bit; the points are half those which are hard to get right, half any."""
    elements = np.frombuffer(bytes.fromhex(_H200["elements"]), "<f4")
    shape = {"extents": (16,)} if fetch == "1d" else {"extents": (4, 4), "strides_bytes": (16,)}
    texture = Texture(
        Image(elements.ctypes.data, form="f", bits=32, channels=1, **shape),
        (mode,) * 3,
        filters=True,
        normalized=mode in ("wrap", "mirror"),
    )
    points, values = _H200["samples"][mode][fetch]
    x, y = np.array(points, np.float32).reshape(LANES, -1).T if fetch == "2d" else (np.float32(points), np.float32(1))
    at = [x / np.float32(512) - np.float32(0.5)]
    if fetch != "1d":
        at.append(np.broadcast_to(y / np.float32(7), LANES))
    found = fetched(texture, elements, _RECORDED[fetch], at)
    if fetch == "gather":
        around = np.array([int(n, 17) for n in values]).reshape(LANES, 4)
        np.testing.assert_array_equal(found, np.append(elements, np.float32(0))[around])
    else:
        np.testing.assert_array_equal(found[:, 0].view("<u4"), np.frombuffer(bytes.fromhex(values), "<u4"))
        np.testing.assert_array_equal(found[:, 1:], 0)


@pytest.mark.parametrize("mode", _H200["cube"])
def test_filtering_of_three_dimensions_is_as_recorded(mode):
    """Half of the points are where the elements of both z cannot be cut off alike."""
    elements = np.frombuffer(bytes.fromhex(_H200["cube_elements"]), "<f4")
    cube = Image(elements.ctypes.data, (4, 4, 4), "f", 32, 1, strides_bytes=(16, 64))
    texture = Texture(cube, (mode,) * 3, filters=True)
    points, values = _H200["cube"][mode]
    x, y = np.array(points, np.float32).T
    at = [x / np.float32(512) - np.float32(0.5), y / np.float32(7), y / np.float32(11) + np.float32(0.3)]
    found = fetched(texture, elements, "tex.3d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1, %c2, %c2}];", at)
    np.testing.assert_array_equal(found[:, 0].view("<u4"), np.frombuffer(bytes.fromhex(values), "<u4"))


@pytest.mark.parametrize("mode", _H200["nearest"])
def test_nearest_elements_are_as_recorded(mode):
    """Most of the points are sevenths, where 7 elements meet: a normalized coordinate is cut off before."""
    elements = np.frombuffer(bytes.fromhex(_H200["cube_elements"]), "<f4")
    texture = Texture(Image(elements.ctypes.data, (7,), "f", 32, 1), (mode,) * 3, normalized=True)
    points, values = _H200["nearest"][mode]
    found = fetched(texture, elements, _RECORDED["1d"], [np.float32(points) / np.float32(511) - np.float32(1)])
    np.testing.assert_array_equal(found[:, 0].view("<u4"), np.frombuffer(bytes.fromhex(values), "<u4"))


@given(st.lists(st.integers(0, 255), min_size=1, max_size=3))
def test_weights_share_one(uppers):
    weights = [int(corner_weight(c, uppers)) for c in itertools.product((0, 1), repeat=len(uppers))]
    assert sum(weights) == 256
    assert min(weights) >= 0


def test_what_has_no_weight_is_not_summed():
    elements = np.array([2.0, np.inf, np.nan, 3.0, -np.inf], np.float32)

    def mean(position):
        return float(filtered([np.array([position])], lambda at: elements[at[0]][..., None])[0, 0])

    assert mean(0.5) == 2
    assert mean(0.75) == np.inf
    assert math.isnan(mean(2.75))
    assert mean(4.0) == -np.inf


@pytest.mark.parametrize(("kind", "channels"), [("u1", 4), ("i1", 2), ("u2", 1), ("i4", 4), ("f2", 4), ("u4", 1)])
def test_formats(kind, channels):
    made, values, data = image((5, 7), kind, channels)
    x, y = (np.arange(LANES, dtype=np.int32) % n for n in (7, 5))
    dtype = {"f": "f4", "i": "i4", "u": "u4"}[kind[0]]
    name = {"f4": "f32", "i4": "s32", "u4": "u32"}[dtype]
    instruction = f"tex.2d.v4.{name}.s32 {{%d0, %d1, %d2, %d3}}|%p, [%rd0, {{%c0, %c1}}];"
    found = fetched(Texture(made), data, instruction, [x, y], dtype)
    np.testing.assert_array_equal(found[:, :channels], values[y, x].astype(dtype))
    np.testing.assert_array_equal(found[:, channels:], 0)
    if kind[1] in "12" and kind[0] != "f":
        largest = {"u1": 255, "i1": 127, "u2": 65535}[kind]
        texture = Texture(made, as_floats=True)
        found = fetched(texture, data, instruction.replace(f"v4.{name}", "v4.f32"), [x, y])
        wanted = np.maximum(values[y, x] / np.float32(largest), -1)
        np.testing.assert_allclose(found[:, :channels], wanted, rtol=1e-6)


def test_layers_and_levels():
    made, values, data = image((5, 7), channels=2, layers=3)
    x, y, layer = (np.arange(LANES) % n for n in (7, 5, 3))
    at = [
        layer.astype(np.int32),
        x.astype(np.float32) + 0.5,
        y.astype(np.float32) + 0.5,
        np.full(LANES, 2.0, np.float32),
    ]
    texture = Texture(made, filters=True)
    for instruction in (
        "tex.a2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1, %c2, %c2}];",
        "tex.level.a2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1, %c2, %c2}], %c3;",
        "tex.grad.a2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1, %c2, %c2}], {%c1, %c2}, {%c2, %c3};",
    ):
        found = fetched(texture, data, instruction, at)
        np.testing.assert_array_equal(found[:, :2], values[layer, y, x])


def test_elements_around():
    made, values, data = image((5, 7), channels=4)
    x, y = np.arange(LANES) % 6, np.arange(LANES) % 4
    at = [x.astype(np.float32) + 0.75, y.astype(np.float32) + 1.25]
    for channel, letter in enumerate("rgba"):
        instruction = f"tld4.{letter}.2d.v4.f32.f32 {{%d0, %d1, %d2, %d3}}, [%rd0, {{%c0, %c1}}];"
        found = fetched(Texture(made), data, instruction, at)
        around = [values[y + dy, x + dx, channel] for dx, dy in ((0, 1), (1, 1), (1, 0), (0, 0))]
        np.testing.assert_array_equal(found, np.stack(around, axis=-1))


def test_linear_memory_is_zero_outside():
    data = np.arange(1, 21, dtype=np.float32)
    texture = Texture(Image(data.ctypes.data, (20,), "f", 32, 1, is_linear=True), border=(3, 3, 3, 3))
    x = np.arange(-6, LANES - 6).astype(np.int32)
    found = fetched(texture, data, "tex.1d.v4.f32.s32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0}];", [x])
    np.testing.assert_array_equal(found[:, 0], np.where((x >= 0) & (x < 20), x + 1, 0))


def test_each_lane_may_have_a_texture_of_its_own():
    data = np.arange(2 * 5 * 7, dtype=np.float32)
    textures = [Texture(Image(data.ctypes.data + 140 * n, (7, 5), "f", 32, 1, (28,))) for n in range(2)]
    numbers = np.array([int(textures[n % 2]) for n in range(LANES)], np.int32)
    x, y = (np.arange(LANES, dtype=np.float32) % n for n in (7, 5))
    fetch = "cvt.u64.u32 %rd0, %c2; tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1}];"
    found = fetched(textures[0], data, fetch, [x, y, numbers])
    np.testing.assert_array_equal(found[:, 0], np.arange(LANES) % 2 * 35 + y * 7 + x)


_GEOMETRIES = [("1d", (9,), 0), ("2d", (5, 7), 0), ("3d", (3, 5, 7), 0), ("a1d", (9,), 4), ("a2d", (5, 7), 4)]


@pytest.mark.parametrize(("geometry", "shape", "layers"), _GEOMETRIES)
@pytest.mark.parametrize("outside", ["clamp", "zero"])
def test_surfaces(geometry, shape, layers, outside):
    """Lanes write where they are, x in bytes, some of them outside; and read it again."""
    made, values, data = image(shape, "u4", 2, layers=layers)
    before, bounds = values.copy(), ((*((layers,) if layers else ()), *shape))
    rng = np.random.default_rng(1)
    at = [rng.integers(-2, n + 2, LANES).astype(np.int32) for n in bounds]
    if layers:
        at[0] = rng.integers(0, layers, LANES).astype(np.int32)
    order = [*(at[:1] if layers else []), *at[layers > 0 :][::-1]]
    x = order[1 if layers else 0]
    given = [8 * c if c is x else c for c in order]
    listed = [f"%c{n}" for n in range(len(given))]
    listed += [listed[-1]] * (geometry in ("3d", "a2d"))
    place = f"[%rd0, {{{', '.join(listed)}}}]"
    body = f"""mul.lo.u32 %d0, %t, 3; add.u32 %d1, %t, 7; sust.b.{geometry}.v2.b32.{outside} {place}, {{%d0, %d1}};
    mov.b32 %d2, 0; mov.b32 %d3, 0; bar.sync 0; suld.b.{geometry}.v2.b32.{outside} {{%d2, %d3}}, {place};"""
    found = fetched(Surface(made), data, body, given, "u4")
    written = before.copy()
    for lane in range(LANES):
        index = tuple(int(c[lane]) for c in at)
        inside = all(0 <= i < n for i, n in zip(index, bounds, strict=True))
        index = tuple(min(max(i, 0), n - 1) for i, n in zip(index, bounds, strict=True))
        if inside or outside == "clamp":
            written[index] = 3 * lane, lane + 7
    np.testing.assert_array_equal(values, written)
    for lane in range(LANES):
        index = tuple(int(c[lane]) for c in at)
        inside = all(0 <= i < n for i, n in zip(index, bounds, strict=True))
        index = tuple(min(max(i, 0), n - 1) for i, n in zip(index, bounds, strict=True))
        assert found[lane, 2:].tolist() == (written[index].tolist() if inside or outside == "clamp" else [0, 0])


def test_queries():
    made, _, data = image((3, 5, 7))
    body = """txq.width.b32 %d0, [%rd0]; txq.height.b32 %d1, [%rd0]; txq.depth.b32 %d2, [%rd0];
    txq.normalized_coords.b32 %d3, [%rd0];"""
    assert fetched(Texture(made, normalized=True), data, body, [], "u4")[0].tolist() == [7, 5, 3, 1]
    body = """suq.width.b32 %d0, [%rd0]; istypep.surfref %p, %rd0; selp.u32 %d1, 1, 0, %p;
    istypep.texref %p, %rd0; selp.u32 %d2, 1, 0, %p; suq.array_size.b32 %d3, [%rd0];"""
    assert fetched(Surface(made), data, body, [], "u4")[0].tolist() == [7, 1, 0, 0]


def test_errors():
    made, _, data = image((5, 7))
    zero = [np.zeros(LANES, np.float32)] * 2
    fetch = "tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1}];"
    with pytest.raises(DescriptorError, match="given the object 0x0, which is none"):
        fetched(0, data, fetch, zero)
    with pytest.raises(DescriptorError, match="which is a surface"):
        fetched(Surface(made), data, fetch, zero)
    with pytest.raises(DescriptorError, match="image of 2 dimensions"):
        fetched(Texture(made), data, "tex.1d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0}];", zero)
    with pytest.raises(DescriptorError, match="reads integers of the object"):
        fetched(Texture(made), data, fetch.replace("v4.f32", "v4.u32"), zero, "u4")
    store = "sust.b.2d.b32.trap [%rd0, {%c0, %c1}], {%t}; mov.b32 %d0, 0;"
    with pytest.raises(MemoryAccessError, match=r"\(28, 0\) is outside of the surface"):
        fetched(Surface(made), data, store, [np.full(LANES, 28, np.int32), np.zeros(LANES, np.int32)], "u4")
    with pytest.raises(UnknownInstructionError, match="cubemaps"):
        fetched(Texture(made), data, "tex.cube.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%rd0, {%c0, %c1, %c1, %c1}];", zero)
    with pytest.raises(UnknownInstructionError, match=r"sured\.b\.add\.1d\.u32\.trap is not simulated"):
        fetched(Surface(made), data, "sured.b.add.1d.u32.trap [%rd0, {%c0}], %t;", [np.zeros(LANES, np.int32)], "u4")
    with pytest.raises(ValueError, match="linear filtering is for what is read as floats"):
        Texture(image((5, 7), "u1")[0], filters=True)
    with pytest.raises(ValueError, match="the channels of an image"):
        Image(0, (4,), "u", 8, 3)
