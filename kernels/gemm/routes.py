"""Routes from tensors to a kernel's arguments, and from its results back: views, conversions and copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.device.rules import ragged as groups
from cutepy.epilogues.constants import number_for
from cutepy.epilogues.graph import Operand, Reduction
from cutepy.host.launches import OptionalTensor
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, matrix, reachable, reached
from cutepy.kernels.gemm.results import finished
from cutepy.runtime.execution import EXECUTION

TensorStep = Callable[[Any], Any]
Launch = Callable[
    [torch.Tensor, torch.Tensor, Sequence[Any], Sequence[OptionalTensor], tuple[OptionalTensor, OptionalTensor]],
    Sequence[torch.Tensor],
]
"""Computes (a, b, operands, outs, scales along K): each result into its out, or a new tensor where that is None."""
View = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides by which a tensor is seen: those that are meant, where an extent of 1 leaves a stride open."""

# Torch's compiled code makes views by this, at a third of what operators cost a call.
view: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", torch.as_strided)
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)

READ_BY_KERNELS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2))
"""Floats that kernels convert to fp32 themselves."""


def converted(operand: Operand, given: Description | None) -> tuple[TensorStep | None, Description | None]:
    """Convert unsupported types, floats of 64 bits and other 8-bit ones, to fp32; check numbers."""
    if given is None:
        return partial(number_for, operand.name, operand.type), None
    if not given.dtype.is_floating_point or given.dtype in READ_BY_KERNELS:
        return None, given
    made = torch.empty_strided(*given[:2], dtype=given.dtype, device="meta").float()
    return torch.Tensor.float, Description(tuple(made.shape), made.stride(), made.dtype, given.device)


def as_vector(given: Description, shape: tuple[int, ...], stride: tuple[int, ...]) -> TensorStep | None:
    """See a scalar, a row or a column by a shape and strides, copied where its elements are not beside each other."""
    if shape == (1,):
        return None if given.shape == (1,) else partial(torch.reshape, shape=(1,))
    way = shape, (*stride[:-1], 1)
    if stride[-1] == 1 or shape[-1] == 1:
        return None if given[:2] == way else viewing(way)
    return in_turn(viewing((shape, stride)), torch.Tensor.contiguous)


def viewing(way: View) -> TensorStep:
    """View a tensor by a shape and strides."""
    shape, stride = way
    return lambda tensor: view(tensor, shape, stride)


def viewing_whole(shape: Sequence[int]) -> TensorStep:
    """View a contiguous tensor by another shape."""
    return viewing((tuple(shape), tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))))


def transposed(way: View) -> View:
    """Exchange rows and columns."""
    shape, stride = ((*each[:-2], each[-1], each[-2]) for each in way)
    return shape, stride


def in_turn(*takes: TensorStep | None) -> TensorStep | None:
    """Compose steps into one; None without any step."""
    made = [take for take in takes if take is not None]
    if len(made) < 2:
        return made[0] if made else None
    return lambda value: reduce(lambda found, take: take(found), made, value)


class ResultRoute(NamedTuple):
    """Route of a result to its tensor.

    Attributes
    ----------
    result : Description
    view : View or None
        View of the kernel, or its copy; None as it is.
    kernel : Description or None
        Description of the tensor that the kernel writes instead: one with more columns, or partial reductions.
    way : View or None
        View of the kernel of that.
    reduction : Reduction or None
        Of the kernel's results, which are transposed if the product is.
    in_pairs : bool
        True if partial sums are added in an order that follows from their count alone.
    fill : callable or None
        Makes of the result the tensor that the kernel writes instead, where not all of it is written to.
    """

    result: Description
    view: View | None = None
    kernel: Description | None = None
    way: View | None = None
    reduction: Reduction | None = None
    in_pairs: bool = False
    fill: TensorStep | None = None

    def begin(self, out: OptionalTensor) -> tuple[OptionalTensor, torch.Tensor]:
        """Return the result, if it is there already, and the tensor that the kernel writes."""
        if self.kernel is not None:
            made = self.kernel.new() if self.fill is None else self.fill(out)
            return out, made if self.way is None else made.as_strided(*self.way)
        out = self.result.new() if out is None else out
        return out, out if self.view is None else out.as_strided(*self.view)

    def end(self, out: OptionalTensor, got: torch.Tensor) -> torch.Tensor:
        """Return the result, from the tensor that the kernel has written."""
        if self.kernel is None:
            assert out is not None, "is made before"
            return out
        if self.reduction is not None:
            got = finished(got, self.reduction, in_pairs=self.in_pairs)
            if out is None and self.view is None:
                return got
        out = self.result.new() if out is None else out
        seen = out if self.view is None else out.as_strided(*self.view)
        if self.reduction is None:
            got = got.as_strided(self.kernel.shape, self.kernel.stride)
            got = got[(*(slice(extent) for extent in seen.shape),)]
        seen.copy_(got)
        return out


