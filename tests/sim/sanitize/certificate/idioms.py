"""Ways to synchronise that are in use, as programs of `model.py`: each is safe, and certified from one trace."""


def ring(stages, rounds, consumers=1, order="expect", tail=True, arrive="arrive", peek=None):
    """A producer with copies, consumers, a ring of stages: full barriers first, then the empty ones."""
    full, empty = range(stages), range(stages, 2 * stages)
    producer = []
    for n in range(rounds):
        stage, parity = n % stages, n // stages & 1
        producer.append(("wait", empty[stage], parity ^ 1))
        place = "abcdefgh"[stage]
        copy = ("copy", full[stage], 16, place)
        producer += {
            "expect": [("arrive_expect", full[stage], 16), copy],
            "copy": [copy, ("arrive_expect", full[stage], 16)],
            "apart": [("expect", full[stage], 16), copy, ("arrive", full[stage])],
            "noinc": [("noinc", full[stage])],
            "increment": [("increment", full[stage]), ("arrive", full[stage])],
            "plain": [("store", stage), ("arrive", full[stage])],
        }[order]
    if tail:
        for n in range(rounds, rounds + stages):
            producer.append(("wait", empty[n % stages], (n // stages & 1) ^ 1))
    copies = order in ("expect", "copy", "apart")
    threads = [producer]
    for _ in range(consumers):
        consumer = []
        for n in range(rounds):
            stage, parity = n % stages, n // stages & 1
            read = ("load", "abcdefgh"[stage] if copies else stage)
            if order in ("noinc", "increment"):
                read = None
            following = n + 1
            look = ("peek", full[following % stages], following // stages & 1, following)
            wait = ("wait", full[stage], parity)
            if peek and n:
                wait = ("wait_if_not", n, full[stage], parity)
            body = [wait, read] if read else [wait]
            release = [(arrive, empty[stage])]
            ahead = [look] if peek and following < rounds else []
            consumer += [*body, *(ahead + release if peek == "before" else release + ahead)]
        threads.append(consumer)
    return threads, [1] * stages + [consumers] * stages


def one_release(rounds, warps=2):
    """Consumers of which one releases for all, after a named barrier."""
    producer, consumers = [], [[] for _ in range(warps)]
    for n in range(rounds):
        producer += [("wait", 1, (n & 1) ^ 1), ("arrive_expect", 0, 16), ("copy", 0, 16, "a")]
        for k, ops in enumerate(consumers):
            ops += [("wait", 0, n & 1), ("load", "a"), ("sync", 0, warps)]
            if k == 0:
                ops.append(("arrive", 1))
    producer.append(("wait", 1, (rounds & 1) ^ 1))
    return [producer, *consumers], [1, 1]


def pingpong_named(rounds):
    """Two groups that take turns by two named barriers."""
    first, second = [], [("bar_arrive", 0, 2)]
    for n in range(rounds):
        first += [("sync", 0, 2), ("store", 0), ("bar_arrive", 1, 2)]
        second += [("sync", 1, 2), ("store", 0)]
        if n + 1 < rounds:
            second.append(("bar_arrive", 0, 2))
    return [first, second], []


def pingpong_mbarriers(rounds):
    """Two groups that take turns by two mbarriers."""
    first, second = [], []
    for n in range(rounds):
        first += [("wait", 0, (n & 1) ^ 1), ("store", 0), ("arrive", 1)]
        second += [("wait", 1, n & 1), ("store", 0), ("arrive", 0)]
    return [first, second], [1, 1]


def pingpong_one_ring(rounds):
    """Two consumers that share a ring, each taking every other stage, in order."""
    producer, consumers = [], ([], [])
    for n in range(rounds):
        stage, parity = n % 2, n // 2 & 1
        producer += [("wait", 2 + stage, parity ^ 1), ("arrive_expect", stage, 16), ("copy", stage, 16, "ab"[stage])]
        ops = consumers[n % 2]
        ops += [("wait", 4 + n % 2, (n // 2 & 1) ^ (n % 2 == 0))]
        ops += [("wait", stage, parity), ("load", "ab"[stage]), ("arrive", 2 + stage)]
        ops += [("arrive", 4 + (n + 1) % 2)]
    for n in range(rounds, rounds + 2):
        producer.append(("wait", 2 + n % 2, (n // 2 & 1) ^ 1))
    return [producer, *consumers], [1] * 6


def attention(rounds):
    """Q once, K and V in turn, and an output that waits for all."""
    producer, consumer = [("arrive_expect", 0, 16), ("copy", 0, 16, "a")], [("wait", 0, 0), ("load", "a")]
    for n in range(rounds):
        for full, empty, place in ((1, 2, "b"), (3, 4, "c")):
            producer += [("wait", empty, (n & 1) ^ 1), ("arrive_expect", full, 16), ("copy", full, 16, place)]
            consumer += [("wait", full, n & 1), ("load", place), ("arrive", empty)]
    for empty in (2, 4):
        producer.append(("wait", empty, (rounds & 1) ^ 1))
    return [producer, consumer], [1] * 5


def hand_over(rounds):
    """bar.arrive by who writes, bar.sync by who reads, and back."""
    writer, reader = [], []
    for n in range(rounds):
        writer += [("store", 0), ("bar_arrive", 0, 2)]
        reader += [("sync", 0, 2), ("load", 0)]
        if n + 1 < rounds:
            writer.append(("sync", 1, 2))
            reader.append(("bar_arrive", 1, 2))
    return [writer, reader], []


def two_producers(rounds):
    """Two producers of halves of a stage."""
    producers, consumer = ([], []), []
    for n in range(rounds):
        for k, ops in enumerate(producers):
            ops += [("wait", 1, (n & 1) ^ 1), ("arrive_expect", 0, 16), ("copy", 0, 16, "ab"[k])]
        consumer += [("wait", 0, n & 1), ("load", "a"), ("load", "b"), ("arrive", 1)]
    return [*producers, consumer], [2, 1]


def made_again():
    """A barrier that is made anew between two uses."""
    return [
        [("arrive", 0), ("wait", 0, 0), ("sync", 0, 2), ("reinit", 0, 1), ("sync", 0, 2), ("arrive", 0)],
        [("wait", 0, 0), ("sync", 0, 2), ("sync", 0, 2), ("wait", 0, 0)],
    ], [1]


def dropped():
    """A thread that drops out of a barrier's count."""
    return [
        [("arrive", 0), ("wait", 0, 0), ("arrive", 0), ("wait", 0, 1)],
        [("drop", 0)],
    ], [2]


def dropped_by_count():
    """A thread that arrives for three, and drops out with two of them: the next phase lacks the third."""
    return [
        [("arrive", 0), ("wait", 0, 0), ("arrive", 0, 2), ("wait", 0, 1)],
        [("arrive", 0), ("drop", 0, 2)],
    ], [4]


def scheduler(groups, rounds):
    """Groups that take turns in a circle by named barriers, as of FlashAttention's scheduler."""
    threads = [[] for _ in range(groups)]
    threads[-1].append(("bar_arrive", 0, 2))
    for n in range(rounds):
        for k in range(groups):
            following = (k + 1) % groups
            threads[k] += [("sync", k, 2), ("store", 0)]
            if n + 1 < rounds or following:
                threads[k].append(("bar_arrive", following, 2))
    return threads, []


def double_buffer(rounds):
    """Both threads fill a buffer and read it, with a barrier between."""
    one = []
    for n in range(rounds):
        one += [("load", n & 1), ("sync", 0, 2)]
    other = []
    for n in range(rounds):
        other += [("store", (n & 1) ^ 1), ("sync", 0, 2)]
    return [one, other], []


IDIOMS = {
    **{
        f"ring of {s}, {o}, {c} consumers": ring(s, min(2 * s + 1, 5), c, o)
        for s in (1, 2, 3, 4)
        for c in (1, 2)
        for o in ("expect", "copy")
    },
    "ring, announced apart": ring(2, 4, 1, "apart"),
    "ring of stores": ring(2, 5, 1, "plain"),
    "ring of stores, 2 consumers": ring(1, 3, 2, "plain"),
    "ring of cp.async": ring(2, 5, 1, "noinc"),
    "ring of cp.async that counts": ring(2, 4, 1, "increment"),
    "peek before the release": ring(2, 4, 1, "expect", peek="before"),
    "peek after the release": ring(2, 4, 1, "expect", peek="after"),
    "one release for two warps": one_release(3),
    "pingpong by named barriers": pingpong_named(3),
    "pingpong by mbarriers": pingpong_mbarriers(4),
    "pingpong on one ring": pingpong_one_ring(5),
    "attention": attention(2),
    "bar.arrive, bar.sync": hand_over(3),
    "two producers": two_producers(3),
    "made again": made_again(),
    "dropped": dropped(),
    "dropped by a count": dropped_by_count(),
    "scheduler of 2 groups": scheduler(2, 3),
    "scheduler of 3 groups": scheduler(3, 2),
    "double buffer": double_buffer(4),
}
