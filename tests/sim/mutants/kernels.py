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


KERNELS: dict[str, Callable[[], None]] = {name: _gemm(name) for name in _GEMMS} | {"handwritten": _handwritten}
"""Name -> what launches it."""
