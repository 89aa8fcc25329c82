"""Random programs of four threads: races as the memory model defines them, and as the sanitizer finds them.

In global memory they are in two CTAs, or as "clusters" in two clusters of two CTAs; in shared memory they are in one.
Of clusters each CTA has one thread, the barriers are theirs, and there are no copies. Bulk copies read and write both
words, "get" and "put", and their thread waits for them; what the generic proxy has touched they come after only by way
of a proxy fence. A step may be one instruction of several threads: the oracle takes one after the other.
The oracle has no clocks: it writes down all events, the edges between them, and what can be reached over them.
"""

import itertools
import re
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from cutepy.sim import Run
from cutepy.sim.sanitize.order import locations, published
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import aligned

WORDS = 2
SPACES = {"global": "%rd1", "shared": "%r20", "clusters": "%rd1"}
OWN_WORD = {"global": "%rd9", "shared": "%r24", "clusters": "%rd9"}
SCOPES = {"cta": 1, "cluster": 2, "gpu": 3, "sys": 4}


@dataclass(frozen=True)
class Step:
    """A thread's step, or its CTA's for "bar.sync"; `thread` is 0 to 3, of CTAs of two, or clusters."""

    thread: int
    operation: str
    order: str = "weak"
    scope: str = "gpu"
    word: int = 0
    pair: bool = False
    """Of both words, as one."""
    vector: bool = False
    """Of both words, each for itself."""
    step: int = 0
    """Of one element of a vector, or one of several threads, which step of the program it is of."""
    threads: tuple[int, ...] = ()
    """Of several threads, all of these."""
    own: bool = False
    """Of several threads, each accesses the word of its number, and else all access the same."""
    alone: bool = False
    """Its thread is the only one of a CTA, and its "cta" is a cluster."""

    @property
    def cta(self):
        return self.thread // 2

    @property
    def reads(self):
        return self.operation in ("ld", "atom", "red", "get")

    @property
    def writes(self):
        return self.operation in ("st", "atom", "red", "put")

    @property
    def is_async(self):
        return self.operation in ("get", "put")

    @property
    def words(self):
        if self.own:
            return self.threads
        even = self.word // 2 * 2
        return (0, 1, 2, 3) if self.is_async else (even, even + 1) if self.pair or self.vector else (self.word,)

    @property
    def is_strong(self):
        return self.order != "weak"

    def releases(self):
        return self.order in ("release", "acq_rel")

    def acquires(self):
        return self.order in ("acquire", "acq_rel")

    def includes(self, other):
        if self.alone and self.scope == "cta":
            return self.thread == other.thread
        return SCOPES[self.scope] > 2 or self.cta == other.cta

    def ptx(self, space):
        where = f"[{OWN_WORD[space]}]" if self.own else f"[{SPACES[space]}+{4 * self.words[0]}]"
        if self.is_async:
            return self.copy(where, into=self.operation == ("put" if space == "shared" else "get"))
        name = "" if self.operation == "fence" else ".shared" if space == "shared" else ".global"
        how = f".{self.order}" + (f".{self.scope}" if self.is_strong else "")
        text = {
            "ld": f"ld{how}{name}.u64 %rd8, {where};" if self.pair else f"ld{how}{name}.u32 %r8, {where};",
            "ld.v2": f"ld{how}{name}.v2.u32 {{%r8, %r7}}, {where};",
            "st": f"st{how}{name}.u64 {where}, %rd8;" if self.pair else f"st{how}{name}.u32 {where}, %r1;",
            "st.v2": f"st{how}{name}.v2.u32 {where}, {{%r1, %r1}};",
            "atom": f"atom{how}{name}.add.u32 %r8, {where}, 1;",
            "red": f"red{how}{name}.add.u32 {where}, 1;",
            "fence": f"fence{how};",
            "proxy": "fence.proxy.async;",
            "bar.sync": f"bar.sync {self.cta}, 64;" if space == "shared" else "bar.sync 0;",
        }[self.operation + ".v2" * self.vector]
        both = f"%p{15 + self.cta}" if space == "shared" else f"%p{10 + self.cta}"
        guard = both if self.operation == "bar.sync" else f"%p{self.thread}"
        some = ""
        if self.threads:
            guard = "%p25"
            some = "mov.pred %p25, %p26;\n" + "".join(f"or.pred %p25, %p25, %p{t};\n" for t in self.threads)
        if self.operation == "bar.sync" and space == "clusters":
            text = f"barrier.cluster.arrive; @{guard} barrier.cluster.wait;"
        used = ""  # else a race may be harmless
        if self.reads and (self.pair or self.vector):
            used = f"@{guard} cvt.u32.u64 %r8, %rd8;\n" if self.pair else f"@{guard} add.u32 %r8, %r8, %r7;\n"
        return f"{some}@{guard} {text}\n{used}@{guard} add.u32 %r9, %r9, %r8;"

    def copy(self, where, into):
        """Copy the words between memories, to or from a place of the thread's own, and wait for it."""
        shared, other = ("[%r21+64]", where) if SPACES["global"] in where else (where, "[%rd5]")
        if not into:
            steps = f"cp.async.bulk.global.shared::cta.bulk_group {other}, {shared}, 16;\n"
            steps += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
        else:
            steps = "mbarrier.arrive.expect_tx.shared.b64 _, [%r21], 16;\n"
            steps += f"cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes {shared}, {other}, 16, [%r21];\n"
            steps += "AGAIN: mbarrier.try_wait.parity.shared.b64 %p30, [%r21], %r22; @!%p30 bra AGAIN;\n"
            steps += "xor.b32 %r22, %r22, 1;\n"
        return f"@!%p{self.thread} bra PAST;\n{steps}PAST:\n"


