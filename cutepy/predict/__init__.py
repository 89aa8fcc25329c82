"""Predicted times of kernels, without a GPU: a model of one SM in discrete events, over what the simulator executes.

`trace` records sampled CTAs. `code` reads issue slots, stalls and pipes from the assembled machine code. `machine` runs
warps, tensor cores, copies and barriers as discrete events. `memory` estimates the traffic to device memory. `launch`
extrapolates from the sampled CTAs to the grid, and names what bounds the kernel. `gpu` has the constants.
"""

from cutepy.extras import require

require("cutepy.predict", "numpy")

# ruff: noqa: E402 - what is missing is told before the rest is imported
from cutepy.predict.gpu import ConstantError as ConstantError, Gpu as Gpu, gpu_named as gpu_named
from cutepy.predict.launch import Prediction as Prediction, Stall as Stall
from cutepy.predict.timer import Timer as Timer

__all__ = ["ConstantError", "Gpu", "Prediction", "Stall", "Timer", "gpu_named"]
