"""The modifiers that each instruction takes, in the syntax of the ISA: what else an opcode has is refused.

An opcode that is spelled as here is one of PTX's, whether it is simulated or not. `spelling.usual` brings modifiers
into the order of this table.

References
----------
PTX ISA, "Instruction Set": the syntax lines of each instruction, for sm_90a; what ptxas 13.0 takes of them.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from cutepy.sim.ptx.tokens import PtxSyntaxError

_EXTENTS = range(8, 257, 8)
"""Of wgmma along N."""
_EXTENTS_OF_INTEGERS = (8, 16, 24, *range(32, 257, 16))
_NAMED = {
    "ROUND": "rn/rz/rm/rp",
    "INTEGRAL": "rni/rzi/rmi/rpi",
    "INT": "u16/u32/u64/s16/s32/s64",
    "INTEGER": "u8/s8/INT",
    "WIDE": "u32/s32/u64/s64",
    "WORD": "u32/s32",
    "BYTE": "u8/s8",
    "NIBBLE": "u4/s4",
    "BITS": "b16/b32/b64",
    "HALF": "f16/f16x2",
    "BRAIN": "bf16/bf16x2",
    "FLOAT8": "e4m3/e5m2",
    "FLOAT8X2": "e4m3x2/e5m2x2",
    "SCALAR": "BITS/INT/f32/f64",
    "MEMORY": "b8/INTEGER/BITS/f32/f64",
    "ORDERED": "eq/ne/lt/le/gt/ge",
    "UNSIGNED": "lo/ls/hi/hs",
    "UNORDERED": "equ/neu/ltu/leu/gtu/geu/num/nan",
    "BOOL": "and/or/xor",
    "REDUCTION": "add/min/max/inc/dec/BOOL",
    "SCOPE": "cta/cluster/gpu/sys",
    "SHARED": "shared/shared::cta",
    "SPACE": "global/SHARED/shared::cluster",
    "PARAM": "param/param::entry/param::func",
    "LOADED_SPACE": "SPACE/const/local/PARAM",
    "MATRIX_SPACE": "global/SHARED",
    "EVICT_L1": "L1::evict_normal/L1::evict_unchanged/L1::evict_first/L1::evict_last/L1::no_allocate",
    "EVICT_L2": "L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged",
    "HINT": "L2::cache_hint",
    "PREFETCH": "L2::64B/L2::128B/L2::256B",
    "VECTOR": "v2/v4",
    "ATOM": "relaxed/acquire/release/acq_rel? SCOPE? SPACE?",
    "ATOM_GLOBAL": "relaxed/acquire/release/acq_rel? SCOPE? global?",
    "RED": "relaxed/release? SCOPE? SPACE?",
    "RED_GLOBAL": "relaxed/release? SCOPE? global?",
    "ARRIVED": "release.cta/release.cluster/relaxed.cta/relaxed.cluster",
    "WAITED": "acquire.cta/acquire.cluster/relaxed.cta/relaxed.cluster",
    "DIMENSIONS": "1d/2d/3d/4d/5d",
    "COMPLETE": "mbarrier::complete_tx::bytes",
    "MULTICAST": "multicast::cluster",
    "LAYOUT": "row/col",
    "CUBES": "m16n16k16/m8n32k16/m32n8k16",
    **{f"M64K{k}": "/".join(f"m64n{n}k{k}" for n in _EXTENTS) for k in (8, 16, 32, 64)},
    **{f"M64INTK{k}": "/".join(f"m64n{n}k{k}" for n in _EXTENTS_OF_INTEGERS) for k in (32, 64, 256)},
}
"""Words that stand for a choice of others, or for modifiers in a row."""

_BLACKWELL = "{opcode} is for sm_100 and later, and Hopper's assembler refuses it; compile for sm_90a"
_UNSYNCHRONISED = "{opcode} without .sync is for GPUs before sm_70; use {first}.sync with a mask of lanes"
_OF_OTHER_GPUS = [
    (r"(shfl|vote)\.(?!sync)", _UNSYNCHRONISED),
    (r"match\.(?:any|all)\.(?!sync)", _UNSYNCHRONISED),
    (r"tcgen05|clusterlaunchcontrol|st\.bulk|ldmatrix\..*(m16n16|m8n16)|stmatrix\..*m16n8|(add|sub|mul|fma)\..*f32x2",
     _BLACKWELL),
    (r"(st|red)\.async\..*\bglobal\b|redux\.sync\..*f32|cvt\.rs\b|cvt\..*(e2m1|e2m3|e3m2|ue8m0)", _BLACKWELL),
    (r".*(cp_mask|scale_vec|block_scale|tile::(gather4|scatter4)|im2col::w|cta_group)", _BLACKWELL),
    (r"(ld|st)\..*\bv8\b", _BLACKWELL),
    (r"(ld|st)\..*\bv4\.[busf]64\b", _BLACKWELL),
]  # fmt: skip
"""Patterns of opcodes of other GPUs, and why they are refused."""

_TABLE = """
abs neg: s16/s32/s64 | ftz? f32/f16/f16x2 | f64 | BRAIN
add: u16/u32/u64/s16/s64 | sat? s32 | cc WIDE | ROUND? ftz? sat? f32 | ROUND? f64 | rn? ftz? sat? HALF | rn? BRAIN |
    u16x2/s16x2