def steps():
    threads, words = st.integers(0, 3), st.integers(0, WORDS - 1)
    scopes = st.sampled_from(["gpu", "gpu", "gpu", "cta", "cluster", "sys"])
    pairs, strong = (
        st.sampled_from([False, False, False, True]),
        [["ld", "relaxed", "acquire"], ["st", "relaxed", "release"]],
    )
    return st.one_of(
        st.builds(Step, threads, st.sampled_from(["ld", "st"]), word=words, pair=pairs),
        *(
            st.builds(Step, threads, st.just(n), st.sampled_from(how), scopes, words, vector=st.just(True))
            for n, *how in strong
        ),
        st.builds(Step, threads, st.just("ld"), st.sampled_from(["relaxed", "acquire"]), scopes, words, pairs),
        st.builds(Step, threads, st.just("st"), st.sampled_from(["relaxed", "release"]), scopes, words, pairs),
        st.builds(
            Step, threads, st.just("atom"), st.sampled_from(["relaxed", "acquire", "release", "acq_rel"]), scopes, words
        ),
        st.builds(Step, threads, st.just("fence"), st.sampled_from(["acq_rel", "sc"]), scopes),
        st.builds(Step, threads, st.just("bar.sync")),
        st.builds(Step, threads, st.sampled_from(["get", "put", "proxy"])),
    )


@st.composite
def of_several(draw):
    """Draw programs in which several threads execute one atomic, store, load or fence, among other steps."""
    program = draw(st.lists(steps(), min_size=2, max_size=6))
    order = {"atom": ["relaxed", "acquire", "release", "acq_rel"], "st": ["relaxed", "release"]}
    order |= {"red": order["st"], "ld": ["relaxed", "acquire"], "fence": ["acq_rel", "sc"]}
    for _ in range(draw(st.integers(1, 5))):
        operation = draw(st.sampled_from(["atom", "atom", "red", "red", "st", "ld", "fence"]))
        threads = tuple(sorted(draw(st.sets(st.integers(0, 3), min_size=1))))
        own = operation == "st" or (operation != "fence" and draw(st.booleans()))
        scope, word = draw(st.sampled_from(["gpu", "gpu", "sys", "cluster"])), draw(st.integers(0, 3))
        step = Step(threads[0], operation, draw(st.sampled_from(order[operation])), scope, word, threads=threads)
        program.insert(draw(st.integers(0, len(program))), replace(step, own=own))
    return program


