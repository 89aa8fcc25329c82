"""One product of several linear layers, computed at the first of their calls within a module's call.

A `Share` is there while a module's `forward` runs. The first layer of a group that is called computes the product of
all, and each of the others takes its part, if it is called with the same tensor, and nothing that decides on its result
has changed in between. Any doubt makes a product of its own. What nobody has taken goes when the module returns.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook

from cutepy.host.launches import raw_stream
from cutepy.ops.dense_gemm import gemm
from cutepy.ops.joined_linears import (
    adjoining,
    bias_gradients,
    input_gradient,
    joined_linear,
    weight_gradients,
)
from cutepy.ops.operation import dispatch_modes
from cutepy.runtime.invariance import INVARIANCE

Layers = Sequence[torch.nn.Linear]
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_saved_hooks: Callable[[bool], Any] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignores_tracing: None
)


def tensors_of(layers: Layers) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """List the weights of layers, and their biases, if they have some."""
    return [each.weight for each in layers], [each.bias for each in layers if each.bias is not None]


def joinable(kind: type[torch.nn.Linear], layers: Layers, x: torch.Tensor) -> bool:
    """Tell whether layers of a class can be one product of x now.

    Their weights must adjoin, be plain, and have the dtype of x, which autocast leaves as it is; and nobody else, such
    as a hook, may see or change what one of them does. Traced code does not know addresses: `joined_linear` looks at
    them when it runs.
    """
    if type(x) not in _PLAIN or x.device.type not in ("cuda", "cpu") or _has_any_global_hook():
        return False
    if torch.is_autocast_enabled(x.device.type) and torch.get_autocast_dtype(x.device.type) != x.dtype:
        return False
    if any(type(each) is not kind or _is_seen(each) for each in layers):
        return False
    weights, biases = tensors_of(layers)
    if biases and len(biases) != len(weights):
        return False
    if any(type(each) not in _PLAIN or each.dtype != x.dtype or each.device != x.device for each in weights + biases):
        return False
    if torch.compiler.is_compiling():
        return True
    if _is_transformed() or any(each.is_inference() for each in weights + biases):
        return False
    return adjoining(weights) is not None and (not biases or adjoining(biases) is not None)


def _is_seen(layer: torch.nn.Linear) -> bool:
    """Tell whether something else than the class sees a layer's calls."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or layer._compiled_call_impl is not None
        or "forward" in layer.__dict__
    )


class _Waiting(NamedTuple):
    """Part of a product that a layer has not taken yet, and what of the layer made it."""

    part: torch.Tensor
    made_of: tuple[Any, ...]


class Share:
    """Products that the linear layers of a module share in one call of it.

    Parameters
    ----------
    groups : sequence of sequence of Linear
        Layers that are one product. It is computed once; a layer that is called again computes its own.
    """

    def __init__(self, groups: Sequence[Layers]) -> None:
        self._groups = [*groups]
        self._context = _context()
        self._x: torch.Tensor | None = None
        self._moment: tuple[Any, ...] = ()
        self._waiting: dict[torch.nn.Linear, _Waiting] = {}
        self._has_missed = False

    @property
    def is_wasted(self) -> bool:
        """True if a layer has not taken its part, outside of activation checkpointing, which must compute as before."""
        return (self._has_missed or bool(self._waiting)) and _saved_hooks(True) is None

    def part(self, layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor | None:
        """Give the product of x and a layer's weight; None where the layer must compute it alone."""
        own = self._waiting.pop(layer, None)
        if own is not None:
            is_same = x is self._x and _context() == self._context
            is_same = is_same and _moment(x) == self._moment and _made_of(layer) == own.made_of
            if not self._waiting:
                self._x = None
            self._has_missed = self._has_missed or not is_same
            return own.part if is_same else None
        place = next((n for n, group in enumerate(self._groups) if any(each is layer for each in group)), None)
        if place is None or type(x) not in _PLAIN or x.is_inference() or _context() != self._context:
            return None
        layers = self._groups.pop(place)
        if not joinable(type(layer), layers, x):
            return None
        self._has_missed = self._has_missed or bool(self._waiting)
        self._x, self._moment = x, _moment(x)
        self._waiting = {
            each: _Waiting(part, _made_of(each)) for each, part in zip(layers, joined_parts(layers, x), strict=True)
        }
        return self._waiting.pop(layer).part


class _Current(threading.local):
    """The share of the module that a thread is in."""

    share: Share | None = None


CURRENT = _Current()


def _is_transformed() -> bool:
    """Tell whether tensors are not what they seem: within modes, transforms of torch.func, and traces."""
    return bool(
        dispatch_modes()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._is_tracing()
        or forward_ad._current_level >= 0
    )


def _context() -> tuple[Any, ...]:
    """Give all but tensors that a product's result, and its derivative, depend on.

    Hooks of saved tensors are those of activation checkpointing: what begins within must not be taken outside.
    """
    is_cast = torch._C._is_any_autocast_enabled()
    casts = (torch.get_autocast_dtype("cuda"), torch.get_autocast_dtype("cpu")) if is_cast else None
    return torch.is_grad_enabled(), casts, INVARIANCE.on, _saved_hooks(True)


def _moment(x: torch.Tensor) -> tuple[Any, ...]:
    """Tell the states of a tensor apart, and the streams in which kernels are launched on it."""
    stream = raw_stream(x.get_device()) if x.is_cuda else 0
    return x._version, x.requires_grad, x.data_ptr(), x.shape, x.stride(), stream


def _made_of(layer: torch.nn.Linear) -> tuple[Any, ...]:
    """Tell the states of a layer's tensors apart."""
    found: tuple[Any, ...] = ()
    for each in (layer.weight, layer.bias):
        if each is not None:
            found += (id(each), each._version, each.requires_grad, each.data_ptr())
    return found


def joined_parts(layers: Layers, x: torch.Tensor) -> Sequence[torch.Tensor]:
    """Compute the product of layers that are joinable, and give the columns of each."""
    weights, biases = tensors_of(layers)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (x, *weights, *biases)):
        parts: Sequence[torch.Tensor] = _Parts.apply(x, len(weights), *weights, *biases)  # type: ignore[no-untyped-call]
        return parts
    return _computed(x, weights, biases, is_one=_is_one(x, weights))


