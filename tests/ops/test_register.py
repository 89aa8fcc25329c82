"""`cutepy.ops.register` with a user's own kernel."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.ops import register  # noqa: E402
from tests.ops import scaled_add  # noqa: E402


@pytest.mark.dsl
def test_a_users_kernel_is_an_operation():
    x, y = torch.randn(3, 50), torch.randn(3, 50)
    expected = x + 2.5 * y
    assert torch.equal(scaled_add.scaled_add(x, y, 2.5), expected)
    with cutepy.simulate() as run:
        assert torch.allclose(scaled_add.scaled_add(x, y, 2.5), expected, rtol=1e-6, atol=1e-6)
        assert torch.allclose(torch.ops.cutepy_tests.scaled_add(x, y, 2.5), expected, rtol=1e-6, atol=1e-6)
    assert len(run.launches) == 2


def test_opcheck():
    torch.library.opcheck(scaled_add.scaled_add.op, (torch.randn(6), torch.randn(6), 2.0))
    arguments = (torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True), 2.0)
    torch.library.opcheck(scaled_add.scaled_add.op, arguments)
    torch.library.opcheck(scaled_add.scale_into.op, (torch.randn(6), 2.0, torch.randn(6)))


def test_derivatives_compile_and_vmap():
    x, y = torch.randn(6, dtype=torch.float64, requires_grad=True), torch.randn(6, dtype=torch.float64)
    y.requires_grad_()
    torch.autograd.gradcheck(lambda x, y: scaled_add.scaled_add(x, y, 3.0), (x, y))
    torch.autograd.gradgradcheck(lambda x, y: scaled_add.scaled_add(x, y, 3.0), (x, y))
    compiled = torch.compile(lambda x, y: scaled_add.scaled_add(x, y, 3.0) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, y), 2 * (x + 3 * y))
    found = torch.vmap(scaled_add.scaled_add.op, in_dims=(1, None, None))(torch.ones(6, 4), torch.ones(6), 2.0)
    assert torch.equal(found, torch.full((4, 6), 3.0))
    assert torch.vmap(scaled_add.scaled_add, in_dims=(1, None, None))(torch.ones(6, 0), y.float(), 2.0).shape == (0, 6)
    with pytest.raises(NotImplementedError, match=r"torch\.vmap can't map; use the form that returns its result"):
        torch.vmap(scaled_add.scale_into.op, in_dims=(0, None, 0))(torch.ones(4, 6), 2.0, torch.ones(4, 6))


def test_autocast_lowers():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scaled_add.scaled_add(torch.ones(4), torch.ones(4), 1.0).dtype == torch.bfloat16


def test_writing_to_an_argument_counts_and_has_no_derivative():
    out, x = torch.zeros(4), torch.ones(4)
    for call in (scaled_add.scale_into, scaled_add.scale_into.op):
        before = out._version
        call(x, 2.0, out)
        assert out._version > before
        assert torch.equal(out, torch.full((4,), 2.0))
        before = out._version
        with pytest.raises(RuntimeError):
            call(torch.ones(3), 2.0, out)
        assert out._version == before, "what was refused was not written to"
    with pytest.raises(RuntimeError, match="writes its result to an argument"):
        scaled_add.scale_into(x.requires_grad_(), 2.0, out)


def test_forward_derivatives_are_refused_rather_than_dropped():
    x = torch.ones(4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(NotImplementedError, match=r"scaled_add.* has no forward derivative"):
            scaled_add.scaled_add(x, dual, 2.0)
        assert torch.equal(scaled_add.scaled_add(x, x, 2.0), 3 * x)


def test_without_a_backward_differentiating_says_so():
    operation = register("cutepy_tests::plain(Tensor x) -> Tensor", reference=lambda x: 2 * x)(lambda x: None)
    result = operation(torch.ones(2, requires_grad=True))
    with pytest.raises(NotImplementedError, match=r"has no derivative; give cutepy\.ops\.register a backward"):
        result.sum().backward()


def test_a_second_registration_replaces_the_first():
    for factor in (2, 3):
        register("cutepy_tests::again(Tensor x) -> Tensor", reference=lambda x, f=factor: f * x)(lambda x: None)
    assert torch.ops.cutepy_tests.again(torch.ones(1)).item() == 3


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("nameless(Tensor x) -> Tensor", {}, "schema must be"),
        ("a::b(Tensor x)", {}, "schema must be"),
        ("a::b(Tensor x) -> Tensor", {"autocast": "higher"}, "autocast must be"),
        ("a::b(Tensor(a!) x) -> ()", {"backward": lambda ctx: None}, "a::b writes to an argument"),
    ],
)
def test_contradictions_are_refused(schema, options, message):
    with pytest.raises(ValueError, match=message):
        register(schema, reference=lambda x: x, **options)