class Route(NamedTuple):
    """Compiled kernel for tensors of some descriptions, with the conversions of its arguments.

    Attributes
    ----------
    kernel : callable
        Takes A, B, the ends of groups if there are, operands, results, the SMs to fill, and the scales of A and B.
    sms : int
        To fill.
    is_transposed : bool
        True if the transposed product is computed.
    takes : tuple of (callable or None)
        Steps that make A, B and the operands, in the order given, the kernel's arguments; None as they are.
    writes : tuple of ResultRoute
    device : int or None
        The GPU that must be current.
    """

    kernel: Callable[..., Any]
    sms: int
    is_transposed: bool
    takes: tuple[TensorStep | None, ...]
    writes: tuple[ResultRoute, ...]
    device: int | None

    @classmethod
    def of(
        cls,
        kernel: Callable[..., Any],
        config: ProductConfig,
        is_transposed: bool,
        takes: Sequence[TensorStep | None],
        writes: Sequence[ResultRoute],
    ) -> Route:
        """Build the route to a kernel."""
        device = writes[0].result.device
        sms = rules.fillable_sms(math.prod(config.cluster), gpu_of(device).sm_count)
        index = device.index if EXECUTION.backend is None and device.type == "cuda" else None
        return cls(kernel, sms, is_transposed, tuple(takes), tuple(writes), index)

    def launch(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[OptionalTensor],
        scales: tuple[OptionalTensor, OptionalTensor] = (None, None),
        ends: tuple[torch.Tensor, ...] = (),
    ) -> list[torch.Tensor]:
        """Compute the results; of groups with these `ends`."""
        if self.device is not None and self.device != current_device():
            with torch.cuda.device(self.device):
                return self.launch(a, b, operands, outs, scales, ends)
        pairs = zip((a, b, *operands), self.takes, strict=True)
        a, b, *given = [value if take is None else take(value) for value, take in pairs]
        begun = [each.begin(out) for each, out in zip(self.writes, outs, strict=True)]
        if self.is_transposed:
            a, b, scales = b, a, scales[::-1]
        self.kernel(a, b, *ends, tuple(given) or None, tuple(made for _, made in begun), self.sms, *scales)
        return [each.end(*pair) for each, pair in zip(self.writes, begun, strict=True)]


class MatrixSteps(NamedTuple):
    """Steps that make a matrix one that TMA reaches: the step or None, its result, and whether it is a copy."""

    take: TensorStep | None
    seen: Description
    copied: bool = False


def taking(name: str, tensor: Description, ragged: int | None, *, is_operand: bool) -> MatrixSteps:
    """Tell how matrices of groups become such as are reached; `ragged` as of `matrix`.

    Raises
    ------
    ValueError
        If an extent or stride is more than TMA holds.
    """
    if ragged is not None:
        groups.check_ragged(tensor.shape[ragged - 2], UNIT_BYTES, name)
    found = matrix(tensor, ragged, is_operand=is_operand) if 0 not in tensor.shape else None
    if found is None:
        take = partial(reachable, mode=1 if ragged is None else 1 - ragged)
        copy = take(torch.empty_strided(*tensor[:2], dtype=tensor.dtype, device="meta"))
        seen = Description.of(copy)._replace(device=tensor.device)
        reached(name, seen, ragged)
        return MatrixSteps(take, seen, copied=True)
    if found.stride != tensor.stride:  # an extent of 1 leaves a stride open
        return MatrixSteps(viewing((tensor.shape, found.stride)), tensor._replace(stride=found.stride))
    return MatrixSteps(None, tensor)
