"""The GEMM in the simulator over types, majors, tiles, clusters, stages and any extents."""

from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from cutepy.frontends import simulate
from tests.sim.kernels.test_gemm import compiled, multiply

pytestmark = [pytest.mark.dsl, pytest.mark.integration]

pytest.importorskip("cutlass")

# Each is compiled once, in about a second; the extents are drawn.
_BF16 = {"a_dtype": "bfloat16", "b_dtype": "bfloat16"}
_FP8 = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn"}
CONFIGS = {
    "fp16": {},
    "bf16, mn-major, one warpgroup": _BF16 | {"a_major": "mn", "out_major": "col", "warpgroups": 1, "tile_m": 64},
    "fp8, 2 stages": _FP8 | {"stages": 2, "tile_n": 64},
    "b mn-major, cluster": {"b_major": "mn", "cluster_m": 2, "out_dtype": "float16"},
}


@cache
def kernel(name):
    with simulate():
        return compiled(**CONFIGS[name])


@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize("name", CONFIGS)
def test_any_extents(name, data):
    function, signature = kernel(name)
    step = 16 if signature["a_dtype"].startswith("float8") else 8
    m, n, k = (step * data.draw(st.integers(1, limit), label) for label, limit in (("m", 20), ("n", 20), ("k", 12)))
    sms = data.draw(st.sampled_from([2, 132]), "sms")
    with simulate():
        got, expected = multiply(function, signature, m, n, k, sms=sms)
    assert torch.equal(got, expected)
