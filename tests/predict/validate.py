"""Compare predicted with measured times that the repository has: products by journals, attention by its table.

    python -m tests.predict.validate [--gpu h100|h200] [--problems N] [--most N] [--seed S]
    python -m tests.predict.validate --attention
    python -m tests.predict.validate --rows

draws problems of a journal of `tests/kernels/timed` and some of the configurations of each, predicts these, and prints
predicted and measured times, the median and the 90% quantile of the error, the rank correlation of a problem's
configurations, and how much slower the predicted best is than the measured best. Where a journal has a second time of
each configuration, in company of another kernel, its rank correlation is told, too: no prediction can do better. It
needs no GPU. Nothing of the model is fitted to these.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cutepy.suites.gemm_prediction import predict_gemm

TIMED = Path(__file__).parents[1] / "kernels" / "timed"
JOURNALS = {"h100": "h100-20261205.jsonl.xz", "h200": "h200-20261304.jsonl.xz"}
ATTENTION = {
    (128, 512): (438, 273), (128, 4096): (666, 617), (128, 16384): (664, 657), (64, 512): (300, 219),
    (64, 4096): (501, 436), (64, 16384): (529, 507), (256, 512): (463, 263), (256, 4096): (751, 640),
}  # fmt: skip
"""TFLOP/s of attention forward on an H200 by (head, tokens): full, causal. From docs/attention_reference.md."""
ROWS = {
    "rms_norm": {1024: 3.46, 4096: 3.98, 8192: 4.08, 16384: 4.09, 32768: 4.08},
    "softmax": {1024: 3.71, 4096: 3.93, 8192: 4.00, 16384: 4.12, 32768: 4.13},
}
"""TB/s of the bytes that must move, of 16,384 rows of bfloat16 on an H200, by columns. From docs/rows_reference.md."""


NOISE = 0.03
"""Relative difference of two measured times from which their order counts."""
PRUNED = (1.1, 1.2, 1.3)
"""Factors by which `cutepy tune gemm --prune` would leave configurations out."""


class Timed(NamedTuple):
    """Configuration of a problem, its microseconds, and those in company of another kernel, if they were measured."""

    choice: dict[str, Any]
    us: float
    company_us: float | None


def read_journal(gpu: str) -> dict[str, list[Timed]]:
    """Return by problem its configurations and their times."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    with lzma.open(TIMED / JOURNALS[gpu], "rt") as file:
        for who, problem, choice, us, _ in map(json.loads, file):
            if who in ("turns", "company"):
                found.setdefault(problem, {}).setdefault(choice, {})[who] = us
    return {
        problem: [Timed(json.loads(choice), us["turns"], us.get("company")) for choice, us in sorted(choices.items())]
        for problem, choices in found.items()
    }


@contextmanager
def predicted(gpu: str) -> Iterator[list[Any]]:
    """Predict what is launched; torch's tensors are the host's."""
    import cutepy

    with cutepy.simulate(time=gpu) as run:
        yield run.predictions


