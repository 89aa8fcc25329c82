"""Compare the certificates of random programs with what exhaustive search finds; `make certify-trial` runs many.

python -m tests.sim.sanitize.certificate.trial [SECONDS [FIRST_SEED]]
"""

import random
import sys
import time
from collections import Counter

from tests.sim.sanitize.certificate.generators import GENERATORS, draw
from tests.sim.sanitize.certificate.model import TooLarge, explore
from tests.sim.sanitize.certificate.programs import policy_of, run, run_cluster, run_tensor

HANGS = "every schedule hangs"
"""Words of an error about what hangs in each."""
POLICIES = (None, None, "late", "random", "youngest", "schedule")
"""Policies of the examined traces; a seeded schedule takes the program's seed."""


def examine(name, seed):
    """Return what a program is by exhaustive search and by its certificate, and whether they contradict each other."""
    threads, counts = draw(name, seed)
    clusters = name == "clusters"
    try:
        verdict = explore(threads, counts, 60_000, len(threads) if clusters else 0)
    except TooLarge:
        return "too large", None
    policy = random.Random(seed).choice(POLICIES)
    if policy == "schedule":
        policy = f"schedule:{seed}"
    runs = {"clusters": run_cluster, "tensor core": run_tensor}
    certificate, hazards, error = runs.get(name, run)(threads, counts, policy_of(policy))
    certified = certificate is not None and certificate.is_certified and error is None
    wrong = None
    if certified and not verdict.is_safe:
        wrong = f"certified, and not safe: {verdict.why}"
    elif error is not None and HANGS in str(error) and (verdict.may_end or verdict.may_break):
        wrong = f"hangs in every schedule, and some ends or breaks: {error}"
    elif error is None and not (verdict.may_end or verdict.may_break):
        wrong = "ended, and no schedule does"
    elif error is not None and verdict.is_safe:
        wrong = f"stopped, and every schedule ends: {error}"
    elif verdict.is_safe and not certified:
        reasons = [h.kind for h in hazards] or list(certificate.reasons)
        return f"safe, not certified ({', '.join(sorted(set(reasons)))})", None
    kind = f"{'safe' if verdict.is_safe else 'unsafe'}, {'certified' if certified else 'not certified'}"
    if error is not None and not (verdict.may_end or verdict.may_break):
        kind = "hangs in every schedule, " + ("and said so" if HANGS in str(error) else "not said so")
    return kind, wrong and (wrong, threads, counts, policy)


def trial(seconds, first):
    """Run programs of all generators for a while; returns how many contradictions there were."""
    counts = {name: Counter() for name in GENERATORS}
    found, seed, end = 0, first, time.monotonic() + seconds
    while time.monotonic() < end:
        for name in GENERATORS:
            kind, wrong = examine(name, seed)
            counts[name][kind] += 1
            if wrong:
                found += 1
                print(f"{name} {seed}: {wrong[0]}\n    {wrong[1]}, {wrong[2]}, policy={wrong[3]}", flush=True)
        seed += 1
    for name, kinds in counts.items():
        safe = sum(n for kind, n in kinds.items() if kind.startswith("safe"))
        share = kinds["safe, certified"] / safe if safe else 0
        print(f"{name}: {sum(kinds.values())} programs, of {safe} safe ones {100 * share:.2f}% certified")
        for kind, n in kinds.most_common():
            print(f"    {n} {kind}")
    return found


if __name__ == "__main__":
    seconds, first = (int(x) for x in (*sys.argv[1:], *("60", "0")[len(sys.argv) - 1 :]))
    sys.exit(1 if trial(seconds, first) else 0)
