"""The peer in Triton, in its interpreter's absence simulated."""

import pytest

from cutepy.suites import gemm_problems


@pytest.mark.integration
@pytest.mark.dsl
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")
def test_tritons_persistent_kernel_multiplies(monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton", reason="needs triton: make check installs it, or pip install 'cutepy[triton]'")
    import cutepy
    from tests.laboratory import triton_persistent

    problem = gemm_problems.GemmProblem(200, 136, 96, "bfloat16")
    with cutepy.simulate():
        sets = gemm_problems.buffers(problem, "cpu")
        contender = triton_persistent.triton_persistent(problem, gemm_problems.Buffers(*(part[:1] for part in sets)))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("", (), {"multi_processor_count": 2}))
        contender(0)
    reference = sets.a[0].double() @ sets.b[0].double().T
    torch.testing.assert_close(sets.out[0].double(), reference, rtol=1e-2, atol=1e-2)
    assert triton_persistent.triton_persistent(gemm_problems.GemmProblem(64, 64, 64, "float16", (2,)), sets) is None
