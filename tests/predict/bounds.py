"""Compare what is predicted to bound a launch with what its hardware counters say.

    python -m tests.predict.bounds [--only 0,5]

predicts the launches of `LAUNCHES` on an H200, and prints the bound of each beside that of its recorded counters. On a
GPU the counters of a group are recorded by

    ncu --csv --page raw --print-units base --clock-control none --profile-from-start off --section SpeedOfLight
        --section ComputeWorkloadAnalysis --section MemoryWorkloadAnalysis --section SchedulerStats
        --section WarpStateStats --section Occupancy --log-file FILE python -m tests.predict.bounds --launch GROUP
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from cutepy.profiling.counters import Counters

RECORDINGS = Path(__file__).parents[1] / "profiling" / "recordings"
LAUNCHES: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "h200_counters": [
        ("gemm", (4096, 4096, 4096, "mn")),
        ("gemm", (128, 4096, 4096, "mn")),
        ("gemm", (16, 8192, 8192, "mn")),
        ("gemm", (512, 512, 512, "mn")),
        ("gemm", (2048, 2048, 2048, "mn")),
        ("gemm", (1, 8192, 8192, "mn")),
        ("attention", (4, 4096, 16, 128, False)),
        ("attention", (4, 4096, 16, 128, True)),
        ("attention", (32, 512, 16, 128, False)),
        ("attention", (2, 2048, 16, 64, False)),
        ("rms_norm", (16384, 4096)),
        ("rms_norm", (512, 1024)),
        ("softmax", (16384, 8192)),
        ("layer_norm", (4096, 4096)),
        ("softmax", (128, 32768)),
    ],
}
"""Operations and extents by recording, in its order; a product's last is the major of B."""
SAME = {"DRAM": "device memory", "L1 and shared memory": "shared memory"}
"""Units of the counters by the names that a prediction has for them."""
LATENCY = ("latency", "tail", "launch", "port of the SM")
"""Bounds of a prediction that no counter of a unit shows."""


def recorded(name: str) -> list[Counters]:
    """Read the counters of a recording."""
    from cutepy.profiling.counters import read

    with lzma.open(RECORDINGS / f"{name}.csv.xz", "rt") as file:
        return read(file.read())


def operation(name: str, extents: tuple[Any, ...], make: Callable[..., torch.Tensor]) -> Callable[[], object]:
    """Make the tensors of an operation, and return its launch."""
    from cutepy import ops

    if name == "gemm":
        m, n, k, major = extents
        a, b = make(m, k), make(n, k) if major == "k" else make(k, n).t()
        return lambda: ops.gemm(a, b)
    if name == "attention":
        batch, tokens, heads, head, causal = extents
        q, k, v = (make(batch, tokens, heads, head) for _ in range(3))
        return lambda: ops.attention(q, k, v, causal=causal)
    x, weight = make(*extents), make(extents[1])
    if name == "softmax":
        return lambda: ops.softmax(x)
    return lambda: getattr(ops, name)(x, (extents[1],), weight)


def compared(only: list[int] | None = None) -> Iterator[tuple[str, Counters, Any]]:
    """Yield of each launch its name, its counters, and its prediction."""
    import torch

    from cutepy import simulate

    cases = [
        (launch, counters)
        for group, launches in LAUNCHES.items()
        for launch, counters in zip(launches, recorded(group), strict=True)
    ]
    for number, ((name, extents), counters) in enumerate(cases):
        if only is None or number in only:
            with simulate(time="h200") as run:
                operation(name, extents, lambda *shape: torch.zeros(*shape, dtype=torch.bfloat16))()
            yield f"{name} {'x'.join(map(str, extents))}", counters, max(run.predictions, key=lambda each: each.us)


def agrees(counters: Counters, predicted: Any) -> bool:
    """Tell whether a prediction names the unit that the counters name, or latency where they name none."""
    measured = SAME.get(counters.bound, counters.bound)
    return predicted.bound == measured or (measured == "latency" and predicted.bound in LATENCY)


def launch(group: str) -> None:
    """Launch a group on a GPU, each within a range of the profiler."""
    import torch

    for name, extents in LAUNCHES[group]:
        call = operation(name, extents, lambda *shape: torch.randn(*shape, device="cuda").to(torch.bfloat16) * 0.1)
        call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def main() -> None:
    """Predict and compare, or launch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launch", choices=sorted(LAUNCHES))
    parser.add_argument("--only", type=lambda text: [int(number) for number in text.split(",")])
    asked = parser.parse_args()
    if asked.launch:
        launch(asked.launch)
        return
    same = count = 0
    for name, counters, predicted in compared(asked.only):
        agreed = agrees(counters, predicted)
        same, count = same + agreed, count + 1
        busy = ", ".join(
            f"{unit} {percent:.0f}%" for unit, percent in sorted(counters.busy.items(), key=lambda u: -u[1])[:2]
        )
        told = f"{predicted.bound}, {', '.join(f'{unit} {use:.0%}' for unit, use in list(predicted.use.items())[:2])}"
        print(f"{'' if agreed else 'OTHER':6} {name:32} {counters.bound:15} ({busy})  predicted {told}", flush=True)
    print(f"{same} of {count} agree")


if __name__ == "__main__":
    main()
