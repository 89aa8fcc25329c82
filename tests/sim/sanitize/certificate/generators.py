"""Random programs of `model.py`: from nothing, and idioms with mistakes."""

import random

from tests.sim.sanitize.certificate.idioms import (
    attention,
    dropped,
    dropped_by_count,
    hand_over,
    made_again,
    one_release,
    pingpong_mbarriers,
    pingpong_named,
    pingpong_one_ring,
    ring,
    scheduler,
    two_producers,
)

SMALL = [
    ring(1, 2),
    ring(1, 3, order="copy"),
    ring(2, 3),
    ring(1, 2, 2),
    ring(1, 2, order="apart"),
    ring(2, 3, order="plain"),
    ring(1, 2, 2, order="plain"),
    ring(1, 3, order="noinc"),
    ring(1, 2, order="increment"),
    ring(1, 3, peek="before"),
    ring(2, 3, peek="after"),
    ring(1, 2, tail=False),
    one_release(2),
    pingpong_named(2),
    pingpong_mbarriers(2),
    pingpong_one_ring(3),
    attention(1),
    hand_over(2),
    two_producers(2),
    made_again(),
    dropped(),
    dropped_by_count(),
    scheduler(2, 2),
]


def from_nothing(rng):
    """Draw a program of 2 to 4 threads."""
    barriers = rng.randint(1, 2)
    names = iter(range(1000))
    places = iter("abcdefgh")
    threads = []
    longest = rng.choice((2, 3, 4, 5))
    meets = rng.random() < 0.25
    for _ in range(rng.choice((2, 2, 2, 3, 3, 4))):
        ops, peeks = [], []
        for _ in range(rng.randint(1, longest)):
            ops.append(_draw(rng, barriers, names, places, peeks, meets, 4))
        threads.append(ops)
    fixed = [[_fit(op, len(threads)) for op in ops if op is not None] for ops in threads]
    return fixed, [rng.choice((1, 1, 1, 2, 2, 3)) for _ in range(barriers)]


def _fit(op, threads):
    return (op[0], op[1], min(op[2], threads)) if op[0] in ("sync", "bar_arrive") else op


def _draw(rng, barriers, names, places, peeks, meets, threads):
    b, parity = rng.randrange(barriers), rng.randrange(2)
    kinds = ["arrive"] * 6 + ["wait"] * 7 + ["store", "load"]
    kinds += (
        "arrive_expect arrive_expect expect copy copy copy complete increment noinc drop nocomplete peek peek".split()
    )
    kinds += ["sync", "bar_arrive"] * 4 if meets else []
    kinds += ["reinit"] if rng.random() < 0.2 else []
    kind = rng.choice(kinds)
    if peeks and rng.random() < 0.5:
        name, of, asked = peeks.pop(0)
        return ("wait_if_not", name, of, asked)
    if kind == "wait":
        return ("wait", b, parity, "test") if rng.random() < 0.2 else ("wait", b, parity)
    if kind == "peek":
        name = next(names) % 10
        peeks.append((name, b, parity))
        return ("peek", b, parity, name, "test") if rng.random() < 0.5 else ("peek", b, parity, name)
    if kind in ("store", "load"):
        return (kind, rng.randrange(2))
    if kind in ("expect", "arrive_expect", "complete"):
        return (kind, b, rng.choice((16, 16, 32)))
    if kind == "copy":
        place = next(places, None)
        return None if place is None else ("copy", b, rng.choice((16, 16, 32)), place)
    if kind in ("sync", "bar_arrive"):
        return (kind, rng.randrange(2), rng.choice((2, 2, 3)))
    if kind == "reinit":
        return ("reinit", b, rng.choice((1, 2)))
    return (kind, b)


def with_mistakes(rng):
    """Draw an idiom, and make one or two mistakes in it (sometimes none)."""
    threads, counts = rng.choice(SMALL)
    threads, counts = [list(ops) for ops in threads], list(counts)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        _mistake(rng, threads, counts)
    return [_peeks_kept(ops) for ops in threads], counts


