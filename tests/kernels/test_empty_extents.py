"""Kernels that are called by themselves refuse tensors without elements before a launch, and say what takes them."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.host.arguments import ArgumentError  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.compilation import compile_fused  # noqa: E402
from cutepy.kernels.gemv import GemvConfig  # noqa: E402
from cutepy.kernels.grouped import GroupedConfig, compile_grouped  # noqa: E402

HALF = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
SMS = 4


def configured(batch_modes=0, align=16, **options):
    signature = GemmSignature(**HALF, batch_modes=batch_modes, a_align=align, b_align=align)
    return GemmConfig(signature=signature, **{"tile_m": 64, "tile_n": 32, **options})


def operands(m, n, k, *batch, device="cpu"):
    """Make A, B and D, whose rows are whole 16 bytes apart, whatever their extents."""
    pairs = (m, k), (n, k), (m, n)
    made = [torch.empty(*batch, x, max(y, 8), dtype=torch.float16, device=device) for x, y in pairs]
    return [tensor[..., :y] for tensor, (_, y) in zip(made, pairs, strict=True)]


def launch(config, m, n, k, *batch, device="cpu"):
    a, b, d = operands(m, n, k, *batch, device=device)
    workspace = ()
    if config.workspace is not None:
        flags, sums = rules.workspace_shapes(SMS, config.tile_m, config.tile_n)
        workspace = ((torch.zeros(flags, dtype=torch.int32), torch.zeros(sums) if config.stream_k else None),)
    compile_gemm(config)(a, b, None, d, SMS, None, *workspace)


CONFIGS = {
    "plain": configured(),
    "gemv": GemvConfig(signature=GemmSignature(**HALF)),
}
DEARER = {
    "loaded by threads": configured(align=8),
    "stream_k": configured(tile_k=16, stream_k=True),
}
REFUSED = [(40, 48, 0), (0, 48, 16), (40, 0, 16)]


@pytest.mark.parametrize(
    "config",
    [
        *(pytest.param(config, id=name) for name, config in CONFIGS.items()),
        *(pytest.param(config, id=name, marks=pytest.mark.integration) for name, config in DEARER.items()),
    ],
)
def test_a_gemm_refuses_extents_of_0(config):
    for shape in REFUSED:
        with cutepy.simulate() as run, refuses(ArgumentError):
            launch(config, *shape)
        assert not run.launches


@pytest.mark.integration
def test_so_does_one_of_a_batch_of_none():
    with cutepy.simulate() as run, refuses(ArgumentError):
        launch(configured(batch_modes=1), 40, 48, 16, 0)
    assert not run.launches


@pytest.mark.integration
def test_so_does_one_with_an_epilogue():
    a, b, d = operands(40, 48, 0)
    with cutepy.simulate() as run, refuses(ArgumentError):
        compile_fused(configured())(a, b, None, (d,), SMS, None, None)
    assert not run.launches


def test_extents_of_1_are_taken():
    a, b, d = (torch.ones(1, 8).half() for _ in range(3))
    with cutepy.simulate():
        compile_gemm(configured())(a[:, :1], b[:, :1], None, d[:, :1], SMS, None)
    assert d[0, 0] == 1


MAJORS = {"m": {}, "n": {"out_major": "col"}, "k": {"a_major": "mn", "b_major": "mn"}}


def grouped(along, padded=False):
    signature = GemmSignature(**HALF, **MAJORS[along])
    gemm = GemmConfig(signature=signature, tile_m=64, tile_n=64, stages=2)
    return GroupedConfig(gemm=gemm, along=along, padded=padded)


def launch_grouped(config, groups, m, n, k, ends=None):
    """Launch for groups of as many rows, or as much of K; gives the result."""
    extents = {"sA": (m, k, "k"), "sB": (n, k, "k"), "sD": (m, n, "row")}
    made = []
    for (name, (x, y, major)), place in zip(extents.items(), ("a_major", "b_major", "out_major"), strict=True):
        batch = (groups,) if config.grouping(name).batched else ()
        if getattr(config.gemm.signature, place) == major:
            made.append(torch.ones(*batch, x, max(y, 8)).half()[..., :y])
        else:
            made.append(torch.ones(*batch, y, max(x, 8)).half()[..., :x].mT)
    ends = torch.zeros(groups, dtype=torch.int32) if ends is None else torch.tensor(ends, dtype=torch.int32)
    compile_grouped(config)(made[0], made[1], ends, None, (made[2],), SMS, None, None)
    return made[2]


@pytest.mark.parametrize(
    ("along", "padded", "shape"),
    [
        ("m", False, (2, 40, 48, 0)),
        ("m", False, (2, 40, 0, 16)),
        ("m", False, (0, 40, 48, 16)),
        pytest.param("n", False, (2, 40, 48, 0), marks=pytest.mark.integration),
        pytest.param("m", True, (2, 0, 48, 16), marks=pytest.mark.integration),
        pytest.param("k", False, (2, 0, 48, 16), marks=pytest.mark.integration),
        pytest.param("k", False, (0, 40, 48, 16), marks=pytest.mark.integration),
    ],
)
def test_a_grouped_gemm_refuses_extents_of_0_along_which_there_are_no_groups(along, padded, shape):
    with cutepy.simulate() as run, refuses(ArgumentError):
        launch_grouped(grouped(along, padded), *shape)
    assert not run.launches


def test_groups_that_are_all_empty_are_taken():
    with cutepy.simulate(sanitize=True) as run:
        assert (launch_grouped(grouped("m"), 2, 0, 48, 16)).shape == (0, 48)
        assert not launch_grouped(grouped("k"), 2, 40, 48, 0).any()
    assert len(run.launches) == 2
    assert not run.hazards


@pytest.mark.integration
def test_groups_that_are_padded_and_all_empty_are_taken():
    with cutepy.simulate(sanitize=True) as run:
        assert not launch_grouped(grouped("k", padded=True), 2, 40, 48, 0).any()
    assert len(run.launches) == 1
    assert not run.hazards


@pytest.mark.gpu
def test_a_gpu_is_not_asked_for_nothing():
    for shape in REFUSED:
        with pytest.raises(ArgumentError):
            launch(CONFIGS["plain"], *shape, device="cuda")
    a, b, d = operands(40, 48, 16, device="cuda")
    compile_gemm(CONFIGS["plain"])(a.fill_(1), b.fill_(1), None, d, SMS, None)  # and refuses once it is ready, too
    assert (d == 16).all()
    for shape in REFUSED:
        with pytest.raises(ArgumentError):
            launch(CONFIGS["plain"], *shape, device="cuda")