def predict_attention(head: int, tokens: int, causal: bool, gpu: str) -> Any:
    """Predict attention of 16,384 tokens and 2,048 columns."""
    import torch

    from cutepy.ops import attention

    q, k, v = (torch.randn(16384 // tokens, tokens, 2048 // head, head).to(torch.bfloat16) for _ in range(3))
    with predicted(gpu) as found:
        attention(q, k, v, causal=causal)
    return found


def predict_rows(operation: str, columns: int, gpu: str) -> Any:
    """Predict an operation on 16,384 rows."""
    import torch

    from cutepy import ops

    x = torch.zeros(16384, columns, dtype=torch.bfloat16)
    with predicted(gpu) as found:
        if operation == "softmax":
            ops.softmax(x)
        else:
            ops.rms_norm(x, (columns,), torch.zeros(columns, dtype=torch.bfloat16))
    return found


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation."""
    import numpy as np

    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1])


def pairs_in_order(ours: Sequence[float], theirs: Sequence[float]) -> tuple[int, int]:
    """Return how many pairs are predicted in the measured order, of those that differ by more than noise.

    Examples
    --------
    >>> pairs_in_order([3.0, 2.0, 1.0], [1.0, 1.01, 2.0])
    (0, 2)
    """
    pairs = [
        (ours[n] - ours[m]) * (theirs[n] - theirs[m]) > 0
        for n in range(len(ours))
        for m in range(n)
        if max(theirs[n], theirs[m]) > (1 + NOISE) * min(theirs[n], theirs[m])
    ]
    return sum(pairs), len(pairs)


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def main() -> int:
    """Predict, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="h200", choices=sorted(JOURNALS))
    parser.add_argument("--problems", type=int, default=6)
    parser.add_argument("--most", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    errors: list[float] = []
    correlations: list[float] = []
    again: list[float] = []
    ordered: list[tuple[int, int]] = []
    losses: list[float] = []
    pruned: list[list[tuple[float, float]]] = []
    rows: list[dict[str, Any]] = []

    def tell(what: str, measured: float, found: Any, seconds: float) -> float:
        us = sum(each.us for each in found)
        error = us / measured - 1
        errors.append(abs(error))
        bound = "; ".join(each.bound for each in found)
        rows.append({"what": what, "measured": measured, "us": us, "bound": bound})
        print(f"{what:70} {measured:9.1f} {us:9.1f} {error:+7.1%}  {bound}  ({seconds:.1f} s)", flush=True)
        return us

    if asked.attention:
        for (head, tokens), speeds in ATTENTION.items():
            for causal, tflops in zip((False, True), speeds, strict=True):
                flops = 4 * 16384 * tokens * 2048 / (2 if causal else 1)
                began = time.perf_counter()
                try:
                    found = predict_attention(head, tokens, causal, "h200")
                except Exception:
                    traceback.print_exc(limit=3, file=sys.stdout)
                    continue
                what = f"attention, head {head}, {tokens} tokens{', causal' if causal else ''}"
                tell(what, flops / tflops / 1e6, found, time.perf_counter() - began)
    elif asked.rows:
        for operation, speeds in ROWS.items():
            for columns, tb_s in speeds.items():
                began = time.perf_counter()
                found = predict_rows(operation, columns, "h200")
                measured = 2 * 2 * 16384 * columns / tb_s / 1e6
                tell(f"{operation} of 16384 x {columns}", measured, found, time.perf_counter() - began)
    else:
        journal = read_journal(asked.gpu)
        draw = random.Random(asked.seed)
        for text in draw.sample(sorted(journal), asked.problems):
            problem = json.loads(text)
            ours, theirs, second = [], [], []
            for choice, measured, company in draw.sample(journal[text], min(asked.most, len(journal[text]))):
                began = time.perf_counter()
                try:
                    found = predict_gemm(problem, choice, asked.gpu)
                except Exception:
                    traceback.print_exc(limit=3, file=sys.stdout)
                    continue
                if choice.get("family"):
                    tile = choice["family"]
                else:
                    tile = "{tile_m}x{tile_n}x{tile_k} {cluster_m}x{cluster_n} c{consumers} s{split_k}".format(**choice)
                    tile += " t" * choice["transposed"]
                what = f"{problem['a_dtype']} {problem['m']}x{problem['n']}x{problem['k']} {tile}"
                ours.append(tell(what, measured, found, time.perf_counter() - began))
                theirs.append(measured)
                second += [] if company is None else [company]
            if len(ours) > 2:
                again += [rank_correlation(second, theirs)] if len(second) == len(theirs) else []
                correlations.append(rank_correlation(ours, theirs))
                ordered.append(pairs_in_order(ours, theirs))
                losses.append(theirs[ours.index(min(ours))] / min(theirs))
                pruned.append([*zip(ours, theirs, strict=True)])
                print(f"  rank correlation {correlations[-1]:.2f}, predicted best {losses[-1] - 1:+.1%}", flush=True)
    if errors:
        print(f"{len(errors)} launches: median error {statistics.median(errors):.1%}, 90% {quantile(errors, 0.9):.1%}")
    if correlations:
        print(f"rank correlation: median {statistics.median(correlations):.2f} of {len(correlations)} problems")
        if again:
            print(f"rank correlation of the second measurement: median {statistics.median(again):.2f}")
        right, pairs = (sum(each) for each in zip(*ordered, strict=True))
        print(f"pairs that differ by more than {NOISE:.0%}: {right} of {pairs} in order")
        print(f"predicted best: {statistics.geometric_mean(losses) - 1:.1%} slower than the measured best")
    for factor in PRUNED if pruned else ():
        kept = [[(us, at) for us, at in each if us <= factor * min(each)[0]] for each in pruned]
        dropped = 1 - sum(map(len, kept)) / sum(map(len, pruned))
        loss = statistics.geometric_mean(
            min(at for _, at in some) / min(at for _, at in each) for some, each in zip(kept, pruned, strict=True)
        )
        print(f"pruned at {factor}: {dropped:.0%} of the configurations dropped, {loss - 1:.2%} slower than the best")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
