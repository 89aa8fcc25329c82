"""A kernel of a user's, x + factor * y, and the operations made of it; docs/pytorch.md shows it."""

# --8<-- [start:kernel]
from functools import cache

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

import cutepy

THREADS = 128


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32):
    index = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if index < cute.size(out):
        total = x[index].to(cutlass.Float32) + factor * y[index].to(cutlass.Float32)
        out[index] = total.to(out.element_type)


@cute.jit
def launch_add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32, stream: CUstream):
    blocks = cute.ceil_div(cute.size(out), THREADS)
    add_kernel(x, y, out, factor).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


@cache
def compiled_add(dtype):
    vector = cutepy.TensorSpec(dtype, ("n",), align=dtype.itemsize)
    return cutepy.compile(launch_add, vector, vector, vector, 1.0)


# --8<-- [end:kernel]


# --8<-- [start:operation]
def keep_factor(ctx, inputs, output):
    ctx.factor = inputs[2]


def differentiate(ctx, grad):
    return grad, ctx.factor * grad, None


@cutepy.ops.register(
    "cutepy_tests::scaled_add(Tensor x, Tensor y, float factor) -> Tensor",
    reference=lambda x, y, factor: (x + factor * y).contiguous(),  # as the kernel's result is
    setup_context=keep_factor,
    backward=differentiate,
    autocast="lower",
)
def scaled_add(x, y, factor):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    compiled_add(x.dtype)(x.view(-1), y.view(-1), out.view(-1), factor)
    return out


# --8<-- [end:operation]


def _scale_into(x, factor, out):
    out.copy_(factor * x)


@cutepy.ops.register(
    "cutepy_tests::scale_into(Tensor x, float factor, Tensor(a!) out) -> ()",
    reference=_scale_into,
    fake=lambda x, factor, out: None,
)
def scale_into(x, factor, out):
    _scale_into(x, factor, out)