sub: u16/u32/u64/s16/s64 | sat? s32 | cc WIDE | ROUND? ftz? sat? f32 | ROUND? f64 | rn? ftz? sat? HALF | rn? BRAIN
addc subc: u16/s16 | cc? WIDE
mul: hi/lo INT | wide u16/u32/s16/s32 | ROUND? ftz? sat? f32 | ROUND? f64 | rn? ftz? sat? HALF | rn? BRAIN
mad: hi/lo INT | wide u16/u32/s16/s32 | hi sat s32 | hi/lo cc WIDE | ROUND ftz? sat? f32 | ROUND f64
madc: hi/lo u16/s16 | hi/lo cc? WIDE
mul24: hi/lo WORD
mad24: hi/lo WORD | hi sat s32
sad rem: INT
div: INT | approx/full/ROUND ftz? f32 | ROUND f64
min max: u16/u32/u64/s16/s64/u16x2 | relu? s32/s16x2 | ftz? NaN? xorsign.abs? f32 | f64 |
    ftz? NaN? xorsign.abs? HALF | NaN? xorsign.abs? BRAIN
dp4a: WORD WORD
dp2a: hi/lo WORD WORD
popc clz brev bfi: b32/b64
bfind: shiftamt? WIDE
fns activemask: b32
bfe: WIDE
szext: wrap/clamp WORD
bmsk: wrap/clamp b32
testp: finite/infinite/number/notanumber/normal/subnormal f32/f64
copysign: f32/f64
fma: ROUND ftz? sat? f32 | ROUND f64 | rn ftz? sat/relu? HALF | rn sat? oob HALF | rn oob relu HALF |
    ROUND oob? relu? BRAIN
rcp: approx/ROUND ftz? f32 | ROUND ftz? f64 | approx ftz f64
sqrt: approx/ROUND ftz? f32 | ROUND f64
rsqrt: approx ftz? f32/f64
sin cos lg2: approx ftz? f32
ex2: approx ftz? f32 | approx HALF | approx ftz BRAIN
tanh: approx f32/HALF/BRAIN
set: ORDERED BOOL? WORD/f32/f16/bf16 INT | eq/ne BOOL? WORD/f32/f16/bf16 BITS |
    UNSIGNED BOOL? WORD/f32/f16/bf16 u16/u32/u64 | ORDERED/UNORDERED BOOL? ftz? WORD/f32/f16 f32 |
    ORDERED/UNORDERED BOOL? bf16 f32 | ORDERED/UNORDERED BOOL? WORD/f32/f16/bf16 f64 |
    ORDERED/UNORDERED BOOL? ftz? f16/u16/s16/u32/s32 f16 | ORDERED/UNORDERED BOOL? bf16 f16 |
    ORDERED/UNORDERED BOOL? bf16/u16/s16/u32/s32 bf16 |
    ORDERED/UNORDERED BOOL? ftz? f16x2/u32/s32 f16x2 | ORDERED/UNORDERED BOOL? bf16x2/u32/s32 bf16x2
