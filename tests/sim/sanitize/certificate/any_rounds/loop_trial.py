"""Compare what is said of further rounds of loops with what they do, in random programs.

python -m tests.sim.sanitize.certificate.any_rounds.loop_trial [SECONDS [FIRST_SEED]]
"""

import copy
import random
import sys
import time
from collections import Counter

from tests.sim.sanitize.certificate.any_rounds.loop_programs import further, names_of, run, unrolled
from tests.sim.sanitize.certificate.model import TooLarge, explore


def ring(stages, consumers=1, order="copy", tiles=False, peeled=False, tail=True):
    """A producer, consumers, a ring of stages; in tiles there is a loop around both."""
    full, empty = 0, stages
    fill = [("arrive_expect", full, 0, 16), ("copy", full, 0, 16, "a")]
    if order == "plain":
        fill = [("store", 0, 0), ("arrive", full, 0)]
    if order == "first":
        fill.reverse()
    produce = [("wait", empty, 0, 1), *fill, ("advance", 0, stages)]
    read = ("load", 0, 0) if order == "plain" else ("load", "a", 0)
    consume = [("wait", full, 0, 0), read, ("arrive", empty, 0), ("advance", 0, stages)]
    roles = [[("loop", "p", produce)], *([("loop", f"c{n}", list(consume))] for n in range(consumers))]
    if peeled:
        # The release is one round late, as where MMAs are in flight.
        late = [("wait", full, 0, 0), read, ("advance", 0, stages), ("arrive", empty, 1), ("advance", 1, stages)]
        first = [("wait", full, 0, 0), read, ("advance", 0, stages)]
        roles[1:] = [
            [*first, ("loop", f"c{n}", late), ("arrive", empty, 1), ("advance", 1, stages)] for n in range(consumers)
        ]
        roles[0] = [*produce, *roles[0]]
    if tiles:
        roles = [[("loop", f"t{n}", steps)] for n, steps in enumerate(roles)]
    if tail:
        roles[0] = [*roles[0], *[("wait", empty, 0, 1), ("advance", 0, stages)] * stages]
    return roles, [1] * stages + [consumers] * stages


def pingpong():
    """Two roles that take turns by two mbarriers."""
    first = [("wait", 0, 0, 1), ("store", 0, 0), ("arrive", 1, 0), ("advance", 0, 1)]
    second = [("wait", 1, 0, 0), ("store", 0, 0), ("arrive", 0, 0), ("advance", 0, 1)]
    return [[("loop", "p", first)], [("loop", "c0", second)]], [1, 1]


def prefetching(stages, how="below"):
    """One role that fills all stages, and then each again that it has read, as NVIDIA's dense_gemm."""
    full, empty = 0, stages
    fill = [("wait", empty, 0, 1), ("arrive_expect", full, 0, 16), ("copy", full, 0, 16, "a"), ("advance", 0, stages)]
    again = ("below", 0, "p", list(fill)) if how == "below" else ("ahead", "p", stages, list(fill))
    read = [("wait", full, 1, 0), ("load", "a", 1), ("arrive", empty, 1), ("advance", 1, stages)]
    first = [("start", 0, "p", stages), ("times", "p", stages, fill)]
    return [[*first, ("loop", "p", [*read, again])]], [1] * 2 * stages


def lagging(stages, lag):
    """A consumer that hands stages back some rounds late, and what is left in the end."""
    (producer, ((_, name, consume),)), arrivals = ring(stages, tail=False)
    wait, read, arrive, advance = consume
    back = [(*arrive[:2], 1), ("advance", 1, stages)]
    late = [wait, read, advance, ("later", name, lag, back)]
    return [producer, [("loop", name, late), ("times", name, lag, list(back))]], arrivals


def attention(stages):
    """Q once for each tile, K and V in a ring."""
    kv = [("wait", 2 + stages, 0, 1), ("arrive_expect", 2, 0, 16), ("copy", 2, 0, 16, "b"), ("advance", 0, stages)]
    q = [("wait", 1, 2, 1), ("arrive_expect", 0, 2, 16), ("copy", 0, 2, 16, "a"), ("advance", 2, 1)]
    use = [("wait", 2, 0, 0), ("load", "b", 0), ("load", "a", 2), ("arrive", 2 + stages, 0), ("advance", 0, stages)]
    tile = [("wait", 0, 2, 0), ("loop", "c0", use), ("arrive", 1, 2), ("advance", 2, 1)]
    tail = [("wait", 2 + stages, 0, 1), ("advance", 0, stages)] * stages + [("wait", 1, 2, 1)]
    return [[("loop", "t0", [*q, ("loop", "p", kv)]), *tail], [("loop", "t1", tile)]], [1, 1] + [1] * 2 * stages


