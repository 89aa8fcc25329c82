"""The benchmark of a decoder layer, without a GPU."""

import pytest


@pytest.mark.parametrize(("error", "status"), [(1e-4, 0), (float("nan"), 1)])
def test_a_result_further_from_float64_than_torchs_fails(monkeypatch, capsys, error, status):
    pytest.importorskip("torch")
    from cutepy import benchmark
    from cutepy.suites import measurement
    from tests.laboratory import llama

    def row(who, error):
        return benchmark.Row("layer", who, 2.0, 3.0, 1e6, 1e3, error)

    monkeypatch.setattr(measurement, "has_hopper", lambda: True)
    monkeypatch.setattr(benchmark, "environment", lambda: {"gpu": "none"})
    monkeypatch.setattr(llama, "_measure", lambda _: [row("cutepy", error), row("torch", 1e-4)])
    assert llama.run_llama([16], measurement.Output()) == status
    assert ("WRONG: of 16 tokens" in capsys.readouterr().err) == bool(status)


def test_a_llama_step_is_measured_and_checked(monkeypatch, capsys):
    """With everything but the GPU: a small layer on the CPU, and a protocol that times nothing."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark
    from tests.laboratory import llama, llama_layer

    def compare(contenders, *, sets):
        for run in contenders.values():
            for index in range(sets):
                run(index)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    small = llama_layer.LlamaSizes(hidden=64, intermediate=176, heads=4, key_heads=2)
    monkeypatch.setattr(llama_layer, "LlamaSizes", lambda: small)
    monkeypatch.setattr(benchmark, "compare", compare)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda shape, device: randn(shape))
    layer = llama_layer.LlamaLayer
    monkeypatch.setattr(llama_layer, "LlamaLayer", lambda sizes, device, dtype: layer(sizes, dtype=dtype))
    torchs, *ours = llama._measure(16)
    assert [each.contender for each in (torchs, *ours)] == ["torch", "cutepy", "cutepy, joined"]
    assert "joined 2: q_proj+k_proj+v_proj, gate_proj+up_proj" in capsys.readouterr().out
    for each in ours:
        assert 0 < each.error <= 2 * torchs.error
        assert each.flops == llama.layer_flops(16, 64, 176, 32)