setp: ORDERED BOOL? INT | eq/ne BOOL? BITS | UNSIGNED BOOL? u16/u32/u64 | ORDERED/UNORDERED BOOL? ftz? f32/HALF |
    ORDERED/UNORDERED BOOL? f64/BRAIN
selp: SCALAR
slct: SCALAR s32 | ftz? SCALAR f32
and or xor not: pred/BITS
cnot shl: BITS
lop3: and/or? b32
shr: BITS/INT
shf: l/r wrap/clamp b32
prmt: b32 f4e/b4e/rc8/ecl/ecr/rc16?
mov: pred/b128/SCALAR | v2 SCALAR | v4 b16/b32/u16/u32/s16/s32/f32
shfl: sync up/down/bfly/idx b32
vote: sync all/any/uni pred | sync ballot b32
match: any/all sync b32/b64
redux: sync add/min/max WORD | sync BOOL b32
elect bar.warp: sync
cvta: to? const/global/local/param/param::entry/SHARED/shared::cluster u64
isspacep: const/global/local/param/param::entry/SHARED/shared::cluster
mapa getctarank: shared::cluster? u32/u64
ld: weak? LOADED_SPACE? ca/cg/cs/lu/cv? VECTOR? MEMORY |
    weak? global? ca/cg/cs/lu/cv? HINT? PREFETCH? VECTOR? MEMORY |
    weak? global? EVICT_L1? HINT? PREFETCH? VECTOR? MEMORY | volatile SPACE? VECTOR? MEMORY |
    volatile global? PREFETCH? VECTOR? MEMORY | relaxed/acquire SCOPE SPACE? VECTOR? MEMORY |
    relaxed/acquire SCOPE global? EVICT_L1? HINT? PREFETCH? VECTOR? MEMORY | mmio relaxed sys global? MEMORY |
    global ca/cg/cs? nc HINT? PREFETCH? VECTOR? MEMORY |
    global nc EVICT_L1? HINT? PREFETCH? VECTOR? MEMORY
ldu: global? v2? MEMORY | global? v4 b8/b16/b32/u8/u16/u32/s8/s16/s32/f32
st: weak? SPACE/local/param/param::func? wb/cg/cs/wt? VECTOR? MEMORY |
    weak? global? wb/cg/cs/wt? HINT? VECTOR? MEMORY | weak? global? EVICT_L1? HINT? VECTOR? MEMORY |
    volatile SPACE? VECTOR? MEMORY | relaxed/release SCOPE SPACE? VECTOR? MEMORY |
    relaxed/release SCOPE global? EVICT_L1? HINT? VECTOR? MEMORY | mmio relaxed sys global? MEMORY
atom: ATOM BOOL/exch HINT? b32/b64 | ATOM cas HINT? b16/b32/b64 | ATOM exch/cas HINT? b128 |
    ATOM add HINT? u32/s32/u64/f32/f64 | ATOM inc/dec HINT? u32 | ATOM min/max HINT? WIDE |
    ATOM add noftz HINT? HALF/BRAIN | ATOM_GLOBAL add HINT? VECTOR f32 |
    ATOM_GLOBAL add/min/max noftz HINT? v2/v4/v8 f16/bf16 | ATOM_GLOBAL add/min/max noftz HINT? VECTOR f16x2/bf16x2
red: RED BOOL HINT? b32/b64 | RED add HINT? u32/s32/u64/f32/f64 | RED inc/dec HINT? u32 | RED min/max HINT? WIDE |
    RED add noftz HINT? HALF/BRAIN | RED_GLOBAL add HINT? VECTOR f32 |
    RED_GLOBAL add/min/max noftz HINT? v2/v4/v8 f16/bf16 | RED_GLOBAL add/min/max noftz HINT? VECTOR f16x2/bf16x2
