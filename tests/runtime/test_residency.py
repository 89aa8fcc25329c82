"""Occupancy queries of clusters, recorded by a driver that stands in for CUDA's."""

import ctypes
from types import SimpleNamespace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from cutepy.runtime import cuda, residency  # noqa: E402
from cutepy.runtime.cuda import CudaError  # noqa: E402

# CUfunction_attribute and CUlaunchAttributeID of cuda.h
MAX_DYNAMIC_SMEM, NON_PORTABLE_CLUSTER_ALLOWED = 8, 14
CLUSTER_DIMENSION = 4
CUDA_ERROR_INVALID_VALUE = 1


class Driver:
    """Notes what is called with what."""

    def __init__(self, clusters=66, refusing=""):
        self.calls, self.attributes, self.config = [], {}, None
        self._clusters, self._refusing = clusters, refusing

    def __getattr__(self, name):
        return lambda *_: self.calls.append(name) or self._code(name)

    def _code(self, name):
        return CUDA_ERROR_INVALID_VALUE if name == self._refusing else 0

    def cuFuncSetAttribute(self, function, attribute, value):
        self.attributes[attribute] = value
        return self._code("cuFuncSetAttribute")

    def cuOccupancyMaxActiveClusters(self, count, function, config):
        count._obj.value, self.config = self._clusters, config._obj
        return self._code("cuOccupancyMaxActiveClusters")


@pytest.fixture
def ask(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(residency, "runtime", lambda: SimpleNamespace(cudaSetDevice=lambda device: 0))

    def ask(cluster, driver=None, **differing):
        driver = driver or Driver()
        for module in (cuda, residency):
            monkeypatch.setattr(module, "driver", lambda: driver)
        given = {"block": (384, 1, 1), "smem_bytes": 200_000} | differing
        return residency.max_active_clusters(b"ELF", "kernel", cluster=cluster, **given), driver

    return ask


@pytest.mark.parametrize(
    ("cluster", "not_portable"),
    [
        *(((1, 1, 1), 0), ((2, 1, 1), 0), ((8, 1, 1), 0), ((2, 2, 2), 0), ((4, 2, 1), 0)),
        *(((16, 1, 1), 1), ((4, 4, 1), 1), ((3, 3, 1), 1), ((2, 2, 4), 1)),
    ],
)
def test_clusters_of_more_than_8_ctas_are_asked_for(ask, cluster, not_portable):
    """8 is the largest size that every GPU with clusters runs."""
    clusters, driver = ask(cluster)
    assert clusters == 66
    assert driver.attributes == {MAX_DYNAMIC_SMEM: 200_000, NON_PORTABLE_CLUSTER_ALLOWED: not_portable}


def test_the_launch_that_is_asked_about(ask):
    _, driver = ask((2, 4, 1), block=(128, 3, 1))
    config = driver.config
    (attribute,) = (config.attributes[i] for i in range(config.count))
    assert (tuple(config.grid), tuple(config.block), config.smem_bytes) == ((2, 4, 1), (128, 3, 1), 200_000)
    assert (attribute.identity, attribute.padding, tuple(attribute.value)[:3]) == (CLUSTER_DIMENSION, 0, (2, 4, 1))
    assert ctypes.sizeof(attribute) == 72
    assert driver.calls[-1] == "cuLibraryUnload"


@pytest.mark.parametrize(
    "refusing",
    [
        "cuLibraryLoadData",
        "cuLibraryGetKernel",
        "cuKernelGetFunction",
        "cuFuncSetAttribute",
        "cuOccupancyMaxActiveClusters",
    ],
)
def test_what_cuda_refuses_is_an_error_and_leaves_nothing_loaded(ask, refusing):
    driver = Driver(refusing=refusing)
    with refuses(CudaError):
        ask((1, 1, 1), driver)
    assert ("cuLibraryUnload" in driver.calls) == (refusing != "cuLibraryLoadData")


@pytest.mark.parametrize("capability", [(8, 9), (10, 0)])
def test_only_hoppers_are_asked(ask, monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    clusters, driver = ask((1, 1, 1))
    assert clusters is None
    assert not driver.calls
