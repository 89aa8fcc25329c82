"""Slow kernels: the templates of `cutepy new`, each with one mistake that costs time and changes no result."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from cutepy import simulate
from cutepy.anatomy import Costs, SlowPlace
from cutepy.cli.new import write_kernel

MULTIPLY = "        state = self.loop.multiply(state, work.k.count)\n"
STORE = "            self.out.store(rC, index % EPI_STAGES, target, index)\n"
ADVANCE = "            state.advance()\n        return state\n\n\n@dataclass(frozen=True)\nclass Consumer"
GRID = "grid=(cute.size(x, mode=[0]), 1, 1), block=(THREADS, 1, 1)"
PLAN_END = "alignment_bytes=16))\n"
STORED = "        ys.store(scaled, row, place)\n"
IMPORTS = "from cutepy.device.vectors import TileVector, make_tile_vector\n"

OWN_LOOP = """\
        for tile in cutlass.range(work.k.count, unroll=1):
            self.loop.ring.wait(state)
            if tile == 0:
                self.loop.product.issue(a=state.index, b=state.index)
            else:
                self.loop.product.issue(a=state.index, b=state.index, accumulate=True)
            warpgroup.wait_group(0)  # planted
            self.loop.ring.release(state)
            state.advance()
"""
SERIAL_LOOP = """\
        product = self.loop.product
        for tile in cutlass.range(work.k.count, unroll=1):
            self.loop.ring.wait(state)
            for step in cutlass.range_constexpr(product.steps):
                if tile == 0 and step == 0:
                    product.issue(a=state.index, b=state.index, steps=range(step, step + 1))
                else:
                    product.issue(a=state.index, b=state.index, accumulate=True, steps=range(step, step + 1))
                warpgroup.wait_group(0)  # planted
            self.loop.ring.release(state)
            state.advance()
"""
RING_OF_ONE = """

@dataclass(frozen=True)
class Loop:
    ring: TmaRing
    product: Product

    @property
    def tCrC(self):
        return self.product.tCrC
