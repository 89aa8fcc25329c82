"""The architecture of a simulated GPU: names, counts and limits that host code and kernels see."""

import numpy as np
import pytest
import torch

import cutepy
from cutepy.frontends import serve_cuda
from cutepy.host.function import WrongDeviceError
from cutepy.sim.errors import LaunchError
from tests.messages import refuses

PTX = """.version 8.7
.target sm_90
.address_size 64
.visible .entry count(.param .u64 out) { .reg .b32 %r<2>; .reg .b64 %d<2>;
ld.param.u64 %d0, [out]; mov.u32 %r0, %nsmid; st.global.u32 [%d0], %r0; ret; }
.visible .entry nothing() { ret; }
.visible .entry place(.param .u64 out) { .reg .b32 %r<2>; .reg .b64 %d<3>;
ld.param.u64 %d0, [out]; mov.u32 %r0, %ctaid.x; mad.wide.u32 %d1, %r0, 4, %d0;
mov.u32 %r1, %smid; st.global.u32 [%d1], %r1; ret; }
"""


def sm_count(arch):
    out = np.zeros(1, np.uint32)
    with cutepy.simulate(arch=arch):
        cutepy.load_ptx(PTX).launch("count", 1, 1, [out])
    return int(out[0])


@pytest.mark.parametrize(
    ("arch", "name", "capability", "sms"),
    [
        (None, "NVIDIA H200", (9, 0), 132),
        ("sm_90a", "NVIDIA H200", (9, 0), 132),
        ("sm_100a", "NVIDIA B200", (10, 0), 148),
        ("sm_103a", "NVIDIA B300", (10, 3), 148),
        ("sm_120a", "NVIDIA GeForce RTX 5090", (12, 0), 170),
    ],
)
def test_torch_and_kernels_see_one_gpu(arch, name, capability, sms):
    with serve_cuda(arch=arch):
        assert torch.cuda.get_device_name() == name
        assert torch.cuda.get_device_capability() == capability
        assert torch.cuda.get_device_properties(0).multi_processor_count == sms
    assert sm_count(arch) == sms


def test_a_context_inside_keeps_the_gpu_of_the_one_around():
    with serve_cuda(arch="sm_100a"):
        assert sm_count(None) == 148
        assert sm_count("sm_90a") == 132
        assert torch.cuda.get_device_capability() == (10, 0)


def test_the_variable_chooses_where_no_context_does(monkeypatch):
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_103a")
    assert sm_count(None) == 148
    assert sm_count("sm_90a") == 132


@pytest.mark.parametrize(("arch", "sms"), [("sm_90a", 132), ("sm_100a", 148)])
def test_resident_ctas_take_the_sms_of_the_gpu_in_turn(arch, sms):
    out = np.zeros(sms + 2, np.uint32)
    with cutepy.simulate(arch=arch):
        cutepy.load_ptx(PTX).launch("place", len(out), 1, [out], cooperative=True)  # all are resident together
    assert out.tolist() == [*range(sms), 0, 1]


@pytest.mark.parametrize(("arch", "most"), [("sm_90a", 132), ("sm_100a", 148)])
def test_a_cooperative_grid_fits_the_sms_of_the_gpu(arch, most):
    with cutepy.simulate(arch=arch):
        module = cutepy.load_ptx(PTX)
        module.launch("nothing", most, 32, smem=200_000, cooperative=True)
        with refuses(LaunchError):
            module.launch("nothing", most + 1, 32, smem=200_000, cooperative=True)


def test_shared_memory_is_that_of_the_gpu():
    with serve_cuda(arch="sm_120a"):
        properties = torch.cuda.get_device_properties(0)
    assert (properties.shared_memory_per_block_optin, properties.shared_memory_per_multiprocessor) == (101_376, 102_400)
    module = cutepy.load_ptx(PTX.replace("sm_90", "sm_120a"))
    with cutepy.simulate(arch="sm_120a"):
        module.launch("nothing", 1, 32, smem=101_376)
        with refuses(LaunchError):
            module.launch("nothing", 1, 32, smem=101_392)


@pytest.mark.parametrize("arch", ["sm_100", "sm_80", "B200"])
def test_another_architecture_is_refused(arch):
    with refuses(ValueError), cutepy.simulate(arch=arch):
        pass


@pytest.mark.parametrize(
    ("arch", "target", "runs"),
    [
        ("sm_100a", "sm_100a", True),
        ("sm_103a", "sm_100f", True),
        ("sm_120a", "sm_90", True),
        (None, "sm_100a", True),
        ("sm_100a", "sm_90a", False),
        ("sm_90a", "sm_100a", False),
        ("sm_100a", "sm_103a", False),
    ],
)
def test_a_module_for_another_gpu_is_refused_where_one_is_asked_for(arch, target, runs):
    module = cutepy.load_ptx(PTX.replace(".target sm_90\n", f".target {target}\n").replace("8.7", "8.8"))
    with cutepy.simulate(arch=arch), cutepy.simulate():
        if runs:
            module.launch("nothing", 1, 1)
        else:
            with refuses(WrongDeviceError):
                module.launch("nothing", 1, 1)
