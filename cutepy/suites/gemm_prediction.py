"""Predicted times of products by their configurations, which `cutepy tune gemm --prune` leaves slow ones out by."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

import cutepy
from cutepy.kernels.gemm import tuned
from cutepy.kernels.gemm.op import plan_gemm
from cutepy.ops.checking import describe
from cutepy.predict import Prediction
from cutepy.tune import Settings


def predict_gemm(problem: Mapping[str, Any], candidate: Settings, gpu: str) -> list[Prediction]:
    """Predict the launches of a product by one configuration.

    Parameters
    ----------
    problem, candidate : mapping
        As `cutepy.kernels.gemm.tuned` describes them.
    gpu : str
        "h100" or "h200".
    """
    m, n, k = (problem[name] for name in "mnk")
    batch = (problem["batch"],) if problem.get("batch_modes") else ()

    def matrix(rows: int, dtype: str, major: str) -> torch.Tensor:
        shape = (*batch, rows, k) if major == "k" else (*batch, k, rows)
        found = torch.zeros(shape, dtype=getattr(torch, dtype))
        return found if major == "k" else found.mT

    a = matrix(m, problem["a_dtype"], problem["a_major"])
    b = matrix(n, problem["b_dtype"], problem["b_major"])
    out = torch.zeros(*batch, m, n, dtype=getattr(torch, problem["out_dtype"]))
    with cutepy.simulate(time=gpu) as run:
        launch = plan_gemm(describe(a, b, outs=(out,)), tuned.chosen_of(problem, candidate))
        launch(a, b, (), (out,), (None, None))
    return run.predictions


class _PredictedTime(NamedTuple):
    """Predicted microseconds of a product, or the reason why there are none."""

    us: float | None
    reason: str = ""


def predicted_us(
    pairs: Sequence[tuple[Settings, Settings]], gpu: str, processes: int | None = None
) -> list[float | None]:
    """Predict products by their configurations, in several processes.

    None where that fails: such a configuration is timed. A warning says each reason once, and of how many.
    """
    count = processes or min(os.cpu_count() or 1, len(pairs))
    if count < 2:
        found = [_predicted(gpu, pair) for pair in pairs]
    else:
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(partial(_predicted, gpu), pairs))
    for reason, times in Counter(each.reason for each in found if each.reason).items():
        warnings.warn(f"{times} of {len(pairs)} configurations are timed without a prediction: {reason}", stacklevel=2)
    return [each.us for each in found]


def _predicted(gpu: str, pair: tuple[Settings, Settings]) -> _PredictedTime:
    try:
        return _PredictedTime(sum(found.us for found in predict_gemm(*pair, gpu)))
    except Exception as error:  # whatever the model cannot run, the GPU can
        return _PredictedTime(None, f"{type(error).__name__}: {error}")


def model_of_this_gpu() -> str:
    """Return the name of the constants for torch's current GPU: of an H100, else of an H200."""
    return "h100" if torch.cuda.is_available() and "H100" in torch.cuda.get_device_name() else "h200"
