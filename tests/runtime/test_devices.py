"""Attributes of the simulated H200 equal the CUDA C Programming Guide and NVIDIA's data sheet."""

import ctypes

import pytest

from cutepy.runtime import devices
from cutepy.runtime.host_calls import HostCalls
from tests.messages import pins


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (1, 1024),  # threads of a block
        (5, 2**31 - 1),  # extents of a grid
        (6, 65535),
        (7, 65535),
        (8, 48 * 1024),  # shared memory of a block, without asking for more
        (13, 1_980_000),  # kHz
        (16, 132),
        (39, 2048),
        (75, 9),
        (76, 0),
        (97, 227 * 1024),  # shared memory of a block, at most
        (106, 32),
    ],
)
def test_attributes_are_those_of_compute_capability_9_0(attribute, value):
    assert devices.H200.attributes[attribute] == value


def test_answers_of_each_gpu():
    """As noted on an H200; of the others what differs."""
    pins("\n".join(f"{n}: {devices.H200.attributes[n]}" for n in sorted(devices.H200.attributes)))
    for gpu in devices.DEVICES.values():
        own = {n: value for n, value in gpu.attributes.items() if value != devices.H200.attributes[n]}
        pins(f"{own}\n{gpu.properties}")
    pins(f"{devices.LIMITS}")


def test_it_is_the_first_of_its_bus():
    properties = devices.H200.properties
    assert (properties.pci_bus_id, properties.pci_device_id, properties.pci_domain_id) == (0, 0, 0)
    assert properties.clock_rate == devices.H200.clock_khz


def test_host_code_is_told_of_one_device_and_no_static_shared_memory():
    calls, asked = HostCalls(""), ctypes.c_int32(-1)
    for name, value in (("_cudaGetDeviceCount", 1), ("_cuKernelGetAttribute", 0)):
        assert getattr(calls, name)(ctypes.addressof(asked)) == 0
        assert asked.value == value
