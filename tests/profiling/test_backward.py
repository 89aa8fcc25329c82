import threading

import pytest

import cutepy
from tests.profiling.fake_source import fake_source

torch = pytest.importorskip("torch")


def kernel(source, name):
    """Return an operation whose passes launch `name` and `name'`."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            source.launch(name)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            source.launch(f"{name}'")
            return grad

    return Kernel.apply


def paths(profile):
    return {record.name: "/".join(profile.recording.path(record.scope)) for record in profile.recording.records}


def test_backward_kernels_are_in_the_scope_of_their_forward():
    source = fake_source()
    a, b, c = (kernel(source, name) for name in "abc")
    x = torch.zeros(2, requires_grad=True)
    with cutepy.profile(source=source) as profile:
        with cutepy.scope("layer"):
            y = a(x)
            with cutepy.scope("inner"):
                y = b(y)
        y = c(y)
        with cutepy.scope("backward pass"):
            y.sum().backward()
    assert paths(profile) == {
        "a": "layer",
        "b": "layer/inner",
        "c": "",
        "c'": "backward pass",
        "b'": "layer/inner/backward",
        "a'": "layer/backward",
    }


def test_gradients_of_leaves_are_of_the_scope_that_asks_for_them():
    source = fake_source()
    x = torch.zeros(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda _: source.launch("leaf"))
    with cutepy.profile(source=source) as profile, cutepy.scope("layer"):
        kernel(source, "a")(x).sum().backward()
    assert paths(profile) == {"a": "layer", "a'": "layer/backward", "leaf": "layer"}


def test_grad_and_second_derivatives():
    source = fake_source()
    a = kernel(source, "a")
    x = torch.zeros(2, requires_grad=True)
    with cutepy.profile(source=source) as profile:
        with cutepy.scope("layer"):
            y = a(x) ** 3
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        first.sum().backward()
    assert [p for n, p in paths(profile).items() if n == "a'"] == ["layer/backward"]


def test_torch_is_as_before_after_a_profile():
    before = torch.autograd._engine_run_backward
    x = torch.zeros(2, requires_grad=True)
    source = fake_source()
    with cutepy.profile(source=source), cutepy.scope("a"):
        y = kernel(source, "a")(x)
        assert torch.autograd._engine_run_backward is not before
    assert torch.autograd._engine_run_backward is before
    y.sum().backward()
    assert [record.name for record in source.records] == ["a", "a'"]


def test_a_backward_pass_runs_once_for_each_scope_of_a_pass():
    source = fake_source()
    a = kernel(source, "a")
    x = torch.zeros(2, requires_grad=True)
    with cutepy.profile(source=source) as profile:
        for _ in range(2):
            with cutepy.scope("step", flops=5):
                y = a(a(x)).sum()
            y.backward()
    step = profile.tree()["step"]
    assert (step.calls, step["backward"].calls, step["backward"]["a'"].calls, step.flops) == (2, 2, 4, 10)


def test_a_graph_of_another_thread():
    source = fake_source()
    a = kernel(source, "a")
    made = []

    def forward():
        with cutepy.scope("of a thread"):
            made.append(a(torch.zeros(2, requires_grad=True)).sum())

    with cutepy.profile(source=source) as profile:
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
        made[0].backward()
    assert paths(profile)["a'"] == "of a thread/backward"


@pytest.mark.integration
def test_compiled_functions_keep_their_graph_and_are_not_compiled_again():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    @torch.compile(fullgraph=True, backend=backend)
    def layer(x):
        with cutepy.scope("inner", flops=3):
            y = torch.relu(x)
        with cutepy.scope("more"):
            return y.sum()

    x = torch.ones(4, requires_grad=True)
    layer(x)
    with cutepy.profile(source=fake_source()) as profile, cutepy.scope("outer"):
        layer(x).backward()
    layer(x)
    assert len(graphs) == 1
    assert [profile.recording.path(n) for n in range(2)] == [("outer",), ("outer", "backward")]
