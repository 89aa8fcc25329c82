"""What is copied of the tensors of a product before the kernel reads them: which copies are made, and how they lie."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from cutepy.kernels.gemm.copying import loads_pay
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.heuristic.choice import expected_us
from cutepy.kernels.gemm.joining import join
from cutepy.kernels.gemm.op import Given, Launch, planned_us
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, Problem, matrix, new_result, padded_copy, whole_units

# What a copy costs: the host's work for another launch, and the bytes that the GPU's memory moves. Estimates for an
# H200; they decide only whether ragged batches of rows are copied together, where some 20 us are at stake.
_COPY_US = 20
_COPY_BYTES_PER_US = 3e6


def cheapest(views: Problem) -> Copies:
    """Decide what is copied: what TMA can't reach, but operands that threads load in less time; or rows, together."""
    unreached = _unreached(views)
    if not any(unreached):
        return Copies.of(views, [_gathering_pays(views), False, False])
    all_, fewer = Copies.of(views, unreached), Copies.of(views, _unreached(views, by_threads=True))
    pairs = zip(views[:2], all_.made[:2], fewer.made[:2], strict=True)
    saved_bytes = [operand.stored_bytes for operand, made, still in pairs if made and not still]
    if saved_bytes and loads_pay(planned_us(fewer.joined), planned_us(all_.joined), saved_bytes):
        return fewer
    return all_


def _unreached(views: Problem, *, by_threads: bool = False) -> list[bool]:
    """Tell which of a, b and c TMA doesn't reach, nor threads, if they may load a and b."""
    operands = [matrix(each, is_operand=True, by_threads=by_threads) is None for each in (views.a, views.b)]
    return [*operands, views.c is not None and matrix(views.c) is None]


class _Copy(NamedTuple):
    """A copy's columns, and the place of its rows among the modes of a batch (`padded_copy`)."""

    columns: int
    place: int


class Copies(NamedTuple):
    """What is copied before a kernel is launched.

    Attributes
    ----------
    views : Problem
        How all is seen, before it is copied.
    made : tuple of (_Copy or None)
        Of a, b and c.
    indirect : bool
        Whether the kernel writes to a tensor of its own, which may have more columns.
    rest, joined : Problem
        What the kernel is given, and how it sees that.
    """

    views: Problem
    made: tuple[_Copy | None, _Copy | None, _Copy | None]
    indirect: bool
    rest: Problem
    joined: Problem

    @classmethod
    def of(cls, views: Problem, copied: list[bool]) -> Copies:
        """Copy a, b and c as is said, and the result if TMA doesn't reach it."""
        (a, b, c, out), (copy_a, copy_b, copy_c) = views[:4], copied
        indirect = matrix(out) is None
        if indirect:
            out = new_result((*out.shape[:-1], _whole_units(out)), out.dtype, "row", out.device)
        columns, place = _whole_units(a), _place_of_rows(out)
        if (copy_a or copy_b) and columns > a.shape[-1]:  # a copy is contiguous along K; more columns must be both's
            copy_a = copy_b = True
        made = (
            _Copy(columns, place) if copy_a else None,
            _Copy(columns, -2) if copy_b else None,
            _Copy(_whole_units(c), place) if copy_c and c else None,
        )
        a, b, c = (_description(tensor, copy) for tensor, copy in zip((a, b, c), made, strict=True))
        rest = views._replace(a=a, b=b, c=c, out=out)
        joined = join(rest)
        assert joined is not None, "a copy has no more modes than what is copied"
        return cls(views, made, indirect, rest, joined)

    def followed_by(self, launch: Launch, result: Description) -> Launch:
        """Copy, then launch."""
        views, (copy_a, copy_b, copy_c) = self.views, self.made

        def multiply(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
            out = result.new() if out is None else out
            seen = _seen(out, views.out)
            a, b = _copied(_seen(a, views.a), copy_a), _copied(_seen(b, views.b), copy_b)
            if c is not None and views.c is not None:
                c = _copied(_seen(c, views.c), copy_c)
            if bias is not None:
                bias = bias.contiguous()
            if self.indirect:
                seen.copy_(launch(a, b, c, bias, None)[..., : seen.shape[-1]])
            else:
                launch(a, b, c, bias, seen)
            return out

        return multiply


def _seen(tensor: torch.Tensor, view: Description) -> torch.Tensor:
    return tensor.as_strided(view.shape, view.stride)


def _copied(tensor: torch.Tensor, copy: _Copy | None) -> torch.Tensor:
    return tensor if copy is None else padded_copy(tensor, *copy)


def _description(tensor: Description | None, copy: _Copy | None) -> Any:  # noqa: ANN401
    """Describe a copy; None where there is no tensor."""
    if tensor is None or copy is None:
        return tensor
    made = padded_copy(torch.empty_strided(*tensor[:2], dtype=tensor.dtype, device="meta"), *copy)
    return tensor._replace(shape=tuple(made.shape), stride=made.stride(), address_bytes=UNIT_BYTES)


def _whole_units(tensor: Description) -> int:
    """Round the columns of a matrix up to whole units."""
    return int(whole_units(tensor.shape[-1], tensor.dtype))


def _gathering_pays(views: Problem) -> bool:
    """Tell whether a batch that shares b, whose last tiles are part empty, is better one product of a copied a."""
    a, b, _, out = views[:4]
    *batch, m, k = a.shape
    if not batch or any(b.stride[:-2]) or 0 in a.stride:
        return False
    gathered = join(views._replace(a=_description(a, _Copy(k, _place_of_rows(out)))))
    if gathered is None or len(gathered.a.shape) > 2:
        return False
    n, bits, gpu = b.shape[-2], 8 * a.dtype.itemsize, gpu_of(a.device)
    copy_us = _COPY_US + 2 * math.prod(a.shape) * a.dtype.itemsize / _COPY_BYTES_PER_US
    apart_us = expected_us(m, n, k, bits, gpu, batch=math.prod(batch), shared=True)
    return expected_us(gathered.a.shape[0], n, k, bits, gpu) + copy_us < apart_us


def _place_of_rows(out: Description) -> int:
    """Tell how many modes of a batch step farther in the result than its rows do."""
    return sum(step > out.stride[-2] for step in out.stride[:-2])
