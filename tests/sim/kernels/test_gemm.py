"""Our GEMM in the simulator: right on every path, and wrong where a wait is missing and completion is late."""

import itertools
import re

import pytest
import torch

from cutepy.frontends import simulate
from cutepy.frontends.backend import Simulator
from cutepy.frontends.dsl.execution import executing_on
from cutepy.layouts import ComposedLayout, Layout, Swizzle, composition, make_layout
from cutepy.sim import (
    MbarrierArrive,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierWait,
    Observer,
    Run,
)

from .launching import EditedPtx

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")


def configuration(**options):
    from cutepy.kernels.gemm import GemmConfig, GemmSignature

    names = ("a_dtype", "b_dtype", "out_dtype", "a_major", "b_major", "out_major")
    signature = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float32"}
    signature |= {name: options.pop(name) for name in names if name in options}
    tile = {"tile_m": 128, "tile_n": 128, "warpgroups": 2} | options
    return GemmConfig(signature=GemmSignature(**signature), **tile), signature


def compiled(**options):
    from cutepy.kernels.gemm.compilation import compile_gemm

    config, signature = configuration(**options)
    return compile_gemm(config), signature


def matrix(rows, columns, dtype, last):
    """Small integers: every sum is exact in float32."""
    values = torch.randint(-3, 4, (rows, columns)).to(getattr(torch, dtype))
    return values.contiguous() if last else values.t().contiguous().t()


def multiply(function, signature, m, n, k, sms=132):
    torch.manual_seed(3)
    a = matrix(m, k, signature["a_dtype"], signature.get("a_major", "k") == "k")
    b = matrix(n, k, signature["b_dtype"], signature.get("b_major", "k") == "k")
    d = matrix(m, n, signature["out_dtype"], signature.get("out_major", "row") == "row")
    function(a, b, None, d, sms, None)
    return d, (a.float() @ b.float().t()).to(d.dtype)


CASES = {
    "tails, mn-major": ((136, 136, 72), {"a_major": "mn", "b_major": "mn", "out_major": "col"}),
    "in 4, with tails": ((64, 96, 200), {"split_k": 4, "tile_m": 64, "tile_n": 64, "warpgroups": 1, "epi_n": 16}),
    "in turns, multicast": ((256, 72, 104), {"consumers": 2, "warpgroups": 1, "tile_n": 64, "cluster_m": 2, "sms": 2}),
    "three warpgroups": ((200, 100, 72), {"warpgroups": 3, "tile_m": 192, "tile_n": 64, "sms": 1}),
}
MORE_CASES = {
    "fp8": ((128, 128, 256), {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e5m2"}),
    "multicast": ((256, 256, 64), {"cluster_m": 2, "cluster_n": 2}),
    "one warpgroup": ((136, 128, 72), {"warpgroups": 1, "a_dtype": "bfloat16", "b_dtype": "bfloat16"}),
    "in 8, with fewer owners": ((64, 64, 600), {"split_k": 8, "tile_m": 64, "tile_n": 64, "warpgroups": 1}),
    "K split, persistent": ((128, 128, 264), {"split_k": 2, "tile_m": 64, "tile_n": 64, "warpgroups": 1, "sms": 2}),
    "K split, multicast": ((256, 64, 136), {"split_k": 2, "cluster_m": 2, "tile_n": 64}),
    "in turns, one tile": ((64, 64, 104), {"consumers": 2, "warpgroups": 1, "tile_m": 64, "tile_n": 64}),
    "an odd number of core matrices": (
        (136, 176, 72),
        {"tile_n": 168, "epi_n": 56, "out_dtype": "float16", "sms": 2},
    ),
}
MORE = pytest.mark.integration


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        *(pytest.param(*case, id=name) for name, case in CASES.items()),
        *(pytest.param(*case, id=name, marks=MORE) for name, case in MORE_CASES.items()),
    ],
)
def test_exact_sums(shape, options):
    options = dict(options)
    sms = options.pop("sms", 132)
    with simulate() as run:
        function, signature = compiled(**options)
        got, expected = multiply(function, signature, *shape, sms=sms)
    assert torch.equal(got, expected)
    assert run.launches[0].stats["wgmma"] > 0


class Kinds(Observer):
    """Count what an observer sees."""

    def __init__(self):
        self.issued, self.completed, self.accesses, self.barriers = [], [], [], []

    def on_issue(self, operation):
        self.issued.append(operation)

    def on_complete(self, operation):
        self.completed.append(operation)

    def on_access(self, access):
        self.accesses.append(access)

    def on_barrier(self, event):
        self.barriers.append(event)