prefetch: global/local? L1/L2 | global? L2::evict_last/L2::evict_normal | const/param? tensormap |
    tensormap const/param
prefetchu: L1
applypriority: global? L2::evict_normal
discard: global? L2
createpolicy: fractional EVICT_L2 L2::evict_unchanged/L2::evict_first? b64
createpolicy.range: global? EVICT_L2 L2::evict_unchanged/L2::evict_first? b64
createpolicy.cvt.L2 mbarrier.pending_count: b64
bar bar.cta: sync | red popc u32 | red and/or pred
bar.arrive bar.cta.arrive exit trap brkpt %beyond:
cp.async.commit_group cp.async.wait_group cp.async.wait_all cp.async.bulk.commit_group:
barrier: cta? sync aligned? | cta? red popc aligned? u32 | cta? red and/or aligned? pred
barrier.arrive barrier.cta.arrive: aligned?
barrier.cluster: arrive release/relaxed? aligned? | arrive.aligned release/relaxed | wait acquire? aligned? |
    wait.aligned.acquire
membar: cta/gl/sys | proxy.alias
fence: sc/acq_rel/acquire/release? SCOPE | acquire.sync_restrict::shared::cluster.cluster |
    release.sync_restrict::shared::cta.cluster | mbarrier_init.release.cluster
fence.proxy: alias/async/async.global/async.shared::cta/async.shared::cluster |
    tensormap::generic acquire/release SCOPE | async::generic.acquire.sync_restrict::shared::cluster.cluster |
    async::generic.release.sync_restrict::shared::cta.cluster
griddepcontrol: launch_dependents/wait
setmaxnreg: inc/dec sync.aligned u32
nanosleep: u32
bra call ret brx.idx: uni?
pmevent: mask?
mbarrier.init mbarrier.inval: SHARED? b64
mbarrier.arrive mbarrier.arrive_drop: ARRIVED? SHARED/shared::cluster? b64 | noComplete release.cta? SHARED? b64
mbarrier.arrive.expect_tx mbarrier.arrive_drop.expect_tx: ARRIVED? SHARED/shared::cluster? b64
mbarrier.expect_tx mbarrier.complete_tx: relaxed.cta/relaxed.cluster? SHARED/shared::cluster? b64
mbarrier.test_wait mbarrier.try_wait: parity? WAITED? SHARED? b64
cp.async: ca/cg SHARED global HINT? PREFETCH?
cp.async.mbarrier.arrive: noinc? SHARED? b64
cp.async.bulk: shared::cluster global COMPLETE MULTICAST? HINT? | shared::cta global COMPLETE HINT? |
    shared::cluster shared::cta COMPLETE | global shared::cta bulk_group HINT?
cp.async.bulk.wait_group: read?
cp.async.bulk.prefetch: L2 HINT? global
cp.async.bulk.prefetch.tensor: DIMENSIONS L2 HINT? global tile? | 3d/4d/5d L2 HINT? global im2col
cp.async.bulk.tensor: DIMENSIONS shared::cluster global tile? COMPLETE MULTICAST? HINT? |
    3d/4d/5d shared::cluster global im2col COMPLETE MULTICAST? HINT? |
    DIMENSIONS shared::cta global tile? COMPLETE HINT? | 3d/4d/5d shared::cta global im2col COMPLETE HINT? |
    DIMENSIONS global shared::cta tile? bulk_group HINT? | 3d/4d/5d global shared::cta im2col_no_offs bulk_group HINT?
