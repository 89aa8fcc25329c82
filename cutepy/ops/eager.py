"""When a call may go straight to its implementation, past torch's dispatcher.

The dispatcher and its Python bindings cost several microseconds a call, which for a plain eager call buy nothing.
Everything that would see the call there is looked for here: autograd, autocast, transforms such as `torch.vmap`, modes
such as `FakeTensorMode`, tensor subclasses and whatever else has `__torch_function__`, tracing, and the profiler.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad, profiler
from torch.overrides import has_torch_function

_PLAIN = (torch.Tensor, torch.nn.Parameter)

dispatch_modes = torch._C._len_torch_dispatch_stack
_autocast = torch._C._is_any_autocast_enabled
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._is_tracing


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is of no subclass, but for parameters."""
    return type(tensor) in _PLAIN


def unobserved(arguments: tuple[object, ...]) -> str:
    """Tell whether nothing but the implementation would see a call with these arguments, and which one.

    Not for use under `torch.compile`, which is asked for first, by `torch.compiler.is_compiling()`.

    Returns
    -------
    str
        "cuda" if a tensor is on a GPU, or "cpu"; empty if the call belongs to the dispatcher.
    """
    if (
        dispatch_modes()
        or has_torch_function(arguments)  # also of modes
        or _autocast()
        or _transform() is not None
        or _tracing()
        or forward_ad._current_level >= 0
        or profiler._is_profiler_enabled
    ):
        return ""
    device = "cpu"
    for argument in arguments:
        if argument is None:
            continue
        if type(argument) in _PLAIN:
            tensor: torch.Tensor = argument  # type: ignore[assignment]
            if (tensor.requires_grad and torch.is_grad_enabled()) or tensor.is_neg():
                return ""
            if tensor.is_cuda:
                device = "cuda"
            elif not tensor.is_cpu:
                return ""
        elif isinstance(argument, torch.Tensor):
            return ""
    return device
