"""Copies of a product's tensors before the kernel reads them: their number and their layouts.

TMA moves 16-byte units. A tensor that TMA can't reach is copied, unless loads by threads are expected to take less
time. Rows of a batch that would fill their tiles badly are copied into one matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from cutepy.kernels.gemm.batch_folding import join
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.heuristic.choice import expected_us
from cutepy.kernels.gemm.operands import (
    UNIT_BYTES,
    Description,
    Problem,
    matrix,
    new_result,
    padded_copy,
    reachable,
    whole_units,
)

_LAUNCH_US, _BYTES_PER_US = 4.4, 0.85e6
"""Of torch's copies into rows of a padded pitch, between other launches, and of the bytes that they store.

With them 14 products and their two copies of 0.01 to 117 MB took what is expected of all three, 15 to 284 us, within
11%, on an H200 (2026-11-24).
"""
# What gathering rows costs: the host's work for another launch, and the bytes that the GPU's memory moves. Estimates
# for an H200; they decide only whether ragged batches of rows are copied together, where some 20 us are at stake.
_COPY_US = 20
_COPY_BYTES_PER_US = 3e6


def copy_us(stored_bytes: int) -> float:
    """Estimate the microseconds of a copy: a launch that reads and writes so many bytes of device memory.

    Examples
    --------
    >>> [round(copy_us(2 * rows * 4096), 1) for rows in (1, 4096)]
    [4.4, 43.9]
    """
    return _LAUNCH_US + stored_bytes / _BYTES_PER_US


def loads_pay(by_threads_us: float, by_tma_us: float, copied_bytes: Iterable[int]) -> bool:
    """Return whether threads are to load operands as they lie, rather than TMA, once copies of them have been made.

    A function of the time of the kernel that loads by threads, of that of the kernel that reads copies, both as they
    were tuned or are expected (`op.chosen_us_on`), and of the bytes of each copy that is saved.

    Threads load where the copies are most of the work, as of few rows times a large matrix, whose bytes a copy has
    moved three times. What the copies cost the host is left out.

    Examples
    --------
    >>> loads_pay(15.0, 10.0, [2 * 4098, 2 * 4097 * 4098]), loads_pay(15.0, 10.0, [2 * 4098])
    (True, False)
    """
    return by_threads_us <= by_tma_us + sum(map(copy_us, copied_bytes))


class Copy(NamedTuple):
    """A copy's columns, and the place of its rows among the modes of a batch (`padded_copy`)."""

    columns: int
    place: int = -2

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor."""
        return reachable(tensor) if 0 in tensor.shape else padded_copy(tensor, *self)

    def described(self, tensor: Description) -> Description:
        """Describe the copy of a tensor."""
        made = self.of(torch.empty_strided(*tensor[:2], dtype=tensor.dtype, device="meta"))
        return tensor._replace(shape=tuple(made.shape), stride=made.stride(), address_bytes=UNIT_BYTES)


class Copies(NamedTuple):
    """Copies before a kernel is launched, and after.

    Attributes
    ----------
    a, b : Copy or None
    operands : tuple of (Copy or None)
    results : tuple of bool
        Results that are computed into a tensor of their own, which may have more columns, and copied from there.
    rest, joined : Problem
        Tensors that the kernel is given, and its views of them.
    """

    a: Copy | None
    b: Copy | None
    operands: tuple[Copy | None, ...]
    results: tuple[bool, ...]
    rest: Problem
    joined: Problem

    @classmethod
    def of(cls, views: Problem, *, a: bool = False, b: bool = False) -> Copies:
        """Copy A and B as is said, tiles that TMA doesn't reach, and results if it doesn't reach all."""
        graph = views.graph
        tiled = [graph.reduction(result) is None for result in graph.results]
        indirect = not _directly(each for each, tile in zip(views.results, tiled, strict=True) if tile)
        results = tuple(
            _widened(each) if indirect and tile else each for each, tile in zip(views.results, tiled, strict=True)
        )
        place = (
            _place_of_rows(next(each for each, tile in zip(results, tiled, strict=True) if tile)) if any(tiled) else -2
        )
        made = [
            Copy(_whole_units(each), place) if each and of.shape == "tile" and matrix(each) is None else None
            for each, of in zip(views.operands, graph.operands, strict=True)
        ]
        copy_a = Copy(_whole_units(views.a), place) if a else None
        copy_b = Copy(_whole_units(views.b)) if b else None
        pairs = zip(views.operands, made, strict=True)
        rest = views._replace(
            a=copy_a.described(views.a) if copy_a else views.a,
            b=copy_b.described(views.b) if copy_b else views.b,
            operands=tuple(copy.described(each) if copy and each else each for each, copy in pairs),
            results=results,
        )
        changed = copy_a or copy_b or indirect or any(made)
        joined = join(rest) if changed else views
        assert joined is not None, "a copy has no more modes than what is copied"
        return cls(copy_a, copy_b, tuple(made), tuple(indirect and tile for tile in tiled), rest, joined)


def cheapest(views: Problem, us: Callable[[Problem], float], *, by_threads: bool = True) -> Copies:
    """Choose the copies: of matrices that TMA can't reach, unless threads load them in less time; of rows, together.

    Parameters
    ----------
    views : Problem
        Of matrices, or of a batch of them.
    us : callable
        Gives the microseconds that are expected of a problem's kernel.
    by_threads : bool
        True if threads may load.
    """
    unreached = [matrix(each, is_operand=True) is None for each in (views.a, views.b)]
    if not any(unreached):
        plain = Copies.of(views)
        gathers = not any(plain.operands) and _gathering_pays(views)
        return Copies.of(views, a=True) if gathers else plain
    all_ = Copies.of(views, a=unreached[0], b=unreached[1])
    still = [matrix(each, is_operand=True, by_threads=by_threads) is None for each in (views.a, views.b)]
    if still == unreached:
        return all_
    fewer = Copies.of(views, a=still[0], b=still[1])
    operands = zip((views.a, views.b), unreached, still, strict=True)
    saved_bytes = [operand.stored_bytes for operand, made, kept in operands if made and not kept]
    return fewer if loads_pay(us(fewer.joined), us(all_.joined), saved_bytes) else all_


def _directly(tiles: Iterable[Description]) -> bool:
    """Return whether TMA writes all results that are tiles where they lie, contiguous along one mode."""
    found = [matrix(each) for each in tiles]
    return None not in found and len({each.contiguous_mode for each in found if each}) <= 1


def _widened(each: Description) -> Description:
    """Describe matrices of the same extents, with contiguous rows padded to whole units of 16 bytes."""
    return new_result((*each.shape[:-1], _whole_units(each)), each.dtype, "row", each.device)


def _whole_units(tensor: Description) -> int:
    """Round the columns of a matrix up to whole units."""
    return int(whole_units(tensor.shape[-1], tensor.dtype))


def _gathering_pays(views: Problem) -> bool:
    """Return whether a batch that shares b, whose last tiles are part empty, is better one product of a copied a."""
    a, b = views.a, views.b
    *batch, m, k = a.shape
    if not batch or any(b.stride[:-2]) or 0 in a.stride:
        return False
    gathered = Copies.of(views, a=True).joined
    if len(gathered.a.shape) > 2:
        return False
    n, bits, gpu = b.shape[-2], 8 * a.dtype.itemsize, gpu_of(a.device)
    cost_us = _COPY_US + 2 * math.prod(a.shape) * a.dtype.itemsize / _COPY_BYTES_PER_US
    apart_us = expected_us(m, n, k, bits, gpu, batch=math.prod(batch), shared=True)
    return expected_us(gathered.a.shape[0], n, k, bits, gpu) + cost_us < apart_us


def _place_of_rows(out: Description) -> int:
    """Tell how many modes of a batch step farther in the result than its rows do."""
    return sum(step > out.stride[-2] for step in out.stride[:-2])
