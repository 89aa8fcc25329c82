"""Cross entropy of logits and labels, forward and backward (traced).

Of a row x with label t, lse = log(sum(exp(x))) and weights w, of C classes:
loss = (1 - smoothing) w_t (lse - x_t) + smoothing / C sum_c w_c (lse - x_c) + z lse^2.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32, Int64

from cutepy.device import reduce, rules
from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import make_held_rows, make_parted_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import exp, select
from cutepy.kernels.rows.config import CrossEntropyConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows
from cutepy.kernels.rows.softmax import fold

BARRIERS = rules.named_barriers(rows=1)


@cute.jit
def read_label(targets: cute.Tensor, row, columns, ignore_index):
    """Return a row's label, `columns` if it is none of the classes, and whether the row counts."""
    target = Int64(ignore_index)
    if row < cute.size(targets):
        target = targets[row].to(Int64)
    counts = target != Int64(ignore_index)
    inside = counts & (target >= 0) & (target < Int64(columns))
    return Int32(select(inside, target.to(Int32), Int32(columns))), counts


def element(tensor: cute.Tensor, row, column):
    """Load one element of a row as fp32; 0 beyond the last row or column."""
    return make_row_vectors(tensor, 1).load(row, column)[0].to(Float32)


class CrossEntropy:
    """Cross entropy of one configuration, forward: a callable that the DSL compiles."""

    def __init__(self, config: CrossEntropyConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        logits: cute.Tensor,
        targets: cute.Tensor,
        weight: cute.Tensor | None,
        losses: cute.Tensor,
        lse: cute.Tensor,
        ignore_index: Int32,
        smoothing: Float32,
        z: Float32,
        stream: CUstream,
    ):
        """Launch on logits (rows, columns), targets, losses, lse (rows,) and weight (columns,)."""
        tiling, name = self.config.tiling, f"cross_entropy_{self.config.tiling.name}"
        given = logits, targets, weight, losses, lse, ignore_index, smoothing, z
        launch_rows(self.kernel, name, tiling, groups_of(logits, tiling), stream, *given)

    @cute.kernel
    def kernel(
        self,
        logits: cute.Tensor,
        targets: cute.Tensor,
        weight: cute.Tensor | None,
        losses: cute.Tensor,
        lse: cute.Tensor,
        ignore_index: Int32,
        smoothing: Float32,
        z: Float32,
    ):
        """Compute the losses of a CTA's rows."""
        config, tiling = self.config, self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"])
        columns, source = cute.size(logits, mode=[1]), make_row_vectors(logits, tiling.elems)
        row = cute.arch.block_idx()[0] * tiling.rows + rows.group
        follow_launch(True)
        fetched = rows.fetch(source, row, streams=True)
        label, counts = read_label(targets, row, columns, ignore_index)
        own, factor = element(logits, row, label), Float32(1.0)
        if cutlass.const_expr(weight is not None):
            factor = element(weight, 0, label)
        # Online softmax: a thread's largest element so far, and the sum of exponentials of its elements less that one.
        largest, total = Float32(-math.inf), Float32(0.0)
        smooth, weights = Float32(0.0), Float32(0.0)
        for number in cutlass.range(cute.ceil_div(columns, tiling.columns), unroll=1):
            piece = rows.piece(number)
            held = piece.held(fetched)
            # The next piece is under way while this one is summed.
            rows.piece(number + 1).fetch_into(fetched, source, row, True)
            if cutlass.const_expr(config.smooths):
                each = held
                if cutlass.const_expr(weight is not None):
                    each = piece.load(make_row_vectors(weight, tiling.elems), 0)
                    weights = weights + fold(rows, each, reduce.add)
                    each.store(each.load() * held.load())
                smooth = smooth + fold(rows, each, reduce.add)
            piece.fill_beyond(held, columns, -math.inf)
            before, largest = largest, reduce.maximum(largest, fold(rows, held, reduce.maximum))
            base = reduce.finite_base(largest)
            own_sum = fold(rows, held, reduce.add, lambda x, base=base: exp(x - base))
            total = total * exp(before - base) + own_sum
        if cutlass.const_expr(config.smooths):
            smooth = rows.reduce(smooth, reduce.add)
            weights = Float32(columns) if weight is None else rows.reduce(weights, reduce.add)
        base, total = rows.join_exponentials(largest, total)
        lse_of_row = base + cute.math.log(total)
        if row < cute.size(logits, mode=[0]) and rows.thread == 0:
            loss = factor * (lse_of_row - own)
            if cutlass.const_expr(config.smooths):
                loss = (1.0 - smoothing) * loss + smoothing / columns * (weights * lse_of_row - smooth)
            if cutlass.const_expr(config.adds_z):
                loss = loss + z * lse_of_row * lse_of_row
            loss = select(label < columns, loss, Float32(math.nan))
            losses[row] = select(counts, loss, Float32(0.0))
            lse[row] = lse_of_row