@st.composite
def handed_on(draw):
    """Draw programs in which threads tell each other one after the other that something was done to a word."""

    def link(thread, operation, order):
        often, flag = st.sampled_from([order] * 8 + ["relaxed"]), draw(st.integers(2, 3))
        scope = draw(st.sampled_from(["gpu"] * 8 + ["cluster", "cta"]))
        by_fence, is_vector = draw(st.sampled_from([False] * 3 + [True])), draw(st.sampled_from([False] * 3 + [True]))
        access = Step(thread, operation, "relaxed" if by_fence else draw(often), scope, flag, vector=is_vector)
        fence = [Step(thread, "fence", "acq_rel", scope)] if by_fence else []
        return [access, *fence] if operation == "ld" else [*fence, access]

    what = st.sampled_from(["st", "ld", "put", "get"])
    threads = draw(st.lists(st.integers(0, 3), min_size=3, max_size=5))
    program = [Step(threads[0], draw(what))]
    for sender, receiver in itertools.pairwise(threads):
        program += link(sender, "st", "release") + link(receiver, "ld", "acquire")
    for _ in range(draw(st.integers(0, 2))):
        program.insert(draw(st.integers(1, len(program))), draw(steps()))
    return [*program, *([Step(threads[-1], "proxy")] if draw(st.booleans()) else []), Step(threads[-1], draw(what))]


@st.composite
def relayed(draw):
    """Draw programs in which read-modify-writes stand between a release and its acquire, all in any scope."""
    scope, thread = st.sampled_from(["gpu", "gpu", "cluster", "cta"]), st.integers(0, 3)
    first, last = draw(thread), draw(thread)

    def access(thread, operation, order):
        return Step(thread, operation, draw(st.sampled_from(["relaxed", *order])), draw(scope), 2)

    def fence(thread):
        return [Step(thread, "fence", "acq_rel", draw(scope))] if draw(st.booleans()) else []

    changes = st.sampled_from(["atom", "red", "red"])
    program = [Step(first, draw(st.sampled_from(["st", "ld"])))]
    for _ in range(draw(st.integers(1, 2))):
        program += [*fence(first), access(first, draw(st.sampled_from(["st", "red"])), ["release"])]
    for _ in range(draw(st.integers(0, 3))):
        program.append(access(draw(thread), draw(changes), ["release"]))
    for _ in range(draw(st.integers(1, 3))):
        program += [access(last, draw(st.sampled_from(["ld", "ld", "atom"])), ["acquire"]), *fence(last)]
    if draw(st.booleans()):
        program.insert(draw(st.integers(0, len(program))), draw(steps()))
    return [*program, Step(last, "st")]


@st.composite
def around_fences(draw):
    """Draw programs in which fences with .sc may be ordered by a value that other threads write and read."""
    writer, first, second, reader = (draw(st.integers(0, 3)) for _ in range(4))
    if draw(st.integers(0, 3)):  # the threads of two CTAs
        first, reader = writer ^ 1, second ^ 1
    order = st.sampled_from(["sc", "sc", "sc", "acq_rel"])
    scope = st.sampled_from(["gpu"] * 6 + ["sys", "cta", "cluster"])
    program = [
        Step(writer, draw(st.sampled_from(["st", "ld", "put", "get"])), word=0),
        Step(writer, "fence", draw(order), draw(scope)),
        Step(writer, "bar.sync"),
        Step(first, *draw(st.sampled_from([("st", "relaxed"), ("atom", "relaxed")])), draw(scope), word=1),
        Step(second, *draw(st.sampled_from([("ld", "relaxed"), ("atom", "relaxed")])), draw(scope), word=1),
        Step(second, "bar.sync"),
        Step(reader, "fence", draw(order), draw(scope)),
        Step(reader, draw(st.sampled_from(["ld", "st", "get", "put"])), word=0),
    ]
    for _ in range(draw(st.integers(0, 4))):
        program.insert(draw(st.integers(0, len(program))), draw(steps()))
    for _ in range(draw(st.integers(0, 2))):
        program.append(program.pop(draw(st.integers(0, len(program) - 1))))
    return program


def strong(a, b):
    """Tell whether two operations on memory, or fences, are morally strong."""
    return a.is_strong and b.is_strong and a.includes(b) and b.includes(a)


