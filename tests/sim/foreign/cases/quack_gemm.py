"""QuACK's GEMM for SM90 at a small size: `quack_gemm.py 256,256,192 tile_n=128 --activation swiglu`.

Arguments are the extents M, N and K, and options of its `GemmConfig`; its sources are the user's to bring.
`--clusters` is how many the DSL is told that the device holds at once, so that those of a persistent kernel have
several tiles. With `--lengths 100,156`, which make up M, the rows of each have a B of their own.
"""

import argparse
import ast
import itertools

import torch
from cutlass.utils import HardwareInfo
from quack.gemm_config import GemmConfig
from quack.gemm_interface import gemm_act, gemm_act_ref, gemm_dact, gemm_dact_ref, gemm_symmetric


def main() -> None:
    """Compute a product of random floats, and compare it with QuACK's reference in float32."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extents")
    parser.add_argument("options", nargs="*")
    parser.add_argument("--activation")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--symmetric", action="store_true")
    parser.add_argument("--clusters", type=int, default=1)
    parser.add_argument("--lengths")
    given = parser.parse_args()
    HardwareInfo.get_max_active_clusters = lambda *_, **__: given.clusters
    m, n, k = map(int, given.extents.split(","))
    options = {"tile_m": 128, "tile_n": 128, "cluster_m": 1, "pingpong": False, "is_dynamic_persistent": False}
    options |= {key: ast.literal_eval(value) for key, value in (word.split("=") for word in given.options)}
    torch.manual_seed(0)
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() / k**0.5 for rows in (m, n))
    c = torch.randn(m, n, device="cuda").bfloat16() if given.add or given.gradient else None
    if given.symmetric:
        close(gemm_symmetric(a, a.mT), a.float() @ a.float().mT)
        return
    how = {"activation": given.activation, "tuned": False, "config": GemmConfig(**options, device_capacity=9)}
    how["dynamic_scheduler"] = options["is_dynamic_persistent"]
    if given.gradient:
        found = gemm_dact(a, b.mT, c, **how)
        expected = gemm_dact_ref(a.float(), b.float().mT, c.float(), activation=given.activation)
    else:
        ends = None
        if given.lengths:
            lengths = [int(length) for length in given.lengths.split(",")]
            ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
            b = torch.randn(len(lengths), n, k, device="cuda").bfloat16() / k**0.5
        found = gemm_act(a, b.mT, C=c, store_preact=True, cu_seqlens_m=ends, **how)
        bias = None if c is None else c.float()
        options = {"activation": given.activation, "store_preact": True, "cu_seqlens_m": ends}
        expected = gemm_act_ref(a.float(), b.float().mT, C=bias, **options)
    for mine, theirs in zip(found, expected, strict=False):
        close(mine, theirs)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare within bfloat16's rounding."""
    torch.testing.assert_close(found.float(), expected.float(), atol=0.03, rtol=0.03)


if __name__ == "__main__":
    main()
