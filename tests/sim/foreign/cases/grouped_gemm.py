"""Our grouped GEMM on the served device: `grouped_gemm.py m 80,64,256 70,70,80 stages=3`.

Arguments are the extent along which the groups are, the extents M, N and K, the groups' ends (`70*33` is 33 ends at
70), and options of `GemmConfig`; `ctas` is how many run at a time.
"""

import ast
import sys

import torch

from cutepy.kernels.gemm import GemmConfig, GemmSignature
from cutepy.kernels.grouped import GroupedConfig, compile_grouped
from cutepy.kernels.grouped.reference import grouped_reference

_MAJORS = {"m": {}, "n": {"out_major": "col"}, "k": {"a_major": "mn", "b_major": "mn"}}


def main() -> None:
    """Compute a product of small integers for each group, and compare it with torch's."""
    along, extents, groups, *words = sys.argv[1:]
    m, n, k = map(int, extents.split(","))
    options = {"ctas": 1, **{key: ast.literal_eval(value) for key, value in (word.split("=") for word in words)}}
    ctas = options.pop("ctas")
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", **_MAJORS[along])
    config = GroupedConfig(
        gemm=GemmConfig(signature=signature, **{"tile_m": 64, "tile_n": 64, "epi_stages": 2, **options}), along=along
    )
    pairs = (f"{word}*1".split("*")[:2] for word in groups.split(","))
    ends = torch.tensor([int(end) for end, times in pairs for _ in range(int(times))], dtype=torch.int32)
    torch.manual_seed(0)

    def made(region: str, rows: int, columns: int, contiguous: bool) -> torch.Tensor:
        shape = (len(ends),) * config.grouping(region).batched + ((rows, columns) if contiguous else (columns, rows))
        values = torch.randint(-3, 4, shape, device="cuda").half()
        return values if contiguous else values.mT

    a, b = made("sA", m, k, signature.a_major == "k"), made("sB", n, k, signature.b_major == "k")
    out = made("sD", m, n, signature.out_major == "row")
    expected = grouped_reference(a, b, ends, out.clone(), along)
    compile_grouped(config)(a, b, ends.cuda(), None, (out,), ctas)
    torch.testing.assert_close(out, expected, atol=0, rtol=0)


if __name__ == "__main__":
    main()
