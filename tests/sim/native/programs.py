"""Programs that are run as machine code and by numpy, and what they are made of."""

import numpy as np

import cutepy.frontends  # noqa: F401  brings the compiler
from cutepy.sim import translate
from cutepy.sim.errors import SimulationError
from cutepy.sim.native import compiler, ledger, machine_code
from tests.sim.kernels.launching import launch


def _run(patch, is_native, body, arrays, **shape):
    """Launch with all that can be machine code, or nothing; returns what is left, counts and runs."""
    runs = {True: 0, False: 0}
    run = machine_code._Compiled.run

    def counted(self, *arguments):
        done = run(self, *arguments)
        runs[done] += 1
        return done

    with patch.context() as inner:
        inner.setattr(ledger, "WORTH", 0)
        if not is_native:
            inner.setattr(compiler, "_provided", [])
        inner.setattr(machine_code._Compiled, "run", counted)
        translate._program.cache_clear()
        before = [a.copy() for a in arrays]
        try:
            found = launch(body, arrays, **shape).launches[0].stats
        except SimulationError as error:
            found = str(error)
        after = [a.tobytes() for a in arrays]
        for array, old in zip(arrays, before, strict=True):
            array[...] = old
        return after, found, runs


def same(patch, body, arrays, runs=True, gives_up=False, **shape):
    expected = _run(patch, False, body, arrays, processes=1, **shape)
    found = _run(patch, True, body, arrays, processes=1, **shape)
    assert found[:2] == expected[:2]
    assert not expected[2][True]
    if runs:
        assert found[2][True]
    if not isinstance(found[1], str) and not gives_up:
        assert not found[2][False]
    return found