def turns(stages, consumers=2):
    """Consumers that read the stages of a ring in turn, each of which calls the next one if there is more to read."""
    full, empty, call = 0, stages, 2 * stages
    fill = [("wait", empty, 0, 1), ("arrive_expect", full, 0, 16), ("copy", full, 0, 16, "a"), ("advance", 0, stages)]
    roles = [[("loop", "p", fill)]]
    for n in range(consumers):
        hand_over = ("ahead", f"c{n}", 1, [("arrive", call + (n + 1) % consumers, 2)])
        read = [("wait", call + n, 1, int(n == 0)), ("wait", full, 0, 0), ("load", "a", 0), ("arrive", empty, 0)]
        advance = [("advance", 0, stages)] * consumers
        skip = [("advance", 0, stages)] * n
        roles.append([*skip, ("every", f"c{n}", consumers, n, [*read, hand_over, *advance, ("advance", 1, 1)])])
    return roles, [1] * (2 * stages + consumers)


def draw(seed):
    """Draw a program with loops and up to two mistakes, and how often its loops go around."""
    rng = random.Random(f"loops {seed}")
    stages = rng.choice((1, 1, 2, 2, 3))
    kind = rng.choice("ring ring ring tiles pingpong attention prefetching prefetching lagging".split())
    kind = "turns" if seed % 10 == 9 else kind
    if kind == "pingpong":
        (roles, arrivals), stages = pingpong(), 1
    elif kind == "prefetching":
        roles, arrivals = prefetching(stages, rng.choice(("below", "ahead")))
    elif kind == "turns":
        stages = min(stages, 2)
        roles, arrivals = turns(stages)
    elif kind == "lagging":
        roles, arrivals = lagging(stages, rng.randint(1, max(1, stages - 1)))
    elif kind == "attention":
        stages = min(stages, 2)
        roles, arrivals = attention(stages)
    else:
        options = {"order": rng.choice(("copy", "first", "plain")), "peeled": rng.random() < 0.3}
        consumers = rng.choice((1, 1, 1, 2)) if stages == 1 else 1
        roles, arrivals = ring(stages, consumers, tiles=kind == "tiles", tail=rng.random() < 0.8, **options)
    roles = copy.deepcopy(roles)
    if kind == "ring" and stages == 1 and not options["peeled"]:
        _by_number(rng, roles)
    rounds = rng.choice((rng.randint(2, 8 * stages), rng.choice((8, 12)) * stages + rng.randint(0, 3)))
    rounds += 18 if kind == "turns" else 0
    counts = dict.fromkeys(names_of(roles), rounds)
    for name in counts:
        if name.startswith("t"):
            counts[name] = rng.choice((2, 3, 9))
    if any(name.startswith("t") for name in counts) and rng.random() < 0.5:
        few = rng.randint(1, 4)
        counts = {name: 8 * stages if name.startswith("t") else few for name in counts}
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        _mistake(rng, roles, arrivals, stages, counts)
    if rng.random() < 0.1:
        counts[rng.choice(sorted(counts))] += rng.choice((-1, 1))
    return roles, arrivals, counts


def _by_number(rng, roles):
    """Take phases from the round's number instead of turning them, where nothing comes before a loop."""
    for role in roles:
        if role[0][0] == "loop" and len(role) == 1 and rng.random() < 0.5:
            _, name, steps = role[0]
            steps[:] = [("counted", 0, name), *(step for step in steps if step[0] != "advance")]


def _bodies(steps, around=()):
    """Yield lists of steps, and the names of the loops around them."""
    yield steps, around
    for step in steps:
        if isinstance(step[-1], list):
            yield from _bodies(step[-1], (*around, step[1]) if step[0] in _LOOPS else around)


_LOOPS = ("loop", "every")
_MISTAKES = (
    "swap swap delete double flip count turn round round round later later last scaled reset "
    "ahead half within below middle beyond counted counted"
).split()


