"""Our GEMM is certified for any sizes: drawn configurations for further rounds, and one for any number of k-tiles."""

import pytest
import torch

pytestmark = [pytest.mark.dsl, pytest.mark.integration]

pytest.importorskip("cutlass")

from cutepy.frontends import simulate  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from tests.sim.sanitize.certificate.any_rounds.gemm_trial import examine  # noqa: E402


@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (2, 4))])
def test_drawn_configurations_are_certified_for_further_rounds_of_all_loops(seed):
    assert examine(seed)[1] == []


@pytest.mark.deep
def test_consumers_in_turns_are_certified_for_further_rounds_by_the_number_of_tiles():
    config, wrong = examine(1)
    assert (config.consumers, bool(config.signature.added)) == (2, True)
    assert wrong == []


def test_as_many_launches_as_a_ring_has_positions_speak_for_any_number_of_k_tiles():
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    kernel = compile_gemm(GemmConfig(signature=signature, tile_m=64, tile_n=64, tile_k=16, stages=2))
    with simulate(sanitize=True) as simulation:
        for k_tiles in range(12, 16):
            a, b = (torch.zeros(64, 16 * k_tiles, dtype=torch.float16) for _ in range(2))
            kernel(a, b, None, torch.empty(64, 64, dtype=torch.float16), 1, None)
    (found,) = simulation.any_rounds
    assert (found.launches, found.least) == (4, (14, 15))
    assert "any number of rounds" in str(found)


def test_all_schedules_of_a_small_gemm_come_to_the_same():
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    kernel = compile_gemm(GemmConfig(signature=signature, tile_m=64, tile_n=16, tile_k=16, stages=2, epi_n=16))
    a, b = torch.ones(64, 32, dtype=torch.float16), torch.ones(16, 32, dtype=torch.float16)
    with simulate(replay=True) as simulation:
        kernel(a, b, None, torch.empty(64, 16, dtype=torch.float16), 1, None)
        found = simulation.explore(schedules="all", limit=200)
    assert (found.is_complete, found.divergences) == (True, ())
