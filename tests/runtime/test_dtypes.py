"""The table of element types against what torch hands over by DLPack, read byte by byte."""

import ctypes

import pytest

torch = pytest.importorskip("torch")

from cutepy.runtime.dtypes import DTYPES, dlpack_type  # noqa: E402

# DLTensor begins with a pointer, two integers for the device and one for the rank; then code, bits, lanes (dlpack.h).
CODE, BITS, LANES = 20, 21, 22


def exported(dtype):
    """Read (code, bits, lanes) of a tensor's type as torch exports it."""
    capsule = torch.zeros(1, dtype=dtype).__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer_of(capsule, b"dltensor")
    code, bits = (ctypes.c_uint8.from_address(address + at).value for at in (CODE, BITS))
    return code, bits, ctypes.c_uint16.from_address(address + LANES).value


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", DTYPES)
def test_codes_and_bits_are_those_that_torch_exports(name):
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    try:
        code, bits, lanes = exported(getattr(torch, name))
    except (BufferError, RuntimeError, NotImplementedError, TypeError) as error:
        pytest.skip(f"this torch does not export {name}: {error}")
    assert dlpack_type(name) == (code, bits)
    assert lanes == (2 if name.endswith("_x2") else 1)


@pytest.mark.parametrize(
    ("name", "code", "bits"),
    [
        ("float8_e4m3fn", 10, 8),
        ("float8_e4m3fnuz", 11, 8),
        ("float8_e5m2", 12, 8),
        ("float8_e5m2fnuz", 13, 8),
        ("float8_e8m0fnu", 14, 8),
        ("float4_e2m1fn_x2", 17, 4),
    ],
)
def test_narrow_floats_have_the_codes_of_dlpack_1_1(name, code, bits):
    """DLDataTypeCode, dlpack.h 1.1."""
    if name in DTYPES:
        assert dlpack_type(name) == (code, bits)