def _templates():
    """Instructions by what they take: r, d (64 bits), f, h (16 bits), p, i (a number), s (a small one)."""
    for t in ("u32", "s32"):
        for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            yield f"{op}.{t} {{r}}, {{r}}, {{r}};"
        yield f"mad.lo.{t} {{r}}, {{r}}, {{i}}, {{r}};"
        yield f"mul.wide.{t} {{d}}, {{r}}, {{r}};"
        yield f"mad.wide.{t} {{d}}, {{r}}, {{i}}, {{d}};"
        yield f"shr.{t} {{r}}, {{r}}, {{s}};"
        yield f"shr.{t} {{r}}, {{r}}, {{r}};"
        for compare in ("eq", "ne", "lt", "le", "gt", "ge"):
            yield f"setp.{compare}.{t} {{p}}, {{r}}, {{r}};"
        yield f"setp.lt.and.{t} {{p}}, {{r}}, {{r}}, {{p}};"
        yield f"cvt.rn.f32.{t} {{f}}, {{r}};"
        yield f"cvt.u64.{t} {{d}}, {{r}};"
        yield f"cvt.s64.{t} {{d}}, {{r}};"
    for t in ("u64", "s64"):
        for op in ("add", "sub", "mul.lo", "min", "max"):
            yield f"{op}.{t} {{d}}, {{d}}, {{d}};"
        yield f"shr.{t} {{d}}, {{d}}, {{r}};"
        yield f"setp.lt.{t} {{p}}, {{d}}, {{d}};"
        yield f"cvt.rn.f32.{t} {{f}}, {{d}};"
        yield f"cvt.u32.{t} {{r}}, {{d}};"
    for t in ("b32", "b64"):
        k = "{r}" if t == "b32" else "{d}"
        for op in ("and", "or", "xor"):
            yield f"{op}.{t} {k}, {k}, {k};"
        yield f"not.{t} {k}, {k};"
        yield f"shl.{t} {k}, {k}, {{r}};"
        yield f"selp.{t} {k}, {k}, {k}, {{p}};"
        yield f"popc.{t} {{r}}, {k};"
        yield f"clz.{t} {{r}}, {k};"
        yield f"brev.{t} {k}, {k};"
        yield f"bfe.u{t[1:]} {k}, {k}, {{r}}, {{r}};"
        yield f"bfe.s{t[1:]} {k}, {k}, {{s}}, {{s}};"
        yield f"bfi.{t} {k}, {k}, {k}, {{s}}, {{s}};"
        yield f"cnot.{t} {k}, {k};"
        yield f"bfind.u{t[1:]} {{r}}, {k};"
        yield f"bfind.shiftamt.s{t[1:]} {{r}}, {k};"
        for sign in "us":
            for op in ("div", "rem", "sad") if t == "b32" else ("div", "rem", "mul.hi"):
                last = f", {k}" if op == "sad" else ""
                yield f"{op}.{sign}{t[1:]} {k}, {k}, {k}{last};"
            yield f"add.cc.{sign}{t[1:]} {k}, {k}, {k}; addc.{sign}{t[1:]} {k}, {k}, {k};"
            yield f"sub.cc.{sign}{t[1:]} {k}, {k}, {k}; subc.cc.{sign}{t[1:]} {k}, {k}, {k};"
            yield f"mad.lo.cc.{sign}{t[1:]} {k}, {k}, {k}, {k}; madc.hi.{sign}{t[1:]} {k}, {k}, {k}, {k};"
    for sign in "us":
        yield f"mul24.hi.{sign}32 {{r}}, {{r}}, {{r}};"
        yield f"mad24.lo.{sign}32 {{r}}, {{r}}, {{r}}, {{r}};"
        yield f"szext.wrap.{sign}32 {{r}}, {{r}}, {{r}};"
        yield f"szext.clamp.{sign}32 {{r}}, {{r}}, {{s}};"
        yield f"dp4a.{sign}32.s32 {{r}}, {{r}}, {{r}}, {{r}};"
        yield f"dp2a.hi.{sign}32.u32 {{r}}, {{r}}, {{r}}, {{r}};"
        for op in ("add", "min", "max"):
            yield f"{op}.{sign}16x2 {{r}}, {{r}}, {{r}};"
        yield f"set.lt.u32.{sign}32 {{r}}, {{r}}, {{r}};"
    yield "add.sat.s32 {r}, {r}, {r};"
    yield "sub.sat.s32 {r}, {r}, {r};"
    yield "mad.hi.sat.s32 {r}, {r}, {r}, {r};"
    yield "min.relu.s32 {r}, {r}, {r};"
    yield "bmsk.clamp.b32 {r}, {s}, {s};"
    yield "bmsk.wrap.b32 {r}, {r}, {r};"
    yield "prmt.b32 {r}, {r}, {r}, {r};"
    yield "lop3.or.b32 {r}|{p}, {r}, {r}, {r}, 0x1B, {p};"
    yield "slct.u32.s32 {r}, {r}, {r}, {r};"
    yield "slct.ftz.u32.f32 {r}, {r}, {r}, {f};"
    yield "setp.le.xor.u64 {p}, {d}, {d}, {p};"
    yield "mov.b64 %fd0, {d}; mov.b64 %fd1, {d}; cvt.f64.f32 %fd2, {f};"
    for op in ("add", "sub", "mul", "div.rn", "min", "max"):
        yield f"{op}.f64 %fd0, %fd1, %fd2; mov.b64 {{d}}, %fd0;"
    yield "fma.rn.f64 %fd1, %fd2, %fd0, %fd1; mov.b64 {d}, %fd1;"
    yield "sqrt.rn.f64 %fd1, %fd2; neg.f64 %fd2, %fd1; mov.b64 {d}, %fd2;"
    yield "setp.lt.f64 {p}, %fd1, %fd2; cvt.rn.f32.f64 {f}, %fd0;"
    for half in ("f16", "bf16"):
        for op in ("add", "sub", "mul", "min", "max"):
            yield f"{op}.{half} {{h}}, {{h}}, {{h}};"
            yield f"{op}.{half}x2 {{r}}, {{r}}, {{r}};"
        yield f"fma.rn.{half} {{h}}, {{h}}, {{h}}, {{h}};"
        yield f"fma.rn.{half}x2 {{r}}, {{r}}, {{r}}, {{r}};"
        yield "fma.rn.sat.f16x2 {r}, {r}, {r}, {r};"
        yield f"neg.{half}x2 {{r}}, {{r}};"
        yield f"setp.gt.{half} {{p}}, {{h}}, {{h}};"
        yield f"setp.gt.{half}x2 {{p}}|{{p}}, {{r}}, {{r}};"
    for integral in ("rni", "rzi", "rmi", "rpi"):
        for t in ("u32", "s32", "u64", "s64", "u16"):
            k = {"32": "{r}", "64": "{d}", "16": "{h}"}[t[1:]]
            yield f"cvt.{integral}.{t}.f32 {k}, {{f}};"
            yield f"cvt.{integral}.{t}.f64 {k}, %fd0;"
        yield f"cvt.{integral}.f32.f32 {{f}}, {{f}};"
    yield "cvt.rzi.s32.f16 {r}, {h};"
    yield "cvt.sat.f32.f32 {f}, {f};"
    yield "cvt.ftz.f32.f32 {f}, {f};"
    yield "mul.ftz.f32 {f}, {f}, {f};"
    yield "fma.rn.ftz.f32 {f}, {f}, {f}, {f};"
    yield "div.approx.f32 {f}, {f}, {f};"
    yield "div.approx.ftz.f32 {f}, {f}, {f};"
    yield "div.full.f32 {f}, {f}, {f};"
    yield "copysign.f32 {f}, {f}, {f};"
    for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        yield f"testp.{test}.f32 {{p}}, {{f}};"
    yield "neg.s32 {r}, {r};"
    yield "abs.s32 {r}, {r};"
    yield "lop3.b32 {r}, {r}, {r}, {r}, 0xE8;"
    yield "lop3.b32 {r}, {r}, {r}, {r}, 0x96;"
    yield "prmt.b32 {r}, {r}, {r}, 0x3761;"
    yield "prmt.b32 {r}, {r}, {r}, 0xF80A;"
    for mode in ("l.wrap", "l.clamp", "r.wrap", "r.clamp"):
        yield f"shf.{mode}.b32 {{r}}, {{r}}, {{r}}, {{r}};"
    yield "mov.b64 {d}, <{r}, {r}>;"
    yield "mov.b64 <{r}, {r}>, {d};"
    yield "mov.b32 {r}, {f};"
    yield "mov.b32 {f}, {r};"
    yield "mov.u32 {r}, %tid.x;"
    yield "mov.u32 {r}, %ctaid.x;"
    yield "mov.u32 {r}, %laneid;"
    yield "mov.u32 {r}, {i};"
    yield "and.pred {p}, {p}, {p};"
    yield "not.pred {p}, {p};"
    yield "@{p} add.u32 {r}, {r}, {r};"
    yield "@!{p} mov.b32 {f}, {f};"
    for ftz in ("", ".ftz"):
        for op in ("add", "sub", "min", "max"):
            yield f"{op}{ftz}.f32 {{f}}, {{f}}, {{f}};"
        yield f"sqrt.rn{ftz}.f32 {{f}}, {{f}};"
        yield f"rsqrt.approx{ftz}.f32 {{f}}, {{f}};"
        yield f"rcp.rn{ftz}.f32 {{f}}, {{f}};"
        yield f"neg{ftz}.f32 {{f}}, {{f}};"
        yield f"abs{ftz}.f32 {{f}}, {{f}};"
        for compare in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            yield f"setp.{compare}{ftz}.f32 {{p}}, {{f}}, {{f}};"
    for space in ("global", "shared", "local"):
        yield f"cvta.{space}.u64 {{d}}, {{d}};"
        yield f"cvta.to.{space}.u64 {{d}}, {{d}};"
    yield "cvt.u16.u32 {h}, 70000;"
    yield "mov.u32 {r}, smem+16;"
    yield "mul.rn.f32 {f}, {f}, {f};"
    yield "div.rn.f32 {f}, {f}, {f};"
    yield "fma.rn.f32 {f}, {f}, {f}, {f};"
    yield "fma.rn.sat.f32 {f}, {f}, {f}, {f};"
    yield "add.sat.f32 {f}, {f}, {f};"
    yield "mul.ftz.f32 {f}, {f}, {f};"
    yield "ex2.approx.f32 {f}, {f};"
    for half in ("f16", "bf16"):
        yield f"cvt.rn.{half}.f32 {{h}}, {{f}};"
        yield f"cvt.f32.{half} {{f}}, {{h}};"
        yield f"cvt.rn.{half}x2.f32 {{r}}, {{f}}, {{f}};"


