"""Kernels in Triton in which the elements of a tile meet: reductions, scans, sorting, gathering, atomics, asm."""

import triton
import triton.language as tl


@triton.jit
def merge_moments(mean, squares, count, other_mean, other_squares, other_count):
    """Merge mean, sum of squares and count of two samples, by Welford and Chan."""
    total = count + other_count
    share = tl.where(total == 0, 0.0, other_count / total)
    apart = other_mean - mean
    return mean + apart * share, squares + other_squares + apart * apart * count * share, total


@triton.jit
def moments(x, out, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    start = (value, tl.zeros_like(value), tl.full((N,), 1.0, tl.float32))
    mean, squares, count = tl.reduce(start, 0, merge_moments)
    tl.store(out, mean)
    tl.store(out + 1, squares / count)


@triton.jit
def compose(scale, shift, other_scale, other_shift):
    return scale * other_scale, shift * other_scale + other_shift


@triton.jit
def recurrence(scale, shift, out, N: tl.constexpr):
    """h[i] = scale[i] h[i-1] + shift[i]."""
    at = tl.arange(0, N)
    _, state = tl.associative_scan((tl.load(scale + at), tl.load(shift + at)), 0, compose)
    tl.store(out + at, state)


@triton.jit
def places(x, largest, sums, ranked, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    tl.store(largest + tl.arange(0, M), tl.argmax(value, 1))
    tl.store(sums + at, tl.cumsum(value, 1, reverse=True))
    tl.store(ranked + at, tl.sort(value, 1, descending=True))


@triton.jit
def gathered(x, index, out, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@triton.jit
def counted(x, bins, count, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, N)
    found = tl.histogram(tl.load(x + at, at < count, 0), BINS, mask=at < count)
    tl.atomic_add(bins + tl.arange(0, BINS), found)


@triton.jit
def scattered(x, sums, most, least, bits, halves, N: tl.constexpr):
    value = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    bin = value & 7
    tl.atomic_add(sums + bin, value.to(tl.float32))
    tl.atomic_max(most + bin, value)
    tl.atomic_min(least + bin, value, sem="relaxed")
    tl.atomic_xor(bits + bin, value)
    tl.atomic_add(halves + bin, tl.full((N,), 1.0, tl.float16))


@triton.jit
def reversed_bytes(x, out, inverted, N: tl.constexpr):
    """Four bytes a register: their order reversed, and their bits."""
    at = tl.arange(0, N)
    asm: tl.constexpr = "{ .reg .b32 t; prmt.b32 t, $2, 0, 0x0123; mov.b32 $0, t; not.b32 $1, t; }"
    turned, flipped = tl.inline_asm_elementwise(
        asm, "=r,=r,r", [tl.load(x + at)], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
    )
    tl.store(out + at, turned)
    tl.store(inverted + at, flipped)


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + rows[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * N + columns[None, :])
    total = tl.dot(left, right, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def scaled_product(a, scale_a, b, scale_b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    blocks = tl.arange(0, K // 32)
    left = tl.load(a + rows[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * N + columns[None, :])
    left_scale = tl.load(scale_a + rows[:, None] * (K // 32) + blocks[None, :])
    right_scale = tl.load(scale_b + columns[:, None] * (K // 32) + blocks[None, :])
    total = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e4m3")
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def of_groups(pointers, extents, out, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum arrays whose addresses are in memory: pointers within other memory, as grouped products take them."""
    for group in range(GROUPS):
        source = tl.load(pointers + group).to(tl.pointer_type(tl.float32))
        at = tl.arange(0, BLOCK)
        tl.store(out + group, tl.sum(tl.load(source + at, at < tl.load(extents + group), 0.0), 0))


@triton.jit
def cooperating(counter, out, programs):
    """Wait for all programs of the grid."""
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < programs:
        pass
    tl.store(out + tl.program_id(0), tl.load(counter, volatile=True))


@triton.jit(debug=True)
def checked(x, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.device_print("value", value)
    tl.device_assert(value < 10, "too large")


@triton.jit
def sum_of_a_cluster(x, out, N: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, N)), 0))
