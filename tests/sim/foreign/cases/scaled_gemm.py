"""Our GEMM of 8-bit floats whose sums are promoted, on the served device: `scaled_gemm.py 256,48,640 tile_m=128`.

Arguments are the extents M, N and K, and options of `GemmConfig`; `ctas` is how many run at a time.
"""

import ast
import sys

import torch

from cutepy.kernels.gemm import GemmConfig, GemmSignature
from cutepy.kernels.gemm.compilation import compile_fused

_TYPES = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "float32"}


def main() -> None:
    """Compute a product of small integers with powers of two as scales, and compare it with torch's."""
    extents, *words = sys.argv[1:]
    m, n, k = map(int, extents.split(","))
    options = {"ctas": 1, **{key: ast.literal_eval(value) for key, value in (word.split("=") for word in words)}}
    ctas = options.pop("ctas")
    kernel = compile_fused(GemmConfig(signature=GemmSignature(**_TYPES, scale_rows=(1, 128)), **options))
    torch.manual_seed(0)
    a, b = (torch.randint(-3, 4, (rows, k), device="cuda") for rows in (m, n))
    blocks = -(-k // 128)
    scale_a, scale_b = (2.0 ** torch.randint(-2, 3, (rows, blocks), device="cuda") for rows in (m, -(-n // 128)))
    out = torch.empty(m, n, device="cuda")
    kernel(*(x.to(torch.float8_e4m3fn) for x in (a, b)), None, (out,), ctas, scale_a, scale_b)
    of_a = scale_a.repeat_interleave(128, 1)[:, :k]
    of_b = scale_b.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    torch.testing.assert_close(out, (a * of_a) @ (b * of_b).t(), atol=0, rtol=0)


if __name__ == "__main__":
    main()
