"""Structures of launches: their layout, and numbers of attributes as CUDA's own bindings have them."""

import ctypes

import pytest

from cutepy.runtime import launch_structures
from cutepy.runtime.launch_structures import LaunchAttribute, LaunchConfig


def layout(structure):
    """Give the place and the size of each field, and the size of all."""
    fields = {name: getattr(structure, name) for name, _ in structure._fields_}
    return {name: (field.offset, field.size) for name, field in fields.items()}, ctypes.sizeof(structure)


def test_an_attribute_has_a_value_of_64_bytes():
    assert layout(LaunchAttribute) == ({"identity": (0, 4), "padding": (4, 4), "value": (8, 64)}, 72)


def test_a_configuration():
    fields = {"grid": (0, 12), "block": (12, 12), "smem_bytes": (24, 4), "stream": (32, 8), "attributes": (40, 8)}
    assert layout(LaunchConfig) == (fields | {"count": (48, 4)}, 56)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("COOPERATIVE", "CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE"),
        ("CLUSTER", "CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"),
        ("PROGRAMMATIC", "CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"),
        ("MAX_DYNAMIC_SMEM", "CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"),
        ("NON_PORTABLE_CLUSTER", "CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"),
    ],
)
def test_numbers_of_attributes(name, theirs):
    driver = pytest.importorskip("cuda.bindings.driver")
    kind, member = theirs.split(".")
    assert getattr(launch_structures, name) == int(getattr(getattr(driver, kind), member))