@pytest.mark.parametrize("policy", ["late", pytest.param("random:1", marks=MORE)])
def test_late_completion_changes_nothing_in_a_correct_kernel(policy):
    with simulate(policy=policy):
        function, signature = compiled()
        got, expected = multiply(function, signature, 128, 128, 256)
    assert torch.equal(got, expected)


def without_waits(ptx: str) -> str:
    return re.sub(r"wgmma\.wait_group\.sync\.aligned\s+\d+;", "", ptx)


@pytest.mark.parametrize("policy", [None, "late"])
def test_a_gemm_without_wait_group_is_wrong_if_its_mmas_complete_late(policy):
    observer = Kinds()
    run = Run([observer], policy)
    with executing_on(EditedPtx(Simulator(run), without_waits)):
        function, signature = compiled()
        got, expected = multiply(function, signature, 128, 128, 256)
    assert torch.equal(got, expected) == (policy is None)
    assert {o.kind for o in observer.issued} == {"tma_load", "tma_store", "wgmma"}


def test_an_observer_sees_who_did_what_where_and_at_which_line():
    observer = Kinds()
    with simulate(observers=[observer]):
        function, signature = compiled()
        multiply(function, signature, 128, 128, 128)
    assert len(observer.issued) == len(observer.completed) > 0
    loads = [o for o in observer.issued if o.kind == "tma_load"]
    assert {(o.ctas.count, o.threads.count) for o in loads} == {(1, 1)}
    assert all(o.instruction.source.file.endswith(".py") for o in loads)
    written = sum(
        a.size_bytes * a.addresses.size
        for a in observer.accesses
        if (a.space, a.proxy, a.operation) == ("shared", "async", "write")
    )
    assert written == 2 * 128 * 128 * 2
    assert {MbarrierInit, MbarrierWait, MbarrierArrive, MbarrierCompleteTx, MbarrierExpectTx} <= {
        type(event) for event in observer.barriers
    }


class Descriptors(Observer):
    """Keep the descriptors of every MMA and the boxes of every copy."""

    def __init__(self):
        self.a, self.b, self.copies = set(), set(), []

    def on_wgmma(self, event):
        self.a.update(event.a.reshape(-1).tolist())
        self.b.update(event.b.reshape(-1).tolist())

    def on_tma(self, event):
        self.copies.append(event)


@pytest.mark.parametrize(("major", "option"), [pytest.param("K", "k", marks=MORE), ("MN", "mn")])
def test_every_descriptor_is_that_of_make_gmma_desc(major, option):
    from cutepy.layouts.sm90 import make_gmma_desc

    observer = Descriptors()
    with simulate(observers=[observer]):
        function, signature = compiled(a_major=option, b_major=option, stages=2)
        multiply(function, signature, 128, 128, 256)
    config = configuration(a_major=option, b_major=option, stages=2)[0]
    base = 0
    for words, layout, extent in ((observer.a, config.a_layout, 64), (observer.b, config.b_layout, 128)):
        expected = set()
        for stage, block, k in itertools.product(range(2), range(128 // extent), range(0, 64, 16)):
            tile, offset = mma_tile(layout, extent, block, k, stage)
            expected.add(int(make_gmma_desc(tile, major=major, bits=16, start_address=base + offset)))
        assert words == expected
        base += 2 * 128 * 64 * 2


def mma_tile(staged, extent, block, k, stage):
    """Return the layout of one MMA's operand, and its offset in bytes, of a staged (128, 64, stages) layout."""
    plain = staged.layoutA
    rows = composition(plain[0], Layout(extent, 1))
    columns = composition(plain[1], Layout(16, 1))
    return ComposedLayout(Swizzle(3, 4, 3), 0, make_layout(rows, columns)), plain(block * extent, k, stage) * 2


def test_an_observer_sees_each_box():
    observer = Descriptors()
    with simulate(observers=[observer]):
        function, signature = compiled()
        multiply(function, signature, 128, 128, 128)
    loads = [c for c in observer.copies if c.operation == "load"]
    assert sorted(c.coordinates for c in loads) == [(0, 0), (0, 0), (64, 0), (64, 0)]
    assert all(c.tensor_map.swizzle == "SW128" and c.tensor_map.box == (64, 128) for c in loads)