cp.reduce.async.bulk: global shared::cta bulk_group HINT? and/or/xor b32/b64 |
    global shared::cta bulk_group HINT? add WORD/u64/f32/f64 |
    global shared::cta bulk_group HINT? add noftz f16/bf16 | global shared::cta bulk_group HINT? inc/dec u32 |
    global shared::cta bulk_group HINT? min/max WIDE/f16/bf16 | shared::cluster shared::cta COMPLETE and/or/xor b32 |
    shared::cluster shared::cta COMPLETE add WORD/u64 | shared::cluster shared::cta COMPLETE inc/dec u32 |
    shared::cluster shared::cta COMPLETE min/max WORD
cp.reduce.async.bulk.tensor: DIMENSIONS global shared::cta REDUCTION tile? bulk_group HINT? |
    3d/4d/5d global shared::cta REDUCTION im2col_no_offs bulk_group HINT?
st.async: weak? shared::cluster? COMPLETE v2? b32/b64/WIDE/f32/f64 | weak? shared::cluster? COMPLETE v4 b32/WORD/f32
red.async: relaxed.cluster shared::cluster? COMPLETE and/or/xor b32 |
    relaxed.cluster shared::cluster? COMPLETE add WIDE | relaxed.cluster shared::cluster? COMPLETE inc/dec u32 |
    relaxed.cluster shared::cluster? COMPLETE min/max WORD
tensormap.replace: tile global_address/global_stride global/shared::cta? b1024 b64 |
    tile rank/box_dim/global_dim/element_stride/elemtype/interleave_layout/swizzle_mode/fill_mode global/shared::cta?
    b1024 b32
tensormap.cp_fenceproxy: global shared::cta tensormap::generic release SCOPE sync.aligned
ldmatrix stmatrix: sync.aligned m8n8 x1/x2/x4 trans? SHARED? b16
movmatrix: sync.aligned m8n8 trans b16
mma: sync.aligned m8n8k4 LAYOUT LAYOUT f16/f32 f16 f16 f16/f32 |
    sync.aligned m16n8k8/m16n8k16 row.col f16/f32 f16 f16 f16/f32 |
    sync.aligned m16n8k8/m16n8k16 row.col f32 bf16 bf16 f32 | sync.aligned m16n8k4/m16n8k8 row.col f32 tf32 tf32 f32 |
    sync.aligned m16n8k16/m16n8k32 row.col f16/f32 FLOAT8 FLOAT8 f16/f32 |
    sync.aligned m8n8k16/m16n8k16/m16n8k32 row.col satfinite? s32 BYTE BYTE s32 |
    sync.aligned m8n8k32/m16n8k32/m16n8k64 row.col satfinite? s32 NIBBLE NIBBLE s32 |
    sync.aligned m8n8k32/m16n8k32/m16n8k64 row.col s32 NIBBLE NIBBLE s32 and/or/xor popc |
    sync.aligned m8n8k128/m16n8k128/m16n8k256 row.col s32 b1 b1 s32 and/xor popc |
    sync.aligned m8n8k4/m16n8k4/m16n8k8/m16n8k16 row.col ROUND? f64 f64 f64 f64
mma.sp mma.sp::ordered_metadata: sync.aligned m16n8k16/m16n8k32 row.col f16/f32 f16 f16 f16/f32 |
    sync.aligned m16n8k16/m16n8k32 row.col f32 bf16 bf16 f32 |
    sync.aligned m16n8k8/m16n8k16 row.col f32 tf32 tf32 f32 |
    sync.aligned m16n8k64 row.col f16/f32 FLOAT8 FLOAT8 f16/f32 |
    sync.aligned m16n8k32/m16n8k64 row.col satfinite? s32 BYTE BYTE s32 |
    sync.aligned m16n8k64/m16n8k128 row.col satfinite? s32 NIBBLE NIBBLE s32
wgmma.mma_async: sync.aligned M64K16 f16/f32 f16 f16 | sync.aligned M64K16 f32 bf16 bf16 |
    sync.aligned M64K8 f32 tf32 tf32 | sync.aligned M64K32 f16/f32 FLOAT8 FLOAT8 |
    sync.aligned M64INTK32 satfinite? s32 BYTE BYTE | sync.aligned M64INTK256 s32 b1 b1 and popc
