"""Programs of barriers with loops, as PTX whose loops take their counts from parameters, and unrolled for `model.py`.

A role is a list of steps. A step is an operation on what a cursor names, or one of

    ("loop", name, steps)            as often as its count says; counts are by name
    ("every", name, step, first, steps)  of its rounds only those from one on, so many apart; the count is of all
    ("advance", cursor, stages)      to the next stage; after the last one the phase turns
    ("advance", cursor, stages, at)  the phase turns after stage `at`
    ("reset", cursor)                to stage 0 and phase 0
    ("round", name, number, steps)   steps that only one round of a loop has
    ("later", name, number, steps)   steps that rounds from a number on have
    ("last", name, steps)            steps that all rounds but the last one have
    ("ahead", name, number, steps)   steps of rounds that so many more rounds follow, and one
    ("half", name, steps)            steps of the first half of the rounds
    ("within", name, other, steps)   steps of rounds that another loop has too
    ("beyond", name, number, steps)  steps of programs in which a loop has at least so many rounds
    ("counted", cursor, name)        stage 0, and the phase by the round's number
    ("start", counter, name, number) a counter begins with that number, or with the loop's count if that is less
    ("middle", counter, name)        it begins with half of the loop's count
    ("below", counter, name, steps)  while it is below the loop's count: steps, and it goes on by one
    ("times", name, number, steps)   so often, or as often as the loop's count says if that is less
    ("scaled", cursor, name, stages) the stage is that round's number, times the loop's count, modulo the stages

An operation has a bank, the number of the first of its barriers or places, and a cursor, whose stage is added to it:

    ("wait", bank, cursor, flip)     for the cursor's phase, or the other one
    ("arrive", bank, cursor)         ("arrive_expect", bank, cursor, bytes)    ("copy", bank, cursor, bytes, place)
    ("store", place, cursor)         ("load", place, cursor)
"""

from tests.sim.sanitize.certificate.programs import FENCE, PLACE, PLACES, WORDS, examined

_CURSORS, _COUNTERS = 3, 2


def names_of(roles):
    """Return the names of all loops."""

    def within(steps):
        for step in steps:
            if step[0] in ("loop", "every"):
                yield step[1]
            if isinstance(step[-1], list):
                yield from within(step[-1])

    return sorted({name for steps in roles for name in within(steps)})


# Unrolled.


def unrolled(roles, counts):
    """Return the threads of a program, as of `model.py`."""
    return [list(_unroll(steps, _start(), counts, {})) for steps in roles]


def _start():
    return {c: [0, 0] for c in range(_CURSORS)} | {f"counter {c}": 0 for c in range(_COUNTERS)}


def _condition(step, counts, rounds):
    """Tell whether a step's own steps are run."""
    kind, name, *more = step
    n = rounds.get(name, 0)
    return {
        "beyond": lambda: counts[name] >= more[0],
        "round": lambda: n == more[0],
        "later": lambda: n >= more[0],
        "last": lambda: n + 1 < counts[name],
        "ahead": lambda: n + more[0] < counts[name],
        "half": lambda: n < counts[name] // 2,
        "within": lambda: n < counts[more[0]],
    }[kind]()


def _unroll(steps, cursors, counts, rounds):
    for step in steps:
        kind = step[0]
        if kind in ("round", "later", "last", "ahead", "half", "within", "beyond"):
            if _condition(step, counts, rounds):
                yield from _unroll(step[-1], cursors, counts, rounds)
        elif kind == "start":
            cursors[f"counter {step[1]}"] = min(step[3], counts[step[2]])
        elif kind == "middle":
            cursors[f"counter {step[1]}"] = counts[step[2]] // 2
        elif kind == "below":
            if cursors[f"counter {step[1]}"] < counts[step[2]]:
                yield from _unroll(step[3], cursors, counts, rounds)
                cursors[f"counter {step[1]}"] += 1
        elif kind == "times":
            for _ in range(min(step[2], counts[step[1]])):
                yield from _unroll(step[3], cursors, counts, rounds)
        elif kind == "loop":
            for n in range(max(counts[step[1]], 1)):
                yield from _unroll(step[2], cursors, counts, {**rounds, step[1]: n})
        elif kind == "every":
            for n in range(step[3], max(counts[step[1]], step[3] + 1), step[2]):
                yield from _unroll(step[4], cursors, counts, {**rounds, step[1]: n})
        elif kind == "advance":
            at = step[2] - 1 if len(step) < 4 else step[3]
            cursor = cursors[step[1]]
            cursor[1] ^= cursor[0] == at
            cursor[0] = (cursor[0] + 1) % step[2]
        elif kind == "reset":
            cursors[step[1]][:] = 0, 0
        elif kind == "counted":
            cursors[step[1]][:] = 0, rounds[step[2]] & 1
        elif kind == "scaled":
            cursors[step[1]][0] = rounds[step[2]] * counts[step[2]] % step[3]
        else:
            yield _operation(step, *cursors[step[2]])


