"""Time tilings of rows, and find the choice of threads that fits them best: `RowFit` of `kernels/rows/tiling.py`.

    python -m tests.kernels.sweeping_rows JOURNAL [OPERATION ...]

times all tilings of 16,384 rows of bfloat16 of each width, in turns, and adds them to a journal; it needs a GPU.

    python -m tests.kernels.sweeping_rows --fit JOURNAL

needs none: for each operation it prints the `RowFit` whose tilings are nearest to the fastest ones, by the geometric
mean over the widths, beside the one that is shipped.
"""

import itertools
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

from cutepy.benchmark import Protocol, compare
from cutepy.kernels.rows.tiling import (
    MOST_CTAS,
    MOST_THREADS,
    MOST_VECTORS,
    NORM,
    NORM_GRADIENT,
    SOFTMAX,
    SOFTMAX_GRADIENT,
    STAGED_BYTES,
    RowFit,
    RowTiling,
    power_of_two,
    staged_bytes,
    tile_rows,
)
from cutepy.layouts.sm90 import arch

ROWS, ELEMS, BYTES, SETS = 16384, 8, 2, 2
COLUMNS = (64, 128, 256, 512, 1024, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 32768, 65536, 131072)
MOST_HELD = 128
"""Elements of a thread."""
PROTOCOL = Protocol(rounds=5, turn_us=1000.0, max_launches=30)
FITS = {"norm": NORM, "norm_gradient": NORM_GRADIENT, "softmax": SOFTMAX, "softmax_gradient": SOFTMAX_GRADIENT}
MATRICES = {"norm": 1, "norm_gradient": 2, "softmax": 1, "softmax_gradient": 2}
"""Matrices of rows that are read."""
TRIED = {
    "in_warp": (8, 16, 32),
    "held": (8, 16, 32),
    "threads": (256, 512, 1024),
    "most_held": (16, 32, 64),
    "cluster_held": (16, 32, 64),
    "cluster_threads": (256, 512, 1024),
}


def staged_of(operation, columns):
    """Return the bytes of shared memory that an element takes, as plans choose them."""
    stages = 2 if operation == "norm_gradient" else 1
    return staged_bytes(columns, ELEMS, *[BYTES] * MATRICES[operation], stages=stages)


