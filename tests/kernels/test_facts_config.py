"""Intended facts of a GEMM's code, by its configuration alone: of the code only what they are compared with."""

from types import SimpleNamespace

import pytest

from cutepy.kernels.gemm import GemmConfig, GemmSignature, inspection
from tests.messages import pins

HALF = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
CONFIGS = {
    "cluster": (HALF, {"tile_m": 128, "tile_n": 256, "warpgroups": 2, "cluster_m": 2, "stages": 3}),
    "majors": (HALF | {"a_major": "mn", "b_major": "mn"}, {"tile_m": 256, "tile_n": 96, "stages": 2}),
    "8-bit": (
        {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e5m2", "out_dtype": "bfloat16"},
        {"tile_m": 64, "tile_n": 32, "warpgroups": 1, "stages": 2, "cluster_n": 2},
    ),
    "c": (HALF | {"c_dtype": "float16", "c_major": "row"}, {"tile_m": 128, "tile_n": 64, "stages": 2}),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_intended_facts(name, monkeypatch):
    signature, tile = CONFIGS[name]
    config = GemmConfig(signature=GemmSignature.standard(**signature), **tile)
    mma = SimpleNamespace(spelling="another", transpose=(2, 3), descriptors=(4, 5), accumulate=True)
    step = SimpleNamespace(name="mbarrier.arrive.expect_tx", operands=(6, 7))
    read = {"wgmmas": [mma, mma], "mbarrier_counts": [8, 9], "steps": [step, SimpleNamespace(name="wait")]}
    for function, found in read.items():
        monkeypatch.setattr(inspection.protocol, function, lambda *_, found=found, **how: found)
    resources = (SimpleNamespace(dynamic_smem_bytes=10, stack_bytes=11),)
    facts = inspection.facts(config, SimpleNamespace(resources=resources, ptx=""))
    assert not any(fact.holds for fact in facts)
    pins("\n".join(f"{fact.name}: {fact.meant} / {fact.found}" for fact in facts))
    assert inspection.Fact("bytes", "1", "1").holds