wgmma.mma_async.sp: sync.aligned M64K32 f16/f32 f16 f16 | sync.aligned M64K32 f32 bf16 bf16 |
    sync.aligned M64K16 f32 tf32 tf32 | sync.aligned M64K64 f16/f32 FLOAT8 FLOAT8 |
    sync.aligned M64INTK64 satfinite? s32 BYTE BYTE
wgmma.fence wgmma.commit_group wgmma.wait_group: sync.aligned
wmma.load.a wmma.load.b: sync.aligned LAYOUT CUBES MATRIX_SPACE? f16/bf16/BYTE |
    sync.aligned LAYOUT m16n16k8 MATRIX_SPACE? tf32 | sync.aligned LAYOUT m8n8k4 MATRIX_SPACE? f64 |
    sync.aligned LAYOUT m8n8k32 MATRIX_SPACE? NIBBLE | sync.aligned LAYOUT m8n8k128 MATRIX_SPACE? b1
wmma.load.c wmma.store.d: sync.aligned LAYOUT CUBES MATRIX_SPACE? f16/f32/s32 |
    sync.aligned LAYOUT m16n16k8 MATRIX_SPACE? f32 | sync.aligned LAYOUT m8n8k4 MATRIX_SPACE? f64 |
    sync.aligned LAYOUT m8n8k32/m8n8k128 MATRIX_SPACE? s32
wmma.mma: sync.aligned LAYOUT LAYOUT CUBES f16/f32 f16/f32 satfinite? |
    sync.aligned LAYOUT LAYOUT CUBES f32 bf16 bf16 f32 |
    sync.aligned LAYOUT LAYOUT CUBES s32 BYTE BYTE s32 satfinite? |
    sync.aligned LAYOUT LAYOUT m16n16k8 f32 tf32 tf32 f32 | sync.aligned LAYOUT LAYOUT m8n8k4 ROUND? f64 f64 f64 f64 |
    sync.aligned row.col m8n8k32 s32 NIBBLE NIBBLE s32 satfinite? |
    and/xor popc sync.aligned row.col m8n8k128 s32 b1 b1 s32
cvt: INTEGER INTEGER | sat u8 INT/s8 | sat u16 u32/u64/s8/s16/s32/s64 | sat u32 u64/s8/s16/s32/s64 |
    sat u64 s8/s16/s32/s64 | sat s8 u8/INT | sat s16 u16/u32/u64/s32/s64 | sat s32 u32/u64/s64 | sat s64 u64 |
    ROUND sat? f16/f64 INTEGER | ROUND ftz? sat? f32 INTEGER | ROUND bf16 INT | INTEGRAL ftz? sat? INTEGER f32 |
    INTEGRAL sat? INTEGER f16/f64 | INTEGRAL INT bf16 | INTEGRAL? ftz? sat? f32 f32 | INTEGRAL? sat? f16 f16 |
    INTEGRAL? sat? f64 f64 | ftz? sat? f32 f16 | ftz? sat? f64 f32 | sat? f64 f16 | ROUND ftz? sat? f16 f32 |
    ROUND sat? f16 f64 | ROUND ftz? sat? f32 f64 | ROUND? ftz? f32 bf16 | ROUND? f64 bf16 |
    ROUND? bf16 f16 | ROUND ftz? bf16 f32 | ROUND bf16 f64 | INTEGRAL? bf16 bf16 | ROUND? f16 bf16 |
    rn/rz satfinite? relu? f16/bf16 f32 | rn/rz satfinite? relu? f16x2/bf16x2 f32 | rna satfinite? tf32 f32 |
    rn/rz relu? tf32 f32 | rn satfinite relu? FLOAT8X2 f32/f16x2 | rn relu? f16x2 FLOAT8X2