def races(program, space, with_observed):
    """Return pairs of conflicting accesses that neither causality nor moral strength relates, each with its words.

    Causality is of two rules, of which the second says that what an operation has observed is before what follows it.
    Apart are the words where both are strong, but one of both words and one of one: the axioms don't apply to such
    programs. From the generic proxy to the async proxy causality goes by way of a proxy fence in the CTA of the latter.
    Without the second rule, fences with .sc are ordered only as far as the sanitizer looks, and what some threads do by
    one instruction is not before what others of them do by it: in which order they come is not said.
    """
    before = causality(program, space == "shared" or with_observed, all_look=with_observed)
    for step in () if with_observed else {a.step for a, b in itertools.pairwise(program) if a.step == b.step}:
        of_step = [j for j, b in enumerate(program) if b.step == step]
        before[:, of_step] = causality(program, space == "shared", apart=step)[:, of_step]
    ordered = before.copy()
    for j, b in enumerate(program):
        fences = [k for k, f in enumerate(program) if f.operation == "proxy" and f.cta == b.cta and before[k, j]]
        for i, a in enumerate(program[:j]):
            if b.is_async and not a.is_async:
                ordered[i, j] = before[i, fences].any()
    for w, r in observations(program) if with_observed else ():
        ordered[w] |= before[r]
    found, mixed = {}, set()
    for j, b in enumerate(program):
        for i, a in enumerate(program[:j]):
            both = common(a, b) if (a.reads or a.writes) and (b.reads or b.writes) else set()
            where = a.step, b.step
            if not both or not (a.writes or b.writes) or ordered[i, j]:
                continue
            if not strong(a, b):
                found[where] = found.get(where, set()) | both
            elif a.pair != b.pair:
                mixed |= both
    return found, mixed


def causality(program, everywhere, apart=None, all_look=False):
    """Return what is before what in base causality order, (i, j).

    Of two fences with .sc one is the first, and synchronises with the other: if a write that one precedes is observed
    by what precedes the other, it is that one, or the read would precede the write. `everywhere`: whichever way a fence
    precedes the write, or the read a fence; else that is within a CTA, and both are of scope .gpu.
    `apart`: a step of which no thread observes what another one does. `all_look`: a red, whose value nobody looks at,
    may acquire by what comes after it.
    """
    n = len(program)
    edges = np.zeros((n, n), bool)
    same = np.array([[a.cta == b.cta for b in program] for a in program], bool).reshape(n, n)
    for j, b in enumerate(program):
        for i, a in enumerate(program[:j]):
            met = "bar.sync" in (a.operation, b.operation) and a.cta == b.cta
            edges[i, j] = a.thread == b.thread or met
            edges[j, i] = (a.step, a.thread) == (b.step, b.thread)  # in no order, and each tells of both
    observed = [(w, r) for w, r in observations(program) if not program[w].step == program[r].step == apart]
    observed = [(w, r) for w, r in observed if all_look or program[r].operation != "red"]
    for w, r in observed:
        for first in releasing(program, w):
            for last in acquiring(program, r):
                if strong(program[first], program[last]) and first < last:
                    edges[first, last] = True
    fences = [k for k, step in enumerate(program) if step.order == "sc"]
    seen = [(w, r) for w, r in observed if everywhere or min(SCOPES[program[k].scope] for k in (w, r)) > 2]
    many = -1
    while many < edges.sum():
        many = edges.sum()
        way = closed(edges if everywhere else edges & same)
        for first in fences:
            for last in fences:
                forced = any(way[first, w] and way[r, last] for w, r in seen)
                edges[first, last] |= forced and strong(program[first], program[last])
    return closed(edges)


def elements(program):
    """Return a program with a step for each thread, and for each element of a vector."""
    return [
        replace(step, vector=False, word=word, step=n, thread=thread, threads=(), own=False)
        for n, step in enumerate(program)
        for thread in step.threads or (step.thread,)
        for word in (step.words if step.vector else (thread,) if step.own else (step.word,))
    ]


def closed(edges):
    result = edges.copy()
    for k in range(len(edges)):
        result |= result[:, k : k + 1] & result[k : k + 1]
    return result


def common(a, b):
    return {*a.words} & {*b.words}


def observations(program):
    """Yield writes and the reads that they precede in observation order."""
    last = {}
    seen = {}
    for j, step in enumerate(program):
        if step.reads:
            (w, *others) = (last.get(word) for word in step.words)
            observed = set()
            if w is not None and {w, *others} == {w} and strong(program[w], step) and program[w].pair == step.pair:
                observed = {w} | (seen.get(w, set()) if program[w].operation in ("atom", "red") else set())
            seen[j] = observed
            yield from ((w, j) for w in observed)
        if step.writes:
            last.update(dict.fromkeys(step.words, j))


def releasing(program, w):
    """Yield the first operations of the release patterns that end in a write."""
    step = program[w]
    if step.releases():
        yield w
    for i, earlier in enumerate(program[:w]):
        if earlier.thread == step.thread and step.is_strong:
            same = earlier.writes and earlier.words == step.words and earlier.releases()
            if earlier.operation == "fence" or same:
                yield i


