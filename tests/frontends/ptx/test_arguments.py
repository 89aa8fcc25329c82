"""Arguments become the bytes that struct packs, or errors that say what was wanted."""

import ctypes
import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.frontends.ptx.arguments import pack_all
from cutepy.sim.ptx.declarations import read_parameters
from tests.messages import refuses

_CODES = {"8": "b", "16": "h", "32": "i", "64": "q"}
_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}


def packed(declared, *values):
    return pack_all("k", read_parameters(declared), values)


@st.composite
def integers(draw):
    """A declared type, a number in its range, and its code for struct."""
    letter, bits = draw(st.sampled_from("bsu")), draw(st.sampled_from(sorted(_CODES)))
    signed = letter == "s" or draw(st.booleans())
    low, high = (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1) if signed else (0, 2 ** int(bits) - 1)
    code = _CODES[bits] if signed else _CODES[bits].upper()
    return letter + bits, draw(st.integers(low, high)), code


@given(st.lists(integers(), max_size=4))
def test_integers_are_those_of_struct(cases):
    declared = ", ".join(f".param .{kind} p{n}" for n, (kind, _, _) in enumerate(cases))
    expected = [struct.pack("<" + code, value) for _, value, code in cases]
    assert packed(declared, *(value for _, value, _ in cases)) == expected


@given(st.sampled_from(sorted(_FLOATS)), st.floats() | st.integers(-(2**70), 2**70))
def test_floats_are_those_of_struct(kind, value):
    try:
        expected = struct.pack("<" + _FLOATS[kind], float(value))
    except OverflowError:
        with pytest.raises(ValueError, match=rf"k, argument 0 \(.{kind} p\): expected at most"):
            packed(f".param .{kind} p", value)
        return
    assert packed(f".param .{kind} p", value) == [expected]


@given(st.sampled_from("bsu"), st.sampled_from([8, 16, 32, 64]), st.integers())
def test_integers_out_of_range_are_refused(letter, bits, value):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - (letter == "s")) - 1
    if low <= value <= high:
        return
    with pytest.raises(ValueError, match=f"expected an integer from {low} to {high}, got {value}"):
        packed(f".param .{letter}{bits} p", value)


@given(st.binary(max_size=300), st.integers(1, 300))
def test_bytes_are_passed_as_they_are_if_they_fit(data, size):
    declared = f".param .align 64 .b8 p[{size}]"
    for value in (data, bytearray(data), memoryview(data)):
        if len(data) == size:
            assert packed(declared, value) == [data]
        else:
            with pytest.raises(ValueError, match=f"expected {size} bytes, got {len(data)}"):
                packed(declared, value)


def test_structs_of_ctypes_are_bytes():
    class Pair(ctypes.Structure):
        _fields_ = (("count", ctypes.c_int32), ("scale", ctypes.c_float))

    assert packed(".param .align 4 .b8 pair[8]", Pair(-2, 0.5)) == [struct.pack("<if", -2, 0.5)]


def test_numbers_of_numpy_have_types_of_their_own():
    assert packed(".param .b32 p", np.float32(1.5)) == [struct.pack("<f", 1.5)]
    assert packed(".param .b16 p", np.float16(1.5)) == [struct.pack("<e", 1.5)]
    assert packed(".param .b64 p, .param .u8 q", np.float64(1.5), np.True_) == [struct.pack("<d", 1.5), b"\1"]
    assert packed(".param .f64 p, .param .s32 q", np.float32(1.5), np.int64(-3)) == [
        struct.pack("<d", 1.5),
        struct.pack("<i", -3),
    ]


def test_pointers_are_addresses():
    torch = pytest.importorskip("torch")
    array = np.zeros((4, 4), np.float32)
    tensor = torch.zeros(4, 4)
    expected = [array.ctypes.data + 4, tensor.data_ptr() + 16, 0, 1 << 63]
    assert packed(
        ".param .u64 .ptr .global .align 16 a, .param .u64 b, .param .b64 c, .param .u64 d",
        array[:, 1:],
        tensor[1],
        None,
        1 << 63,
    ) == [struct.pack("<Q", address) for address in expected]


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (".param .u64 p, .param .b8 q[8]", (1,)),
        ("", (1,)),
        (".param .u32 p", (1.0,)),
        (".param .b32 p", (1.0,)),
        (".param .u32 p", (np.zeros(1),)),
        (".param .u32 p", (None,)),
        (".param .b8 p[16]", (np.zeros(16, np.uint8),)),
        (".param .b8 p[16]", (3,)),
        (".param .u64 p", ("x",)),
        (".param .u64 p", ([1],)),
    ],
)
def test_what_does_not_fit_is_refused(declared, values):
    with refuses(TypeError):
        packed(declared, *values)


def test_tensors_that_have_no_memory_here_are_refused():
    torch = pytest.importorskip("torch")
    with refuses(TypeError):
        packed(".param .u64 p", torch.empty(4, device="meta"))


def test_a_sparse_tensor_has_no_address():
    torch = pytest.importorskip("torch")
    with refuses(TypeError):
        packed(".param .u64 p", torch.eye(3).to_sparse())
