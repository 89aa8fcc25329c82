"""All schedules of a small program of barriers, by trying each: it shares no code with the simulator.

A program is a list of threads, a thread a list of operations:

    ("arrive", b)              ("drop", b)                 ("nocomplete", b)    the first two with a count too: b, n
    ("expect", b, bytes)       ("arrive_expect", b, bytes) ("copy", b, bytes, place)   ("complete", b, bytes)
    ("increment", b)           ("noinc", b)                cp.async.mbarrier.arrive without, and with, .noinc
    ("wait", b, parity)        ("peek", b, parity, name)   ("wait_if_not", name, b, parity)
    ("sync", n, threads)       ("bar_arrive", n, threads)
    ("store", x)               ("load", x)                 ("reinit", b, count)

In a cluster each thread is one CTA's; barriers and words belong to CTAs, and there are two more operations:

    ("multicast", j, bytes, place)     to all CTAs, and the barrier that each has as its j-th
    ("cluster_arrive",), ("cluster_wait", generation)

Of the tensor core there are

    ("mma", d, place)          writes column d of tensor memory, and reads what copies write
    ("mma_tensor", d, a)       the same, and reads column a
    ("commit", b)              an arrival once all MMAs that the thread issued before are complete
    ("tensor_load", d)         ("tensor_store", d)      by a warp, of its own quarter of the lanes
    ("wait_loads",)            ("wait_stores",)

MMAs of a thread complete in order. Commits may arrive in any, but at the end one that is missing is taken to have
arrived where another one of its thread has, of the same MMAs or more.

Asynchronous operations take effect at any time after they were issued. A program is *safe* if all schedules end, count
each operation in the same phase, end each wait on the same phase, do nothing undefined, have no race and leave no
bytes that were announced and did not come, or came unannounced.
"""

from __future__ import annotations

from dataclasses import dataclass

LIMIT = (1 << 20) - 1
TENSOR = ("mma", "mma_tensor", "tensor_load", "tensor_store")


class Undefined(Exception):
    """A schedule that does something undefined."""


def count_of(op):
    """Return how many arrivals an ("arrive", b, count) or ("drop", b, count) is."""
    return op[2] if len(op) > 2 else 1


@dataclass(frozen=True)
class Verdict:
    """Properties that all schedules have in common.

    Attributes
    ----------
    is_safe : bool
    why : str
        What goes wrong in some schedule.
    may_end, may_hang, may_break : bool
        Whether some schedule ends, hangs, or does something undefined.
    """

    is_safe: bool
    why: str
    may_end: bool
    may_hang: bool
    may_break: bool


class TooLarge(Exception):
    """More states than are explored."""


# A barrier: (alive, count, pending, bytes, phase, announced, delivered). A named barrier: (generation, arrived, count).


def explore(threads, counts, limit=200_000, ctas=0):
    """Try all schedules; of a cluster's CTAs, if there are any, each owns as many of the barriers."""
    return _Search(threads, counts, limit, ctas).verdict()