def tilings(operation, columns):
    """List the tilings of rows of so many columns that leave no half of the threads idle."""
    staged, pieces = staged_of(operation, columns), -(-columns // ELEMS)
    threads = [1 << n for n in range(MOST_THREADS.bit_length()) if 1 << n <= power_of_two(pieces)]
    found = []
    for each, ctas in itertools.product(threads, (1, 2, 4, MOST_CTAS)):
        vectors = -(-pieces // (each * ctas))
        fits = vectors <= MOST_VECTORS and vectors * ELEMS <= MOST_HELD and each * ctas <= power_of_two(pieces)
        if fits and (ctas == 1 or each >= 2 * arch.WARP_THREADS):
            tiling = RowTiling(ELEMS, each, vectors, ctas)
            if tiling.cta * vectors * ELEMS * staged <= STAGED_BYTES:
                found.append(tiling)
    return found


def trial(operation, tiling, columns):
    """Compile an operation with a tiling; return what launches it on a set."""
    import torch

    from cutepy.kernels.gemm.gpu import gpu_of
    from cutepy.kernels.rows import norm_plans
    from cutepy.kernels.rows.compilation import compile_rows, specs_of
    from cutepy.kernels.rows.config import SoftmaxConfig
    from cutepy.kernels.rows.tiling import NormConfig

    def drawn(*shape):
        return torch.randn(*shape, device="cuda").bfloat16()

    sources = [[drawn(ROWS, columns) for _ in range(MATRICES[operation])] for _ in range(SETS)]
    target, weight, factors = drawn(ROWS, columns), drawn(columns), torch.ones(ROWS, device="cuda")
    staged = staged_of(operation, columns) > 0
    if operation.startswith("softmax"):
        name, given = ("Softmax", ["x"]) if operation == "softmax" else ("SoftmaxBackward", ["dy", "y"])
        tensors = dict(zip([*given, "to"], [*sources[0], target], strict=True))
        function = compile_rows(f"softmax:{name}", SoftmaxConfig(tiling, staged=staged), *specs_of(ELEMS, **tensors))
        return lambda n: function(*sources[n], target)
    config, none = NormConfig(tiling, staged=staged), {"residual": None, "bias": None, "total": None}
    if operation == "norm":
        order = ("x", "residual", "weight", "bias", "y", "total")
        tensors = none | {"x": sources[0][0], "weight": weight, "y": target}
        function = norm_plans.compile_norm(config, ELEMS, **{name: tensors[name] for name in order})
        return lambda n: function(*sources[n], None, weight, None, target, None, factors, None, None, None, None, 1e-5)
    x, dy = sources[0]
    named = {"dy": dy, "dtotal": None, "x": x, "weight": weight, "dx": target}
    function = norm_plans.compile_norm_backward(config, (True, False), **named)
    groups = norm_plans.groups_of_sums(ROWS, tiling, gpu_of(x.device))
    sums = torch.empty(groups, columns, device="cuda")
    return lambda n: function(
        *sources[n][::-1][:1], None, sources[n][0], weight, factors, None, target, sums, None, groups
    )


def sweep(journal, operations):
    """Time all tilings of each operation and width."""
    for operation, columns in itertools.product(operations, COLUMNS):
        chosen = {tiling.name: tiling for tiling in tilings(operation, columns)}
        contenders = {name: trial(operation, tiling, columns) for name, tiling in chosen.items()}
        times = compare(contenders, sets=SETS, protocol=PROTOCOL)
        with journal.open("a") as lines:
            for name, timing in times.items():
                entry = {"operation": operation, "columns": columns, "tiling": asdict(chosen[name])}
                lines.write(json.dumps(entry | {"us": timing.device_us}) + "\n")
        best = min(times, key=lambda name: times[name].device_us)
        shipped = tile_rows(columns, ELEMS, FITS[operation], staged_of(operation, columns)).name
        print(f"{operation} {columns}: best {best}, shipped {shipped}", flush=True)


def read(journal):
    """Read times: operation -> columns -> tiling -> microseconds."""
    times: dict = {}
    for line in journal.read_text().splitlines():
        entry = json.loads(line)
        of_width = times.setdefault(entry["operation"], {}).setdefault(entry["columns"], {})
        tiling = RowTiling(**entry["tiling"])
        of_width[tiling] = min(entry["us"], of_width.get(tiling, math.inf))
    return times


def slowdown(operation, times, fit):
    """Return the geometric mean over the widths of a fit's time, relative to the fastest tiling's."""
    logarithms = []
    for columns, of_tilings in times.items():
        tiling = tile_rows(columns, ELEMS, fit, staged_of(operation, columns))
        logarithms.append(math.log(of_tilings.get(tiling, math.inf) / min(of_tilings.values())))
    return math.exp(sum(logarithms) / len(logarithms))


def fitted(operation, times):
    """Return the fit that is least slow, the shipped one among equals."""
    every = [RowFit(**dict(zip(TRIED, values, strict=True))) for values in itertools.product(*TRIED.values())]
    return min([FITS[operation], *every], key=lambda fit: slowdown(operation, times, fit))


def main(arguments):
    if arguments[:1] == ["--fit"]:
        for operation, times in read(Path(arguments[1])).items():
            for name, fit in (("shipped", FITS[operation]), ("fitted", fitted(operation, times))):
                print(f"{operation} {name} {fit}: {slowdown(operation, times, fit):.3f}")
    else:
        sweep(Path(arguments[0]), arguments[1:] or list(FITS))


if __name__ == "__main__":
    main(sys.argv[1:])
