"""Launches into captures: the machine code that leads to them, and when they are programmatic."""

import ctypes
import platform

import pytest

from cutepy.runtime import cuda
from cutepy.runtime.captured_launches import KEPT_CAPTURES, PROTOTYPE, CapturedLaunches, launch_code
from cutepy.runtime.launch_structures import CLUSTER, PROGRAMMATIC, LaunchAttribute, LaunchConfig
from cutepy.runtime.objects import executable

IS_CAPTURING = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32))
HOST_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def config_of(stream=7):
    """Make a configuration with a cluster, and programmatic."""
    attributes = (LaunchAttribute * 2)()
    attributes[0].identity, attributes[0].value[0] = CLUSTER, 2
    attributes[1].identity, attributes[1].value[0] = PROGRAMMATIC, 1
    return LaunchConfig(stream=stream, attributes=attributes, count=2), attributes


class Driver:
    """A capture into a graph whose nodes are numbered, one after the other."""

    def __init__(self):
        self.capture, self.last, self.nodes, self.code = 1, frozenset(), 100, 0
        self.programmatic = []
        self.launches = CapturedLaunches(self.launch, lambda stream: (self.capture, self.last))

    def launch(self, config, kernel, params, extra):
        attributes = LaunchConfig.from_address(config).attributes
        assert attributes[0].value[0] == 2
        self.programmatic.append(bool(attributes[1].value[0]))
        if self.code == 0:
            self.follow()
        return self.code

    def follow(self):
        """Add a node."""
        self.nodes += 1
        self.last = frozenset([self.nodes])

    def ours(self):
        """Launch one of cutepy's kernels."""
        config, attributes = config_of()
        code = self.launches.launch(ctypes.addressof(config), 1, 2, None)
        del attributes
        return code


def test_a_launch_is_programmatic_behind_one_of_ours_alone():
    driver = Driver()
    driver.ours()  # first in the graph
    driver.ours()
    driver.ours()
    driver.follow()  # another library's kernel
    driver.ours()
    driver.ours()
    assert driver.programmatic == [False, True, True, False, True]


def test_a_launch_behind_several_nodes_is_programmatic_if_all_are_ours():
    driver = Driver()
    driver.ours()
    first = driver.last
    driver.last = frozenset()
    driver.ours()
    driver.last |= first
    driver.ours()
    driver.last |= {5}
    driver.ours()
    assert driver.programmatic == [False, False, True, False]


def test_nodes_of_other_captures_do_not_count():
    driver = Driver()
    driver.ours()
    driver.capture = 2
    driver.ours()
    assert driver.programmatic == [False, False]
    for driver.capture in range(3, 3 + 2 * KEPT_CAPTURES):
        driver.ours()
    assert len(driver.launches._made) == KEPT_CAPTURES


def test_errors_of_the_driver_are_returned():
    driver = Driver()
    driver.code = 719
    assert driver.ours() == 719
    assert driver.launches.failure is None
    driver.launches._dependencies = lambda stream: 1 // 0
    assert driver.ours() == 999
    assert isinstance(driver.launches.failure, ZeroDivisionError)


def test_the_text_of_an_error_tells_what_failed(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(cuda, "_captured_launches", lambda: driver.launches)
    monkeypatch.setattr(cuda, "error_name", lambda code: "CUDA_ERROR_UNKNOWN: unknown error")
    unknown = "CUDA error 999 (CUDA_ERROR_UNKNOWN: unknown error)"
    assert cuda.describe(999) == unknown
    driver.launches._dependencies = lambda stream: 1 // 0
    driver.ours()
    told = "; launching into a capture failed with ZeroDivisionError: integer division or modulo by zero"
    assert cuda.describe(999) == unknown + told
    assert cuda.describe(998) == "CUDA error 998 (CUDA_ERROR_UNKNOWN: unknown error)"
    driver.launches._dependencies = lambda stream: (1, frozenset())
    driver.ours()
    assert cuda.describe(999) == unknown


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="machine code of x86-64")
@pytest.mark.parametrize("status", [0, 1, 2])
def test_machine_code_asks_whether_the_stream_is_captured(status):
    asked, launched = [], []

    @IS_CAPTURING
    def is_capturing(stream, found):
        asked.append(stream)
        found[0] = status
        return 0

    def named(name, code):
        return PROTOTYPE(lambda *given: launched.append((name, *given)) or code)

    plain, captured = named("plain", 3), named("captured", 4)
    addresses = (ctypes.cast(each, ctypes.c_void_p).value for each in (is_capturing, plain, captured))
    call = HOST_CALL(executable(launch_code(*addresses)))
    config, _ = config_of(stream=0x7F0000001234)
    address = ctypes.addressof(config)
    assert call(address, 0x1122334455667788, 0x99) == (4 if status else 3)
    assert asked == [0x7F0000001234]
    assert launched == [("captured" if status else "plain", address, 0x1122334455667788, 0x99, None)]
