"""One product of several linear layers, computed at the first of their calls within a module's call.

A `Share` exists while the `forward` of a module runs. The first called layer of a group computes the product of all
layers of the group. Each other layer takes its part of the product, if it is called with the same tensor, and its own
tensors and all modes are unchanged. In any other case the layer computes a product of its own. Parts that no layer has
taken are freed when the module returns.
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


class JoinedWeights(NamedTuple):
    """Weights of layers, their biases, if there are, and all of each as one tensor, past autograd.

    Under torch.compile the latter two are None.
    """

    weights: list[torch.Tensor]
    biases: list[torch.Tensor]
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None


def joinable(kind: type[torch.nn.Linear], layers: Layers, x: torch.Tensor) -> JoinedWeights | None:
    """Return the weights of layers that one product of x can compute now, or None.

    The weights must adjoin, be plain tensors, and have the dtype of x, which autocast must leave as it is. No hook may
    observe or change a call of a layer. Traced code does not know addresses: `joined_linear` checks them when it runs.
    """
    if type(x) not in _PLAIN or _has_any_global_hook():
        return None
    device, dtype = x.device, x.dtype
    if device.type not in ("cuda", "cpu"):
        return None
    if torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) != dtype:
        return None
    for layer in layers:
        if type(layer) is not kind or _is_seen(layer):
            return None
    parameters = [each._parameters for each in layers]  # attributes of modules are looked up in Python
    weights: list[Any] = [each["weight"] for each in parameters]
    biases: list[Any] = [each["bias"] for each in parameters if each["bias"] is not None]
    if biases and len(biases) != len(weights):
        return None
    is_compiling = torch.compiler.is_compiling()
    for tensor in (*weights, *biases):
        if type(tensor) not in _PLAIN or tensor.dtype != dtype or tensor.device != device:
            return None
        if not is_compiling and tensor.is_inference():
            return None
    if is_compiling:
        return JoinedWeights(weights, biases)
    weight = None if _is_transformed() else adjoining(weights)
    bias = adjoining(biases) if biases else None
    return None if weight is None or (biases and bias is None) else JoinedWeights(weights, biases, weight, bias)


def _is_seen(layer: torch.nn.Linear) -> bool:
    """Return whether something else than the class's code sees a layer's calls, or has its parameters."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or layer._compiled_call_impl is not None
        or "forward" in layer.__dict__
        or not _NAMES <= layer._parameters.keys()
    )


_NAMES = frozenset(("weight", "bias"))


class _PendingPart(NamedTuple):
    """Part of a product that a layer has not taken yet, and the layer's state when it was made."""

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
        self._groups = {layer: group for group in groups for layer in group}
        self._context = _context()
        self._x: torch.Tensor | None = None
        self._moment: tuple[Any, ...] = ()
        self._waiting: dict[torch.nn.Linear, _PendingPart] = {}
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
        layers = self._groups.get(layer)
        if layers is None or type(x) not in _PLAIN or x.is_inference() or _context() != self._context:
            return None
        for each in layers:
            self._groups.pop(each, None)
        whole = joinable(type(layer), layers, x)
        if whole is None:
            return None
        self._has_missed = self._has_missed or bool(self._waiting)
        self._x, self._moment = x, _moment(x)
        self._waiting = {
            each: _PendingPart(part, _made_of(each)) for each, part in zip(layers, joined_parts(whole, x), strict=True)
        }
        return self._waiting.pop(layer).part


class _ThreadShare(threading.local):
    """The share of the module that a thread is in."""

    share: Share | None = None


CURRENT = _ThreadShare()


def _is_transformed() -> bool:
    """Return whether tensors stand for others: within modes, transforms of torch.func, and traces."""
    return bool(
        dispatch_modes()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._is_tracing()
        or forward_ad._current_level >= 0
    )


def _context() -> tuple[Any, ...]:
    """Return the modes of torch and cutepy that a product and its derivative depend on, beside their tensors.

    Hooks of saved tensors are among them, since activation checkpointing sets such hooks: a product that is computed
    under a hook must not be used outside.
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
    for each in layer._parameters.values():
        if each is not None:
            found += (id(each), each._version, each.requires_grad, each.data_ptr())
    return found


def joined_parts(whole: JoinedWeights, x: torch.Tensor) -> Sequence[torch.Tensor]:
    """Compute the product of layers that are joinable, and give the columns of each."""
    if torch.is_grad_enabled() and any([each.requires_grad for each in (x, *whole.weights, *whole.biases)]):
        parts: Sequence[torch.Tensor] = _apply_parts(x, whole, *whole.weights, *whole.biases)
        return parts
    return _computed(x, whole, is_one=_is_one(x, whole))


def _is_one(x: torch.Tensor, whole: JoinedWeights) -> bool:
    """Return whether the product is one launch: a reference to a part keeps all of it alive, so it must be small."""
    assert whole.weight is not None, "is None under torch.compile only"
    return not INVARIANCE.on and math.prod(x.shape[:-1]) * whole.weight.shape[0] * x.itemsize <= JOINED_BYTES


JOINED_BYTES = 8 << 20
"""Results of one launch, at most, and gradients that are copied together for one. For 512 tokens of Llama 3 8B
`explain_choice` predicts 39 us of one product on an H200, and 55 of three; 81 of those of its gradients, and 3 of the
copy, where six take 99. For 4096 tokens it is 288 and 293, and 590 either way."""


def _computed(x: torch.Tensor, whole: JoinedWeights, *, is_one: bool) -> tuple[torch.Tensor, ...]:
    """Compute parts past autograd, which are no views to it: one may be written to, and the others stay as saved."""
    if not is_one:
        return tuple(gemm(x, weight, bias=bias) for weight, bias in zip_longest(whole.weights, whole.biases))
    y = _joined(x, whole)
    return tuple([part.data for part in y.split([each.shape[0] for each in whole.weights], -1)])


def _joined(x: torch.Tensor, whole: JoinedWeights) -> torch.Tensor:
    """Multiply by all weights as one."""
    assert whole.weight is not None, "is None under torch.compile only"
    found: torch.Tensor = gemm(x, whole.weight, bias=whole.bias)
    return found


class _Parts(torch.autograd.Function):
    """Node of the parts: where gradients come apart, those of x add to one another in the products."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, whole: JoinedWeights, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
        weights, count = whole.weights, len(whole.weights)
        of_x, _, *of_tensors = ctx.needs_input_grad
        ctx.of_weights, ctx.of_biases = of_tensors[:count], of_tensors[count:]
        ctx.dtype, ctx.sizes, ctx.is_one = x.dtype, [each.shape[0] for each in weights], _is_one(x, whole)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if any(ctx.of_weights) else None, *(weights if of_x else ()))
        return _computed(x, whole, is_one=ctx.is_one)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
        x, *weights = ctx.saved_tensors
        given = [(n, dy) for n, dy in enumerate(grads) if dy is not None]
        if ctx.is_one and len(given) == len(grads):
            dy = torch.cat([dy for _, dy in given], -1)
            dx = _input_gradient(dy, weights) if weights else None
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


# torch.autograd.Function's own binds defaults too, and unwraps what has left a transform of torch.func.
_apply_parts: Callable[..., Any] = super(torch.autograd.Function, _Parts).apply


def _input_gradient(dy: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Multiply by weights that were joined: by all as one where no derivative is asked for, and they still adjoin."""
    whole = None if torch.is_grad_enabled() else adjoining(weights)
    found: torch.Tensor = input_gradient(dy, weights) if whole is None else gemm(dy, whole.mT)
    return found
