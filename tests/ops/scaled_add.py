"""A kernel of a user's, x + factor * y, and the operations made of it."""

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from cutepy.host.family import Family
from cutepy.host.specs import TensorSpec
from cutepy.ops import register

THREADS = 128


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32):
    index = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if index < cute.size(out):
        out[index] = (x[index].to(cutlass.Float32) + factor * y[index].to(cutlass.Float32)).to(out.element_type)


@cute.jit
def launch_add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32, stream: CUstream):
    blocks = cute.ceil_div(cute.size(out), THREADS)
    add_kernel(x, y, out, factor).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


adders = Family(lambda dtype: launch_add)


def _backward(ctx, grad):
    return grad, ctx.factor * grad, None


def _setup(ctx, inputs, output):
    ctx.factor = inputs[2]


@register(
    "cutepy_tests::scaled_add(Tensor x, Tensor y, float factor) -> Tensor",
    reference=lambda x, y, factor: x + factor * y,
    setup_context=_setup,
    backward=_backward,
    autocast="lower",
)
def scaled_add(x, y, factor):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    vector = TensorSpec(x.dtype, ("n",), align=x.element_size())
    add = adders.function(vector.dtype, {"x": vector, "y": vector, "out": vector, "factor": 1.0})
    add(x.view(-1), y.view(-1), out.view(-1), factor)
    return out


def _scale_into(x, factor, out):
    out.copy_(factor * x)


@register(
    "cutepy_tests::scale_into(Tensor x, float factor, Tensor(a!) out) -> ()",
    reference=_scale_into,
    fake=lambda x, factor, out: None,
)
def scale_into(x, factor, out):
    _scale_into(x, factor, out)
