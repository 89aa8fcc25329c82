"""Compare an exported GEMM with the kernel in this process, bit for bit, and its calls' host time with torch.mm's."""

import statistics
import sys
import time
from collections.abc import Callable

import proof_gemm
import torch

from cutepy.ops import gemm

SHAPES = [(512, 512, 512), (1, 4096, 4096), (1000, 520, 264), (4096, 4096, 4096), (128, 16384, 1024), (8192, 96, 2048)]
ROUNDS, CALLS = 40, 100


def host_us(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Time what a call costs the host, in microseconds: rounds of each in turn, so that drift meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            spent = (time.perf_counter() - start) / CALLS * 1e6
            torch.cuda.synchronize()
            if round_ >= 3:
                times[name].append(spent)
    return times


def main() -> int:
    """Print what was found; 1 if a result differs or the call is slower than torch's."""
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for m, n, k in SHAPES:
        a, b = (torch.randn(rows, k, device="cuda", dtype=torch.float16) for rows in (m, n))
        exported, here = proof_gemm.gemm(a, b), gemm(a, b)
        if not torch.equal(exported, here):
            print(f"{m}x{n}x{k}: {(exported != here).sum().item()} elements differ from the kernel in this process")
            return 1
        print(f"{m}x{n}x{k}: equal bit for bit")
    a, b = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in range(2))
    t, exported = b.t(), proof_gemm.gemm
    packet = torch.ops.proof_gemm.gemm
    times = host_us(
        {
            "exported": lambda: exported(a, b),
            "torch.mm": lambda: torch.mm(a, t),
            "torch.ops.proof_gemm.gemm": lambda: packet(a, b),
            "in process": lambda: gemm(a, b),
            "torch.empty_like": lambda: torch.empty_like(a),
        }
    )
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:26} median {medians[name]:6.2f} us a call, least {min(values):6.2f}, most {max(values):6.2f}")
    if medians["exported"] > medians["torch.mm"]:
        print("the exported call costs the host more than torch.mm")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
