"""Small programs on shared words, all of whose interleavings are tried; it shares no code with the simulator.

A program is a list of threads, a thread a list of operations, of which each but the first notes what it found:

    ("store", x, value)    ("load", x)    ("add", x)    ("exch", x, value)    ("cas", x, expected, value)
    ("await", x)           until the word is not 0

What is left is the words and the notes of each thread.
"""

WORDS = 3
MOST_NOTES = 6


def results(threads):
    """Return all that interleavings leave, and "hang" if one does."""
    start = ((0,) * WORDS, (0,) * len(threads), ((),) * len(threads))
    seen, stack, found = {start}, [start], set()
    while stack:
        words, at, notes = stack.pop()
        ways = [step for t in range(len(threads)) if (step := _step(threads[t], t, words, at, notes)) is not None]
        if not ways:
            done = all(n == len(ops) for n, ops in zip(at, threads, strict=True))
            found.add((words, notes) if done else "hang")
        for way in ways:
            if way not in seen:
                seen.add(way)
                stack.append(way)
    return found


def _step(ops, t, words, at, notes):
    if at[t] == len(ops):
        return None
    kind, x, *values = ops[at[t]]
    old = new = words[x]
    if kind == "await" and old == 0:
        return None
    if kind in ("store", "exch"):
        new = values[0]
    elif kind == "add":
        new = old + 1
    elif kind == "cas" and old == values[0]:
        new = values[1]
    note = notes[t] if kind == "store" else (*notes[t], old)
    return (
        (*words[:x], new, *words[x + 1 :]),
        (*at[:t], at[t] + 1, *at[t + 1 :]),
        (*notes[:t], note, *notes[t + 1 :]),
    )


def draw(rng, most_threads=3, most_ops=3):
    """Draw a program."""
    kinds = ["store", "store", "load", "load", "add", "exch", "cas", "await"]
    threads = []
    for _ in range(rng.randint(2, most_threads)):
        ops = []
        for _ in range(rng.randint(1, most_ops)):
            kind, x = rng.choice(kinds), rng.randrange(WORDS)
            values = {"store": 1, "exch": 1, "cas": 2}.get(kind, 0)
            ops.append((kind, x, *(rng.randint(0, 2) for _ in range(values))))
        threads.append(ops)
    return threads


_PTX = {
    "store": "mov.u32 %r9, {a}; st.relaxed.gpu.global.u32 [%rd0+{at}], %r9;",
    "load": "ld.relaxed.gpu.global.u32 {note}, [%rd0+{at}];",
    "add": "atom.relaxed.gpu.global.add.u32 {note}, [%rd0+{at}], 1;",
    "exch": "atom.relaxed.gpu.global.exch.b32 {note}, [%rd0+{at}], {a};",
    "cas": "atom.relaxed.gpu.global.cas.b32 {note}, [%rd0+{at}], {a}, {b};",
    "await": "{name}: ld.relaxed.gpu.global.u32 {note}, [%rd0+{at}]; setp.eq.u32 %p2, {note}, 0; @%p2 bra {name};",
}


def ptx(threads):
    """Write a program whose threads are one lane of a warp each; notes go behind the words."""
    lines = ["setp.ne.u32 %p0, %r2, 0; @%p0 bra END;"]
    lines += [f"setp.eq.u32 %p1, %r1, {t}; @%p1 bra THREAD{t};" for t in range(len(threads))]
    for t, ops in enumerate(threads):
        lines.append(f"THREAD{t}:")
        noted = 0
        for n, (kind, x, *values) in enumerate(ops):
            a, b = (*values, 0, 0)[:2]
            note, name = f"%r{20 + noted}", f"L{t}_{n}"
            lines.append(_PTX[kind].format(at=4 * x, a=a, b=b, note=note, name=name))
            noted += kind != "store"
        first = 4 * (WORDS + MOST_NOTES * t)
        lines += [f"st.global.u32 [%rd0+{first + 4 * n}], %r{20 + n};" for n in range(noted)]
        lines.append("bra END;")
    return "\n".join([*lines, "END:"])


def read(memory, threads):
    """Return what a run left, as `results` does."""
    counts = [sum(op[0] != "store" for op in ops) for ops in threads]
    firsts = [WORDS + MOST_NOTES * t for t in range(len(threads))]
    notes = tuple(tuple(memory[at : at + n]) for at, n in zip(firsts, counts, strict=True))
    return tuple(memory[:WORDS]), notes