def _templates_of_sm100():
    for op in ("add", "sub", "mul"):
        yield f"{op}.f32x2 {{d}}, {{d}}, {{d}};"
        yield f"{op}.rn.ftz.f32x2 {{d}}, {{d}}, {{d}};"
    for ftz in ("", ".ftz"):
        yield f"fma.rn{ftz}.f32x2 {{d}}, {{d}}, {{d}}, {{d}};"
    for half in ("f16", "bf16"):
        yield f"add.f32.{half} {{f}}, {{h}}, {{f}};"
        yield f"sub.rn.sat.f32.{half} {{f}}, {{h}}, {{f}};"
        yield f"fma.rn.f32.{half} {{f}}, {{h}}, {{h}}, {{f}};"
    for op in ("min", "max"):
        for modifiers in ("", ".ftz", ".NaN", ".abs", ".ftz.NaN.abs"):
            yield f"{op}{modifiers}.f32 {{f}}, {{f}}, {{f}}, {{f}};"
            yield f"{op}{modifiers.replace('.abs', '')}.f32 {{f}}, {{f}}, {{f}};"
        for modifiers in ("", ".NaN", ".abs", ".abs.NaN"):
            yield f"redux.sync.{op}{modifiers}.f32 {{f}}, {{f}}, -1;"
    for mode in ("rz", "rp", "rz.satfinite", "rp.satfinite"):
        yield f"cvt.{mode}.ue8m0x2.f32 {{h}}, {{f}}, {{f}};"
        yield f"cvt.{mode}.ue8m0x2.bf16x2 {{h}}, {{r}};"
    yield "cvt.rn.bf16x2.ue8m0x2 {r}, {h};"
    for narrow in ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2"):
        yield f"cvt.rn.satfinite.{narrow}.f32 {{h}}, {{f}}, {{f}};"
        yield f"cvt.rn.satfinite.relu.{narrow}.f32 {{h}}, {{f}}, {{f}};"
        yield f"cvt.rn.f16x2.{narrow} {{r}}, {{h}};"
        yield f"cvt.rn.relu.f16x2.{narrow} {{r}}, {{h}};"
    yield "< .reg .b8 %e0; .reg .b8 %e1; mov.b16 <%e0, %e1>, {h}; cvt.rn.f16x2.e2m1x2 {r}, %e0; >"
    yield "< .reg .b8 %e0; cvt.rn.satfinite.e2m1x2.f32 %e0, {f}, {f}; mov.b16 {h}, <%e0, %e0>; >"