def _mistake(rng, threads, counts):
    ops = rng.choice([ops for ops in threads if ops] or [[]])
    if not ops:
        return
    at = rng.randrange(len(ops))
    op = ops[at]
    kind = rng.choice("delete delete swap double flip count bytes insert move".split())
    if kind == "delete":
        del ops[at]
    elif kind == "swap" and at:
        ops[at - 1], ops[at] = ops[at], ops[at - 1]
    elif kind == "move":
        ops.insert(rng.randrange(len(ops)), ops.pop(at))
    elif kind == "double" and op[0] not in ("copy", "peek"):
        ops.insert(at, op)
    elif kind == "flip" and op[0] == "wait":
        ops[at] = ("wait", op[1], op[2] ^ 1)
    elif kind == "count" and counts:
        b = rng.randrange(len(counts))
        counts[b] = max(1, counts[b] + rng.choice((-1, 1)))
    elif kind == "bytes" and op[0] in ("arrive_expect", "expect"):
        ops[at] = (*op[:2], op[2] + rng.choice((-16, 16)))
    elif kind == "insert" and counts:
        name = rng.choice(("arrive", "noinc", "increment", "drop"))
        count = (rng.randrange(1, 3),) if name in ("arrive", "drop") and rng.random() < 0.5 else ()
        ops.insert(at, (name, rng.randrange(len(counts)), *count))


def _peeks_kept(ops):
    """Drop what waits for an outcome that is not known yet, or is of another wait."""
    kept, known = [], {}
    for op in ops:
        if op[0] == "peek":
            known[op[3]] = op[1:3]
        if op[0] != "wait_if_not" or known.get(op[1]) == op[2:4]:
            kept.append(op)
    return kept


