"""Work of the host in a warm call: how many functions of cutepy it calls, and what they ask of torch.

The kernels are left out: plans launch nothing. A call is on its way to the GPU's implementation.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.nn.linear import Linear  # noqa: E402
from cutepy.nn.norms import LayerNorm, RMSNorm  # noqa: E402
from cutepy.nn.replaced_attention import AttentionMode  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention,
    dense_gemm,
    dot_product_attention,
    flash_attn_func,
    gated,
    gemm,
    multiply,
    normalising,
    rms_norm,
    rotaries,
    rotary,
    scaled_dot_product_attention,
    swiglu,
)
from cutepy.runtime.execution import EXECUTION  # noqa: E402
from tests.ops import scaled_add  # noqa: E402

ROOT = str(Path(cutepy.__file__).parent)


def calls_of(run):
    """Count the calls of cutepy's functions, and of C's by their names, while something runs."""
    own, others = Counter(), Counter()

    def note(frame, event, function):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            own[frame.f_code.co_name] += 1
        elif event == "c_call":
            others[function.__name__] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return own, others


def nothing(*_, **__):
    return lambda *_, **__: None


def products(problem):
    return lambda a, b, operands, outs, along_k: (a.new_zeros(a.shape[0], b.shape[0]),)


ATTENTION_PLANS = [
    *[(dot_product_attention, name, nothing) for name in ("plan_forward", "plan_backward")],
    (dot_product_attention, "only_launches", bool),  # as on a GPU
]


def rows(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)


CASES = {
    "gemm": (
        lambda a, b, bias: gemm(a, b, bias=bias),
        lambda: (rows(8, 16), rows(32, 16), rows(32)),
        [(multiply, "_launches")],
        [(multiply, "plan_gemm", products)],
        [dense_gemm._gemm],
        (26, 16),
    ),
    "attention": (
        attention,
        lambda: [rows(2, 8, 3, 64) for _ in "qkv"],
        [(dot_product_attention, name) for name in ("_launches", "_of_gradients")],
        ATTENTION_PLANS,
        [],
        (9, 7),
    ),
    "scaled_dot_product_attention": (
        scaled_dot_product_attention,
        lambda: [rows(2, 3, 8, 64) for _ in "qkv"],
        [(dot_product_attention, name) for name in ("_launches", "_of_gradients")],
        ATTENTION_PLANS,
        [],
        (14, 19),
    ),
    "rms_norm": (
        lambda x, weight: rms_norm(x, (64,), weight),
        lambda: (rows(2, 8, 64), rows(64)),
        [(normalising, name) for name in ("_launches", "_backward_launches")],
        [(normalising, name, nothing) for name in ("plan_norm", "plan_norm_backward")],
        [normalising.norm, normalising._norm_backward],
        (18, 15),
    ),
    "swiglu": (
        swiglu,
        lambda: (rows(2, 8, 64), rows(2, 8, 64)),
        [(gated, name) for name in ("_launches", "_backward_launches")],
        [(gated, name, nothing) for name in ("plan_gated", "plan_gated_backward")],
        [gated._gated, gated._gated_backward],
        (16, 17),
    ),
    "rotary": (
        lambda x: rotary(x, *2 * [torch.zeros(8, 32)]),
        lambda: [rows(2, 8, 3, 64)],
        [(rotaries, "_launches")],
        [(rotaries, "plan_rotary", nothing)],
        [rotaries._rotary],
        (14, 9),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_warm_call_with_gradients_is_short(name, monkeypatch):
    call, given, launches, plans, operations, most = CASES[name]
    for module, cache in launches:
        monkeypatch.setattr(module, cache, Launches())
    for module, plan, instead in plans:
        monkeypatch.setattr(module, plan, instead)
    for operation in operations:  # as on a GPU
        monkeypatch.setattr(operation, "_on_cpu", operation._direct)
    tensors = given()
    with EXECUTION.on(object()):
        for _ in range(2):  # the first call plans
            result = call(*tensors)
            grad = torch.ones_like(result)
            torch.autograd.grad(result, tensors, grad)
        forward = calls_of(lambda: call(*tensors))
        result = call(*tensors)
        backward = calls_of(lambda: torch.autograd.grad(result, tensors, grad))
    for (own, others), limit in zip((forward, backward), most, strict=True):
        assert sum(own.values()) <= limit, own
        assert others["new_empty"] == others["transpose"] == 0, "what a plan has is made by it"
    assert forward[0]["road"] == 1
    assert backward[0]["road"] == (2 if name == "gemm" else 1), "each product, and each operation, asks once"


ATTENTION = {
    "attention": (lambda q, k, v: attention(q, k, v, causal=True), 5, 9),
    "flash_attn_func": (lambda q, k, v: flash_attn_func(q, k, v, causal=True), 6, 10),
    "scaled_dot_product_attention": (scaled_dot_product_attention, 10, 14),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_a_warm_call_of_attention_looks_up_once_allocates_once_and_launches_once(name, monkeypatch):
    call, most, most_with_gradients = ATTENTION[name]
    launched, made = [], []
    plan = lambda *_, **__: lambda *given: launched.append(given[3:])  # noqa: E731

    def maker_of(like, shape, dtype=None):
        return lambda: made.append(dtype) or like.new_empty(shape, dtype=dtype)

    monkeypatch.setattr(dot_product_attention, "maker_of", maker_of)
    monkeypatch.setattr(dot_product_attention, "plan_forward", plan)
    monkeypatch.setattr(dot_product_attention, "_launches", Launches())
    monkeypatch.setattr(dot_product_attention, "only_launches", bool)  # as on a GPU
    tensors = [rows(2, 8, 3, 64).detach() for _ in "qkv"]
    call(*tensors)
    made.clear()
    own, others = calls_of(lambda: call(*tensors))
    assert sum(own.values()) <= most, own
    assert (made, others["get"], own["road"], others["transpose"]) == ([torch.bfloat16], 1, 1, 0)
    assert others["_reinterpret_tensor"] == (4 if name == "scaled_dot_product_attention" else 0)
    lse = [given[1].data_ptr() for given in launched]
    assert lse[0] == lse[1], "nobody reads the logarithms"
    for each in tensors:
        each.requires_grad_()
    call(*tensors)
    made.clear()
    own, others = calls_of(lambda: call(*tensors))
    assert sum(own.values()) <= most_with_gradients, own
    assert (made, others["get"], own["road"], others["transpose"]) == ([torch.bfloat16, torch.float32], 1, 1, 0)
    assert len(launched) == 4


def test_operations_pass_modes_that_call_them_as_they_are():
    x = torch.randn(6, requires_grad=True)
    with AttentionMode():
        assert type(scaled_add.scaled_add(x, x, 2.0).grad_fn).__name__ == "EagerBackward"
        with torch.overrides.BaseTorchFunctionMode():
            assert type(scaled_add.scaled_add(x, x, 2.0).grad_fn).__name__ == "TransformableBackward"


def test_tensors_of_others_are_seen_within_such_modes():
    seen = []

    class Seeing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    with AttentionMode():
        scaled_add.scaled_add(torch.ones(4).as_subclass(Seeing), torch.ones(4), 2.0)
        traced = torch.fx.symbolic_trace(lambda x: scaled_add.scaled_add(x, x, 2.0))
    assert scaled_add.scaled_add.op in seen
    assert [str(node.target) for node in traced.graph.nodes][1] == "cutepy_tests.scaled_add.default"


@pytest.mark.parametrize("make", [lambda: Linear(16, 8), lambda: RMSNorm(16), lambda: LayerNorm(16)])
def test_layers_look_at_tensors_past_such_modes(make):
    layer, seen = make().bfloat16(), []

    class Seeing(AttentionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.randn(2, 16, requires_grad=True).bfloat16()
    with AttentionMode(), Seeing():
        layer(x)
    assert not seen
    with Seeing(), torch.overrides.BaseTorchFunctionMode():
        layer(x)
    assert seen, "a mode of others sees the layer, and tells those around it"