def _operation(step, stage, phase):
    kind, bank = step[:2]
    if kind == "wait":
        return ("wait", bank + stage, phase ^ step[3])
    if kind in ("store", "load"):
        return (kind, _moved(bank, stage))
    if kind == "copy":
        return ("copy", bank + stage, step[3], _moved(step[4], stage))
    return (kind, bank + stage, *step[3:])


def _moved(place, stage):
    return place + stage if isinstance(place, int) else chr(ord(place) + stage)


# As PTX.


class _Writer:
    def __init__(self, names):
        self.names, self.lines, self.labels, self.deep = names, [], 0, 0

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    def role(self, number, steps):
        self.base = 100 + 30 * number
        for cursor in range(_CURSORS):
            self.lines.append(f"mov.u32 {self.stage(cursor)}, 0; mov.u32 {self.phase(cursor)}, 0;")
        self.lines += [f"mov.u32 {self.counter(n)}, 0;" for n in range(_COUNTERS)]
        self.steps(steps)

    def counter(self, number):
        return f"%r{self.base + 20 + number}"

    def stage(self, cursor):
        return f"%r{self.base + 2 * cursor}"

    def phase(self, cursor):
        return f"%r{self.base + 2 * cursor + 1}"

    def round(self, name):
        return f"%r{self.base + 10 + self.names.index(name)}"

    def count(self, name):
        return f"%r{50 + self.names.index(name)}"

    def steps(self, steps):
        for step in steps:
            getattr(self, f"_{step[0]}", self.operation)(*step[1:] if hasattr(self, f"_{step[0]}") else [step])

    def _loop(self, name, steps):
        self._around(name, 1, 0, 1, steps)

    def _every(self, name, step, first, steps):
        """As the DSL steps by the grid: it keeps open whether that is negative."""
        grid, by, size, begin = (f"%r{self.base + n}" for n in (26, 27, 28, 29))
        self.lines.append(f"mov.u32 {grid}, %nctaid.x; mul.lo.s32 {by}, {grid}, {step}; abs.s32 {size}, {by};")
        is_down = f"%p{self.base // 30 + 7}"
        self.lines.append(f"setp.lt.s32 {is_down}, {by}, 0;")
        self.lines.append(f"selp.b32 {begin}, {self.count(name)}, {first}, {is_down};")
        self._around(name, step, begin, size, steps)

    def _around(self, name, step, first, size, steps):
        mine = f"LOOP_{name}_{step}_{self.label()}"
        self.lines += [f"mov.u32 {self.round(name)}, {first};", f"{mine}:"]
        self.steps(steps)
        self.lines += [
            f"add.u32 {self.round(name)}, {self.round(name)}, {size};",
            f"setp.lt.s32 %p4, {self.round(name)}, {self.count(name)};",
            f"@%p4 bra {mine};",
        ]

    def _advance(self, cursor, stages, at=None):
        stage, phase = self.stage(cursor), self.phase(cursor)
        self.lines += [
            f"setp.eq.u32 %p4, {stage}, {stages - 1 if at is None else at}; selp.u32 %r8, 1, 0, %p4;",
            f"xor.b32 {phase}, {phase}, %r8; add.u32 {stage}, {stage}, 1;",
            f"setp.eq.u32 %p4, {stage}, {stages}; selp.u32 {stage}, 0, {stage}, %p4;",
        ]

    def _reset(self, cursor):
        self.lines.append(f"mov.u32 {self.stage(cursor)}, 0; mov.u32 {self.phase(cursor)}, 0;")

    def _counted(self, cursor, name):
        self.lines.append(f"mov.u32 {self.stage(cursor)}, 0; and.b32 {self.phase(cursor)}, {self.round(name)}, 1;")

    def _scaled(self, cursor, name, stages):
        self.lines.append(f"mul.lo.u32 %r8, {self.round(name)}, {self.count(name)};")
        self.lines.append(f"rem.u32 {self.stage(cursor)}, %r8, {stages};")

    def _under(self, condition, steps):
        past = self.label()
        self.lines.append(f"{condition} @!%p4 bra {past};")
        self.steps(steps)
        self.lines.append(f"{past}:")

    def _round(self, name, number, steps):
        self._under(f"setp.eq.u32 %p4, {self.round(name)}, {number};", steps)

    def _later(self, name, number, steps):
        self._under(f"setp.ge.u32 %p4, {self.round(name)}, {number};", steps)

    def _last(self, name, steps):
        one = f"add.u32 %r8, {self.round(name)}, 1;"
        self._under(f"{one} setp.lt.u32 %p4, %r8, {self.count(name)};", steps)

    def _ahead(self, name, number, steps):
        one = f"add.u32 %r8, {self.round(name)}, {number};"
        self._under(f"{one} setp.lt.u32 %p4, %r8, {self.count(name)};", steps)

    def _half(self, name, steps):
        one = f"shr.u32 %r8, {self.count(name)}, 1;"
        self._under(f"{one} setp.lt.u32 %p4, {self.round(name)}, %r8;", steps)

    def _within(self, name, other, steps):
        self._under(f"setp.lt.u32 %p4, {self.round(name)}, {self.count(other)};", steps)

    def _beyond(self, name, number, steps):
        self._under(f"setp.ge.u32 %p4, {self.count(name)}, {number};", steps)

    def _start(self, counter, name, number):
        self.lines.append(f"min.u32 {self.counter(counter)}, {self.count(name)}, {number};")

    def _middle(self, counter, name):
        self.lines.append(f"shr.u32 {self.counter(counter)}, {self.count(name)}, 1;")

    def _below(self, counter, name, steps):
        mine, past = self.counter(counter), self.label()
        self.lines.append(f"setp.le.s32 %p4, {self.count(name)}, {mine}; @%p4 bra {past};")
        self.steps(steps)
        self.lines.append(f"add.u32 {mine}, {mine}, 1; {past}:")

    def _times(self, name, number, steps):
        mine, left = f"TIMES_{self.label()}", f"%r{self.base + 22 + self.deep}"
        self.deep += 1
        self.lines += [f"min.u32 {left}, {self.count(name)}, {number}; neg.s32 {left}, {left};", f"{mine}:"]
        self.steps(steps)
        self.lines.append(f"add.s32 {left}, {left}, 1; setp.ne.u32 %p4, {left}, 0; @%p4 bra {mine};")
        self.deep -= 1

    def operation(self, step):
        kind, bank, cursor, *more = step
        stage = self.stage(cursor)
        if kind in ("store", "load"):
            size, at = (16, WORDS + 16 * bank) if isinstance(bank, int) else (PLACE, _place(bank))
            self.lines.append(f"mul.lo.u32 %r9, {stage}, {size}; add.u32 %r9, %r9, %r1;")
            self.lines.append(
                f"st.shared.u32 [%r9+{at}], %r2;" if kind == "store" else f"ld.shared.u32 %r7, [%r9+{at}]; {FENCE}"
            )
            return
        self.lines.append(f"shl.b32 %r9, {stage}, 3; add.u32 %r9, %r9, %r1;")
        at = f"[%r9+{8 * bank}]"
        if kind == "wait":
            label = self.label()
            self.lines.append(f"xor.b32 %r8, {self.phase(cursor)}, {more[0]};")
            self.lines.append(f"{label}: mbarrier.try_wait.parity.shared.b64 %p5, {at}, %r8; @!%p5 bra {label};")
        elif kind == "arrive":
            self.lines.append(f"mbarrier.arrive.shared.b64 _, {at};")
        elif kind == "arrive_expect":
            self.lines.append(f"mbarrier.arrive.expect_tx.shared.b64 _, {at}, {more[0]};")
        elif kind == "copy":
            name = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
            self.lines.append(f"mul.lo.u32 %r10, {stage}, {PLACE}; add.u32 %r10, %r10, %r1;")
            self.lines.append(f"{name} [%r10+{_place(more[1])}], [%rd1], {more[0]}, {at};")


