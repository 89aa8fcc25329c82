"""Measurement of one compilation of the GEMM, in a process of its own: `python -P compile_times.py WAY`.

Run as a script, so that the clock may start before cutepy is imported. Prints, as JSON, seconds by the clock and of the
processor, and whether the GEMM was compiled rather than found. A launch is ready when the kernels are loaded on the
GPU; on a machine without a Hopper GPU, when the host code is in memory: all but the driver's part.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

DSL, DSL_LINES, OURS, DECLARED, OPS = "dsl", "dsl-line-info", "cutepy", "declared", "ops"


Way = Callable[[], Callable[[], bool]]
"""Function to time; it returns a function that tells whether the GEMM was compiled."""


def _has_gpu() -> bool:
    import torch

    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        return False
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    return True


def _config() -> Any:  # noqa: ANN401 - what follows `import cutepy` is timed, types included
    from cutepy.kernels.gemm import GemmSignature, select_config

    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    return select_config(signature, 4096, 4096, 4096)


def _make_ready(function: Any, on_gpu: bool) -> None:  # noqa: ANN401
    if on_gpu:
        function.prepare()
        return
    import tvm_ffi as tvm_ffi

    from cutepy.runtime.program import ServedProgram

    ServedProgram(function.program)


def _dsl(options: str) -> Way:
    """Prepare the DSL's own `cute.compile`, with the arguments that cutepy would pass."""
    import cutlass.cute as cute

    from cutepy.host.examples import bind, to_dsl
    from cutepy.kernels.gemm.compilation import examples
    from cutepy.kernels.gemm.standard import StandardGemm

    config = _config()
    gemm = StandardGemm(config)
    positional, named = to_dsl(bind(gemm, (), examples(config.signature)))

    def compile() -> Callable[[], bool]:
        cute.compile(gemm, *positional, **named, options=f"--gpu-arch=sm_90a {options}")
        return lambda: True

    return compile


def _ours() -> Way:
    """Prepare `cutepy.compile`, as a user calls it whose file has imported the DSL, until a launch is ready."""
    import cutepy
    from cutepy.kernels.gemm.compilation import examples
    from cutepy.kernels.gemm.standard import StandardGemm

    config, on_gpu = _config(), _has_gpu()
    gemm = StandardGemm(config)
    described: dict[str, Any] = dict(examples(config.signature))

    def compile() -> Callable[[], bool]:
        function = cutepy.compile(gemm, **described)
        _make_ready(function, on_gpu)
        return lambda: "load" not in function.cost().stages

    return compile


def _declared() -> Way:
    """Prepare a call of `cutepy.compile` with declared sources; the DSL is not imported."""
    import torch as torch

    import cutepy
    from cutepy.kernels.gemm.compilation import SOURCES, examples

    config, on_gpu = _config(), _has_gpu()
    described: dict[str, Any] = dict(examples(config.signature))

    def compile() -> Callable[[], bool]:
        kernel = cutepy.Deferred("cutepy.kernels.gemm.standard:StandardGemm", config)
        _make_ready(cutepy.compile(kernel, **described, sources=SOURCES), on_gpu)
        return lambda: "cutlass" in sys.modules

    return compile


def _ops() -> Way:
    """Prepare all from `import cutepy` to the first launch of `cutepy.ops.gemm`; torch is imported."""
    import torch

    on_gpu = _has_gpu()
    operands = [torch.ones(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2)] if on_gpu else []

    def launch() -> Callable[[], bool]:
        import cutepy

        gemm = cutepy.ops.gemm
        if on_gpu:
            gemm(*operands)
        else:
            from cutepy.kernels.gemm.compilation import compile_gemm

            _make_ready(compile_gemm(_config()), on_gpu)
        return lambda: "cutlass" in sys.modules

    return launch


WAYS: dict[str, Callable[[], Way]] = {
    DSL: lambda: _dsl(""),
    DSL_LINES: lambda: _dsl("--generate-line-info"),
    OURS: _ours,
    DECLARED: _declared,
    OPS: _ops,
}


def main(way: str) -> None:
    """Prepare a way, then time it once."""
    run = WAYS[way]()
    wall, processor = time.perf_counter(), time.process_time()
    was_compiled = run()
    spent = {"wall_s": time.perf_counter() - wall, "processor_s": time.process_time() - processor}
    print(json.dumps({**spent, "compiled": was_compiled()}))


if __name__ == "__main__":
    main(sys.argv[1])