def _mistake(rng, roles, arrivals, stages, counts):
    role = rng.choice(roles)
    steps, around = rng.choice([found for found in _bodies(role) if found[0]])
    at = rng.randrange(len(steps))
    step, kind = steps[at], rng.choice(_MISTAKES)
    if kind == "swap":
        other = rng.randrange(len(steps))
        steps[at], steps[other] = steps[other], steps[at]
    elif kind == "delete" and step[0] not in _LOOPS:
        del steps[at]
    elif kind == "double" and step[0] not in ("copy", *_LOOPS):
        steps.insert(at, step)
    elif kind == "flip" and step[0] == "wait":
        steps[at] = (*step[:3], step[3] ^ 1)
    elif kind == "count":
        n = rng.randrange(len(arrivals))
        arrivals[n] = max(1, arrivals[n] + rng.choice((-1, 1)))
    elif kind == "turn" and step[0] == "advance":
        steps[at] = ("advance", step[1], step[2], rng.choice((-1, *range(step[2]))) if step[2] > 1 else -1)
    elif around and step[0] not in _LOOPS:
        inner = [step] if rng.random() < 0.7 else []
        at_round = rng.choice((2, 5, *(counts[around[-1]] + more for more in (0, 1, 2))))
        other = rng.choice(sorted(counts))
        extra = {
            "ahead": [("ahead", around[-1], rng.choice((0, 1, 2, counts[around[-1]] - 1)), [step])],
            "half": [("half", around[-1], [step])],
            "beyond": [("beyond", around[-1], at_round, [step])],
            "counted": [("counted", 0, around[-1]), step],
            "within": [("within", around[-1], other, [step])],
            "below": [("below", 0, around[-1], [step])],
            "middle": [("middle", 1, other), ("below", 1, around[-1], [step])],
            "round": [("round", around[-1], at_round, [step])],
            "later": [("later", around[-1], at_round, [step])],
            "last": [("last", around[-1], [step])],
            "scaled": [("scaled", 0, around[-1], stages), step],
            "reset": [("reset", 0), step],
        }.get(kind)
        if extra:
            steps[at : at + 1] = extra if kind in ("scaled", "reset", "counted") else [*inner, *extra]


def examine(seed, limit=40_000):
    """Return what is said of a program's loops, and what contradicts it."""
    roles, arrivals, counts = draw(seed)
    certificate, _, error, text = run(roles, arrivals, counts)
    if error is not None or not certificate.is_certified:
        return "not certified", None
    holding = [one for one in certificate.extends if one.holds and not one.steers]
    for one in holding:
        for times in (1, 2, 3):
            more = further(one, text, counts, times)
            if more is None:
                continue
            try:
                verdict = explore(unrolled(roles, more), arrivals, limit)
                why = "" if verdict.is_safe else f"not safe: {verdict.why}"
            except TooLarge:
                again, hazards, stopped, _ = run(roles, arrivals, more)
                why = "" if again and again.is_certified else f"not certified: {hazards or stopped}"
            if why:
                return "wrong", f"{one} in {counts}: {more} is {why}\n    {roles}\n    {arrivals}"
    reasons = sorted({_kind(one.reason) for one in certificate.extends if one not in holding})
    return ("further rounds" if holding else "this run: " + ", ".join(reasons) or "no loops"), None


def _kind(reason):
    if not reason:
        return "their number steers more"
    for part in "may turn|too few|do not repeat|counts its rounds|another pace|do not go around|loaded".split("|"):
        if part in reason:
            return part
    return reason


def trial(seconds, first):
    """Examine programs for a while; returns how many contradictions there were."""
    counts, found, seed, end = Counter(), 0, first, time.monotonic() + seconds
    while time.monotonic() < end:
        kind, wrong = examine(seed)
        counts[kind] += 1
        if wrong:
            found += 1
            print(f"{seed}: {wrong}", flush=True)
        seed += 1
    for kind, n in counts.most_common():
        print(f"{n} {kind}")
    return found


if __name__ == "__main__":
    seconds, first = (int(x) for x in (*sys.argv[1:], *("60", "0")[len(sys.argv) - 1 :]))
    sys.exit(1 if trial(seconds, first) else 0)
