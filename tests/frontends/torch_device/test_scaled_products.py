"""`torch._scaled_mm` on the served device: scales of a tensor, of rows and of blocks, against factors by index."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType, SwizzleType

from cutepy.frontends import serve_cuda
from tests.messages import refuses

pytestmark = pytest.mark.dsl
F8, F4, E8 = torch.float8_e4m3fn, torch.float4_e2m1fn_x2, torch.float8_e8m0fnu
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def operand(rows, k, dtype):
    """Return elements (rows, K), packed, and their values."""
    if dtype == F4:
        codes = torch.randint(0, 16, (rows, k), dtype=torch.uint8)
        return (codes[:, ::2] | codes[:, 1::2] << 4).view(F4), torch.tensor(E2M1)[codes.long()]
    x = torch.randn(rows, k).to(dtype)
    return x, x.float()


def factors(rows, k, elems, dtype):
    """Return factors of blocks in tiles, by cuBLAS's formula, and by (row, element)."""
    blocks = k // elems
    tiles = -(-rows // 128), -(-blocks // 4)
    codes = torch.randint(120, 132, (rows, blocks), dtype=torch.uint8)
    if dtype == F8:
        codes = torch.randint(0x28, 0x40, (rows, blocks), dtype=torch.uint8)
    flat = torch.zeros(tiles[0] * tiles[1] * 512, dtype=torch.uint8)
    for r in range(rows):
        for b in range(blocks):
            tile = r // 128 * tiles[1] + b // 4
            flat[512 * tile + 16 * (r % 32) + 4 * (r % 128 // 32) + b % 4] = codes[r, b]
    return flat.view(dtype), codes.view(dtype).float().repeat_interleave(elems, 1)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 128), (48, 272, 192), (257, 16, 32)])
@pytest.mark.parametrize(("of", "scale", "elems"), [(F8, E8, 32), (F4, F8, 16), (F4, E8, 32)])
def test_blocks_have_factors(m, n, k, of, scale, elems):
    (a, left), (b, right) = operand(m, k, of), operand(n, k, of)
    (of_a, by_a), (of_b, by_b) = factors(m, k, elems, scale), factors(n, k, elems, scale)
    with serve_cuda():
        got = torch._scaled_mm(a.cuda(), b.cuda().t(), of_a.cuda(), of_b.cuda(), out_dtype=torch.float32).cpu()
    torch.testing.assert_close(got, (left * by_a) @ (right * by_b).t())


@pytest.mark.parametrize("by_row", [False, True])
def test_scales_of_tensors_and_rows_are_as_on_the_host(by_row):
    (a, _), (b, _) = operand(32, 64, F8), operand(48, 64, F8)
    of_a, of_b = (torch.rand(32, 1), torch.rand(1, 48)) if by_row else (torch.tensor(0.5), torch.tensor(3.0))
    bias = torch.randn(48).bfloat16()
    with serve_cuda():
        got = torch._scaled_mm(
            a.cuda(), b.cuda().t(), of_a.cuda(), of_b.cuda(), bias=bias.cuda(), out_dtype=torch.bfloat16
        ).cpu()
    torch.testing.assert_close(got, torch._scaled_mm(a, b.t(), of_a, of_b, bias=bias, out_dtype=torch.bfloat16))


@pytest.mark.parametrize("of", [F8, F4])
@pytest.mark.parametrize("grouped", ["rows", "K"])
def test_products_of_groups(grouped, of):
    """Groups of 64, 0, 160 and 32 rows, or elements of K."""
    ends, n, other = [64, 64, 224, 256], 48, 128
    recipe, elems, scale = (ScalingType.BlockWise1x32, 32, E8) if of == F8 else (ScalingType.BlockWise1x16, 16, F8)
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    shapes = [(size, other) if grouped == "rows" else (other, size) for size in sizes]
    lefts = [operand(*shape, of) for shape in shapes]
    rights = [operand(n, k, of) for _, k in shapes]
    factors_a = [factors(*shape, elems, scale) for shape in shapes]
    factors_b = [factors(n, k, elems, scale) for _, k in shapes]

    def joined(tensors, dim):
        return torch.cat([t.view(torch.uint8) for t in tensors], dim).view(tensors[0].dtype)

    a = joined([x for x, _ in lefts], 0 if grouped == "rows" else 1)
    if grouped == "rows":
        b = torch.stack([x.view(torch.uint8) for x, _ in rights]).view(of).mT
    else:
        b = joined([x for x, _ in rights], 1).t()
    of_group = torch.rand(4) + 0.5
    of_a, of_b = (joined([flat for flat, _ in one], 0) for one in (factors_a, factors_b))
    globals_ = [] if of == F8 else [of_group]
    recipes = [recipe] if of == F8 else [recipe, ScalingType.TensorWise]
    with serve_cuda():
        got = F.scaled_grouped_mm(
            a.cuda(),
            b.cuda(),
            [of_a.cuda(), *(x.cuda() for x in globals_)],
            recipes,
            [of_b.cuda(), *(x.cuda() for x in globals_)],
            recipes,
            swizzle_a=SwizzleType.SWIZZLE_32_4_4,
            swizzle_b=SwizzleType.SWIZZLE_32_4_4,
            offs=torch.tensor(ends, dtype=torch.int32).cuda(),
            output_dtype=torch.float32,
        ).cpu()
    each = [
        (left * by_a) @ (right * by_b).t() * (1 if of == F8 else of_group[group] ** 2)
        for group, ((_, left), (_, right), (_, by_a), (_, by_b)) in enumerate(
            zip(lefts, rights, factors_a, factors_b, strict=True)
        )
    ]
    torch.testing.assert_close(got, torch.cat(each) if grouped == "rows" else torch.stack(each))


def test_results_of_8_bits_saturate_and_are_scaled():
    a = torch.full((16, 32), 8.0).to(F8)
    with serve_cuda():
        one, of = torch.ones((), device="cuda"), torch.tensor(1 / 64, device="cuda")
        assert (torch._scaled_mm(a.cuda(), a.cuda().t(), one, one).cpu().float() == 448).all()
        assert (torch._scaled_mm(a.cuda(), a.cuda().t(), one, one, scale_result=of).cpu().float() == 32).all()


@pytest.mark.parametrize("scale", [torch.ones(7), torch.ones(128, dtype=torch.uint8).view(E8)], ids=["rows", "blocks"])
def test_factors_that_do_not_fit_are_refused(scale):
    a = operand(16, 64, F8)[0]
    with serve_cuda(), refuses(RuntimeError):
        torch._scaled_mm(a.cuda(), a.cuda().t(), scale.cuda(), scale.cuda(), out_dtype=torch.float32)
