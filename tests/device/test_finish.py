"""Graphs on registers of accumulators, in the simulator, against the same graphs in torch."""

import random

import numpy as np
import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.device import epilogue, evaluation, mma, rules, smem, tma  # noqa: E402
from cutepy.device.finish import SubtileEpilogue  # noqa: E402
from cutepy.device.fragment import make_subtile  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402
from cutepy.epilogues import Column, Integer, Row, Scalar, Tile, where  # noqa: E402
from cutepy.epilogues.reference import compute  # noqa: E402

DTYPES = {torch.float32: cutlass.Float32, torch.bfloat16: cutlass.BFloat16, torch.float8_e4m3fn: cutlass.Float8E4M3FN}


def listed(operands):
    return () if operands is None else operands


class Finishes:
    """Finish one tile of accumulators, which are read from global memory; one CTA."""

    def __init__(self, graph, tile, columns, dtypes, warpgroups=1):
        self.graph, self.tile, self.columns, self.warpgroups = graph, tile, columns, warpgroups
        self.dtypes = dtypes

    @cute.jit
    def __call__(self, acc: cute.Tensor, operands: tuple | None, results: tuple):
        tiled_mma = mma.make_tiled_mma(
            cutlass.Float16,
            cutlass.Float16,
            a_contiguous_mode=1,
            b_contiguous_mode=1,
            tile_n=self.tile[1],
            warpgroups=self.warpgroups,
        )
        layouts, stores, seen = [], [], []
        for index, result in enumerate(self.graph.results):
            layout, store, tensor = None, None, results[index]
            if cutlass.const_expr(self.graph.reduction(result) is None):
                subtile = (64 * self.warpgroups, self.columns // self.graph.width(result))
                layout = smem.staged_layout(self.dtypes[index], subtile, 1, 2)
                store, tensor = tma.make_store(results[index], layout, subtile)
            layouts.append(layout)
            stores.append(store)
            seen.append(tensor)
        self.kernel(tiled_mma, acc, operands, tuple(layouts), tuple(stores), tuple(seen)).launch(
            grid=(1, 1, 1), block=(128 * self.warpgroups, 1, 1)
        )

    @cute.kernel
    def kernel(
        self,
        tiled_mma: cute.TiledMma,
        acc: cute.Tensor,
        operands: tuple | None,
        layouts: tuple,
        stores: tuple,
        results: tuple,
    ):
        graph, columns = self.graph, self.columns
        operands = listed(operands)
        m, n = cute.size(acc, mode=[0]), cute.size(acc, mode=[1])
        tidx = cute.arch.thread_idx()[0]
        allocator = SmemAllocator()
        outs, ways = [], []
        for index in cutlass.range_constexpr(len(graph.results)):
            out, way = None, None
            if cutlass.const_expr(layouts[index] is not None):
                subtile = (64 * self.warpgroups, columns // graph.width(graph.results[index]))
                sD = smem.allocate(allocator, self.dtypes[index], layouts[index])
                out = epilogue.make_tile_store(tiled_mma, sD, 1, tidx, 128 * self.warpgroups)
                gD = cute.local_tile(results[index], subtile, (None, None))
                way = tma.partition(stores[index], sD, gD)
            outs.append(out)
            ways.append(way)
        read = [
            None if operand.shape == "tile" else given for operand, given in zip(graph.operands, operands, strict=True)
        ]
        tile = make_subtile((64 * self.warpgroups, columns), self.warpgroups, tidx)
        finish = SubtileEpilogue(graph, tile, tuple(read), m, n)
        fragments = finish.make_fragments()
        across = self.tile[1] // columns
        for index in cutlass.range_constexpr(self.tile[0] // (64 * self.warpgroups) * across):
            down, along = index // across * 64 * self.warpgroups, index % across * columns
            rC = self.read_tile(finish, 1, acc, down, along)
            finish.load(fragments, down, along)
            tiles = {}
            for operand, given in zip(graph.operands, operands, strict=True):
                if cutlass.const_expr(operand.shape == "tile"):
                    tiles[operand.name] = self.read_tile(finish, operand.width, given, down, along)
            evaluated = finish.compute(rC, fragments, tiles, down, along)
            for r in cutlass.range_constexpr(len(graph.results)):
                if cutlass.const_expr(outs[r] is None):
                    finish.store_partials(evaluated, r, results[r], down, along)
                else:
                    values = finish.result(evaluated, r)
                    rD = cute.make_rmem_tensor(outs[r].subtile_shape, cutlass.Float32)
                    for v in cutlass.range_constexpr(len(values)):
                        rD[v] = values[v]
                    outs[r].store(
                        rD, index % 2, tma.TmaSubtiles(stores[r], *ways[r], across, outs[r].tile.epi_tile), index
                    )
        for out in outs:
            if cutlass.const_expr(out is not None):
                out.finish()

    @cute.jit
    def read_tile(self, finish, width, given, down, along):
        places = finish.tile.narrowed(width).registers
        row, column = finish.origin(down, along, width)
        values = cute.make_rmem_tensor(len(places), given.element_type)
        for v in cutlass.range_constexpr(len(places)):
            i, j = row + places[v][0], column + places[v][1]
            values[v] = given.element_type(0.0)
            if i < cute.size(given, mode=[0]) and j < cute.size(given, mode=[1]):
                values[v] = given[i, j]
        return values


def finished(each, acc, tile, columns=32, warpgroups=1, dtypes=None, **operands):
    """Finish accumulators in the simulator; partial reductions are joined by torch. Give that, and the reference."""
    graph = each.graph
    m, n = acc.shape
    results, kinds = [], []
    for index, result in enumerate(graph.results):
        reduction = graph.reduction(result)
        width = graph.width(result)
        if reduction is None:
            name = graph.dtype(result) or (dtypes or {}).get(index, "float32")
            dtype = getattr(torch, name)
            # Odd rows of 8-bit floats are no units of 16 bytes, so results have rows of whole units.
            results.append(torch.zeros(m, n // width, dtype=dtype))
            kinds.append(DTYPES[dtype])
        else:
            results.append(torch.full(rules.partial_shape(reduction.dim, m, n // width, columns // width), torch.nan))
            kinds.append(None)
    given = each.bind(operands)
    with cutepy.simulate():
        Finishes(graph, tile, columns, tuple(kinds), warpgroups)(acc, tuple(given.values()) or None, tuple(results))
    joined = []
    for result, got in zip(graph.results, results, strict=True):
        reduction = graph.reduction(result)
        if reduction is not None:
            join = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[reduction.kind]
            got = join(got, dim=(0, 1) if reduction.dim is None else 0)
        joined.append(got)
    return joined, compute(graph, acc, given, torch.float64)


def check(*arguments, rtol=2e-6, atol=2e-6, **named):
    for got, expected in zip(*finished(*arguments, **named), strict=True):
        tolerance = {torch.bfloat16: 2**-8, torch.float8_e4m3fn: 2**-3}.get(got.dtype, rtol)
        torch.testing.assert_close(got.double(), expected.double(), rtol=tolerance, atol=atol, equal_nan=True)


@cutepy.epilogue
def gated(acc, bias: Row, scale: Scalar, residual: Tile):
    gate, up = acc.interleaved(2)
    return epilogues.silu(gate * scale + bias) * up + residual


@pytest.mark.parametrize(("tile", "warpgroups"), [((64, 64), 1), ((128, 32), 1), ((128, 64), 2)])
def test_a_gated_pair_with_operands(tile, warpgroups):
    torch.manual_seed(1)
    m, n = tile[0] - 3, tile[1] - 8
    check(
        gated,
        torch.randn(m, n),
        tile,
        warpgroups=warpgroups,
        bias=torch.randn(n // 2).bfloat16(),
        scale=0.5,
        residual=torch.randn(m, n // 2).bfloat16(),
    )


@cutepy.epilogue
def reduced(acc, factor: Column, scale: Scalar):
    y = acc * factor * scale + 1.0
    return {
        "y": y.to(torch.float8_e4m3fn),
        "pre": acc.to(torch.bfloat16),
        "amax": epilogues.amax(y),
        "squares": epilogues.sum_of_squares(y, 1),
        "most": y.max(0),
        "least": y.min(1),
        "sum": y.sum(0),
    }


@pytest.mark.parametrize(("tile", "warpgroups"), [((64, 64), 1), ((128, 32), 2)])
def test_results_and_reductions_of_ragged_tiles(tile, warpgroups):
    torch.manual_seed(2)
    m, n = tile[0] - 21, tile[1] - 16
    check(
        reduced,
        torch.randn(m, n),
        tile,
        warpgroups=warpgroups,
        factor=torch.randn(m),
        scale=torch.tensor([2.0]),
        rtol=1e-5,
        atol=1e-5,
    )


def beyond(y):
    """Reduce values that are not neutral where there is no column: 3 for a sum, -3 for a maximum of less."""
    return {
        "rows": (y + 3.0).sum(1),
        "columns": (y + 3.0).sum(0),
        "all": (y - 3.0).sum(),
        "most": (y - 8.0).max(1),
        "largest": epilogues.amax(y + 3.0),
        "least": (y + 8.0).min(1),
        "squares": epilogues.sum_of_squares(y + 1.0, 1),
    }


@cutepy.epilogue
def reduced_halves(acc, bias: Row):
    gate, up = acc.interleaved(2)
    return beyond(gate * up + bias)


@cutepy.epilogue
def reduced_quarters(acc, bias: Row):
    a, b, c, d = acc.interleaved(4)
    return beyond(a * b + c * d + bias)


@pytest.mark.parametrize("n", [72, 88])
@pytest.mark.parametrize(("each", "width"), [(reduced_halves, 2), (reduced_quarters, 4)])
def test_reductions_of_interleaved_columns_end_with_the_last_one(each, width, n):
    """Beyond N / width columns a subtile has registers whose values belong to no column, and count for nothing."""
    torch.manual_seed(n)
    acc, bias = torch.randn(61, n), torch.randn(n // width)
    check(each, acc, (64, -(-n // 64) * 64), columns=64, bias=bias, rtol=1e-5, atol=1e-4)


def test_reductions_keep_nan():
    acc = torch.randn(64, 32)
    acc[3, 5] = torch.nan
    acc[9] = torch.inf
    check(reduced, acc, (64, 32), factor=torch.ones(64), scale=2.0, rtol=1e-5, atol=1e-5)


def test_quarters():
    @cutepy.epilogue
    def quarters(acc, bias: Row):
        a, b, c, d = (acc + bias).interleaved(4)
        return a + 10.0 * b + 100.0 * c + 1000.0 * d

    acc = torch.arange(64 * 64).reshape(64, 64).float()
    check(quarters, acc, (64, 64), columns=64, bias=torch.arange(64).float())


def test_parts_of_rows_and_truth_values():
    @cutepy.epilogue
    def parts(acc, bias: Row):
        gate, up = acc.interleaved(2)
        left, right = bias.interleaved(2)
        above, below = (acc > 0).interleaved(2)
        return epilogues.where(above & ~below, gate + left, up * right)

    check(parts, torch.randn(64, 64), (64, 64), bias=torch.randn(64))


def test_coordinates_and_integers():
    @cutepy.epilogue
    def masked(acc, seed: Integer):
        causal = epilogues.where(acc.column <= acc.row, acc, -float("inf"))
        x = acc.row * 5 - acc.column * 3
        gate, _ = acc.interleaved(2)
        return (
            causal,
            epilogues.dropout(acc, 0.3, seed),
            (x // 7) * 100.0
            + x % 7
            + (x >> 1)
            + (x // 8)
            + x % 8
            + abs(x)
            + epilogues.maximum(x, 3)
            + epilogues.clamp(x, -7, 9)
            + 0.0 * acc,
            gate.column + gate.row * 100 + 0.0 * gate,
        )

    check(masked, torch.randn(120, 64), (128, 64), seed=2**31 - 5)


def test_constants_beyond_32_bits_and_a_seed_of_python():
    @cutepy.epilogue
    def shifted(acc):
        return where(acc < 3000000000, acc + 2**31, acc) * 2**40, epilogues.dropout(acc, 0.5, 2**32 - 7)

    check(shifted, torch.randn(64, 32), (64, 32))


LIBRARY = [n for n in epilogues.__all__ if isinstance(getattr(epilogues, n), epilogues.Epilogue)]


@pytest.mark.parametrize("part", range(3))
def test_the_library(part):
    names = [name for name in LIBRARY[part::3] if name != "leaky_relu"]

    @cutepy.epilogue
    def several(acc):
        positive = ("log", "log2", "rsqrt", "sqrt")
        return {name: getattr(epilogues, name)(abs(acc) if name in positive else acc) + 0.0 for name in names}

    check(several, torch.randn(64, 32) * 4, (64, 32))


def test_subtiles_too_narrow_for_parts_are_refused():
    with refuses(ValueError):
        SubtileEpilogue(epilogues.swiglu.graph, make_subtile((64, 24), 1, 0), (), 64, 64)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in range(1, 20))])
def test_random_graphs(seed):
    rng = random.Random(seed)

    def program(values):
        values = list(values)
        for _ in range(rng.randrange(3, 12)):
            x, y = rng.choice(values), rng.choice(values)
            values.append(
                rng.choice(
                    [
                        lambda x, y: x + y,
                        lambda x, y: x - 0.5 * y,
                        lambda x, y: epilogues.tanh(x) * y,
                        lambda x, y: epilogues.maximum(x, -y),
                        lambda x, y: epilogues.where(x < y, epilogues.sigmoid(y), x),
                        lambda x, y: x / (1.0 + abs(y)),
                        lambda x, y: epilogues.gelu(x),
                    ]
                )(x, y)
            )
        return values[-1]

    @cutepy.epilogue
    def several(acc, row: Row, half_row: Row, column: Column, matrix: Tile, half_matrix: Tile, scalar: Scalar):
        even, odd = acc.interleaved(2)
        whole = [
            program((acc, row, column, matrix, scalar)) + 0.0 * (acc + row + column + matrix + scalar) for _ in range(2)
        ]
        half = [program((even, odd, half_row, column, half_matrix, scalar)) + 0.0 * (even + half_row + half_matrix)]
        return *whole, *half, whole[0].sum(1), half[0].max(0), whole[1].min()

    torch.manual_seed(seed)
    m, n = 50, 64
    shapes = {"row": (n,), "half_row": (n // 2,), "column": (m,), "matrix": (m, n), "half_matrix": (m, n // 2)}
    operands = {name: torch.randn(shape) for name, shape in shapes.items()}
    check(several, torch.randn(m, n), (64, 64), scalar=rng.random(), rtol=1e-4, atol=1e-4, **operands)


def wrapped(x):
    """Keep the lower 32 bits of integers of 64, with their sign."""
    return (x + 2**31) % 2**32 - 2**31


# How Python writes each for a value, and what it gives of integers of 64 bits in NumPy.
INTEGER_OPERATIONS = {
    "add": (lambda x, y, n: x + y, lambda x, y, n: x + y),
    "sub": (lambda x, y, n: x - y, lambda x, y, n: x - y),
    "mul": (lambda x, y, n: x * y, lambda x, y, n: x * y),
    "by a constant": (lambda x, y, n: x * (n * 40503) + n, lambda x, y, n: wrapped(x * wrapped(n * 40503)) + n),
    "neg": (lambda x, y, n: -x, lambda x, y, n: -x),
    "abs": (lambda x, y, n: abs(x), lambda x, y, n: abs(x)),
    "floordiv": (lambda x, y, n: x // n, lambda x, y, n: x // n),
    "mod": (lambda x, y, n: x % n, lambda x, y, n: x % n),
    "shl": (lambda x, y, n: x << n % 32, lambda x, y, n: x << n % 32),
    "shr": (lambda x, y, n: x >> n % 32, lambda x, y, n: x >> n % 32),
    "and": (lambda x, y, n: x & y, lambda x, y, n: x & y),
    "or": (lambda x, y, n: x | y, lambda x, y, n: x | y),
    "xor": (lambda x, y, n: x ^ y, lambda x, y, n: x ^ y),
    "not": (lambda x, y, n: ~x, lambda x, y, n: ~x),
    "maximum": (lambda x, y, n: epilogues.maximum(x, y), lambda x, y, n: np.maximum(x, y)),
    "minimum": (lambda x, y, n: epilogues.minimum(x, y), lambda x, y, n: np.minimum(x, y)),
    "clamp": (lambda x, y, n: epilogues.clamp(x, -n, n), lambda x, y, n: np.clip(x, -n, n)),
    "less": (lambda x, y, n: where(x < y, x + n, y), lambda x, y, n: np.where(x < y, x + n, y)),
    "negative": (lambda x, y, n: where(x < 0, y, x - n), lambda x, y, n: np.where(x < 0, y, x - n)),
    "equal": (lambda x, y, n: where(x % n == y % n, x, y), lambda x, y, n: np.where(x % n == y % n, x, y)),
    "truth": (lambda x, y, n: ((x > y) & (y >= n)) * x, lambda x, y, n: ((x > y) & (y >= n)) * x),
}


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.deep) for n in range(3, 40))])
def test_integers_wrap_at_32_bits(seed):
    rng = random.Random(seed)
    steps = [(name, rng.random(), rng.random(), rng.randrange(1, 53)) for name in INTEGER_OPERATIONS for _ in range(2)]
    rng.shuffle(steps)
    # First of all, remainders and signs of products of indices.
    steps = [("by a constant", 0.0, 0.0, 25001 + 2 * seed), ("mod", 0.99, 0.0, 7), ("negative", 0.7, 0.0, 9), *steps]

    def program(values, of):
        values, total = list(values), values[2]
        for name, i, j, n in steps:
            x, y = (values[int(place * len(values))] for place in (i, j))
            value = INTEGER_OPERATIONS[name][of](x, y, n)
            values.append(wrapped(value) if of else value)
            total = wrapped(values[-1] ^ (total * 31)) if of else values[-1] ^ (total * 31)
        return [values[4], values[5], values[-1], total]

    @cutepy.epilogue
    def computed(acc, shift: Integer):
        # A float has the integers of 24 bits.
        of_all = program([acc.row, acc.column, shift], 0)
        return tuple(part + 0.0 * acc for each in of_all for part in (each & 0xFFFF, each >> 16))

    m, n, shift = 64, 16, rng.randrange(-(2**31), 2**31)
    got, reference = finished(computed, torch.zeros(m, n), (m, n), columns=n, shift=shift)
    rows, columns = np.meshgrid(np.arange(m), np.arange(n), indexing="ij")
    expected = [
        part for each in program([rows, columns, np.full((m, n), shift)], 1) for part in (each & 0xFFFF, each >> 16)
    ]
    for kernels, torchs, right in zip(got, reference, expected, strict=True):
        np.testing.assert_array_equal(kernels.numpy(), right)
        np.testing.assert_array_equal(torchs.numpy(), right)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("scalar", 1000), ("row", 600), ("column", 600), ("rounded", 600), ("halves", 600)],
)
def test_graphs_are_deeper_than_calls(kind, steps):
    def chain(x):
        for _ in range(steps):
            x = x * 0.999 + 0.001
        return x

    @cutepy.epilogue
    def deep(acc, s: Scalar, r: Row, c: Column):
        y = acc + s + r + c
        if kind == "rounded":  # by fours, each computed from the first sum on
            return acc * (chain(acc) * 8.0).to(torch.float8_e4m3fn) + y
        if kind == "halves":
            return chain(r).interleaved(2)[1] + y.interleaved(2)[0]
        return y + chain({"scalar": s, "row": r, "column": c}[kind])

    torch.manual_seed(5)
    check(deep, torch.randn(64, 16), (64, 16), columns=16, s=0.3, r=torch.randn(16), c=torch.randn(64), atol=1e-4)


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_threads_of_a_row_exchange_spans_for_parts(monkeypatch, n):
    """Thread q has columns 2q and 2q + 1 of two spans of 2n, and gets columns 4q to 4q + 3 of both, apart by parity."""
    lane = np.arange(32)
    q, row = lane % n, lane // n

    def column(x):
        """Number the columns of all rows."""
        return 1000 * row + x

    monkeypatch.setattr(evaluation, "select", np.where)
    monkeypatch.setattr(evaluation, "_shuffled", lambda value, sender: value[sender])
    evaluated = object.__new__(evaluation.Evaluation)
    evaluated.lane = lane
    found = evaluated._exchange([column(2 * n * span + 2 * q + c) for span in (0, 1) for c in (0, 1)], n)
    for part in (0, 1):
        for pair in (0, 1):
            assert found[part][pair].tolist() == column(4 * q + 2 * pair + part).tolist()