cvt.pack: sat u16/s16 s32 | sat u8/s8/NIBBLE/u2/s2 s32 b32
alloca stacksave stackrestore: u64
multimem.ld_reduce: weak? global? BOOL b32/b64 | weak? global? add u32/s32/u64 | weak? global? min/max WIDE |
    weak? global? add VECTOR? f32/f64 | weak? global? add/min/max VECTOR/v8? HALF/BRAIN |
    relaxed/acquire SCOPE global? BOOL b32/b64 | relaxed/acquire SCOPE global? add u32/s32/u64 |
    relaxed/acquire SCOPE global? min/max WIDE | relaxed/acquire SCOPE global? add VECTOR? f32/f64 |
    relaxed/acquire SCOPE global? add/min/max VECTOR/v8? HALF/BRAIN
multimem.ld_reduce.acc::f32 multimem.ld_reduce.acc::f16: weak? global? add/min/max VECTOR/v8? HALF/BRAIN |
    relaxed/acquire SCOPE global? add/min/max VECTOR/v8? HALF/BRAIN
multimem.st: weak? global? VECTOR/v8? b32/b64/WIDE/f32/f64/HALF/BRAIN |
    relaxed/release SCOPE global? VECTOR/v8? b32/b64/WIDE/f32/f64/HALF/BRAIN
multimem.red: weak? global? BOOL b32/b64 | weak? global? add/min/max VECTOR/v8? WIDE/f32/f64/HALF/BRAIN |
    relaxed/release SCOPE global? BOOL b32/b64 |
    relaxed/release SCOPE global? add/min/max VECTOR/v8? WIDE/f32/f64/HALF/BRAIN
