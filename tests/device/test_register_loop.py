"""The main loop whose A passes through registers: exact sums, of a changed A too; and hazards where it is broken."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import itertools  # noqa: E402
import re  # noqa: E402
from dataclasses import dataclass  # noqa: E402

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass.cute.nvgpu import warpgroup  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import mma, operand, product, register_loop, smem, tma  # noqa: E402
from cutepy.device.fragment import AccumulatorTile, make_subtile  # noqa: E402
from cutepy.device.pipeline import TmaRing, publish_barriers  # noqa: E402
from cutepy.dsl import from_cute, to_cute  # noqa: E402
from cutepy.dsl.element_types import element_type  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.runtime.dtypes import DTYPES  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402
from tests.device.products import (  # noqa: E402
    BF16,
    E4M3,
    E5M2,
    F16,
    Consumer,
    OfHalfB,
    Product,
    check,
    check_on_gpu,
    check_refused,
    problem,
)

DEEP = pytest.mark.deep


@dataclass(frozen=True)
class Changes(Consumer):
    """The consumers: what they multiply is A, or each of its rows by its scale, which a thread keeps in registers."""

    def multiply(self, work, state):
        tile_m, tile_n = self.places.coordinates.tile_mn
        loop = self.loop.at(work, (work.row * tile_m, work.column * tile_n))
        change = {} if self.scales is None else {"change": self.scale(work.row * tile_m)}
        return loop.multiply(state, work.k.count, **change)

    def scale(self, first):
        tile = self.loop.load.tile
        rows = tile.distinct(0)
        held = [self.scales[first + tile.of_thread(0) + row] for row in rows]

        def scaled(values, step):
            wide = cute.make_rmem_tensor(values.shape, cutlass.Float32)
            for register, row in enumerate(tile.place(0)):
                wide[register] = values[register].to(cutlass.Float32) * held[row]
            return wide

        return scaled


class Through(Product):
    """The product, or scaled by rows, with A by way of registers, where it becomes what is multiplied."""

    consumers = Changes

    def __init__(self, tile, staged, multiplied, warpgroups=1, stages=3, a_mode=1, b_dtype=None, in_registers=True):
        of_b = b_dtype or multiplied
        super().__init__(tile, (staged, of_b), warpgroups, stages, (a_mode, 1), mma_modes=(1, 1))
        self.types = [element_type(dtype) for dtype in self.dtypes]
        self.multiplied, self.in_registers = (multiplied, of_b), in_registers

    def make_loop(self, *arguments):
        return register_loop.make_register_loop(*arguments)


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("tile", "warpgroups", "stages"),
    [((64, 32, 64), 1, 3), ((128, 16, 48), 2, 2), ((128, 16, 32), 1, 4), pytest.param((64, 64, 128), 1, 2, marks=DEEP)],
    ids=str,
)
@pytest.mark.parametrize("k", [344, 16])
def test_a_passes_through_registers(tile, warpgroups, stages, k):
    check(Through(tile, BF16, BF16, warpgroups, stages), 200, 40, k)


@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("staged", "multiplied", "of_b"),
    [
        ("int8", BF16, BF16),
        ("uint8", F16, F16),
        (E4M3, BF16, BF16),
        ("float32", F16, F16),
        (E4M3, E4M3, E5M2),
        ("int8", "int8", "uint8"),
        (BF16, E4M3, E4M3),
        pytest.param(E5M2, F16, F16, marks=DEEP),
    ],
)
def test_a_is_converted_to_what_is_multiplied(staged, multiplied, of_b):
    check(Through((64, 32, 64), staged, multiplied, b_dtype=of_b), 100, 40, 208)


@pytest.mark.parametrize("staged", [BF16, "int8"])
def test_warpgroups_along_n_have_the_same_a(staged):
    check(Through((64, 64, 64), staged, BF16, (1, 2)), 200, 104, 208)


@pytest.mark.parametrize(("staged", "warpgroups"), [("int8", 2), (BF16, 1)])
def test_rows_of_a_are_scaled(staged, warpgroups):
    check(Through((128, 32, 64), staged, BF16, warpgroups), 200, 40, 208, scaled=True)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("staged", "multiplied", "scaled"),
    [
        (BF16, BF16, False),
        ("int8", BF16, True),
        ("uint8", F16, False),
        (E4M3, BF16, False),
        ("float32", F16, True),
        (E4M3, E4M3, False),
        ("int8", "int8", False),
    ],
)
@pytest.mark.parametrize("warpgroups", [1, 2])
def test_a_gpu_has_the_same_sums(staged, multiplied, scaled, warpgroups):
    check_on_gpu(Through((64 * warpgroups, 64, 64), staged, multiplied, warpgroups, stages=4), scaled)


def told(kernel, m=64, n=32, k=336):
    """Give what the sanitizer says; where a ptxas is installed that makes it good, it is no hazard but an advisory."""
    try:
        with cutepy.simulate(sanitize=True) as run:
            kernel(*problem(kernel, m, n, k)[:-1])
    except HazardError as error:
        return str(error)
    return str(run.report())


@pytest.mark.filterwarnings("ignore::cutepy.sim.AdvisoryWarning")  # where a ptxas puts the fence
@pytest.mark.parametrize("staged", [BF16, "int8"])
def test_mmas_that_are_not_fenced_from_what_fills_registers_are_told(monkeypatch, staged):
    kernel = Through((64, 32, 64), staged, BF16)
    assert "wgmma-fence" not in told(kernel)
    monkeypatch.setattr(warpgroup, "fence", lambda: None)
    assert re.search("(missing|injected)-wgmma-fence: registers", told(Through((64, 32, 64), staged, BF16)))


@pytest.mark.parametrize("staged", [BF16, "int8"])
def test_registers_that_are_filled_while_mmas_read_them_are_told(monkeypatch, staged):
    wait_group, groups = warpgroup.wait_group, itertools.cycle((2, 1, 0))
    monkeypatch.setattr(warpgroup, "wait_group", lambda count: wait_group(next(groups)))
    said = told(Through((64, 32, 64), staged, BF16))
    assert said.startswith("1 hazard\nfragment-in-flight: registers")


def test_a_stage_that_is_released_while_mmas_read_it_is_told(monkeypatch):
    wait_group, groups = warpgroup.wait_group, itertools.cycle((1, 2, 0))
    monkeypatch.setattr(warpgroup, "wait_group", lambda count: wait_group(next(groups)))
    assert "\nunordered-write: sB stage 0" in told(Through((64, 32, 64), BF16, BF16, stages=2))


class AsMainLoop(Through):
    """A loop for A in shared memory, asked to pass A through registers."""

    make_loop = Product.make_loop


class ThroughOfHalfB(OfHalfB, Through):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: Through((64, 32, 16), BF16, BF16),
        lambda: Through((64, 32, 64), BF16, BF16, stages=1),
        lambda: Through((64, 32, 64), BF16, BF16, a_mode=0),
        lambda: Through((64, 32, 64), BF16, BF16, in_registers=False),
        lambda: Through((96, 32, 64), BF16, BF16),
        lambda: AsMainLoop((64, 32, 64), BF16, BF16),
        lambda: AsMainLoop((64, 32, 64), BF16, BF16, stages=1, in_registers=False),
        lambda: Through((128, 256, 64), BF16, BF16, stages=2),
        lambda: ThroughOfHalfB((64, 32, 64), BF16, BF16),
    ],
)
def test_what_can_not_be_is_refused_while_it_is_traced(make):
    check_refused(make)


class TwoProducts:
    """O = (Q K^T) V of one tile by one warpgroup, as attention has it but for the softmax: S stays in registers."""

    def __init__(self, keys, width, dtype=BF16, tile=None):
        self.dtype, self.keys, self.width = element_type(dtype), keys, width
        self.tile = tile or (64, keys)
        bits, depth = DTYPES[dtype].bits, 64
        self.plan = sm90.SmemPlan.of(
            sQ=sm90.StagedTile((64, depth), 1, bits),
            sK=sm90.StagedTile((keys, depth), 1, bits),
            sV=sm90.StagedTile((width, keys), 1, bits, int(bits != 16)),
            barriers=sm90.SmemArray(2, bits=64),
        )

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor):
        staged = [self.plan[name].content for name in ("sQ", "sK", "sV")]
        loads = [tma.make_load(x, to_cute(s.layout), s.tile, 1) for x, s in zip((q, k, v), staged, strict=True)]
        copies, tensors = zip(*loads, strict=True)
        types, v_mode = (self.dtype, self.dtype), staged[2].contiguous_mode
        first = mma.make_tiled_mma(*types, a_contiguous_mode=1, b_contiguous_mode=1, tile_n=self.keys, warpgroups=1)
        modes = {"a_contiguous_mode": 1, "b_contiguous_mode": v_mode}
        second = mma.make_tiled_mma(*types, **modes, tile_n=self.width, warpgroups=1, a_in_registers=True)
        self.kernel(tuple(copies), tuple(tensors), first, second, o).launch(grid=(1, 1, 1), block=(128, 1, 1))

    @cute.kernel
    def kernel(self, copies: tuple, tensors: tuple, first: cute.TiledMma, second: cute.TiledMma, o: cute.Tensor):
        shared = smem.share(self.plan, sQ=self.dtype, sK=self.dtype, sV=self.dtype)
        names, tidx = ("sQ", "sK", "sV"), cute.arch.thread_idx()[0]
        ring = TmaRing(shared["barriers"], 1, sum(self.plan[name].content.stage_bytes for name in names), 4)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                ring.initialise()
        publish_barriers()
        if warp == 0:
            state = ring.producer_state()
            full = ring.acquire(state)
            for copy, tensor, name in zip(copies, tensors, names, strict=True):
                tiles = tma.make_tiles(copy, tensor, shared[name], self.plan[name].content.tile)
                tiles.loads().load((0, 0), state.index, full)
        ring.wait(ring.consumer_state())
        qk = product.make_product(first, shared["sQ"], shared["sK"], tidx)
        pv = product.make_product(second, 64, shared["sV"], tidx)
        qk.issue()
        warpgroup.wait_group(0)
        operand.from_accumulators(qk.tCrC, first, self.tile, second, into=pv.tCrA)
        pv.issue()
        warpgroup.wait_group(0)
        coordinates = sm90.AccumulatorCoordinates(from_cute(second), (64, self.width))
        places = AccumulatorTile(coordinates, (64, self.width), tidx)
        for register, (row, column) in enumerate(coordinates.registers):
            o[places.of_thread(0) + row, places.of_thread(1) + column] = pv.tCrC[register]


@pytest.mark.parametrize(("keys", "width"), [(32, 64), (80, 24)])
def test_sums_become_the_operand_of_the_next_product(keys, width):
    torch.manual_seed(keys)
    q, k, v = (torch.randint(-1, 2, shape).bfloat16() for shape in ((64, 64), (keys, 64), (keys, width)))
    o = torch.zeros(64, width)
    with cutepy.simulate(sanitize=True) as run:
        TwoProducts(keys, width)(q, k, v.mT, o)
    assert torch.equal(o, (q.float() @ k.float().mT) @ v.float())
    assert not run.hazards


def test_sums_that_other_threads_need_are_refused():
    q, k, v = (torch.zeros(64, 64).to(torch.float8_e4m3fn) for _ in range(3))
    with cutepy.simulate(), refuses(ValueError):
        TwoProducts(64, 64, E4M3)(q, k, v, torch.zeros(64, 64))


@pytest.mark.parametrize("tile", [(64, 32), (128, 64), (32, 64)])
def test_a_tile_of_other_sums_is_refused(tile):
    q, k, v = (torch.zeros(64, 64).bfloat16() for _ in range(3))
    with cutepy.simulate(), refuses(ValueError):
        TwoProducts(64, 64, tile=tile)(q, k, v, torch.zeros(64, 64))


def test_a_change_that_gives_nothing_is_refused():
    with refuses(TypeError):
        operand.put(None, None, None)


@dataclass(frozen=True)
class Adds:
    """A worker that assigns to registers which it keeps as a field, within a loop of the device."""

    tile: AccumulatorTile
    sums: cute.Tensor

    @cute.jit
    def run(self, count):
        for index in cutlass.range(count, unroll=1):
            for register in cutlass.range_constexpr(cute.size(self.sums)):
                row, column = self.tile.coordinate(0, register)
                self.sums[register] = self.sums[register] + cutlass.Float32(row + column + index)


@cute.kernel
def adds_kernel(y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    sums = cute.make_rmem_tensor(32, cutlass.Float32)
    sums.fill(0.0)
    worker = Adds(make_subtile((64, 64), 1, thread), sums)
    worker.run(count)
    for register in cutlass.range_constexpr(32):
        y[thread, register] = sums[register]


@cute.jit
def adds_launch(y: cute.Tensor, count: cutlass.Int32):
    adds_kernel(y, count).launch(grid=(1, 1, 1), block=(128, 1, 1))


def test_a_worker_assigns_to_its_own_registers_in_a_loop():
    y = torch.zeros(128, 32)
    function = cutepy.compile(adds_launch, cutepy.TensorSpec("float32", (128, 32)), 1)
    with cutepy.simulate():
        function(y, 3)
    assert y[0, :4].tolist() == [3.0, 6.0, 27.0, 30.0]  # 3 (row + column) + 0 + 1 + 2
