"""Evaluate the model of the kernel (`model`) for many choices and problems at once, in columns of a table.

An exported library evaluates the same formula in C++: `cutepy.aot.symbols` has another `Arithmetic`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutepy.device import rules
from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.model import (
    EPILOGUE_BYTES,
    SHORT_K,
    Choice,
    Costs,
    Extents,
    epilogue_columns,
)
from cutepy.layouts.sm90 import arch

Array = NDArray[np.float64]


def _sixth(times: Array) -> Array:
    """Return sixth powers: the sixth root of their sum is a smooth maximum of times that overlap."""
    squares = times * times
    return squares * squares * squares


def root(sixths: Array) -> Array:
    """Return sixth roots."""
    roots: Array = np.cbrt(np.sqrt(sixths))
    return roots


class Arithmetic(NamedTuple):
    """Elementwise functions of the formula, beside the operators.

    Attributes
    ----------
    dtype : type
        Elements of arrays of extents.
    minimum, maximum : callable
        Of two arrays.
    ceil, sixth, root : callable
        The next integer; the sixth power; the sixth root.
    """

    dtype: type
    minimum: Callable[..., Array]
    maximum: Callable[..., Array]
    ceil: Callable[[Array], Array]
    sixth: Callable[[Array], Array]
    root: Callable[[Array], Array]


NUMPY = Arithmetic(np.float64, np.minimum, np.maximum, np.ceil, _sixth, root)


class Columns(NamedTuple):
    """Choices as columns: one array for each field."""

    m: Array
    n: Array
    k_spans: Array
    consumers: Array
    split_k: Array
    warpgroups: Array
    cluster_m: Array
    cluster_n: Array

    @property
    def staged_n(self) -> Array:
        """Columns of B in a stage: K-major, and MN-major."""
        columns = zip(self.n.tolist(), self.cluster_m.tolist(), strict=True)
        widened = [rules.staged_columns(int(n), 16, True, int(sharing)) for n, sharing in columns]
        return np.array([self.n, widened])

    @classmethod
    def of(cls, choices: Sequence[Choice]) -> "Columns":
        """Put choices into columns."""
        rows = [(*tile, tile.warpgroups, *cluster) for tile, *cluster in choices]
        return cls(*np.array(rows, np.float64).reshape(-1, len(cls._fields)).T)


class Estimates(NamedTuple):
    """Estimates of choices for problems: arrays (problems, choices).

    Attributes
    ----------
    sixths : float array
        The sixth powers of the microseconds: they have the same order.
    clusters, waves : float array
        Clusters of a product; and the number of times that they fill the GPU.
    ctas : float array
        CTAs that run at a time.
    steps : float array
        K steps of a CTA.
    memory : float array
        The microseconds that the device's memory takes.
    loads : dict of str to float array
        The microseconds of a K step's loads, by the resource.
    """

    sixths: Array
    clusters: Array
    waves: Array
    ctas: Array
    steps: Array
    memory: Array
    loads: dict[str, Array]

    @property
    def us(self) -> Array:
        """The microseconds."""
        return root(self.sixths)


class Estimator:
    """Function of problems and a GPU that estimates the time of each choice."""

    def __init__(self, choices: Sequence[Choice], costs: Costs) -> None:
        own = Columns.of(choices)
        self._own, self._costs = own, costs
        self._across_m, self._across_n = own.m * own.cluster_m, own.n * own.cluster_n
        self._cluster = (own.cluster_m * own.cluster_n * own.split_k).astype(np.int64)
        self._fillable = np.array([rules.FILLABLE_SMS[int(size)] for size in self._cluster])
        self._step_bits = 1024 * own.k_spans * own.split_k
        self._know_steps()
        subtiles = np.array([[epilogue_columns(each.tile, k) for each in choices] for k in (SHORT_K + 1, SHORT_K)])
        self._subtiles = own.m * own.n / (64 * own.warpgroups * subtiles)
        self._stores: dict[tuple[bool, float], Array] = {}
        elements = own.m * own.n * (1 - 1 / own.split_k)
        self._exchange = costs.split * np.log2(own.split_k) + costs.split_element * elements

    def _know_steps(self) -> None:
        """Compute the parts of a K step's time that no problem changes."""
        own, costs = self._own, self._costs
        span_bytes = 128 * own.k_spans
        self._staged_n = own.staged_n
        stage_bytes, exchange_bytes = span_bytes * (own.m + self._staged_n), 4 * own.m * own.n * (1 - 1 / own.split_k)
        room_bytes = arch.SMEM_BYTES_PER_CTA - EPILOGUE_BYTES - exchange_bytes
        stages = np.clip(room_bytes // stage_bytes, 2, 8)
        self._spans, self._latency = costs.span * own.k_spans, costs.latency / (stages - 1)
        self._multiply = self._multiplied()
        self._least = _sixth(self._spans) + _sixth(self._latency) + self._multiply
        self._row_from_l2, self._column_from_l2 = (
            costs.l2_byte * span_bytes / shared for shared in (own.cluster_n, own.cluster_m)
        )
        self._filled, self._empty = (costs.sm_byte - costs.empty_byte) * span_bytes, costs.empty_byte * stage_bytes
        self._copied = costs.copy * span_bytes

    def _multiplied(self) -> Array:
        """Return the time of a step's MMAs, without and with a scale for each column: sixth powers of microseconds."""
        own, costs = self._own, self._costs
        block = costs.cycle * own.m / 64 * 4 * own.n / 2
        multiply = _sixth(block * own.k_spans)
        if costs.promotion is None:
            return np.stack([multiply, multiply])[:, None]
        elements = own.m * own.n
        with_columns = _sixth((block + costs.promotion.column_element * elements) * own.k_spans)
        alone = (block + costs.promotion.element * elements) / own.warpgroups + costs.promotion.block
        return (np.stack([multiply, with_columns]) + _sixth(alone))[:, None]

    def _stored(self, is_short: bool, instructions: float) -> Array:
        """Return an epilogue's time for a short and a long K: beside a main loop, after each, and at the end."""
        kind = is_short, instructions
        if kind not in self._stores:
            own, costs = self._own, self._costs
            elements, in_turns = own.m * own.n, own.consumers == 2
            store = costs.store + costs.subtile * self._subtiles[int(is_short)]
            store += (costs.store_element + costs.instruction * instructions) * elements
            beside, after = _sixth(np.where(in_turns, store / 2, 0)), self._exchange + np.where(in_turns, 0, store)
            at_last = costs.launch + costs.fill + np.where(in_turns, store, 0)
            self._stores[kind] = np.stack([beside, after, at_last])
        return self._stores[kind]

    def __call__(self, problems: Sequence[Extents], gpu: Gpu) -> Estimates:
        """Estimate the time of each choice for each problem."""
        return self.estimate(problems, gpu.sm_count, gpu.memory_tbs)

    def estimate(
        self, problems: Sequence[Extents], sm_count: int, memory_tbs: float, arithmetic: Arithmetic = NUMPY
    ) -> Estimates:
        """Estimate the time of each choice for each problem, in numbers, or in symbols that become C++."""
        dtype, minimum, maximum, ceil, sixth, root = arithmetic
        rows = [(each.m, each.n, each.k * each.operand_bits, each.batch, each.moved_bytes) for each in problems]
        m, n, k_bits, batch, moved_bytes = np.array(rows, dtype).T[:, :, None]
        h200_bytes = moved_bytes * H200.memory_tbs / memory_tbs  # bytes that an H200 would move in the same time
        stores = [self._stored(each.is_short, each.instructions) for each in problems]
        beside, after, at_last = np.stack(stores, axis=1)
        costs = self._costs
        clusters = ceil(m / self._across_m) * ceil(n / self._across_n) * batch
        filled = sm_count * self._fillable // arch.SM_COUNT
        resident = maximum(1, filled // self._cluster)
        waves, ctas = clusters / resident, minimum(clusters, resident) * self._cluster
        steps = ceil(k_bits / self._step_bits)
        step = self._least[[int(each.column_scales) for each in problems], [int(each.widens_b) for each in problems]]
        loads = self._loads(problems, m, n, ctas, minimum)
        for load in loads.values():
            step = step + sixth(load)
        wave = root(step * sixth(steps) + beside) + after
        idle = np.where(ctas >= rules.FULL * sm_count, 0, costs.idle - costs.idle / sm_count * ctas)
        memory = costs.launch + costs.memory + costs.memory_byte * h200_bytes * (1 + idle)
        sixths = sixth(ceil(waves) * wave + at_last) + sixth(memory)
        return Estimates(sixths, clusters, waves, ctas, steps, memory, loads)

    def parts(self, problem: Extents, gpu: Gpu) -> dict[str, Array]:
        """Return the parts of each choice's time for a problem: each alone, without the others.

        Loads, MMAs and the device's memory work at the same time, and so do the epilogues of ping-pong.

        Returns
        -------
        dict of str to float array, (choices,)
            Microseconds, by the resource or the part of the kernel.
        """
        estimates = self([problem], gpu)
        rounds = np.ceil(estimates.waves[0])
        steps = rounds * estimates.steps[0]
        beside, after, at_last = self._stored(problem.is_short, problem.instructions)
        return {
            "tensor cores": steps * root(self._multiply[int(problem.column_scales), 0]),
            "step overhead": steps * self._spans,
            "load latency": steps * self._latency[int(problem.widens_b)],
            **{name: steps * load[0] for name, load in estimates.loads.items()},
            "epilogue": rounds * (root(beside) + after - self._exchange),
            "exchange of the split K": rounds * self._exchange,
            "launch": at_last,
            "device memory": estimates.memory[0],
        }

    def _loads(
        self, problems: Sequence[Extents], m: Array, n: Array, ctas: Array, minimum: Callable[..., Array]
    ) -> dict[str, Array]:
        """Estimate the loads of a CTA's K step, with a given number of CTAs resident: microseconds, by the resource."""
        kinds = [int(each.widens_b) for each in problems]
        rows, columns = minimum(m, self._own.m), minimum(n, self._staged_n[kinds])
        from_l2 = ctas * (rows * self._row_from_l2 + columns * self._column_from_l2)
        loads = {"L2 cache": from_l2, "shared memory": (rows + columns) * self._filled + self._empty[kinds]}
        if any(each.by_threads for each in problems):
            a_copies, b_copies = np.array([(each.a_copies, each.b_copies) for each in problems]).T[:, :, None]
            loads["copies by threads"] = self._copied * (self._own.m * a_copies + self._own.n * b_copies)
        return loads