"""
"""Instructions, by the beginnings of their opcodes, and behind a colon the modifiers that may follow, in one of some
ways that ``|`` parts. ``/`` parts a choice, ``?`` behind it lets it be left out, and capitals name words of `_NAMED`.
``*`` stands for any modifiers.
"""


def _read(table: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for entry in re.split(r"\n(?! )", table.strip()):
        names, ways = entry.split(":", 1) if entry.endswith(":") else entry.split(": ", 1)
        found |= dict.fromkeys(names.split(), tuple(way.strip() for way in ways.split("|")))
    return found


_TYPE = re.compile(r"[a-z]+\d+(x\d)?")
SPELLINGS = _read(_TABLE)
"""By the beginning of an opcode, the ways of what may follow."""


@cache
def _slots(way: str) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """Return of each place of a way the words that may stand there, and whether none of them may."""
    found = []
    for slot in " ".join(_NAMED[slot] if " " in _NAMED.get(slot, "") else slot for slot in way.split()).split():
        words = slot.removesuffix("?").split("/")
        while any(word in _NAMED for word in words):
            words = [inner for word in words for inner in _NAMED.get(word, word).split("/")]
        found.append((tuple(words), slot.endswith("?")))
    return tuple(found)


def _pattern(slots: tuple[tuple[tuple[str, ...], bool], ...]) -> str:
    parts = []
    for words, is_optional in slots:
        if words == ("*",):
            parts.append(r"(?:\.[\w:]+)*")
        else:
            parts.append(f"(?:{'|'.join(re.escape('.' + word) for word in words)}){'?' if is_optional else ''}")
    return "".join(parts)


@cache
def _taken(name: str) -> re.Pattern[str]:
    return re.compile("|".join(_pattern(_slots(way)) for way in SPELLINGS[name]))


def _name_of(opcode: str) -> str:
    """Return the longest beginning of an opcode that is in the table; empty if there is none."""
    parts = opcode.split(".")
    return next((name for name in (".".join(parts[:n]) for n in range(len(parts), 0, -1)) if name in SPELLINGS), "")


def is_spelled(opcode: str) -> bool:
    """Tell whether an opcode, in the usual order, is one of PTX's.

    Examples
    --------
    >>> is_spelled("add.sat.s32"), is_spelled("add.sat.u32"), is_spelled("fence.proxy.async.shared::cta")
    (True, False, True)
    """
    name = _name_of(opcode)
    return bool(name) and _taken(name).fullmatch(opcode, len(name)) is not None


@lru_cache(maxsize=4096)
def refused_spelling(opcode: str) -> tuple[str, str]:
    """Return why an opcode is none of PTX's, and the word that it is about; nothing of one that is.

    Examples
    --------
    >>> refused_spelling("add.foo.u32")
    ('add has no modifier .foo', '.foo')
    >>> refused_spelling("shfl.up.b32")[0]
    'shfl.up.b32 without .sync is for GPUs before sm_70; use shfl.sync with a mask of lanes'
    >>> refused_spelling("fma.ftz.f32")
    ('fma.ftz.f32 needs one of .rn .rz .rm .rp', '')
    >>> refused_spelling("add.sat.u32")[0].partition(";")[0]
    'add.sat.u32 has modifiers that do not go together'
    """
    for pattern, reason in _OF_OTHER_GPUS:
        if re.match(pattern, opcode):
            return reason.format(opcode=opcode, first=opcode.partition(".")[0]), ""
    if is_spelled(opcode):
        return "", ""
    name, first = _name_of(opcode), opcode.partition(".")[0]
    if not any(one == first or one.startswith(first + ".") for one in SPELLINGS):
        return f"PTX has no instruction {first}", first
    family = [one for one in SPELLINGS if one == first or one.startswith(first + ".")]
    known = {part for one in family for part in one.split(".")[1:]} | {
        part
        for one in family
        for way in SPELLINGS[one]
        for words, _ in _slots(way)
        for word in words
        for part in word.split(".")
    }
    parts = opcode.split(".")[1:]
    unknown = next((part for part in parts if part not in known), None)
    if unknown is not None:
        is_type = _TYPE.fullmatch(unknown) or unknown == "pred"
        return f"{first} {'takes no type' if is_type else 'has no modifier'} .{unknown}", f".{unknown}"
    if not name:
        following = sorted({one.split(".")[1] for one in family})
        return f"{opcode} needs one of {_dotted(following)}", ""
    missing = _missing(opcode, name)
    if missing:
        return f"{opcode} needs {_said(missing)}", ""
    ways = [way for way in SPELLINGS[name] if _shares_types(way, parts)] or SPELLINGS[name]
    listed = " or ".join(_syntax(name, way) for way in ways[:3])
    return f"{opcode} has modifiers that do not go together; there is {listed}", ""


def _missing(opcode: str, name: str) -> list[str]:
    """Return the words of which one more would make an opcode one of PTX's."""
    found: list[str] = []
    for way in SPELLINGS[name]:
        slots = _slots(way)
        for n, (words, is_optional) in enumerate(slots):
            if not is_optional and words != ("*",):
                without = _pattern((*slots[:n], *slots[n + 1 :]))
                if re.compile(without).fullmatch(opcode, len(name)):
                    found += words
    return list(dict.fromkeys(found))


def _said(words: list[str]) -> str:
    if all(_TYPE.fullmatch(word) for word in words) and len(words) > 1:
        return f"a type more, one of {_dotted(words)}"
    return _dotted(words) if len(words) == 1 else f"one of {_dotted(words)}"


def _dotted(words: list[str]) -> str:
    return " ".join(f".{word}" for word in words)


def _shares_types(way: str, parts: list[str]) -> bool:
    slots = _slots(way)
    return bool(slots) and parts[-1:] != [] and parts[-1] in slots[-1][0]


def _syntax(name: str, way: str) -> str:
    """Write a way as the ISA does: braces around what may be left out."""
    text = name
    for words, is_optional in _slots(way):
        choice = "|".join(f".{word}" for word in words)
        choice = f"({choice})" if len(words) > 1 and not is_optional else choice
        text += f"{{{choice}}}" if is_optional else choice
    return text


def check_modifiers(opcode: str) -> None:
    """Refuse an opcode that is none of PTX's.

    Raises
    ------
    PtxSyntaxError
    """
    reason, token = refused_spelling(opcode)
    if reason:
        raise PtxSyntaxError(reason, token)