TEMPLATES = list(_templates())
TEMPLATES_OF_SM100 = list(_templates_of_sm100())
_COUNTS = {"r": 8, "d": 4, "f": 8, "h": 4, "p": 4}
_NAMES = {"r": "%r", "d": "%rd2", "f": "%f", "h": "%h", "p": "%p"}


def filled(template, rng):
    """Draw a register or a number for each field of a template."""
    parts, rest = [], template
    while "{" in rest:
        before, _, rest = rest.partition("{")
        field, _, rest = rest.partition("}")
        if field == "i":
            text = str(int(rng.integers(0, 1 << 16)))
        elif field == "s":
            text = str(int(rng.integers(0, 40)))
        else:
            text = f"{_NAMES[field]}{rng.integers(_COUNTS[field])}"
        parts += [before, text]
    return ("".join(parts) + rest).replace("<", "{").replace(">", "}")


FLOATS = [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0xBF800000, 0x3F800001, 0x40490FDB]
FLOATS += [0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x34000000, 0x4B800000, 0x33800000]

LOAD = """
mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ntid.x; mov.u32 %r22, %tid.x;
.reg .f64 %fd<3>; mad.lo.u32 %r23, %r20, %r21, %r22;
mul.wide.u32 %rd5, %r23, 4; add.u64 %rd6, %rd0, %rd5; mov.u32 %r24, %nctaid.x; mul.lo.u32 %r25, %r24, %r21;
mul.wide.u32 %rd7, %r25, 4;
"""


def inputs(rng, lanes):
    values = rng.integers(0, 1 << 32, lanes + 64, dtype=np.uint64).astype(np.uint32)
    special = rng.random(values.shape) < 0.5
    return np.where(special, rng.choice(np.array(FLOATS, np.uint32), values.shape), values)