"""


@dataclass(frozen=True)
class Planted:
    """Template, the texts that are replaced in it, and the extents that it is launched with."""

    template: str
    edits: tuple[tuple[str, str], ...]
    extents: tuple[int, ...]
    kind: str
    ctas: tuple[int, ...] | None = (0,)


def _edits(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return pairs


_WARPGROUP = (IMPORTS, IMPORTS + "from cutlass.cute.nvgpu import warpgroup\n")
_ONE_WARPGROUP = (
    ("TILE_M, TILE_N, TILE_K, STAGES = 128,", "TILE_M, TILE_N, TILE_K, STAGES = 64,"),
    ("WARPGROUPS = (128, 32), 2, 2", "WARPGROUPS = (64, 32), 2, 1"),
)
_SCRATCH = (
    (PLAN_END, "alignment_bytes=16), scratch=sm90.SmemArray(32 * THREADS, bits=32))\n"),
    (
        "warps=cutlass.Float32)\n",
        "warps=cutlass.Float32, scratch=cutlass.Float32)\n"
        "    scratch = smem.as_vector(shared['scratch'], PLAN['scratch'])\n",
    ),
)
_FIRST = "        values = xs.load(row, index * THREADS + tidx)"
_AGAIN = (
    "        values = xs.load(row, place).load().to(cutlass.Float32)  # from L1 or L2, where the first loop left them\n"
)

PLANTED = {
    "one stage": Planted(
        "gemm",
        _edits(
            (
                IMPORTS,
                IMPORTS
                + "from cutepy.device.product import Product, make_product\nfrom cutlass.cute.nvgpu import warpgroup\n",
            ),
            ("TILE_K, STAGES = 128, 128, 64, 4", "TILE_K, STAGES = 128, 128, 64, 1"),
            (MULTIPLY, OWN_LOOP.replace("# planted", "#")),
            (
                "\n\n@dataclass(frozen=True)\nclass Consumer",
                RING_OF_ONE + "\n\n@dataclass(frozen=True)\nclass Consumer",
            ),
            (
                "main_loop.make_main_loop(ring, tiled_mma, a.staged, b.staged, tidx)",
                "Loop(ring, make_product(tiled_mma, a.staged, b.staged, tidx))",
            ),
            ("full = self.ring.acquire(state)", "full = self.ring.acquire(state)  # planted"),
        ),
        (1024, 2048, 2048),
        "too few stages",
    ),
    "early wait": Planted(
        "gemm",
        _edits(
            (
                ADVANCE,
                "            cute.arch.mbarrier_wait(self.ring.full + state.index, state.phase ^ 1)  # planted\n"
                + ADVANCE,
            )
        ),
        (1024, 2048, 2048),
        "early wait for loads",
    ),
    "no overlap": Planted(
        "gemm",
        _edits(
            _WARPGROUP,
            (MULTIPLY, OWN_LOOP.replace("# planted", "#")),
            (
                ADVANCE,
                "            cute.arch.mbarrier_wait(self.ring.empty + state.index, state.phase ^ 1)  # planted\n"
                + ADVANCE,
            ),
        ),
        (1024, 2048, 2048),
        "no overlap of loads and MMAs",
    ),
    "serialised MMAs": Planted(
        "gemm", _edits(_WARPGROUP, *_ONE_WARPGROUP, (MULTIPLY, SERIAL_LOOP)), (512, 512, 2048), "serialised MMAs"
    ),
    "early wait for stores": Planted(
        "gemm",
        _edits(
            (
                "EPI_TILE, EPI_STAGES, WARPGROUPS = (128, 32), 2, 2",
                "EPI_TILE, EPI_STAGES, WARPGROUPS = (128, 32), 4, 2",
            ),
            (STORE, STORE + "            cute.arch.cp_async_bulk_wait_group(0)  # planted\n"),
        ),
        (1024, 2048, 128),
        "early wait for stores",
    ),
    "bank-conflicted stores": Planted(
        "rows",
        _edits(
            *_SCRATCH,
            (
                STORED,
                "        for n in cutlass.range_constexpr(elements):\n"
                "            scratch[32 * tidx + n] = scaled[n]  # planted\n"
                "        for n in cutlass.range_constexpr(elements):\n"
                "            scaled[n] = scratch[32 * tidx + n]\n" + STORED,
            ),
        ),
        (2048, 4096),
        "bank conflicts",
    ),
    "uncoalesced loads": Planted(
        "rows",
        _edits(
            (
                "        values = xs.load(row, index * THREADS + tidx).load().to(cutlass.Float32)\n",
                "        values = xs.load(row, tidx * vectors + index).load().to(cutlass.Float32)  # planted\n",
            ),
            ("min(make_row_vectors(tensor).elems for tensor in (x, weight, y))", "1"),
        ),
        (2048, 4096),
        "uncoalesced accesses",
    ),
    "spills": Planted(
        "rows",
        _edits(
            ("THREADS = 256", "THREADS = 1024"),
            (
                f"    for index in cutlass.range(vectors, unroll=4):\n{_FIRST}",
                "    held = cute.make_rmem_tensor((HELD * elements,), cutlass.Float32)\n"
                f"    for index in cutlass.range_constexpr(HELD):\n{_FIRST}",
            ),
            (
                ".load().to(cutlass.Float32)\n        own = own + (values",
                ".load().to(cutlass.Float32)  # planted\n"
                "        held_part = cute.local_tile(held, (elements,), (index,))\n        held_part.store(values)\n"
                "        own = own + (values",
            ),
            (
                "    for index in cutlass.range(vectors, unroll=4):\n        place",
                "    for index in cutlass.range_constexpr(HELD):\n        place",
            ),
            (
                _AGAIN,
                "        values = cute.local_tile(held, (elements,), (index,)).load()\n",
            ),
            ("BARRIERS =", "HELD = 12\nBARRIERS ="),
        ),
        (264, 12 * 8192),
        "spills",
    ),
    "low occupancy": Planted(
        "rows",
        _edits(
            (PLAN_END, "alignment_bytes=16), scratch=sm90.SmemArray(28 * 1024, bits=32))\n"),
            ("warps=cutlass.Float32)\n", "warps=cutlass.Float32, scratch=cutlass.Float32)\n"),
        ),
        (2048, 4096),
        "low occupancy",
    ),
    "tail": Planted("gemm", (), (7 * 128, 19 * 128, 2048), "tail", (0, 66, 131)),
    "redundant barrier": Planted(
        "rows",
        _edits(
            (
                "        values = xs.load(row, index * THREADS + tidx).load().to(cutlass.Float32)\n",
                "        values = xs.load(row, index * THREADS + tidx).load().to(cutlass.Float32)\n"
                "        cute.arch.sync_threads()  # planted\n",
            )
        ),
        (132, 65536),
        "redundant barrier",
    ),
    "unswizzled layout": Planted(
        "rows",
        _edits(
            *_SCRATCH,
            (
                STORED,
                "        for n in cutlass.range_constexpr(elements):\n"
                "            scratch[32 * (tidx // 32 * 32 + n) + tidx % 32] = scaled[n]\n"
                "        for n in cutlass.range_constexpr(elements):\n"
                "            scaled[n] = scaled[n] + scratch[32 * (tidx // 32 * 32 + tidx % 32) + n]  # planted\n"
                + STORED,
            ),
        ),
        (2048, 4096),
        "bank conflicts",
    ),
}


def source(planted: Planted, folder: Path, name: str) -> Path:
    """Write a template with its mistake."""
    path = write_kernel(name, folder, planted.template)[0]
    text = path.read_text()
    for old, new in planted.edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


def load(path: Path) -> ModuleType:
    """Import a file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def arguments(planted: Planted) -> tuple[torch.Tensor, ...]:
    """Return a launch's tensors."""
    if planted.template == "gemm":
        m, n, k = planted.extents
        return tuple(torch.zeros(*shape, dtype=torch.float16) for shape in ((m, k), (n, k), (n,)))
    rows, columns = planted.extents
    return torch.zeros(rows, columns, dtype=torch.bfloat16), torch.zeros(columns, dtype=torch.bfloat16)


def slow_places(planted: Planted, folder: Path, name: str) -> tuple[Costs, tuple[SlowPlace, ...], Path]:
    """Predict a planted kernel, and find its slow places."""
    path = source(planted, folder, name)
    module = load(path)
    costs = Costs("h200")
    with simulate(time=costs, ctas=None if planted.ctas is None else list(planted.ctas)):
        getattr(module, name)(*arguments(planted))
    ((_, found),) = costs.found.values()
    return costs, found, path


@cache
def planted_line(path: Path) -> int | None:
    """Return the number of the line that is marked; None if none is."""
    return next((n for n, line in enumerate(path.read_text().splitlines(), 1) if "# planted" in line), None)
