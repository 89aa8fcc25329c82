"""Triton's matmul for Hopper, by TMA descriptors: `triton_matmul.py 256,192,256 --stages 3 --warps 4 --ctas 2`.

A warpgroup or two multiply what a pipeline of TMA loads brings, tile after tile; with `--split_k` parts of K are added
up by atomics, and `--specialise` asks for a warp of its own for the loads.
"""

import argparse

import torch
import triton
import triton.language as tl


@triton.jit
def _matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, at_a_time,
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr,
    split_k: tl.constexpr, stages: tl.constexpr, specialise: tl.constexpr,
):  # fmt: skip
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [tile_m, tile_k])
    b = tl.make_tensor_descriptor(b_ptr, [n, k], [k, 1], [tile_n, tile_k])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [tile_m, tile_n])
    columns = tl.cdiv(n, tile_n)
    tiles = tl.cdiv(m, tile_m) * columns
    steps = tl.cdiv(k, tile_k * split_k)
    for tile in tl.range(tl.program_id(0), tiles, at_a_time, flatten=False, warp_specialize=specialise):
        row = tile // columns * tile_m
        column = tile % columns * tile_n
        total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for step in tl.range(tl.program_id(1) * steps, (tl.program_id(1) + 1) * steps, num_stages=stages):
            left = a.load([row, step * tile_k])
            right = b.load([column, step * tile_k])
            total = tl.dot(left, right.T, total)
        if split_k == 1:
            c.store([row, column], total.to(c_ptr.dtype.element_ty))
        else:
            rows = row + tl.arange(0, tile_m)[:, None]
            below = column + tl.arange(0, tile_n)[None, :]
            tl.atomic_add(c_ptr + rows * n + below, total, mask=(rows < m) & (below < n))


def main() -> None:
    """Compute a product of random floats, and compare it with torch's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extents")
    parser.add_argument("--tile", default="64,64,64")
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--warps", type=int, default=4)
    parser.add_argument("--ctas", type=int, default=2)
    parser.add_argument("--split_k", type=int, default=1)
    parser.add_argument("--specialise", action="store_true")
    given = parser.parse_args()
    m, n, k = map(int, given.extents.split(","))
    tile = tuple(map(int, given.tile.split(",")))
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    torch.manual_seed(0)
    a, b = (torch.randn(rows, k, device="cuda").half() for rows in (m, n))
    c = torch.zeros(m, n, device="cuda", dtype=torch.float16 if given.split_k == 1 else torch.float32)
    _matmul[given.ctas, given.split_k](
        a, b, c, m, n, k, given.ctas, *tile, given.split_k, given.stages, given.specialise, num_warps=given.warps
    )
    torch.testing.assert_close(c.float(), a.float() @ b.float().t(), atol=0.05, rtol=0.01)


if __name__ == "__main__":
    main()
