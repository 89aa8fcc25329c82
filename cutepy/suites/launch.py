"""`cutepy bench launch`: host time of a call, by each way to launch one kernel.

Each way is called back to back some thousand times, without waiting for the GPU, whose kernel is shorter than the call;
the ways take turns, and the figure is the median over the rounds.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from cutepy.suites.measurement import NOT_MEASURED, require_hopper

Call = Callable[[], Any]

ROUNDS = 9
CALLS = 2000


def run_launch(json_path: Path | None = None) -> int:
    """Measure the host time of a call by each way there is, and print it.

    Parameters
    ----------
    json_path : Path, optional
        File to write the figures to.

    Returns
    -------
    int
        Exit status: 2 where nothing could be measured.
    """
    if not require_hopper("bench launch"):
        return NOT_MEASURED
    from rich.console import Console
    from rich.table import Table

    from cutepy.benchmark import environment

    costs = launch_costs()
    table = Table(caption=f"median of {ROUNDS} rounds of {CALLS} calls, ways in turns")
    table.add_column("call")
    table.add_column("host time, us", justify="right")
    for name, cost in costs.items():
        table.add_row(name, f"{cost:.2f}")
    Console().print(table)
    if json_path:
        json_path.write_text(json.dumps({"environment": environment(), "call_us": costs}, indent=2) + "\n")
        typer.echo(f"saved {json_path}")
    return 0


def launch_costs(rounds: int = ROUNDS, calls: int = CALLS) -> dict[str, float]:
    """Measure the host time of a call, in microseconds, by each way.

    Parameters
    ----------
    rounds : int
        Turns of each way.
    calls : int
        Calls in a turn.
    """
    ways = _ways()
    for call in ways.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in ways}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in ways.items():
                times[name].append(_time(call, calls))
    finally:
        if collecting:
            gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def _time(call: Call, calls: int) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    spent = time.perf_counter_ns() - start
    torch.cuda.synchronize()
    return spent / calls / 1e3


def _ways() -> dict[str, Call]:
    import torch

    import cutepy
    from cutepy.suites.launch_kernels import sum_2, sum_7

    vector = cutepy.TensorSpec("float32", ("n",), divisibility={"n": 4})
    three, eight = cutepy.compile(sum_2, *[vector] * 3), cutepy.compile(sum_7, *[vector] * 8)
    tensors = [torch.randn(1024, device="cuda") for _ in range(8)]
    a, b, out = tensors[0], tensors[1], tensors[7]
    x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)
    return {
        "cutepy, 3 tensors": lambda: three(a, b, out),
        "cutepy, 8 tensors": lambda: eight(*tensors),
        **_dsl_ways(sum_2, [a, b, out]),
        "cutepy.ops.gemm(x, y, out=z)": lambda: cutepy.ops.gemm(x, x, out=y),
        "torch.mm(x, y, out=z)": lambda: torch.mm(x, x, out=y),
        "cutepy.ops.gemm(x, y)": lambda: cutepy.ops.gemm(x, x),
        "torch.mm(x, y)": lambda: torch.mm(x, x),
        "x.add_(y)": lambda: a.add_(b),
    }


def _dsl_ways(function: Callable[..., Any], tensors: list[Any]) -> dict[str, Call]:
    """Call the DSL's own compiled functions: arguments prepared, made at each call, and through TVM-FFI."""
    import cutlass.cute as cute
    import torch
    from cuda.bindings.driver import CUstream
    from cutlass.cute.runtime import from_dlpack

    from cutepy.dsl.fakes import Symbols, fake_stream, fake_tensor

    def arguments() -> list[Any]:
        return [from_dlpack(tensor).mark_layout_dynamic() for tensor in tensors]

    prepared, stream = arguments(), CUstream(torch.cuda.current_stream().cuda_stream)
    compiled = cute.compile(function, *prepared, stream)
    symbols = Symbols({"n": 4})
    fakes = [fake_tensor("float32", ("n",), symbols) for _ in tensors]
    through_ffi = cute.compile(function, *fakes, fake_stream(), options="--enable-tvm-ffi")
    return {
        "DSL, 3 prepared arguments": lambda: compiled(*prepared, stream),
        "DSL, 3 arguments from torch": lambda: compiled(*arguments(), stream),
        "DSL, 3 tensors, --enable-tvm-ffi": lambda: through_ffi(*tensors),
    }
