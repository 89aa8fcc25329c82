"""Calls of the CUDA driver by which a script launches, as a stand-in for its library takes them."""

import ctypes

import pytest

from cutepy.sim.replay.reproducers import gpu_driver
from cutepy.sim.replay.reproducers.gpu_driver import FILL, FILLED_BYTES, FILLING, Attribute, Config, Gpu
from cutepy.sim.translate import Kernel
from tests.messages import refuses


class Driver:
    """A library whose calls are recorded; `codes` are what calls of a name return, one after the other."""

    def __init__(self):
        self.calls, self.codes, self.launches = [], {}, []

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            plain = [
                getattr(each, "value", each) for each in arguments if isinstance(each, int | bytes | ctypes.c_int32)
            ]
            self.calls.append((name, *plain))
            if (taken := type(self).__dict__.get(f"take_{name}")) is not None:
                taken(self, *arguments)
            codes = self.codes.get(name, [])
            return codes.pop(0) if codes else 0

        return call

    def take_cuGetErrorString(self, code, text):
        text._obj.value = b"no such thing"

    def take_cuModuleLoadDataEx(self, module, text, count, options, values):
        assert text.endswith(b"\0")
        log = ctypes.string_at(values[0], 1)
        assert (count, list(options), log) == (2, [5, 6], b"\0")
        ctypes.memmove(values[0], b"ptxas says no\0", 14)
        ctypes.memset(values[0] + values[1] - 1, 0, 1)
        self.log_bytes = values[1]

    def take_cuCtxGetStreamPriorityRange(self, least, greatest):
        least._obj.value, greatest._obj.value = 0, -5

    def take_cuLaunchKernelEx(self, config, function, table, extra):
        found = Config.from_buffer_copy(config._obj)
        each = (Attribute * 3).from_address(found.attributes)[: found.count]
        attributes = [(one.identity, list(one.value[:4])) for one in each]
        assert not any((address or 0) % 128 for address in table)
        told = [list(found.grid), list(found.block), found.smem_bytes, found.stream, attributes]
        self.launches.append([*told, [address and ctypes.string_at(address, 8) for address in table]])


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": driver}.__getitem__)
    return driver


def test_a_context_of_the_first_device_is_made(driver):
    Gpu()
    assert driver.calls == [("cuInit", 0), ("cuDeviceGet", 0), ("cuDevicePrimaryCtxRetain", 0), ("cuCtxSetCurrent",)]


def test_what_the_driver_refuses_is_raised(driver):
    driver.codes["cuInit"] = [100]
    with refuses(RuntimeError):
        Gpu()


def test_what_the_compiler_says_is_raised(driver):
    gpu = Gpu()
    gpu.load(".version 8.0")
    assert driver.log_bytes == 8192
    driver.codes["cuModuleLoadDataEx"] = [218]
    with refuses(RuntimeError):
        gpu.load(".version 8.0")


@pytest.mark.parametrize(
    ("smem_bytes", "cluster", "asked"),
    [
        (49152, 8, []),
        (49153, 8, [("cuFuncSetAttribute", 8, 49153)]),
        (0, 9, [("cuFuncSetAttribute", 14, 1)]),
    ],
)
def test_much_shared_memory_and_large_clusters_are_asked_for(driver, smem_bytes, cluster, asked):
    Gpu().function(ctypes.c_void_p(1), "k", smem_bytes, cluster)
    assert driver.calls[4:] == [("cuModuleGetFunction", b"k"), *asked]


def test_streams_come_first_or_last(driver):
    gpu = Gpu()
    for is_first in (True, False):
        gpu.stream(is_first)
    assert [call[1:] for call in driver.calls if call[0] == "cuStreamCreateWithPriority"] == [(1, -5), (1, 0)]


@pytest.mark.parametrize(
    ("what", "attributes"),
    [
        ({"cluster": [1, 1, 1]}, []),
        ({"cluster": [2, 1, 4], "in_clusters": True}, [(4, [2, 1, 4, 0])]),
        ({"cluster": [1, 1, 1], "in_clusters": True}, [(4, [1, 1, 1, 0])]),
        ({"cluster": [1, 1, 1], "cooperative": True}, [(2, [1, 0, 0, 0])]),
        ({"cluster": [1, 1, 1], "programmatic": True}, [(6, [1, 0, 0, 0])]),
        (
            {"cluster": [1, 2, 1], "in_clusters": True, "cooperative": True, "programmatic": True},
            [(4, [1, 2, 1, 0]), (2, [1, 0, 0, 0]), (6, [1, 0, 0, 0])],
        ),
    ],
)
def test_a_launch_has_its_extents_attributes_and_parameters(driver, what, attributes):
    given = {"grid": [3, 2, 1], "block": [64, 1, 2], "smem_bytes": 1000} | what
    parameters = [bytes(range(n, n + 8)) for n in (0, 50, 100)]
    Gpu().launch(ctypes.c_void_p(7), given, parameters, ctypes.c_void_p(9))
    assert driver.launches == [[[3, 2, 1], [64, 1, 2], 1000, 9, attributes, parameters]]


def test_a_launch_without_parameters_has_a_table(driver):
    Gpu().launch(ctypes.c_void_p(7), FILLING, [], ctypes.c_void_p())
    ((grid, block, smem_bytes, *_, table),) = driver.launches
    assert (block, smem_bytes, len(table)) == ([1024, 1, 1], 227 * 1024, 1)
    assert grid[0] >= 132 * 64  # more than any GPU holds at once, as a CTA has all of an SM


def test_an_end_is_waited_for_but_not_for_ever(driver, monkeypatch):
    gpu, streams = Gpu(), [ctypes.c_void_p(n) for n in (1, 2)]
    driver.codes["cuStreamQuery"] = [600, 600, 0, 600, 0]
    assert gpu.has_ended(streams, 60)
    assert not driver.codes["cuStreamQuery"]
    driver.codes["cuStreamQuery"] = [600] * 1000
    now = iter(range(1000))
    monkeypatch.setattr(gpu_driver.time, "monotonic", lambda: next(now))
    assert not gpu.has_ended(streams, 10)
    assert len(driver.codes["cuStreamQuery"]) == 1000 - 11
    driver.codes["cuStreamQuery"] = [700]
    with refuses(RuntimeError):
        gpu.has_ended(streams, 10)


def test_all_shared_memory_of_a_cta_is_filled():
    kernel = Kernel(FILL, "fill")
    assert kernel.function.parameters[0].size_bytes == 4
    assert FILLED_BYTES == 227 << 10
