"""The GEMM of `cutepy.kernels`: nothing in it is unordered, and what is taken out of it is missed."""

from dataclasses import replace

import pytest
import torch

from cutepy.frontends import simulate
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm
from cutepy.sim import HazardError, Run
from cutepy.sim.machine.loaded_module import LoadedModule

pytestmark = [pytest.mark.dsl, pytest.mark.integration]

pytest.importorskip("cutlass")

EXTENTS = 256, 256, 512


def gemm(**options):
    """Compile a GEMM, and return a function that runs it and tells whether the result is right."""
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    kernel = compile_gemm(GemmConfig(signature=signature, **{"tile_m": 128, "tile_n": 128, "warpgroups": 2, **options}))
    m, n, k = EXTENTS
    a, b = (torch.randint(-3, 4, (rows, k)).half() for rows in (m, n))

    def run():
        out = torch.empty((m, n), dtype=torch.float16)
        kernel(a, b, None, out, 132, None)
        return torch.equal(out, (a.float() @ b.float().t()).half())

    return run


@pytest.mark.parametrize("options", [{}, {"cluster_m": 2}, {"tile_n": 256}], ids=str)
def test_nothing_is_unordered(options):
    run = gemm(**options)
    with simulate(sanitize=True) as simulation:
        assert run()
    assert simulation.hazards == ()


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("fence.mbarrier_init", {"missing-init-fence"}),
        ("bar.sync \t0", {"unpublished-mbarrier"}),
        ("fence.proxy.async", {"missing-proxy-fence"}),
        ("bar.sync \t1", {"unordered-read"}),
        ("wgmma.fence", {"missing-wgmma-fence"}),
        ("wgmma.wait_group.sync.aligned \t0", {"accumulator-in-flight"}),
        ("wgmma.wait_group.sync.aligned \t1", {"unordered-write"}),
        ("cp.async.bulk.wait_group.read \t0", {"in-flight-at-exit"}),
    ],
)
def test_what_is_taken_out_is_missed(monkeypatch, line, kinds):
    """The values are right without it, in the simulator."""
    launch = Run.launch

    def without(self, call):
        lines = call.loaded.ptx.split("\n")
        first = next(n for n, text in enumerate(lines) if text.strip().startswith(line))
        module = LoadedModule("\n".join(lines[:first] + lines[first + 1 :]))
        launch(self, replace(call, loaded=module))

    monkeypatch.setattr(Run, "launch", without)
    run = gemm()
    with pytest.raises(HazardError) as caught, simulate(sanitize=True):
        assert run()
    assert {hazard.kind for hazard in caught.value.hazards} >= kinds