def _place(letter):
    return PLACES + PLACE * (ord(letter) - ord("a"))


def ptx(roles, arrivals):
    """Write a program; the counts of its loops are parameters, in the order of their names."""
    names = names_of(roles)
    writer = _Writer(names)
    writer.lines += [
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0];",
        *(f"ld.param.u32 {writer.count(name)}, [p{n + 1}];" for n, name in enumerate(names)),
        "and.b32 %r3, %r2, 31; setp.eq.u32 %p1, %r3, 0; shr.u32 %r4, %r2, 5; setp.eq.u32 %p2, %r2, 0;",
        "@!%p2 bra READY;",
        *(f"mbarrier.init.shared.b64 [%r1+{8 * b}], {count};" for b, count in enumerate(arrivals)),
        *(f"st.shared.u32 [%r1+{WORDS + 16 * n}], %r2;" for n in range(8)),
        *(f"st.shared.u32 [%r1+{_place(letter)}], %r2;" for letter in "abcdefgh"),
        "fence.mbarrier_init.release.cluster; fence.proxy.async;",
        "READY: bar.sync 0;",
        "@!%p1 bra END;",
        *(f"setp.eq.u32 %p3, %r4, {n}; @%p3 bra ROLE{n};" for n in range(len(roles))),
    ]
    for n, steps in enumerate(roles):
        writer.lines.append(f"ROLE{n}:")
        writer.role(n, steps)
        writer.lines.append("bra END;")
    return "\n".join([*writer.lines, "END:"])


def run(roles, arrivals, counts):
    """Run a program; returns its certificate (None if it did not end), the hazards, the error, and the PTX."""
    text = ptx(roles, arrivals)
    return *examined(text, *(counts[name] for name in names_of(roles)), block=32 * len(roles)), text


def further(extension, text, counts, times):
    """Return counts of loops after some more rounds of an extension, which names lines of the PTX in them.

    None if no count says how often one of them goes around.
    """
    lines, more = text.split("\n"), dict(counts)
    for where, count in extension.loops:
        before = lines[: int(where.rpartition(":")[2])]
        label = next(one for one in reversed(before) if one.startswith(("LOOP_", "TIMES_")))
        if label.startswith("TIMES_"):
            return None
        name, step = label.split("_")[1:3]
        more[name] = counts[name] + times * count * int(step)
    return more
