"""SIMT kernels of the DSL: reductions by shuffles and shared memory, exponentials, a scan, a transpose."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from cutepy.frontends import simulate
from tests.sim.hardware import simt_kernels
from tests.sim.hardware.corpus import Bounds, Case

_ROWS = 24


def _normal(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    values = np.random.default_rng(list(name.encode())).normal(scale=2, size=shape)
    return torch.from_numpy(values.astype(np.float32)).to(dtype)


def _softmax(dtype: torch.dtype) -> None:
    x = _normal("softmax", (_ROWS, simt_kernels.THREADS), dtype)
    with simulate():
        simt_kernels.softmax(x, torch.zeros_like(x))


def _rms_norm(dtype: torch.dtype) -> None:
    x = _normal("rms", (_ROWS, simt_kernels.THREADS), dtype)
    with simulate():
        simt_kernels.rms_norm(x, _normal("weight", (simt_kernels.THREADS,), dtype), torch.zeros_like(x))


def _scan(dtype: torch.dtype) -> None:
    x = torch.from_numpy(np.random.default_rng(5).integers(-1000, 1000, 256)).to(dtype)
    with simulate():
        simt_kernels.scan(x, torch.zeros_like(x))


def _transpose() -> None:
    x = torch.from_numpy(np.random.default_rng(6).integers(0, 2**31, (64, 96)).astype(np.int32))
    with simulate():
        simt_kernels.transpose(x, torch.zeros(96, 64, dtype=torch.int32))


def cases() -> list[Case]:
    """Return the cases of this module."""
    found = []
    # ex2.approx and rsqrt.approx show in float32; in bf16 hardly.
    for name, dtype, ulps, equal in (("f32", torch.float32, 3, 0.35), ("bf16", torch.bfloat16, 1, 0.98)):
        found.append(Case(f"simt.softmax.{name}", partial(_softmax, dtype), Bounds(name, ulps, equal), dsl=True))
        found.append(Case(f"simt.rms_norm.{name}", partial(_rms_norm, dtype), Bounds(name, ulps, equal), dsl=True))
    found += [Case(f"simt.scan.{t}", partial(_scan, getattr(torch, t)), dsl=True) for t in ("int32", "float32")]
    return [*found, Case("simt.transpose", _transpose, dsl=True)]