class CrossEntropyBackward:
    """Gradient of a cross entropy of one configuration: a callable that the DSL compiles.

    dx = dloss (p ((1 - smoothing) w_t + smoothing / C sum(w) + 2 z lse) - (1 - smoothing) w_t [c = t] - smoothing / C
    w), with p = exp(x - lse); zeros for rows that don't count. Each thread reads what it writes, which may be x itself.
    """

    def __init__(self, config: CrossEntropyConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        dlosses: cute.Tensor,
        logits: cute.Tensor,
        targets: cute.Tensor,
        weight: cute.Tensor | None,
        lse: cute.Tensor,
        dlogits: cute.Tensor,
        ignore_index: Int32,
        smoothing: Float32,
        z: Float32,
        stream: CUstream,
    ):
        """Launch on tensors as of `CrossEntropy`; dlogits as logits, dlosses as losses."""
        tiling = self.config.tiling
        reduces = self.config.smooths and weight is not None
        name = f"cross_entropy_backward_{tiling.name if reduces else tiling.part_name}"
        given = dlosses, logits, targets, weight, lse, dlogits, ignore_index, smoothing, z
        launch_rows(self.kernel, name, tiling, groups_of(logits, tiling), stream, *given, is_cluster=reduces)

    @cute.kernel
    def kernel(
        self,
        dlosses: cute.Tensor,
        logits: cute.Tensor,
        targets: cute.Tensor,
        weight: cute.Tensor | None,
        lse: cute.Tensor,
        dlogits: cute.Tensor,
        ignore_index: Int32,
        smoothing: Float32,
        z: Float32,
    ):
        """Compute the gradients of a CTA's rows."""
        config, tiling = self.config, self.config.tiling
        reduces = config.smooths and weight is not None
        rows = make_held_rows(tiling, BARRIERS["rows"]) if reduces else make_parted_rows(tiling)
        count, columns = cute.size(logits, mode=[0]), cute.size(logits, mode=[1])
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        total, grad = Float32(0.0), Float32(0.0)
        if row < count:
            total, grad = lse[row], dlosses[row]
        label, counts = read_label(targets, row, columns, ignore_index)
        # Rows that don't count aren't read: their elements are zeros, and so are all factors.
        held = rows.load(make_row_vectors(logits, tiling.elems), select(counts, row, Int32(count)), streams=True)
        total, grad = select(counts, total, Float32(0.0)), select(counts, grad, Float32(0.0))
        of_label, of_sum = grad, grad
        if cutlass.const_expr(weight is not None):
            of_label = of_label * element(weight, 0, label)
            of_sum = of_label
        if cutlass.const_expr(config.smooths):
            smooth = smoothing / columns * grad
            of_label = (1.0 - smoothing) * of_label
            of_sum = of_label + smoothing * grad
            if cutlass.const_expr(weight is not None):
                weights = rows.load(make_row_vectors(weight, tiling.elems), 0)
                of_sum = of_label + smooth * rows.total(weights, 0)
        if cutlass.const_expr(config.adds_z):
            of_sum = of_sum + 2.0 * z * total * grad
        of_sum = select(counts & (label == columns), Float32(math.nan), of_sum)
        held.store(exp(held.load() - total) * of_sum)
        if cutlass.const_expr(config.smooths):
            if cutlass.const_expr(weight is not None):
                held.store(held.load() - weights.load() * smooth)
            else:
                held.store(held.load() - smooth)
        for index in cutlass.range_constexpr(tiling.vectors):
            first = rows.vector(index) * tiling.elems
            for place in cutlass.range_constexpr(tiling.elems):
                held[place, index] = held[place, index] - select(first + place == label, of_label, Float32(0.0))
        rows.store(held, make_row_vectors(dlogits, tiling.elems), row)
