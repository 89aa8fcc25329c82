"""Features of CUDA C++ in device code."""

import numpy as np
import torch

from tests.nvcc.compiler import module

RNG = np.random.default_rng(0)


def test_functions():
    n = 96
    fib, combined, areas = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.float32)
    scaled = np.zeros(n)
    module("features.cu").launch("functions", 2, 48, (fib, scaled, combined, areas))
    i = np.arange(n)
    numbers = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    np.testing.assert_array_equal(fib, [numbers[x % 12] for x in i])
    by = 1 + i % 4
    np.testing.assert_array_equal(scaled, i * by * 1000 + i / by)
    np.testing.assert_array_equal(combined, np.where(i % 2, i * 7, i + 7))
    np.testing.assert_array_equal(areas, np.where(i % 3, i * i, 3 * i * i))


def test_quicksort():
    data = RNG.integers(0, 100, (64, 21)).astype(np.int32)
    expected = np.sort(data, 1)
    module("features.cu").launch("quicksort", 2, 32, (data, 21))
    np.testing.assert_array_equal(data, expected)


def test_printf():
    said = module("features.cu").launch("prints", 1, 32, (3,)).printf
    assert said == "".join(f"thread {i} of 32: {i / 4:.2f} done\n" for i in range(3))


def test_halves():
    n = 64
    x = RNG.normal(size=n).astype(np.float32) * 8
    h, b, back = np.zeros(n, np.float16), np.zeros(n, np.uint16), np.zeros(n, np.float32)
    f8 = np.zeros(n, np.uint8)
    module("features.cu").launch("halves", 1, n, (x, h, b, f8, back))
    low = (x.astype(np.float16).astype(np.float64) * 2 + 0.5).astype(np.float16)
    high = ((-x).astype(np.float16).astype(np.float64) * 2 + 0.5).astype(np.float16)
    np.testing.assert_array_equal(h, low + np.maximum(high, np.float16(0.25)))
    product = torch.from_numpy(x).bfloat16() * torch.tensor(3, dtype=torch.bfloat16)
    np.testing.assert_array_equal(b, product.view(torch.uint16).numpy())
    eight = torch.from_numpy(x).to(torch.float8_e4m3fn)
    np.testing.assert_array_equal(f8, eight.view(torch.uint8).numpy())
    np.testing.assert_array_equal(back, eight.float().numpy())


def halves_of(x):
    return x.view(np.int16).reshape(-1, 2).astype(np.int64)


def packed(x):
    return x.astype(np.int16).reshape(-1).view(np.int32)


def wrapped(x, kind=np.int32):
    return x.astype(np.int64).astype(np.uint64).astype(np.uint32).view(kind)


def test_dpx_and_bits():
    n = 64
    a, b, c = (RNG.integers(-(2**31), 2**31, n).astype(np.int32) for _ in range(3))
    out = np.zeros((8, n), np.int32)
    module("features.cu").launch("dpx", 1, n, (a, b, c, out))
    wide = [x.astype(np.int64) for x in (a, b, c)]
    total = wrapped(wide[0] + wide[1])
    np.testing.assert_array_equal(out[0], np.maximum(total, c))
    np.testing.assert_array_equal(out[1], np.maximum(np.maximum(np.maximum(a, b), c), 0))
    added = (halves_of(a) + halves_of(b)).astype(np.int16)
    np.testing.assert_array_equal(out[2], packed(np.maximum(np.minimum(added, halves_of(c)), 0)))
    unsigned = [x.view(np.uint16).reshape(-1, 2) for x in (a, b, c)]
    least = np.minimum(np.minimum(unsigned[0], unsigned[1]), unsigned[2])
    np.testing.assert_array_equal(out[3], np.ascontiguousarray(least).reshape(-1).view(np.int32))
    np.testing.assert_array_equal(out[4], wrapped(np.maximum(wide[0], wide[1]) + (a >= b)))
    octets = [x.view(np.uint8).reshape(-1, 4).astype(np.int64) for x in (a, b)]
    differences = np.abs(octets[0] - octets[1])
    apart = differences.astype(np.uint8).reshape(-1).view(np.int32)
    np.testing.assert_array_equal(out[5], apart ^ packed(halves_of(a) + halves_of(c)) ^ differences.sum(1))
    signed = [x.view(np.int8).reshape(-1, 4).astype(np.int64) for x in (a, b)]
    order = np.concatenate([x.view(np.uint8).reshape(-1, 4) for x in (a, b)], axis=1)
    permuted = np.ascontiguousarray(order[:, [0, 4, 1, 5]]).reshape(-1).view(np.uint32).astype(np.int64)
    ua, ub = a.view(np.uint32).astype(np.int64), b.view(np.uint32).astype(np.int64)
    funnel = (ub << 7 | ua >> 25) & 0xFFFFFFFF
    np.testing.assert_array_equal(out[6], wrapped((signed[0] * signed[1]).sum(1) + c + permuted + funnel))
    ones = np.array([bin(x).count("1") for x in ua])
    zeros = np.array([32 - int(x).bit_length() for x in ub])
    first = np.array([((int(x) & -int(x)).bit_length()) for x in c.view(np.uint32)])
    reverse = np.array([int(f"{x:032b}"[::-1], 2) for x in ua])
    apart = np.abs(wide[0] - wide[1]) + 3
    np.testing.assert_array_equal(out[7], wrapped(ones + zeros + first + reverse + apart))


def test_warps():
    x = RNG.integers(0, 1000, 32).astype(np.uint32)
    out = np.zeros((5, 32), np.uint32)
    module("features.cu").launch("warps", 1, 32, (x, out))
    np.testing.assert_array_equal(out[0], [*x[3:], *x[-3:]])
    odd = x % 2 == 1
    assert (out[1] == sum(1 << i for i in range(32) if odd[i])).all()
    assert (out[2] == x.sum()).all()
    same = [sum(1 << j for j in range(32) if x[j] % 5 == v % 5) for v in x]
    np.testing.assert_array_equal(out[3], same)
    np.testing.assert_array_equal(out[4], np.where(odd, odd.sum() * 1000 + x[odd].max(), 0))