class _Search:
    def __init__(self, threads, counts, limit, ctas):
        self.threads, self.limit, self.ctas = threads, limit, ctas
        self.share = len(counts) // ctas if ctas else 0
        self.labels = {}
        self.wrong = []
        self.ends = self.hangs = self.breaks = False
        barriers = tuple((c, c, 0, 0, 0, 0) for c in counts)
        named = sorted({op[1] for ops in threads for op in ops if op[0] in ("sync", "bar_arrive")})
        named += ["cluster"] if ctas else []
        self.named = {n: k for k, n in enumerate(named)}
        self.start = ((0,) * len(threads), (None,) * len(threads), (), barriers, ((0, 0, 0),) * len(named), ())

    def verdict(self):
        seen, stack = {self.start}, [self.start]
        while stack:
            state = stack.pop()
            if len(seen) > self.limit:
                raise TooLarge
            steps = []
            self.race(state)
            done = all(pc == len(ops) for pc, ops in zip(state[0], self.threads, strict=True))
            if done and any(self.outlives(state, what) for what in state[2]):
                self.wrong.append("asynchronous operations outlive the threads")
            if done and not state[2] and any(barrier[2] for barrier in state[3]):
                self.wrong.append("bytes are left over")
            for t in range(len(self.threads)):
                try:
                    steps += self.thread(state, t)
                except Undefined as error:
                    self.breaks = True
                    self.wrong.append(str(error))
            for n in range(len(state[2])):
                try:
                    steps += self.effect(state, n)
                except Undefined as error:
                    self.breaks = True
                    self.wrong.append(str(error))
            if not steps and not self.broken_here(state):
                if done:
                    self.ends = True
                else:
                    self.hangs = True
                    self.wrong.append("hangs")
            for step in steps:
                if step not in seen:
                    seen.add(step)
                    stack.append(step)
        return Verdict(not self.wrong, self.wrong[0] if self.wrong else "", self.ends, self.hangs, self.breaks)

    def broken_here(self, state):
        for t in range(len(self.threads)):
            try:
                self.thread(state, t)
            except Undefined:
                return True
        return any(self.breaks_at(state, n) for n in range(len(state[2])))

    def breaks_at(self, state, n):
        try:
            self.effect(state, n)
        except Undefined:
            return True
        return False

    def label(self, key, value):
        """Compare with what other schedules did."""
        if self.labels.setdefault(key, value) != value:
            self.wrong.append(f"{key} is in {self.labels[key]} or {value}")

    def race(self, state):
        touching = []
        for pc, ops in zip(state[0], self.threads, strict=True):
            if pc < len(ops) and ops[pc][0] in ("store", "load"):
                touching.append((ops[pc][1], ops[pc][0] == "store"))
        touching += [(what[3], True) for what in state[2] if what[0] == "bytes"]
        touching += [one for what in state[2] if self.is_next(state, what) for one in _of_tensor_core(what)]
        for n, (place, writes) in enumerate(touching):
            if any(place == other and (writes or also) for other, also in touching[:n]):
                self.wrong.append("race")

    # Barriers.

    def settle(self, barrier, may_complete=True):
        count, pending, size, phase, *_ = barrier
        if pending < 0:
            raise Undefined("too many arrivals")
        if pending == 0 and size == 0:
            if not may_complete:
                raise Undefined("a noComplete arrival, or an announcement, completes")
            return (count, count, 0, phase + 1, 0, 0)
        return barrier

    def changed(self, state, b, key, arrivals=0, size=0, drop=0, may_complete=True):
        if self.ctas and self.is_dead(state, b // self.share):
            raise Undefined("used after the CTA ended")
        count, pending, held, phase, announced, delivered = state[3][b]
        self.label(key, phase)
        count -= drop
        if count < 1:
            raise Undefined("dropped to nothing")
        barrier = (count, pending - arrivals, held + size, phase, announced, delivered)
        if abs(held + size) > LIMIT:
            raise Undefined("too many bytes")
        barrier = self.settle(barrier, may_complete)
        return (*state[3][:b], barrier, *state[3][b + 1 :])

    def is_dead(self, state, cta):
        return state[0][cta] == len(self.threads[cta])

    def passes(self, state, b, parity):
        return state[3][b][3] & 1 != parity

    # Steps.

    @staticmethod
    def is_next(state, what):
        """Tell whether no MMA of the thread comes before an MMA or a commit."""
        kind, (thread, at, *_), *_ = what
        is_ordered = kind in ("mma", "mma_tensor", "commit")
        before = (other[1] for other in state[2] if is_ordered and other[0] in ("mma", "mma_tensor"))
        return all(of != thread or then >= at for of, then, *_ in before)

    def outlives(self, state, what):
        """Tell whether an operation is in flight at the end, unless a commit of as many MMAs has arrived."""
        kind, (thread, at, *_), *_ = what
        flying, ops = {other[1][:2] for other in state[2] if other[0] == "commit"}, self.threads[thread]
        commits = [n for n, op in enumerate(ops) if op[0] == "commit"]
        others = [n for n in commits if n > at or not any(op[0] in TENSOR[:2] for op in ops[n:at])]
        return kind != "commit" or all((thread, n) in flying for n in others)

    def effect(self, state, n):
        kind, key, b, *more = state[2][n]
        rest = (*state[2][:n], *state[2][n + 1 :])
        if not self.is_next(state, state[2][n]):
            return []
        if kind in TENSOR:
            barriers = state[3]
        elif kind == "bytes":
            barriers = self.changed(state, b, key, size=-more[1])
        else:
            barriers = self.changed(state, b, key, arrivals=1)
        return [(state[0], state[1], rest, barriers, state[4], state[5])]

    def thread(self, state, t):
        pcs, waiting, flying, barriers, named, peeked = state
        ops = self.threads[t]
        if pcs[t] == len(ops):
            return []
        if waiting[t] is not None:
            place, generation = waiting[t]
            if named[place][0] == generation:
                return []
            waiting = (*waiting[:t], None, *waiting[t + 1 :])
            return [(self.on(pcs, t), waiting, flying, barriers, named, peeked)]
        op, key = ops[pcs[t]], (t, pcs[t])
        kind, ahead = op[0], self.on(pcs, t)
        if kind in ("store", "load"):
            if self.ctas and self.is_dead(state, op[1][0]):
                raise Undefined("used after the CTA ended")
            return [(ahead, waiting, flying, barriers, named, peeked)]
        if kind == "arrive":
            barriers = self.changed(state, op[1], key, arrivals=count_of(op))
        elif kind == "nocomplete":
            barriers = self.changed(state, op[1], key, arrivals=1, may_complete=False)
        elif kind == "drop":
            barriers = self.changed(state, op[1], key, arrivals=count_of(op), drop=count_of(op))
        elif kind == "expect":
            barriers = self.changed(state, op[1], key, size=op[2], may_complete=False)
        elif kind == "complete":
            barriers = self.changed(state, op[1], key, size=-op[2])
        elif kind == "arrive_expect":
            barriers = self.changed(state, op[1], key, arrivals=1, size=op[2])
        elif kind == "increment":
            barriers = self.changed(state, op[1], key, arrivals=-1)
            flying = tuple(sorted((*flying, ("arrival", (*key, "later"), op[1]))))
        elif kind == "noinc":
            flying = tuple(sorted((*flying, ("arrival", (*key, "later"), op[1]))))
        elif kind == "copy":
            place = (op[1] // self.share, op[3]) if self.ctas else op[3]
            flying = tuple(sorted((*flying, ("bytes", (*key, "later"), op[1], place, op[2])), key=repr))
        elif kind == "multicast":
            for cta in range(self.ctas):
                effect = ("bytes", (*key, cta, "later"), cta * self.share + op[1], (cta, op[3]), op[2])
                flying = tuple(sorted((*flying, effect), key=repr))
        elif kind in TENSOR:
            flying = tuple(sorted((*flying, (kind, key, *op[1:])), key=repr))
        elif kind == "commit":
            flying = tuple(sorted((*flying, ("commit", (*key, "later"), op[1])), key=repr))
        elif kind in ("wait_loads", "wait_stores"):
            awaited = "tensor_load" if kind == "wait_loads" else "tensor_store"
            if any(what[0] == awaited and what[1][0] == t for what in flying):
                return []
        elif kind == "cluster_arrive":
            return [self.meet(state, t, ("bar_arrive", "cluster", self.ctas), key, ahead)]
        elif kind == "cluster_wait":
            if named[self.named["cluster"]][0] <= op[1]:
                return []
        elif kind == "wait":
            if not self.passes(state, op[1], op[2]):
                return []
            self.label(key, state[3][op[1]][3] - 1)
        elif kind == "peek":
            passed = self.passes(state, op[1], op[2])
            if passed and any(o[0] == "wait_if_not" and o[1] == op[3] for o in ops):
                self.label(("peek", t, op[3]), state[3][op[1]][3] - 1)
            peeked = tuple(sorted({**dict(peeked), (t, op[3]): passed}.items()))
        elif kind == "wait_if_not":
            if not dict(peeked)[t, op[1]]:
                if not self.passes(state, op[2], op[3]):
                    return []
                self.label(("peek", t, op[1]), state[3][op[2]][3] - 1)
        elif kind == "reinit":
            count = op[2]
            self.outlived(state, t, op[1])
            barriers = (*barriers[: op[1]], (count, count, 0, 0, 0, 0), *barriers[op[1] + 1 :])
        elif kind in ("sync", "bar_arrive"):
            return [self.meet(state, t, op, key, ahead)]
        return [(ahead, waiting, flying, barriers, named, peeked)]

    def outlived(self, state, t, b):
        """Refuse to make a barrier anew while others are about to use it."""
        for other, (pc, ops) in enumerate(zip(state[0], self.threads, strict=True)):
            if other != t and pc < len(ops) and b in _uses(ops[pc]):
                raise Undefined("made anew while it is used")
        if any(what[2] == b for what in state[2]):
            raise Undefined("made anew while it is used")

    def meet(self, state, t, op, key, ahead):
        pcs, waiting, flying, barriers, named, peeked = state
        place = self.named[op[1]]
        generation, arrived, count = named[place]
        self.label(key, generation)
        if arrived and count != op[2]:
            raise Undefined("mixed counts")
        arrived += 1
        if arrived > op[2]:
            raise Undefined("too many threads")
        done = arrived == op[2]
        held = (generation + 1, 0, 0) if done else (generation, arrived, op[2])
        named = (*named[:place], held, *named[place + 1 :])
        if op[0] == "sync" and not done:
            waiting = (*waiting[:t], (place, generation), *waiting[t + 1 :])
            return (pcs, waiting, flying, barriers, named, peeked)
        return (ahead, waiting, flying, barriers, named, peeked)

    @staticmethod
    def on(pcs, t):
        return (*pcs[:t], pcs[t] + 1, *pcs[t + 1 :])


def _of_tensor_core(what):
    """Yield the places that an operation of the tensor core touches, and whether it writes them."""
    kind, (thread, *_), *more = what
    if kind in ("tensor_load", "tensor_store"):
        yield ("column", more[0], thread % 4), kind == "tensor_store"
    elif kind in ("mma", "mma_tensor"):
        yield from ((("column", more[0], quarter), True) for quarter in range(4))
        reads = [more[1]] if kind == "mma" else [("column", more[1], quarter) for quarter in range(4)]
        yield from ((place, False) for place in reads if kind == "mma" or more[1] != more[0])


def _uses(op):
    """The mbarriers that an operation uses."""
    if op[0] in ("store", "load", "sync", "bar_arrive", "wait_loads", "wait_stores", *TENSOR):
        return ()
    return (op[2],) if op[0] == "wait_if_not" else (op[1],)