def acquiring(program, r):
    """Yield the last operations of the acquire patterns that begin with a read."""
    step = program[r]
    if step.acquires():
        yield r
    for j in range(r + 1, len(program)):
        later = program[j]
        if later.thread == step.thread and step.is_strong:
            same = later.reads and later.words == step.words and later.acquires()
            if later.operation == "fence" or same:
                yield j


START = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r9, 0; mov.u32 %r8, 0;
mov.u32 %r7, 0; mov.u64 %rd8, 0; setp.ne.u32 %p26, %r9, 0;
ld.param.u64 %rd5, [p2]; shl.b32 %r21, %r2, 6; add.u32 %r21, %r21, %r1; mul.wide.u32 %rd6, %r21, 16;
add.u64 %rd5, %rd5, %rd6;
mov.u32 %r21, smem; add.u32 %r21, %r21, 64; shr.u32 %r23, %r1, 5; mad.lo.u32 %r21, %r23, 128, %r21; mov.u32 %r22, 0;
and.b32 %r23, %r1, 31; setp.eq.u32 %p31, %r23, 0;
@%p31 mbarrier.init.shared.b64 [%r21], 1; @%p31 st.shared.v4.u32 [%r21+64], {%r1, %r1, %r1, %r1};
fence.mbarrier_init.release.cluster; fence.proxy.async;
"""
"""rd5: 16 bytes of the thread's own; r21: its warp's mbarrier, and 64 bytes behind it 16 of its own; r22: the phase."""
PLACES = {
    "global": "shr.u32 %r24, %r1, 5; mad.lo.u32 %r24, %r2, 2, %r24; mad.wide.u32 %rd9, %r24, 4, %rd1;\n"
    + "".join(f"setp.eq.u32 %p{10 + c}, %r2, {c};\n" for c in range(2))
    + "".join(f"setp.eq.u32 %p20, %r1, {t % 2 * 32}; and.pred %p{t}, %p20, %p{10 + t // 2};\n" for t in range(4)),
    "clusters": "mad.wide.u32 %rd9, %r2, 4, %rd1;\n"
    + "".join(f"setp.eq.u32 %p{t}, %r2, {t}; setp.eq.and.u32 %p{t}, %r1, 0, %p{t};\n" for t in range(4))
    + "setp.lt.u32 %p10, %r2, 2; not.pred %p11, %p10;\n",
    "shared": "mov.u32 %r20, smem; shr.u32 %r24, %r1, 5; mad.lo.u32 %r24, %r24, 4, %r20;\n"
    + "setp.lt.u32 %p15, %r1, 64; not.pred %p16, %p15;\n"
    + "".join(f"setp.eq.u32 %p{t}, %r1, {t * 32};\n" for t in range(4))
    + "@%p0 st.shared.v4.u32 [%r20], {%r8, %r8, %r8, %r8};\n"
    + "fence.proxy.async; bar.sync 2;\n",
}
END = "ld.param.u64 %rd2, [p1]; shl.b32 %r3, %r2, 6; add.u32 %r3, %r3, %r1; mul.wide.u32 %rd3, %r3, 4;\n"
END += "add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r9;\n"
EXTENTS = {
    "global": {"grid": 2, "block": 64},
    "clusters": {"grid": 4, "cluster": 2, "block": 32},
    "shared": {"grid": 1, "block": 128},
}


def reported(program, space):
    """Return the pairs of steps that the sanitizer reports, and the words of partial overlaps."""
    run = Run((), None, sanitize=True)
    data, own = aligned((1, 4), "u4"), aligned((1, 512), "u4")
    for array in (data, own):
        run.adopt(array.base)
    steps = [re.sub("(PAST|AGAIN)", rf"\g<1>{n}", step.ptx(space)) for n, step in enumerate(program)]
    first = START + PLACES[space]
    arrays = data.reshape(-1), np.zeros(256, np.uint32), own.reshape(-1)
    body = first + "\n".join(steps) + "\n" + END
    launch(body, *arrays, run=run, smem_bytes=1024, **EXTENTS[space])
    step_of = dict(enumerate((n for n, step in enumerate(steps) for _ in step.split("\n")), first.count("\n") + 1))
    pairs, partial = set(), set()
    for hazard in run.hazards:
        if hazard.kind == "partial-overlap":
            partial.add(int(re.search("0x([0-9a-f]+)", hazard.where)[1], 16) // 4)
        else:
            pairs.add(tuple(step_of[side.instruction.source.line] for side in hazard.sides))
    return pairs, partial


RAISE, SEE, FIND = ("st", "release", "gpu", 3), ("ld", "acquire", "gpu", 3), ("ld", "relaxed", "gpu", 3)
MORE = ("atom", "acquire", "gpu", 3)
FENCE = ("fence", "acq_rel", "gpu")
ADD, EXCHANGE = ("red", "release", "gpu", 3), ("atom", "acq_rel", "gpu", 3)
CHANGE, NARROW = ("red", "relaxed", "gpu", 3), ("red", "relaxed", "cluster", 3)
LOWER = ("st", "relaxed", "gpu", 3)
OTHER = ("ld", "acquire", "gpu", 2)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=70, deadline=None)  # 210 of the three spaces
@given(st.one_of(st.lists(steps(), min_size=2, max_size=12), around_fences(), handed_on(), relayed(), of_several()))
@example([Step(0, "st"), Step(0, *EXCHANGE, threads=(0, 2)), Step(2, "st")])
@example([Step(2, "st"), Step(0, *EXCHANGE, threads=(0, 2)), Step(0, "st")])
@example([Step(0, *EXCHANGE, threads=(0, 1, 3)), Step(2, "ld", "acquire", "cluster", 3)])
@example([Step(2, "ld"), Step(2, *RAISE), Step(0, "st", *FIND[1:]), Step(2, *MORE), Step(0, *MORE), Step(0, "st")])
@example(
    [
        *(Step(*s) for s in ((0, "st", "release", "gpu", 1), (2, "ld", "acquire", "gpu", 1), (2, "st"), (2, *RAISE))),
        *(Step(*s) for s in ((1, *SEE), (1, "proxy"), (0, "st", "release", "gpu", 2), (3, *OTHER), (3, "st"))),
    ]
)
@example([Step(0, "get"), Step(3, "st", pair=True), Step(3, "st", word=1)])
@example([Step(1, "ld", pair=True), Step(0, "st", pair=True)])
@example([Step(*s) for s in ((0, "st"), (0, *RAISE), (2, *SEE), (2, *RAISE), (1, *SEE), (1, "ld"))])
@example([Step(0, "st"), Step(0, *RAISE, vector=True), Step(2, *SEE), Step(2, "ld")])
@example([Step(0, "st"), Step(0, *RAISE), Step(2, *SEE, vector=True), Step(2, "ld")])
@example([Step(*s) for s in ((0, "st"), (0, *RAISE), (2, *FIND), (2, *RAISE), (2, *SEE), (2, "st"))])
@example(
    [Step(*s) for s in ((0, "st"), (0, *RAISE), (2, *FIND), (2, *RAISE), (2, *FIND), (2, "fence", "sc"), (2, "st"))]
)
def test_races_are_those_of_the_memory_model(space, program):
    check(space, program)


PASSED = {
    "by a narrow change, which observes nothing": [(0, *RAISE), (2, "red", "relaxed", "cta", 3), (2, *SEE)],
    "by a narrow change, to its own thread": [(0, *RAISE), (2, "atom", "relaxed", "cta", 3), (2, *FENCE)],
    "by a wide change, to a narrow read": [(0, *RAISE), (3, *CHANGE), (2, "ld", "acquire", "cta", 3)],
    "by a wide change, to a narrow read and a wide fence": [
        *((0, *RAISE), (3, *CHANGE), (2, "ld", "relaxed", "cluster", 3), (2, *FENCE)),
    ],
    "past a narrow release, which observes nothing": [
        *((0, *RAISE), (3, "red", "release", "cta", 3), (3, *SEE), (2, *SEE)),
    ],
    "past two narrow changes, of which the first observes nothing": [
        *((0, *RAISE), (2, *NARROW), (3, *CHANGE), (2, *NARROW), (2, *SEE)),
    ],
    "past a change of a narrow value, which observes nothing": [
        *((0, "st", "release", "gpu", 2), (3, *OTHER), (3, "st", "release", "cluster", 3), (0, *FIND)),
        *((0, *CHANGE), (2, *CHANGE), (0, *CHANGE), (2, *SEE)),
    ],
    "by way of another thread": [(0, *RAISE), (1, *SEE), (1, "st", "release", "gpu", 2), (2, *OTHER)],
    "by way of a thread of its own cluster": [(0, *RAISE), (3, *SEE), (3, "st", "release", "gpu", 2), (2, *OTHER)],
    "to another thread, which has acquired more": [(1, *RAISE), (2, *SEE), (0, *ADD), (3, *SEE), (3, "proxy")],
    "from the first of two releases, of which the later is narrow": [
        *((0, *RAISE), (0, "red", "release", "cluster", 3), (1, *ADD), (2, *SEE)),
    ],
    "to who has acquired what came before": [(1, *RAISE), (2, *SEE), (0, *ADD), (2, *SEE)],
    "past another write, and a change of that": [(0, *RAISE), (1, *RAISE), (1, *ADD), (2, *SEE)],
    "from a narrow write behind a wide fence": [
        *((0, *FENCE), (0, "st", "relaxed", "cta", 3), (1, *CHANGE), (2, *SEE)),
    ],
    "from a narrow release behind a wide fence": [
        *((0, *FENCE), (0, "st", "release", "cluster", 3), (1, *CHANGE), (2, *SEE)),
    ],
    "from the first of three writes": [(0, *RAISE), (0, "st", "release", "cta", 3), (0, *LOWER), (2, *SEE)],
    "to the first of two reads": [(0, *RAISE), (2, *FIND), (2, "ld", "acquire", "cta", 3), (2, *FENCE)],
    "to the second of two reads": [(0, *RAISE), (2, "ld", "relaxed", "cta", 3), (2, *FIND), (2, *FENCE)],
    "to the first of two reads, the value gone": [(0, *RAISE), (2, *FIND), (1, *LOWER), (2, *SEE)],
    "to the first of two reads, the second too narrow": [
        *((0, *RAISE), (2, *FIND), (0, "red", "relaxed", "cta", 3), (2, *SEE)),
    ],
    "to the first of two reads, of two values": [(0, *RAISE), (2, *FIND), (1, *RAISE), (2, *FIND), (2, *FENCE)],
    "by a cluster": [(0, "st", "release", "cluster", 3), (1, "atom", "acq_rel", "cluster", 3), (1, *RAISE), (2, *SEE)],
    "before an earlier fence of its thread": [
        *((0, *FENCE), (0, "st", "relaxed", "gpu", 2), (0, "st"), (0, *FENCE), (0, *LOWER), (2, *SEE), (2, *OTHER)),
    ],
}


@pytest.mark.parametrize("name", PASSED)
@pytest.mark.parametrize(("space", "kept"), [("global", 64), ("clusters", -64)])
def test_releases_are_passed_on_in_scope(space, kept, name):
    with mock.patch.object(published, "_MANY_SENT", kept):  # a sequence is shortened by each pattern, or by none
        check(space, [Step(0, "st"), *(Step(*step) for step in PASSED[name]), Step(2, "st")])


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=40, deadline=None)
@given(of_several())
@example([Step(0, "st"), Step(0, *ADD), Step(2, *ADD), Step(1, *SEE), Step(1, "st")])
@example([Step(0, "st"), Step(0, *RAISE), Step(2, *RAISE), Step(1, *SEE), Step(1, "st")])
@example([Step(0, "st"), Step(0, *ADD, threads=(0, 1, 2, 3)), Step(0, *ADD), Step(3, *SEE), Step(3, "st")])
def test_writes_that_later_ones_make_void_are_dropped(space, program):
    with mock.patch.object(locations, "FEWEST_BYTES", 0):  # they are dropped after each write
        check(space, program)


def check(space, program):
    """Compare what the sanitizer reports of a program with the oracle."""
    if space == "clusters":
        program = [replace(s, alone=True) for s in program if not (s.is_async or s.operation == "proxy")]
    if space == "shared":  # one CTA, in which barriers are of two warps
        program = [replace(step, scope="gpu" if step.is_strong else step.scope) for step in program]
    found, partial = reported(program, space)
    words = {word for i, j in found for word in common(program[i], program[j])}
    singles = elements(program)
    racy, mixed = races(singles, space, with_observed=True)
    if mixed:
        assert found or partial
    else:
        assert set().union(*racy.values()) <= words, "none is missed"
    # Observations are asked for of read-modify-writes and weak accesses only.
    racy, mixed = races(singles, space, with_observed=False)
    assert partial <= mixed
    assert found <= racy.keys()
