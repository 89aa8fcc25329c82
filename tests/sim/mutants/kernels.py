"""The kernels that are mutated: what launches each, at sizes where every loop and role is entered."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cutepy.frontends import load_ptx, serve_cuda, simulate

HALF = "float16"
_WORDS = 96
_GEMMS: dict[str, tuple[tuple[int, int, int], dict[str, object], dict[str, object]]] = {
    "gemm": ((256, 256, 320), {}, {"tile_m": 128, "tile_n": 128, "warpgroups": 2}),
    "gemm-persistent": ((128, 256, 256), {}, {"tile_m": 64, "tile_n": 128, "stages": 3, "epi_stages": 2}),
    "gemm-multicast": ((512, 256, 320), {}, {"tile_m": 128, "tile_n": 128, "warpgroups": 2, "cluster_m": 2}),
    "gemm-multicast-both": ((256, 256, 448), {}, {"tile_m": 64, "tile_n": 64, "cluster_m": 2, "cluster_n": 2}),
    "gemm-fp8": (
        (256, 256, 640),
        {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn"},
        {"tile_m": 128, "tile_n": 128, "warpgroups": 2},
    ),
    "gemm-add": ((256, 256, 320), {"c_dtype": HALF, "c_major": "row"}, {"tile_m": 128, "tile_n": 128, "warpgroups": 2}),
    "gemm-split": ((192, 64, 768), {}, {"tile_m": 64, "tile_n": 64, "stages": 2, "epi_stages": 2, "split_k": 4}),
    "gemm-pingpong": ((256, 128, 320), {}, {"tile_m": 64, "tile_n": 64, "stages": 3, "epi_stages": 2, "consumers": 2}),
    "gemm-192-rows": ((320, 64, 320), {}, {"tile_m": 192, "tile_n": 64, "warpgroups": 3, "stages": 3, "epi_stages": 2}),
    "gemm-256-rows": ((512, 64, 320), {}, {"tile_m": 256, "tile_n": 64, "warpgroups": 2, "stages": 3, "epi_stages": 2}),
}
"""Name -> extents, what is not float16 in the signature, and the configuration."""


def _gemm(name: str) -> Callable[[], None]:
    def launch() -> None:
        import torch

        from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm

        extents, types, options = _GEMMS[name]
        m, n, k = extents
        signature = GemmSignature.standard(**{"a_dtype": HALF, "b_dtype": HALF, "out_dtype": HALF, **types})
        config = GemmConfig(signature=signature, **options)  # type: ignore[arg-type]
        kernel = compile_gemm(config)
        kind = getattr(torch, str(types.get("a_dtype", HALF)))
        a, b = (torch.randint(-3, 4, (rows, k)).to(kind) for rows in (m, n))
        c = torch.randint(-3, 4, (m, n)).half() if "c_dtype" in types else None
        with simulate(processes=1):
            # One cluster at a time, so that each CTA has several tiles.
            ctas = config.cluster_m * config.cluster_n * config.split_k
            kernel(a, b, c, torch.empty((m, n), dtype=torch.float16), ctas, None)

    return launch


_SCALED: dict[str, tuple[tuple[int, int, int], dict[str, object]]] = {
    "gemm-scaled": ((256, 48, 640), {"tile_m": 128, "tile_n": 48, "epi_n": 16, "stages": 3, "epi_stages": 2}),
    "gemm-scaled-tma": ((256, 48, 640), {"tile_m": 128, "tile_n": 48, "epi_n": 16, "stages": 3, "epi_stages": 2}),
    "gemm-scaled-split": (
        (192, 16, 1536),
        {"tile_m": 64, "tile_n": 16, "epi_n": 16, "tile_k": 256, "stages": 2, "epi_stages": 2, "split_k": 2},
    ),
}
"""Name -> extents, and the configuration of a product of 8-bit floats whose sums are promoted; TMA may load scales."""

_GROUPS = [70, *[70] * 33, 80]
"""Ends of 35 groups, all but two of them empty: more than the lanes of a warp."""
_GROUPED: dict[str, tuple[str, tuple[int, int, int], dict[str, str], dict[str, int]]] = {
    "grouped-m": ("m", (80, 64, 256), {}, {"stages": 3}),
    "grouped-n": ("n", (128, 80, 256), {"out_major": "col"}, {"stages": 3, "cluster_m": 2, "consumers": 2}),
    "grouped-k": ("k", (64, 64, 210), {"a_major": "mn", "b_major": "mn"}, {"stages": 2}),
}
"""Name -> where the groups are, extents, majors, and what is not usual in the configuration."""


def _scaled(name: str) -> Callable[[], None]:
    def launch() -> None:
        import torch

        from cutepy.kernels.gemm import GemmConfig, GemmSignature
        from cutepy.kernels.gemm.compilation import compile_fused

        (m, n, k), options = _SCALED[name]
        kind, by_tma = torch.float8_e4m3fn, name.endswith("tma")
        types = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "float32"}
        signature = GemmSignature(**types, scale_rows=(1, 128), tma_scales=(by_tma, False))
        config = GemmConfig(signature=signature, **options)  # type: ignore[arg-type]
        a, b = (torch.randint(-3, 4, (rows, k)).to(kind) for rows in (m, n))
        scale_a, scale_b = (2.0 ** torch.randint(-2, 3, (places, k // 128)) for places in (m, 1))
        if by_tma:
            scale_a = scale_a.mT.contiguous().mT
        kernel = compile_fused(config)
        with simulate(processes=1):
            kernel(a, b, None, (torch.empty(m, n),), config.split_k, scale_a, scale_b)

    return launch


def _grouped(name: str) -> Callable[[], None]:
    def launch() -> None:
        import torch

        from cutepy.kernels.gemm import GemmConfig, GemmSignature
        from cutepy.kernels.grouped import GroupedConfig, compile_grouped

        along, (m, n, k), majors, options = _GROUPED[name]
        signature = GemmSignature(a_dtype=HALF, b_dtype=HALF, out_dtype=HALF, **majors)  # type: ignore[arg-type]
        gemm = GemmConfig(signature=signature, **{"tile_m": 64, "tile_n": 64, "epi_stages": 2, **options})
        config = GroupedConfig(gemm=gemm, along=along)  # type: ignore[arg-type]
        groups = [100, 100, k] if along == "k" else _GROUPS

        def made(region: str, rows: int, columns: int, contiguous: bool) -> torch.Tensor:
            shape = (len(groups),) * config.grouping(region).batched + (
                (rows, columns) if contiguous else (columns, rows)
            )
            values = torch.randint(-3, 4, shape).half()
            return values if contiguous else values.mT

        a, b = made("sA", m, k, signature.a_major == "k"), made("sB", n, k, signature.b_major == "k")
        out = made("sD", m, n, signature.out_major == "row")
        kernel = compile_grouped(config)
        with simulate(processes=1):
            kernel(a, b, torch.tensor(groups, dtype=torch.int32), None, (out,), gemm.cluster_m)

    return launch


def _overlapping() -> None:
    """Launch a product whose result takes A's place, for a launch behind it to read: see `LAUNCHES`."""
    import torch

    from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm

    signature = GemmSignature(a_dtype=HALF, b_dtype=HALF, out_dtype=HALF)
    # Each CTA reads the rows that it writes, and no others.
    kernel = compile_gemm(GemmConfig(signature=signature, tile_m=64, tile_n=256, stages=3, epi_stages=2))
    a, shift = torch.randint(-3, 4, (256, 256)).half(), torch.eye(256).half().roll(1, 0)
    with simulate(processes=1):
        kernel(a, shift, None, a, 2, None)


