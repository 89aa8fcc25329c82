"""Our GEMM on the served device, of whatever configuration: `gemm.py 256,128,320 tile_m=128 warpgroups=2`.

Arguments are the extents M, N and K, and options of `GemmConfig` and `GemmSignature`; `ctas` is how many run at a time.
"""

import ast
import sys

import torch

from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm

_SIGNATURE = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
_TYPES = ("c_dtype", "c_major", "bias_dtype", "activation", *GemmSignature.__annotations__)


def main() -> None:
    """Compute a product of random floats, and compare it with torch's."""
    extents, *words = sys.argv[1:]
    m, n, k = map(int, extents.split(","))
    given = dict(word.split("=") for word in words)
    ctas = int(given.pop("ctas", "1"))
    signature = {**_SIGNATURE, **{key: given.pop(key) for key in [*given] if key in _TYPES}}
    options = {key: ast.literal_eval(value) for key, value in given.items()}
    kernel = compile_gemm(GemmConfig(signature=GemmSignature.standard(**signature), **options))
    kinds = {key: getattr(torch, value) for key, value in signature.items() if key.endswith("dtype")}
    torch.manual_seed(0)
    a, b = (torch.randn(rows, k, device="cuda").to(kinds[of]) for rows, of in ((m, "a_dtype"), (n, "b_dtype")))
    c = torch.randn(m, n, device="cuda").to(kinds["c_dtype"]) if "c_dtype" in kinds else None
    out = torch.empty(m, n, device="cuda", dtype=kinds["out_dtype"])
    kernel(a, b, c, out, ctas, None)
    expected = a.float() @ b.float().t() + (0 if c is None else c.float())
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.01)


if __name__ == "__main__":
    main()