def of_cluster(rng):
    """Draw a program of a cluster of 2 CTAs, sometimes a ring by multicast with mistakes."""
    if rng.random() < 0.5:
        threads, counts = multicast_ring(rng.choice((1, 1, 2)), rng.choice((1, 2, 2)))
        for _ in range(rng.choice((0, 1, 1, 2))):
            _mistake(rng, threads, counts)
        return _of_own(threads, len(counts) // 2), counts
    share = rng.choice((1, 1, 2))
    places = iter("abcdefgh")
    threads = [[_draw_of_cluster(rng, cta, share, places) for _ in range(rng.randint(1, 4))] for cta in range(2)]
    for generation in range(rng.choice((0, 1, 1, 1, 2))):
        for ops in threads:
            last = max((n for n, op in enumerate(ops) if op[0] == "cluster_wait"), default=-1) + 1
            at = rng.choice((len(ops), rng.randint(last, len(ops))))
            ops.insert(at, ("cluster_arrive",))
            ops.insert(rng.choice((at + 1, rng.randint(at + 1, len(ops)))), ("cluster_wait", generation))
    return _of_own(threads, share), [rng.choice((1, 1, 2)) for _ in range(2 * share)]


def _draw_of_cluster(rng, cta, share, places):
    b = rng.randrange(2 * share)
    kinds = (
        "arrive arrive arrive arrive wait wait wait wait arrive_expect expect copy copy multicast store load".split()
    )
    kind = rng.choice(kinds)
    if kind == "wait":
        return ("wait", cta * share + b % share, rng.randrange(2))
    if kind in ("store", "load"):
        return (kind, (rng.randrange(2), rng.randrange(2)))
    if kind in ("arrive_expect", "expect"):
        return (kind, b, 16)
    if kind in ("copy", "multicast"):
        place = next(places, None)
        return ("arrive", b) if place is None else (kind, b if kind == "copy" else b % share, 16, place)
    return (kind, b)


def _of_own(threads, share):
    """Drop what PTX has for a CTA's own barriers only, where a mistake made it another's."""
    own = ("wait", "peek", "noinc", "increment", "drop", "nocomplete", "reinit")
    return [[op for op in ops if op[0] not in own or op[1] // share == cta] for cta, ops in enumerate(threads)]


def multicast_ring(stages, rounds, closing="tail"):
    """Each of 2 CTAs loads half of a stage for both, and both release a stage to both."""
    threads = []
    share = 2 * stages
    for cta in range(2):
        ops = []
        for n in range(rounds + stages):
            stage, parity = n % stages, n // stages & 1
            if n >= stages:
                before = n - stages
                ops.append(("wait", cta * share + stage, before // stages & 1))
                ops += [("load", (cta, "abcd"[2 * stage + half])) for half in range(2)]
                ops += [("arrive", other * share + stages + stage) for other in range(2)]
            if n < rounds or closing == "tail":
                ops.append(("wait", cta * share + stages + stage, parity ^ 1))
            if n < rounds:
                ops.append(("arrive_expect", cta * share + stage, 32))
                ops.append(("multicast", stage, 16, "abcd"[2 * stage + cta]))
        if closing == "cluster":
            ops += [("cluster_arrive",), ("cluster_wait", 0)]
        threads.append(ops)
    return threads, ([1] * stages + [2] * stages) * 2


def of_tensor(rng):
    """Draw a program of the tensor core: from nothing, or an idiom with mistakes."""
    if rng.random() < 0.6:
        threads, counts = rng.choice(TENSOR_IDIOMS)
        threads, counts = [list(ops) for ops in threads], list(counts)
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            _mistake(rng, threads, counts)
        return threads, counts
    barriers = rng.randint(1, 2)
    kinds = "mma mma mma_tensor commit commit commit wait wait wait wait arrive arrive tensor_load wait_loads".split()
    kinds += "tensor_load wait_loads tensor_store wait_stores".split()
    threads = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        drawn = [rng.choice(kinds) for _ in range(rng.randint(1, 6))]
        threads.append([_draw_of_tensor(rng, kind, rng.randrange(barriers)) for kind in drawn])
    return threads, [rng.choice((1, 1, 1, 2)) for _ in range(barriers)]


def _draw_of_tensor(rng, kind, b):
    if kind in ("wait_loads", "wait_stores"):
        return (kind,)
    if kind == "mma":
        return (kind, rng.randrange(2), rng.choice("ab"))
    if kind == "mma_tensor":
        d = rng.randrange(2)
        return (kind, d, 1 - d)
    if kind == "wait":
        return (kind, b, rng.randrange(2))
    return (kind, rng.randrange(2) if kind.startswith("tensor") else b)


def accumulators(stages, rounds, by=1):
    """A thread multiplies into columns, from operands that a second one copies; others load what it has committed."""
    full, empty, loaded, free = (range(n * stages, (n + 1) * stages) for n in range(4))
    copies, multiplies, loads = [], [], [[] for _ in range(by)]
    for n in range(rounds):
        stage, parity = n % stages, n // stages & 1
        copies += [("wait", free[stage], parity ^ 1)] if n >= stages else []
        copies += [("arrive_expect", loaded[stage], 16), ("copy", loaded[stage], 16, "ab"[stage])]
        multiplies += [("wait", loaded[stage], parity)]
        multiplies += [("wait", empty[stage], parity ^ 1)] if n >= stages else []
        multiplies += [("mma", stage, "ab"[stage]), ("commit", free[stage]), ("commit", full[stage])]
        for each in loads:
            each += [("wait", full[stage], parity), ("tensor_load", stage), ("wait_loads",), ("arrive", empty[stage])]
    return [copies, multiplies, *loads], [1] * stages + [by] * stages + [1] * 2 * stages


def exchanged(rounds):
    """A thread multiplies, another one loads the sums and stores what the first one multiplies next."""
    multiplies, softmax = [], []
    for n in range(rounds):
        parity = n & 1
        multiplies += [("wait", 1, parity ^ 1)] if n else []
        multiplies += [("mma", 0, "a"), ("commit", 0), ("wait", 1, parity), ("mma_tensor", 1, 0), ("commit", 2)]
        softmax += [("wait", 0, parity), ("tensor_load", 0), ("wait_loads",), ("tensor_store", 0), ("wait_stores",)]
        softmax += [("arrive", 1), ("wait", 2, parity)]
    multiplies = [op for op in multiplies if op != ("wait", 1, 1) or rounds > 1]
    return [multiplies, softmax], [1, 1, 1]


TENSOR_IDIOMS = [
    accumulators(1, 1),
    accumulators(1, 2),
    accumulators(2, 2),
    accumulators(2, 3),
    accumulators(1, 2, by=2),
    exchanged(1),
    exchanged(2),
]

GENERATORS = {
    "from nothing": from_nothing,
    "idioms with mistakes": with_mistakes,
    "clusters": of_cluster,
    "tensor core": of_tensor,
}


def draw(name, seed):
    """Draw a program of a generator."""
    return GENERATORS[name](random.Random(f"{name} {seed}"))