def _is_one(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
    """Tell whether the product is one launch: whoever keeps a part of it keeps all, so that it must be small."""
    columns = sum(each.shape[0] for each in weights)
    return not INVARIANCE.on and math.prod(x.shape[:-1]) * columns * x.itemsize <= JOINED_BYTES


JOINED_BYTES = 8 << 20
"""Results of one launch, at most, and gradients that are copied together for one. For 512 tokens of Llama 3 8B
`explain_choice` predicts 39 us of one product on an H200, and 55 of three; 81 of those of its gradients, and 3 of the
copy, where six take 99. For 4096 tokens it is 288 and 293, and 590 either way."""


def _computed(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], *, is_one: bool
) -> tuple[torch.Tensor, ...]:
    """Compute parts past autograd, which are no views to it: one may be written to, and the others stay as saved."""
    if not is_one:
        return tuple(gemm(x, weight, bias=bias) for weight, bias in zip_longest(weights, biases))
    y = joined_linear(x, weights, biases)
    return tuple(part.data for part in y.split([each.shape[0] for each in weights], -1))


class _Parts(torch.autograd.Function):
    """Node of the parts: where gradients come apart, those of x add to one another in the products."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
        weights, biases = tensors[:count], tensors[count:]
        of_x, _, *of_tensors = ctx.needs_input_grad
        ctx.of_weights, ctx.of_biases = of_tensors[:count], of_tensors[count:]
        ctx.dtype, ctx.sizes, ctx.is_one = x.dtype, [each.shape[0] for each in weights], _is_one(x, weights)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if any(ctx.of_weights) else None, *(weights if of_x else ()))
        return _computed(x, weights, biases, is_one=ctx.is_one)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
        x, *weights = ctx.saved_tensors
        given = [(n, dy) for n, dy in enumerate(grads) if dy is not None]
        if ctx.is_one and len(given) == len(grads):
            dy = torch.cat([dy for _, dy in given], -1)
            dx = input_gradient(dy, weights) if weights else None
            dweights = weight_gradients(dy, x, ctx.of_weights, ctx.sizes)
            return dx, None, *dweights, *bias_gradients(dy, ctx.of_biases, ctx.sizes, ctx.dtype)
        dx = None
        dtensors: list[Any] = [None] * (len(ctx.of_weights) + len(ctx.of_biases))
        for n, dy in given:
            if weights:
                dx = gemm(dy, weights[n].mT, c=dx)
            (dtensors[n],) = weight_gradients(dy, x, ctx.of_weights[n : n + 1], [dy.shape[-1]])
            if ctx.of_biases:
                (dtensors[len(grads) + n],) = bias_gradients(dy, ctx.of_biases[n : n + 1], [dy.shape[-1]], ctx.dtype)
        return dx, None, *dtensors
