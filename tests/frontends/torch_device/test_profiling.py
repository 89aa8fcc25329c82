"""Torch's profiler under the served device: an event for each launch, named as of the simulator."""

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import cutepy
from cutepy.frontends import serve_cuda

PTX = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k() { ret; }
"""
CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA


def profiled(*activities):
    """Return the events of two launches and a product, as name, type of device and time there."""
    with serve_cuda() as run:
        module = cutepy.load_ptx(PTX)
        module.launch("k", 1, 32)
        with profile(activities=activities) as found:
            module.launch("k", 1, 32)
            module.launch("k", 1, 32)
            torch.ones(4, 4, device="cuda").sum()
        module.launch("k", 1, 32)
        return found, [launch.seconds for launch in run.launches[1:3]]


@pytest.mark.parametrize("activities", [(CUDA,), (CPU, CUDA)])
def test_launches_within_the_profile_are_events_of_the_device(activities):
    found, seconds = profiled(*activities)
    events = [event for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert [event.name for event in events] == ["k (time of the simulator)"] * 2
    np.testing.assert_allclose([event.device_time_total for event in events], np.multiply(seconds, 1e6))
    assert events[1].time_range.start == events[0].time_range.end
    assert any(event.name.startswith("aten::") for event in found.events()) == (CPU in activities)
    (average,) = (event for event in found.key_averages() if event.key.startswith("k "))
    assert average.count == 2
    table = found.key_averages().table(sort_by="cuda_time_total")
    assert "k (time of the simulator)" in table
    assert "Self CUDA time total" in table


def test_a_profile_of_the_host_has_no_launches():
    found, _ = profiled(CPU)
    assert {event.device_type for event in found.events()} == {torch.autograd.DeviceType.CPU}
    assert any(event.name == "aten::sum" for event in found.events())


def test_the_profiler_is_torchs_again_afterwards():
    original = torch.autograd.profiler.profile
    with serve_cuda():
        assert torch.autograd.profiler.profile is not original
    assert torch.autograd.profiler.profile is original