def script(path: Path, arguments: list[str], clusters: int | None = None) -> Callable[[], None]:
    """Return what runs a script for a GPU, of whatever compiler its kernels are.

    `clusters` is how many the DSL is told that the device holds at once, so that those of persistent kernels have
    several tiles.
    """

    def launch() -> None:
        argv, before = sys.argv, sys.path[:]
        sys.argv, sys.path[0] = [str(path), *arguments], str(path.resolve().parent)
        try:
            with serve_cuda():
                if clusters is not None:
                    from cutlass.utils import HardwareInfo

                    HardwareInfo.get_max_active_clusters = lambda *_, **__: clusters
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as leaving:
            if leaving.code:
                raise
        finally:
            sys.argv, sys.path[:] = argv, before

    return launch


def _handwritten() -> None:
    """Launch handwritten.ptx, and check what it computes."""
    rounds = 5
    rows = np.arange(2 * rounds * _WORDS, dtype=np.uint32).reshape(2, rounds, _WORDS)
    more, sums = np.arange(_WORDS, dtype=np.uint32), np.zeros((2, _WORDS), np.uint32)
    module = load_ptx(Path(__file__).with_name("handwritten.ptx").read_text())
    with simulate(processes=1):
        module.launch("pipeline", grid=2, block=128, cluster=2, args=(rows, more, sums, rounds), smem=8192)
    other = np.arange(_WORDS) ^ np.where(np.arange(_WORDS) < 64, 32, 0)
    own = rows.sum(axis=1, dtype=np.uint32) + more[other]
    np.testing.assert_array_equal(sums, own + own[::-1, other])


KERNELS: dict[str, Callable[[], None]] = {
    **{name: _gemm(name) for name in _GEMMS},
    "gemm-overlap": _overlapping,
    **{name: _scaled(name) for name in _SCALED},
    **{name: _grouped(name) for name in _GROUPED},
    "handwritten": _handwritten,
}
"""Name -> what launches it."""

LAUNCHES = {"gemm-overlap": 2}
"""Name -> how often its launch is made, one behind the other in a stream, where that is not once."""
