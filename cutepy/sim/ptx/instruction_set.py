"""The instruction set of PTX: one row an instruction, and `traits`, which decodes an opcode by its row.

A row names the class of an instruction, what it does to memory and to other threads, and its operands. Its meaning, as
an expression, is in `sim.semantics`.

References
----------
PTX ISA, "Instruction Set": the syntax line of each instruction; "State Spaces"; "Memory Consistency Model".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from cutepy.layouts.sm90.arch import WARP_THREADS, WARPGROUP_THREADS
from cutepy.text_tables import rows_of

_TABLE = """
abs: arithmetic, strict; result value; s16/s32/s64 | ftz? f32/f16/f16x2 | f64 | BRAIN; T T;
    f16/f16x2 6.5 sm_53 | bf16/bf16x2 7.0 sm_80
neg: arithmetic, strict; result value; s16/s32/s64 | ftz? f32/f16/f16x2 | f64 | BRAIN; T T;
    f16/f16x2 6.0 sm_53 | bf16/bf16x2 7.0 sm_80
bfind: arithmetic; result value; shiftamt? WIDE; count T
brev: arithmetic; result value; b32/b64; T T
clz popc: arithmetic; result value; b32/b64; count T
cnot: arithmetic; result value; BITS; T T
cos lg2 sin: arithmetic; result value; approx ftz? f32; T T
not: arithmetic, moves; result value; pred/BITS; T T
rcp: arithmetic; result value; approx/ROUND ftz? f32 | ROUND ftz? f64 | approx ftz f64; T T
rsqrt: arithmetic; result value; approx ftz? f32/f64; T T; ftz.f64 4.0 sm_20
sqrt: arithmetic; result value; approx/ROUND ftz? f32 | ROUND f64; T T
tanh: arithmetic; result value; approx f32/HALF/BRAIN; T T; 7.0 sm_75 | bf16/bf16x2 7.8 sm_90
add: arithmetic, strict; result value*2; u16/u32/u64/s16/s64 | sat? s32 | cc WIDE | ROUND? ftz? sat? f32 | ROUND? f64 |
    rn? ftz? sat? HALF | rn? BRAIN | u16x2/s16x2 | ROUND? ftz? f32x2 | ROUND? sat? f32 f16/bf16; U T U;
    f16/f16x2 4.2 sm_53 | bf16/bf16x2 7.8 sm_90 | u16x2/s16x2 8.0 sm_90 | f32.f16/f32.bf16 8.6 sm_100
addc subc: arithmetic, strict; result value*2; u16/s16 | cc? WIDE; T T T pred
and or xor: arithmetic, moves; result value*2; pred/BITS; T T T
bmsk: arithmetic; result value*2; wrap/clamp b32; count count count; 7.6 sm_70
copysign: arithmetic; result value*2; f32/f64; T T T
div: arithmetic, strict; result value*2; INT | approx/full/ROUND ftz? f32 | ROUND f64; T T T
max min: arithmetic, strict; result value*2 value?; u16/u32/u64/s16/s64/u16x2 | relu? s32/s16x2 |
    ftz? NaN? xorsign.abs/abs? f32 |
    f64 | ftz? NaN? xorsign.abs? HALF | NaN? xorsign.abs? BRAIN; T T T T;
    f16/f16x2/bf16/bf16x2/NaN 7.0 sm_80 | u16x2/s16x2/relu.s32 8.0 sm_90 | three 8.8 sm_100
mul: arithmetic, strict; result value*2; hi/lo INT | wide u16/u32/s16/s32 | ROUND? ftz? sat? f32 | ROUND? f64 |
    rn? ftz? sat? HALF | rn? BRAIN | ROUND? ftz? f32x2; T T T; f16/f16x2 4.2 sm_53 | bf16/bf16x2 7.8 sm_90
mul24: arithmetic, strict; result value*2; hi/lo WORD; T T T
rem: arithmetic, strict; result value*2; INT; T T T
shl: arithmetic, moves; result value*2; BITS; T T count
shr: arithmetic, moves; result value*2; BITS/INT; T T count
sub: arithmetic, strict; result value*2; u16/u32/u64/s16/s64 | sat? s32 | cc WIDE | ROUND? ftz? sat? f32 | ROUND? f64 |
    rn? ftz? sat? HALF | rn? BRAIN | ROUND? ftz? f32x2 | ROUND? sat? f32 f16/bf16; U T U;
    f16/f16x2 4.2 sm_53 | bf16/bf16x2 7.8 sm_90 | f32.f16/f32.bf16 8.6 sm_100
szext: arithmetic; result value*2; wrap/clamp WORD; T T count; 7.6 sm_70
bfe: arithmetic, moves; result value*3; WIDE; T T count count
dp2a: arithmetic; result value*3; hi/lo WORD WORD; count u32 u32 count; 5.0 sm_61
dp4a: arithmetic; result value*3; WORD WORD; count u32 u32 count; 5.0 sm_61
fma: arithmetic, strict; result value*3; ROUND ftz? sat? f32 | ROUND f64 | rn ftz? sat/relu? HALF | rn sat? oob HALF |
    rn oob relu HALF | ROUND oob? relu? BRAIN | ROUND ftz? f32x2 | ROUND sat? f32 f16/bf16; U T T U;
    f16/f16x2 4.2 sm_53 | bf16/bf16x2 7.0 sm_80 | f32.f16/f32.bf16 8.6 sm_100
fns: arithmetic; result value*3; b32; T T T T; 6.0 sm_30
mad: arithmetic, strict; result value*3; hi/lo INT | wide u16/u32/s16/s32 | hi sat s32 | hi/lo cc WIDE |
    ROUND ftz? sat? f32 |
    ROUND f64; T T T T; cc 3.0 sm_20
mad24: arithmetic, strict; result value*3; hi/lo WORD | hi sat s32; T T T T
madc: arithmetic, strict; result value*3; hi/lo u16/s16 | hi/lo cc? WIDE; T T T T pred; 3.0 sm_20
sad: arithmetic; result value*3; INT; T T T T
shf: arithmetic, moves; result value*3; l/r wrap/clamp b32; T T T count; 3.1 sm_32
bfi: arithmetic, moves; result value*4; b32/b64; T T T count count
ex2: arithmetic; result value; approx ftz? f32 | approx HALF | approx ftz BRAIN; T T;
    f16/f16x2 7.0 sm_75 | bf16/bf16x2 7.8 sm_90
lop3: arithmetic, moves; result value*4 value@and/or; and/or? b32; T T T T count; 4.3 sm_50 | and/or 8.2 sm_70
cvt: conversion, strict, widens; result value value?; INTEGER INTEGER | sat u8 INT/s8 | sat u16 u32/u64/s8/s16/s32/s64 |
    sat u32 u64/s8/s16/s32/s64 | sat u64 s8/s16/s32/s64 | sat s8 u8/INT | sat s16 u16/u32/u64/s32/s64 |
    sat s32 u32/u64/s64 | sat s64 u64 | ROUND sat? f16/f64 INTEGER | ROUND ftz? sat? f32 INTEGER | ROUND bf16 INT |
    INTEGRAL ftz? sat? INTEGER f32 | INTEGRAL sat? INTEGER f16/f64 | INTEGRAL INT bf16 | INTEGRAL? ftz? sat? f32 f32 |
    INTEGRAL? sat? f16 f16 | INTEGRAL? sat? f64 f64 | ftz? sat? f32 f16 | ftz? sat? f64 f32 | sat? f64 f16 |
    ROUND ftz? sat? f16 f32 | ROUND sat? f16 f64 | ROUND ftz? sat? f32 f64 | ROUND? ftz? f32 bf16 | ROUND? f64 bf16 |
    ROUND? bf16 f16 | ROUND ftz? bf16 f32 | ROUND bf16 f64 | INTEGRAL? bf16 bf16 | ROUND? f16 bf16 |
    rn/rz satfinite? relu? f16/bf16 f32 | rn/rz satfinite? relu? f16x2/bf16x2 f32 | rna satfinite? tf32 f32 |
    rn/rz satfinite? relu? tf32 f32 | rn satfinite relu? FLOAT8X2 f32/f16x2 | rn relu? f16x2 FLOAT8X2 |
    rn satfinite relu? NARROWX2 f32 | rn satfinite relu? e2m1x2 f16x2 | rn relu? f16x2 NARROWX2 |
    rz/rp satfinite? ue8m0x2 f32/bf16x2 |
    rn bf16x2 ue8m0x2; U T T;
    bf16.f32/bf16x2.f32/f16x2.f32 7.0 sm_80 | f32.bf16 7.1 sm_80 | e4m3x2/e5m2x2 8.1 sm_89, 7.8 sm_90 |
    bf16.bf16/ftz.f32.bf16/rn.tf32/rz.tf32/bf16.f16/f16.bf16/f64.bf16/bf16.f64 bf16.u16/bf16.s16/bf16.u32/bf16.s32
    bf16.u64/bf16.s64/u16.bf16/s16.bf16/u32.bf16/s32.bf16/u64.bf16/s64.bf16 7.8 sm_90 | satfinite.f16.f32 8.1 sm_70 |
    satfinite.bf16.f32/satfinite.bf16x2.f32/satfinite.f16x2.f32/satfinite.tf32.f32 8.1 sm_80 |
    rn.satfinite.tf32/rz.satfinite.tf32 8.6 sm_100
cvt.rs: conversion, strict, widens; result value*2 value@f16x2/bf16x2; satfinite? relu? f16x2/bf16x2 f32 |
    satfinite relu? FLOATX4 f32; U T T count; 8.7 sm_100a/sm_103a
cvt.pack: conversion, strict, widens; result value*2 value@b32; sat u16/s16 s32 | sat u8/s8/NIBBLE/u2/s2 s32 b32;
    u32 s32 s32 b32; 6.5 sm_72 | u4/s4/u2/s2 6.5 sm_75
cvta: conversion, moves, maps; result value; to? const/global/local/param/param::entry/SHARED/shared::cluster u64; T T;
    const 3.1 sm_20 | param 7.7 sm_70
set: comparison; result value*2 value@and/or/xor; ORDERED BOOL? WORD/f32/f16/bf16 INT |
    eq/ne BOOL? WORD/f32/f16/bf16 BITS | UNSIGNED BOOL? WORD/f32/f16/bf16 u16/u32/u64 |
    ORDERED/UNORDERED BOOL? ftz? WORD/f32/f16 f32 | ORDERED/UNORDERED BOOL? bf16 f32 |
    ORDERED/UNORDERED BOOL? WORD/f32/f16/bf16 f64 | ORDERED/UNORDERED BOOL? ftz? f16/u16/s16/u32/s32 f16 |
    ORDERED/UNORDERED BOOL? bf16 f16 | ORDERED/UNORDERED BOOL? bf16/u16/s16/u32/s32 bf16 |
    ORDERED/UNORDERED BOOL? ftz? f16x2/u32/s32 f16x2 | ORDERED/UNORDERED BOOL? bf16x2/u32/s32 bf16x2; U T T pred;
    f16/f16x2 4.2 sm_53 | u16.f16/s16.f16/u32.f16/s32.f16/u32.f16x2/s32.f16x2 6.5 sm_53 | bf16/bf16x2 7.8 sm_90
setp: comparison, strict; result value*2 value@and/or/xor; ORDERED BOOL? INT | eq/ne BOOL? BITS |
    UNSIGNED BOOL? u16/u32/u64 |
    ORDERED/UNORDERED BOOL? ftz? f32/HALF | ORDERED/UNORDERED BOOL? f64/BRAIN; pred T T pred;
    f16/f16x2 4.2 sm_53 | bf16/bf16x2 7.8 sm_90
selp: comparison, moves; result value*3; SCALAR; T T T pred
slct: comparison, moves; result value*3; SCALAR s32 | ftz? SCALAR f32; U U U T
testp: comparison; result value; finite/infinite/number/notanumber/normal/subnormal f32/f64; pred T
mov: move, moves, renames; result value; pred/b128/SCALAR | v2 SCALAR | v4 b16/b32/u16/u32/s16/s32/f32; T T;
    b128 8.3 sm_70
getctarank: move; result value; shared::cluster? u32/u64; count T; 7.8 sm_90
isspacep: move; result value; const/global/local/param/param::entry/SHARED/shared::cluster; pred integer;
    const 3.1 sm_20 | param 7.7 sm_70
mapa: move, maps, peers; result value*2; shared::cluster? u32/u64; T T count; 7.8 sm_90
prmt: move, moves; result value*3; b32 f4e/b4e/rc8/ecl/ecr/rc16?; T T T T
createpolicy: memory; result value?; fractional EVICT_L2 L2::evict_unchanged/L2::evict_first? b64;; 7.4 sm_80
createpolicy.fractional: memory; result value?; ; state f32
createpolicy.cvt.L2: memory; result value; b64; state state
createpolicy.range: memory; result address value*2; global? EVICT_L2 L2::evict_unchanged/L2::evict_first? b64;
    state pointer count count
alloca: arithmetic, private, stack; result value value?; u64; T T; 7.3 sm_52
stacksave: arithmetic, private, stack; result; u64; T; 7.3 sm_52
stackrestore: arithmetic, private, stack; value; u64; T; 7.3 sm_52
bra: control, private, branches; target; uni?
exit: control, private, branches, ends; -; -
ret: control, private, branches, ends, stack; -; uni?
nanosleep: control, private, sleeps; value; u32; count; 6.2 sm_70
pmevent: control, private; value; mask?;; mask 3.0 sm_20

ld: memory, loads, access, widens, transfers; result address policy@L2::cache_hint;
    weak? LOADED_SPACE? ca/cg/cs/lu/cv? VECTOR? MEMORY |
    weak? global? ca/cg/cs/lu/cv? HINT? PREFETCH? VECTOR? MEMORY |
    weak? global? EVICT_L1? HINT? PREFETCH? VECTOR? MEMORY | volatile SPACE? VECTOR? MEMORY |
    volatile global? PREFETCH? VECTOR? MEMORY | relaxed/acquire SCOPE SPACE? VECTOR? MEMORY |
    relaxed/acquire SCOPE global? EVICT_L1? HINT? PREFETCH? VECTOR? MEMORY | mmio relaxed sys global? MEMORY |
    global ca/cg/cs? nc HINT? PREFETCH? VECTOR? MEMORY | global nc EVICT_L1? HINT? PREFETCH? VECTOR? MEMORY |
    weak? global? EVICT_L1? KEPT_IN_L2? HINT? PREFETCH? LONG | volatile global? KEPT_IN_L2? PREFETCH? LONG |
    relaxed/acquire SCOPE global? EVICT_L1? KEPT_IN_L2? HINT? PREFETCH? LONG |
    global nc EVICT_L1? KEPT_IN_L2? HINT? PREFETCH? LONG; T -;
    nc 3.1 sm_32 | relaxed/acquire 6.0 sm_70 | mmio 8.2 sm_70 | b128 8.3 sm_70 |
    v8.b32/v8.u32/v8.s32/v8.f32/v4.b64/v4.u64/v4.s64/v4.f64 8.8 sm_100
ldu: memory, loads, access, widens; result address; global? v2? MEMORY |
    global? v4 b8/b16/b32/u8/u16/u32/s8/s16/s32/f32; T -;
    b128 8.3 sm_70
st: memory, stores, access, widens, transfers; address value policy@L2::cache_hint;
    weak? SPACE/local/param/param::func? wb/cg/cs/wt? VECTOR? MEMORY |
    weak? global? wb/cg/cs/wt? HINT? VECTOR? MEMORY | weak? global? EVICT_L1? HINT? VECTOR? MEMORY |
    volatile SPACE? VECTOR? MEMORY | relaxed/release SCOPE SPACE? VECTOR? MEMORY |
    relaxed/release SCOPE global? EVICT_L1? HINT? VECTOR? MEMORY | mmio relaxed sys global? MEMORY |
    weak? global? EVICT_L1? KEPT_IN_L2? HINT? LONG | volatile global? KEPT_IN_L2? LONG |
    relaxed/release SCOPE global? EVICT_L1? KEPT_IN_L2? HINT? LONG; - T;
    relaxed/release 6.0 sm_70 | mmio 8.2 sm_70 | b128 8.3 sm_70 |
    v8.b32/v8.u32/v8.s32/v8.f32/v4.b64/v4.u64/v4.s64/v4.f64 8.8 sm_100
st.async: memory, stores, orders, signals, issues, transfers; address value address;
    weak? shared::cluster? COMPLETE v2? b32/b64/WIDE/f32/f64 | weak? shared::cluster? COMPLETE v4 b32/WORD/f32;
    pointer T generic; 8.1 sm_90
st.bulk: memory, stores, access, shared, widens; address elsewhere value; weak? SHARED?; generic state state; 8.6 sm_100
atom: atomic, updates, access, orders; result address value value@cas policy@L2::cache_hint;
    ATOM BOOL/exch b32/b64 | ATOM cas b16/b32/b64/b128 | ATOM exch b128 |
    ATOM add u32/s32/u64/f32/f64 | ATOM inc/dec u32 | ATOM min/max WIDE | ATOM add noftz HALF/BRAIN |
    ATOM_GLOBAL BOOL/exch HINT b32/b64 | ATOM_GLOBAL exch HINT b128 | ATOM_GLOBAL add HINT u32/s32/u64/f32/f64 |
    ATOM_GLOBAL inc/dec HINT u32 | ATOM_GLOBAL min/max HINT WIDE | ATOM_GLOBAL add noftz HINT HALF/BRAIN |
    ATOM_GLOBAL add HINT? VECTOR f32 |
    ATOM_GLOBAL add/min/max noftz HINT? v2/v4/v8 f16/bf16 | ATOM_GLOBAL add/min/max noftz HINT? VECTOR f16x2/bf16x2;
    T - T T;
    and.b64/or.b64/xor.b64/min.u64/min.s64/max.u64/max.s64 3.1 sm_32 | add.f64/cta/gpu/sys 5.0 sm_60 |
    relaxed/acquire/release/acq_rel 6.0 sm_70 | add.f16x2 6.2 sm_60 | add.f16/cas.b16 6.3 sm_70 |
    add.bf16/add.bf16x2 7.8 sm_90 | v2/v4/v8/min.f16/max.f16/min.bf16/max.bf16 8.1 sm_90 | b128 8.3 sm_90
red: atomic, updates, access, orders; address value policy@L2::cache_hint; RED BOOL b32/b64 |
    RED add u32/s32/u64/f32/f64 | RED inc/dec u32 | RED min/max WIDE | RED add noftz HALF/BRAIN |
    RED_GLOBAL BOOL HINT b32/b64 | RED_GLOBAL add HINT u32/s32/u64/f32/f64 | RED_GLOBAL inc/dec HINT u32 |
    RED_GLOBAL min/max HINT WIDE | RED_GLOBAL add noftz HINT HALF/BRAIN | RED_GLOBAL add HINT? VECTOR f32 |
    RED_GLOBAL add/min/max noftz HINT? v2/v4/v8 f16/bf16 | RED_GLOBAL add/min/max noftz HINT? VECTOR f16x2/bf16x2; - T;
    and.b64/or.b64/xor.b64/min.u64/min.s64/max.u64/max.s64 3.1 sm_32 | add.f64/cta/gpu/sys 5.0 sm_60 |
    relaxed/release 6.0 sm_70 | add.f16x2 6.2 sm_60 | add.f16 6.3 sm_70 | add.bf16/add.bf16x2 7.8 sm_90 |
    v2/v4/v8/min.f16/max.f16/min.bf16/max.bf16 8.1 sm_90
red.async: atomic, updates, orders, signals, issues; address value address;
    relaxed.cluster shared::cluster? COMPLETE and/or/xor b32 | relaxed.cluster shared::cluster? COMPLETE add WIDE |
    relaxed.cluster shared::cluster? COMPLETE inc/dec u32 | relaxed.cluster shared::cluster? COMPLETE min/max WORD;
    pointer T generic; 8.1 sm_90
multimem.ld_reduce: memory, loads, global; result address; MULTI_LOAD BOOL b32/b64 |
    MULTI_LOAD add u32/s32/u64/f32/f64 | MULTI_LOAD min/max WIDE | MULTI_LOAD add VECTOR f32 |
    MULTI_LOAD add/min/max VECTOR? f16x2/bf16x2 |
    MULTI_LOAD add/min/max v2/v4/v8 f16/bf16 | MULTI_LOAD add acc::f32 VECTOR? f16x2/bf16x2 |
    MULTI_LOAD add acc::f32 v2/v4/v8 f16/bf16; T -; 8.1 sm_90 | acc::f32 8.2 sm_90
multimem.st: memory, stores, global; address value; MULTI_STORE b32/b64/WIDE/f32/f64 | MULTI_STORE VECTOR f32 |
    MULTI_STORE VECTOR? f16x2/bf16x2 | MULTI_STORE v2/v4/v8 f16/bf16; - T; 8.1 sm_90
multimem.red: memory, updates, global; address value; MULTI_RED BOOL b32/b64 | MULTI_RED add u32/s32/u64/f32/f64 |
    MULTI_RED min/max WIDE | MULTI_RED add VECTOR f32 | MULTI_RED add f16x2/bf16x2 |
    MULTI_RED add/min/max VECTOR f16x2/bf16x2 | MULTI_RED add/min/max v2/v4/v8 f16/bf16; wide T; 8.1 sm_90
prefetch: memory, access; address; global/local? L1/L2 | global? L2::evict_last/L2::evict_normal |
    const/param? tensormap | tensormap const/param;; L2::evict_last/L2::evict_normal 7.4 sm_80
prefetchu: memory, access; address; L1
prefetch.tensormap prefetch.const.tensormap prefetch.param.tensormap: memory, other; address; ; pointer; 8.0 sm_90
applypriority: memory, access; address value; global? L2::evict_normal;; 7.4 sm_80
discard: memory, access, discards; address value; global? L2;; 7.4 sm_80
ldmatrix: matrix, loads, access, shared, transfers, rows; result address;
    sync.aligned m8n8 x1/x2/x4 trans? SHARED? b16 |
    sync.aligned m16n16 x1/x2 trans SHARED? b8 | sync.aligned m8n16 x1/x2/x4 SHARED? DECOMPRESSED |
    sync.aligned m16n16 x1/x2 trans SHARED? DECOMPRESSED; - generic; 6.5 sm_75 |
    m16n16/m8n16 8.6 sm_100f/sm_101f/sm_110f/sm_120f
stmatrix: matrix, stores, access, shared, transfers, rows; address value;
    sync.aligned m8n8 x1/x2/x4 trans? SHARED? b16 |
    sync.aligned m16n8 x1/x2/x4 trans SHARED? b8; generic; 7.8 sm_90 | m16n8 8.6 sm_100f/sm_101f/sm_110f/sm_120f
movmatrix: matrix, exchanges, moves, transposes; result value; sync.aligned m8n8 trans b16;; 7.8 sm_75
mma: matrix, exchanges, tiles;
    result value*3 value@block_scale selector@block_scale value@block_scale selector@block_scale;
    sync.aligned m8n8k4 LAYOUT LAYOUT f16.f16.f16.f16 |
    sync.aligned m8n8k4 LAYOUT LAYOUT f32.f16.f16 f16/f32 |
    sync.aligned m16n8k8/m16n8k16 row.col f16.f16.f16.f16/f32.f16.f16.f32 |
    sync.aligned m16n8k8/m16n8k16 row.col f32 bf16 bf16 f32 | sync.aligned m16n8k4/m16n8k8 row.col f32 tf32 tf32 f32 |
    sync.aligned m16n8k16/m16n8k32 row.col f16 FLOAT8 FLOAT8 f16 |
    sync.aligned m16n8k16/m16n8k32 row.col f32 FLOAT8 FLOAT8 f32 |
    sync.aligned m8n8k16/m16n8k16/m16n8k32 row.col satfinite? s32 BYTE BYTE s32 |
    sync.aligned m8n8k32/m16n8k32/m16n8k64 row.col satfinite? s32 NIBBLE NIBBLE s32 |
    sync.aligned m8n8k32/m16n8k32/m16n8k64 row.col s32 NIBBLE NIBBLE s32 and/or/xor popc |
    sync.aligned m8n8k128/m16n8k128/m16n8k256 row.col s32 b1 b1 s32 and/xor popc |
    sync.aligned m8n8k4/m16n8k4/m16n8k8/m16n8k16 row.col ROUND? f64 f64 f64 f64 |
    sync.aligned m16n8k32 row.col kind::f8f6f4 f16 FLOAT8TO4 FLOAT8TO4 f16 |
    sync.aligned m16n8k32 row.col kind::f8f6f4 f32 FLOAT8TO4 FLOAT8TO4 f32 |
    sync.aligned m16n8k32 row.col MX8 f32 FLOAT8TO4 FLOAT8TO4 f32 ue8m0 |
    sync.aligned m16n8k64 row.col MX4 f32.e2m1.e2m1.f32 ue8m0 |
    sync.aligned m16n8k64 row.col NV4_2X f32.e2m1.e2m1.f32 ue8m0 |
    sync.aligned m16n8k64 row.col NV4_4X f32.e2m1.e2m1.f32 ue8m0/ue4m3;;
    6.4 sm_70 | m16n8k8/m8n8k16/m8n8k32 6.5 sm_75 |
    m16n8k16/m16n8k32/m16n8k64/m16n8k256/m16n8k4/bf16/m8n8k4.f64/m16n8k128 7.0 sm_80 | m8n8k128 7.0 sm_75 |
    b1.and 7.1 sm_80 | m16n8k4.f64/m16n8k8.f64/m16n8k16.f64 7.8 sm_90 | e4m3/e5m2 8.4 sm_89 |
    m16n8k16.e4m3/m16n8k16.e5m2/f16.e4m3/f16.e5m2 8.7 sm_89 | kind::f8f6f4 8.7 sm_100f/sm_101f/sm_110f/sm_120f |
    e2m3/e3m2/e2m1/block_scale 8.7 sm_120f |
    scale_vec::4X.ue8m0 9.1 sm_120f
mma.sp mma.sp::ordered_metadata: matrix, exchanges, tiles;
    result value*5 value@block_scale selector@block_scale value@block_scale selector@block_scale;
    sync.aligned m16n8k16/m16n8k32 row.col f16.f16.f16.f16/f32.f16.f16.f32 |
    sync.aligned m16n8k16/m16n8k32 row.col f32 bf16 bf16 f32 |
    sync.aligned m16n8k8/m16n8k16 row.col f32 tf32 tf32 f32 |
    sync.aligned m16n8k64 row.col f32 FLOAT8 FLOAT8 f32 |
    sync.aligned m16n8k32/m16n8k64 row.col satfinite? s32 BYTE BYTE s32 |
    sync.aligned m16n8k64/m16n8k128 row.col satfinite? s32 NIBBLE NIBBLE s32 |
    sync.aligned m16n8k64 row.col kind::f8f6f4 f16 FLOAT8TO4 FLOAT8TO4 f16 |
    sync.aligned m16n8k64 row.col kind::f8f6f4 f32 FLOAT8TO4 FLOAT8TO4 f32 |
    sync.aligned m16n8k64 row.col MX8 f32 FLOAT8TO4 FLOAT8TO4 f32 ue8m0 |
    sync.aligned m16n8k128 row.col MX4 f32.e2m1.e2m1.f32 ue8m0 |
    sync.aligned m16n8k128 row.col NV4_2X f32.e2m1.e2m1.f32 ue8m0 |
    sync.aligned m16n8k128 row.col NV4_4X f32.e2m1.e2m1.f32 ue8m0/ue4m3;;
    7.1 sm_80 | sp::ordered_metadata 8.5 sm_80 | kind::f8f6f4 8.7 sm_100f/sm_101f/sm_110f/sm_120f |
    e2m3/e3m2/e2m1/f16.e4m3/f16.e5m2/block_scale 8.7 sm_120f | scale_vec::4X.ue8m0 9.1 sm_120f
wmma.load: matrix, loads, access; result address stride?; ; - pointer; WMMA
wmma.load.a: matrix, loads, access; result address stride?;
    sync.aligned LAYOUT CUBES MATRIX_SPACE? f16/bf16/BYTE | sync.aligned LAYOUT m16n16k8 MATRIX_SPACE? tf32 |
    sync.aligned LAYOUT m8n8k4 MATRIX_SPACE? f64 | sync.aligned row m8n8k32 MATRIX_SPACE? NIBBLE |
    sync.aligned row m8n8k128 MATRIX_SPACE? b1
wmma.load.b: matrix, loads, access; result address stride?;
    sync.aligned LAYOUT CUBES MATRIX_SPACE? f16/bf16/BYTE | sync.aligned LAYOUT m16n16k8 MATRIX_SPACE? tf32 |
    sync.aligned LAYOUT m8n8k4 MATRIX_SPACE? f64 | sync.aligned col m8n8k32 MATRIX_SPACE? NIBBLE |
    sync.aligned col m8n8k128 MATRIX_SPACE? b1
wmma.load.c: matrix, loads, access; result address stride?; sync.aligned LAYOUT CUBES MATRIX_SPACE? f16/f32/s32 |
    sync.aligned LAYOUT m16n16k8 MATRIX_SPACE? f32 | sync.aligned LAYOUT m8n8k4 MATRIX_SPACE? f64 |
    sync.aligned LAYOUT m8n8k32/m8n8k128 MATRIX_SPACE? s32
wmma.store: matrix, stores, access; address value stride?; ; pointer; WMMA
wmma.store.d: matrix, stores, access; address value stride?; sync.aligned LAYOUT CUBES MATRIX_SPACE? f16/f32/s32 |
    sync.aligned LAYOUT m16n16k8 MATRIX_SPACE? f32 | sync.aligned LAYOUT m8n8k4 MATRIX_SPACE? f64 |
    sync.aligned LAYOUT m8n8k32/m8n8k128 MATRIX_SPACE? s32
wmma.mma: matrix, exchanges, tiles; result value*3; sync.aligned LAYOUT LAYOUT CUBES f16/f32 f16/f32 |
    sync.aligned LAYOUT LAYOUT CUBES f32 bf16 bf16 f32 |
    sync.aligned LAYOUT LAYOUT CUBES s32.s8.s8.s32/s32.u8.u8.s32 satfinite? |
    sync.aligned LAYOUT LAYOUT m16n16k8 f32 tf32 tf32 f32 | sync.aligned LAYOUT LAYOUT m8n8k4 ROUND? f64 f64 f64 f64 |
    sync.aligned row.col m8n8k32 s32.s4.s4.s32/s32.u4.u4.s32 satfinite? |
    and/xor popc sync.aligned row.col m8n8k128 s32 b1 b1 s32;; WMMA

activemask: warp, exchanges, converges; result; b32; T; 6.2 sm_30
elect: warp, exchanges, waits, elects; result lanes; sync; count count; 8.0 sm_90
match: warp, exchanges, waits; result value lanes; any/all sync b32/b64; count T count; 6.0 sm_70
redux: warp, exchanges, waits; result value lanes; sync add/min/max WORD | sync BOOL b32 |
    sync min/max NaN? abs? f32; T T count; 7.0 sm_80 | f32 8.6 sm_100f
shfl: warp, exchanges, waits, moves, shuffles; result value lanes*2 lanes@sync;
    sync up/down/bfly/idx b32; T T T T count; sync 6.0 sm_30
vote: warp, exchanges, waits; result value lanes@sync; sync all/any/uni pred | sync ballot b32; T pred count;
    sync 6.0 sm_30

bar: barrier, waits, orders, signals, named; barrier barrier?; sync | red popc u32 | red and/or pred
barrier: barrier, waits, orders, signals, named; barrier barrier?; cta? sync aligned? | cta? red popc aligned? u32 |
    cta? red and/or aligned? pred;; 6.0 sm_30 | cta 7.8 sm_20
bar.cta: barrier, waits, orders, signals, named; barrier barrier?; sync | red popc u32 | red and/or pred;; 7.8 sm_20
bar.arrive bar.cta.arrive: barrier, waits, orders, signals, named, arrives; barrier*2; -
barrier.arrive barrier.cta.arrive: barrier, waits, orders, signals, named, arrives; barrier*2; aligned?
bar.red bar.cta.red barrier.red barrier.cta.red: barrier, waits, orders, signals, updates, votes, named; result barrier
    barrier? value; ; T
bar.warp: barrier, waits, orders, signals, exchanges, of_warp; barrier; sync; count; 6.0 sm_30
barrier.cluster: barrier, waits, orders, signals, cluster; -; arrive release/relaxed? aligned? |
    arrive.aligned release/relaxed | wait acquire? aligned? | wait.aligned.acquire;;
    7.8 sm_90 | relaxed/release/acquire 8.0 sm_90
barrier.cluster.arrive: barrier, orders, signals, arrives, cluster; -
mbarrier: barrier, orders, signals, mbarrier; result address barrier? barrier?; ;;
    7.0 sm_80 | release/acquire 8.0 sm_80 | relaxed 8.0 sm_90
mbarrier.init: barrier, orders, signals, mbarrier, makes; address barrier; SHARED? b64; - count
mbarrier.inval: barrier, orders, signals, mbarrier, ends_use; address; SHARED? b64
mbarrier.arrive mbarrier.arrive_drop: barrier, orders, signals, mbarrier, arrives; result address barrier?;
    ARRIVED? SHARED/shared::cluster? b64 | noComplete release.cta? SHARED? b64; state - count;
    _ 7.1 sm_80 | count 7.8 sm_90 | relaxed 8.6 sm_90
mbarrier.arrive.expect_tx mbarrier.arrive_drop.expect_tx: barrier, orders, signals, mbarrier, arrives;
    result address barrier;
    ARRIVED? SHARED/shared::cluster? b64;; 8.0 sm_90
mbarrier.arrive.noComplete mbarrier.arrive_drop.noComplete: barrier, orders, signals, mbarrier, arrives;
    result address barrier
mbarrier.expect_tx mbarrier.complete_tx: barrier, orders, signals, mbarrier; address barrier;
    relaxed.cta/relaxed.cluster? SHARED/shared::cluster? b64;; 8.0 sm_90
mbarrier.test_wait: barrier, tries, waits, orders, signals, mbarrier, polls; result address barrier;
    parity? WAITED? SHARED? b64;
    pred - state; relaxed 8.6 sm_90
mbarrier.try_wait: barrier, tries, waits, orders, signals, mbarrier, polls; result address barrier barrier?;
    parity? WAITED? SHARED? b64; pred - state count; 7.8 sm_90 | relaxed 8.6 sm_90
mbarrier.test_wait.parity: barrier, tries, waits, orders, signals, mbarrier, polls; result address barrier; ;
    pred - count; 7.1 sm_80
mbarrier.try_wait.parity: barrier, tries, waits, orders, signals, mbarrier, polls; result address barrier barrier?; ;
    pred - count count
mbarrier.pending_count: barrier, orders, signals, mbarrier, counts; result value; b64; count state
fence: barrier, orders, fences; -; sc/acq_rel/acquire/release? SCOPE |
    acquire.sync_restrict::shared::cluster.cluster | release.sync_restrict::shared::cta.cluster |
    mbarrier_init.release.cluster;; 6.0 sm_70 | mbarrier_init 8.0 sm_90
fence.proxy: barrier, orders, fences; -; alias/async/async.global/async.shared::cta/async.shared::cluster |
    async::generic.acquire.sync_restrict::shared::cluster.cluster |
    async::generic.release.sync_restrict::shared::cta.cluster;; 7.5 sm_60 | async 8.0 sm_90
fence.proxy.tensormap::generic: barrier, orders, serial, fences; address@acquire bytes@acquire; acquire/release SCOPE;;
    8.3 sm_90
membar: barrier, orders, fences; -; cta/gl/sys | proxy.alias;; proxy 7.5 sm_60
griddepcontrol: barrier, orders, grids; -; launch_dependents/wait;; 7.8 sm_90

cp.async.ca cp.async.cg: async_copy, copies, orders, signals, of_thread, issues;
    address address bytes bytes? policy@L2::cache_hint;
    SHARED global HINT? PREFETCH?; - - - ignored; 7.0 sm_80
cp.async.commit_group: async_copy, orders; -; -;; 7.0 sm_80
cp.async.wait_all: async_copy, orders, signals; -; -;; 7.0 sm_80
cp.async.wait_group: async_copy, orders, signals; barrier; -; count; 7.0 sm_80
cp.async.bulk.wait_group: async_copy, orders, signals; barrier; read?; count
cp.async.mbarrier: async_copy, orders, signals, mbarrier; address; ;; 7.0 sm_80
cp.async.mbarrier.arrive: async_copy, orders, signals, mbarrier, arrives, issues; address; noinc? SHARED? b64; generic
cp.async.bulk: async_copy, copies, orders, signals, tiles, issues;
    address address bytes address@mbarrier::complete_tx::bytes
    mask@multicast::cluster policy@L2::cache_hint mask@cp_mask;
    shared::cluster global COMPLETE MULTICAST? HINT? | shared::cta global COMPLETE HINT? |
    shared::cluster shared::cta COMPLETE | global shared::cta bulk_group HINT? cp_mask?;;
    8.0 sm_90 | shared::cta.global 8.6 sm_90 | cp_mask 8.6 sm_100
cp.async.bulk.commit_group: async_copy, orders; -; -
cp.async.bulk.prefetch: async_copy, orders; address bytes policy@L2::cache_hint; L2 HINT? global
cp.async.bulk.prefetch.tensor: async_copy, orders; address mask@im2col policy@L2::cache_hint;
    DIMENSIONS L2 HINT? global tile? | 3d/4d/5d L2 HINT? global im2col | 2d L2 HINT? global tile::gather4;;
    8.0 sm_90 | tile::gather4 8.6 sm_100f/sm_101f/sm_110f
cp.async.bulk.tensor: async_copy, copies, orders, signals, tiles, issues, tensor_map;
    address address address@mbarrier::complete_tx::bytes
    mask@im2col mask@multicast::cluster policy@L2::cache_hint;
    DIMENSIONS shared::cluster global tile? COMPLETE MULTICAST? CTA_GROUP? HINT? |
    3d/4d/5d shared::cluster global im2col COMPLETE MULTICAST? CTA_GROUP? HINT? |
    2d shared::cluster global tile::gather4 COMPLETE MULTICAST? CTA_GROUP? HINT? |
    2d shared::cta global tile::gather4 COMPLETE CTA_GROUP? HINT? |
    2d global shared::cta tile::scatter4 bulk_group HINT? |
    DIMENSIONS shared::cta global tile? COMPLETE CTA_GROUP? HINT? |
    3d/4d/5d shared::cta global im2col COMPLETE CTA_GROUP? HINT? |
    DIMENSIONS global shared::cta tile? bulk_group HINT? | 3d/4d/5d global shared::cta im2col_no_offs bulk_group HINT?
cp.reduce.async.bulk: async_copy, reduces, orders, signals, tiles, serial, issues; address address bytes
    address@mbarrier::complete_tx::bytes policy@L2::cache_hint;
    global shared::cta bulk_group HINT? and/or/xor b32/b64 |
    global shared::cta bulk_group HINT? add WORD/u64/f32/f64 |
    global shared::cta bulk_group HINT? add noftz f16/bf16 | global shared::cta bulk_group HINT? inc/dec u32 |
    global shared::cta bulk_group HINT? min/max WIDE/f16/bf16 | shared::cluster shared::cta COMPLETE and/or/xor b32 |
    shared::cluster shared::cta COMPLETE add WORD/u64 | shared::cluster shared::cta COMPLETE inc/dec u32 |
    shared::cluster shared::cta COMPLETE min/max WORD;; 8.0 sm_90
cp.reduce.async.bulk.tensor: async_copy, reduces, orders, signals, tiles, serial, issues, tensor_map;
    address address policy@L2::cache_hint;
    DIMENSIONS global shared::cta REDUCTION tile? bulk_group HINT? |
    3d/4d/5d global shared::cta REDUCTION im2col_no_offs bulk_group HINT? |
    2d global shared::cta REDUCTION tile::scatter4 bulk_group HINT?
tensormap.cp_fenceproxy: async_copy, copies, orders, signals, serial; address address bytes;
    global shared::cta tensormap::generic release SCOPE sync.aligned;; 8.3 sm_90
tensormap.replace: async_copy, stores, orders, signals, serial; address bytes;
    tile global_address/global_stride global/shared::cta? b1024 b64 |
    tile rank/box_dim/global_dim/element_stride/elemtype/interleave_layout/swizzle_mode/fill_mode global/shared::cta?
    b1024 b32 | tile swizzle_atomicity global/shared::cta? b1024 b32; pointer T;
    8.3 sm_90a/sm_100f/sm_101f/sm_110f/sm_120f | swizzle_atomicity 8.6 sm_100f/sm_101f/sm_110f/sm_120f
tensormap.replace.tile.global_address: async_copy, stores, orders, signals, serial; address elsewhere
tensormap.replace.tile.box_dim tensormap.replace.tile.global_dim tensormap.replace.tile.element_stride: async_copy,
    stores, orders, signals, serial; address bytes*2; ;
    pointer count count
tensormap.replace.tile.global_stride: async_copy, stores, orders, signals, serial; address bytes*2; ;
    pointer count T

wgmma.mma_async: wgmma, loads, shared, other, tiles, issues; result descriptor*2 alike value? value? value? value?;
    sync.aligned M64K16 f16/f32 f16 f16 | sync.aligned M64K16 f32 bf16 bf16 | sync.aligned M64K8 f32 tf32 tf32 |
    sync.aligned M64K32 f16/f32 FLOAT8 FLOAT8 | sync.aligned M64INTK32 satfinite? s32 BYTE BYTE |
    sync.aligned M64INTK256 s32 b1 b1 and popc;; 8.0 sm_90a | s8.u8/u8.s8 8.4 sm_90a
wgmma.mma_async.sp: wgmma, loads, shared, other, tiles, issues;
    result descriptor*2 value*2 alike value? value? value? value?;
    sync.aligned M64K32 f16/f32 f16 f16 | sync.aligned M64K32 f32 bf16 bf16 | sync.aligned M64K16 f32 tf32 tf32 |
    sync.aligned M64K64 f16/f32 FLOAT8 FLOAT8 | sync.aligned M64INTK64 satfinite? s32 BYTE BYTE;; 8.2 sm_90a
tcgen05.alloc: tcgen05, stores, shared, waits, orders, signals, allocates; address elsewhere;
    CTA_GROUP sync aligned SHARED? b32; generic count; TCGEN05
tcgen05.dealloc: tcgen05, orders, signals, frees; elsewhere*2; CTA_GROUP sync aligned b32; count count; TCGEN05
tcgen05.relinquish_alloc_permit: tcgen05, signals; -; CTA_GROUP sync aligned;; TCGEN05
tcgen05.ld: tcgen05, loads, tensor, orders; result address;
    sync.aligned 32x32b REPEATED pack::16b? b32 | sync.aligned 16x64b REPEATED pack::16b? b32 |
    sync.aligned 16x128b REPEATED64 pack::16b? b32 | sync.aligned 16x256b REPEATED32 pack::16b? b32; T tensor; TCGEN05
tcgen05.ld.sync.aligned.16x32bx2: tcgen05, loads, tensor, orders; result address value; REPEATED pack::16b? b32;
    T tensor state
tcgen05.ld.red: tcgen05, loads, tensor, orders; result*2 address; sync.aligned 32x32b REDUCED min/max abs? NaN? f32 |
    sync.aligned 32x32b REDUCED min/max WORD | sync.aligned 32x32b REDUCED WORD min/max; T T tensor;
    8.8 sm_101f/sm_103f/sm_110f
tcgen05.ld.red.sync.aligned.16x32bx2: tcgen05, loads, tensor, orders; result*2 address value;
    REDUCED min/max abs? NaN? f32 | REDUCED min/max WORD | REDUCED WORD min/max; T T tensor state
tcgen05.st: tcgen05, stores, tensor, orders; address value;
    sync.aligned 32x32b REPEATED unpack::16b? b32 | sync.aligned 16x64b REPEATED unpack::16b? b32 |
    sync.aligned 16x128b REPEATED64 unpack::16b? b32 | sync.aligned 16x256b REPEATED32 unpack::16b? b32; tensor T;
    TCGEN05
tcgen05.st.sync.aligned.16x32bx2: tcgen05, stores, tensor, orders; address value*2; REPEATED unpack::16b? b32;
    tensor state T
tcgen05.wait::ld tcgen05.wait::st: tcgen05, orders, signals; -; sync.aligned;; TCGEN05
tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync: tcgen05, orders; -; -;; TCGEN05
tcgen05.cp: tcgen05, stores, tensor, tiles, orders, signals; address descriptor;
    CTA_GROUP 128x256b/4x256b/128x128b DECOMPRESSED? |
    CTA_GROUP 64x128b.warpx2::02_13/64x128b.warpx2::01_23 DECOMPRESSED? |
    CTA_GROUP 32x128b.warpx4 DECOMPRESSED?; tensor state; TCGEN05
tcgen05.shift: tcgen05, updates, tensor, orders, signals; address; CTA_GROUP down; tensor;
    8.6 sm_100a/sm_101a/sm_103a/sm_110a
tcgen05.commit: tcgen05, orders, signals, mbarrier, arrives; address mask@multicast::cluster;
    CTA_GROUP mbarrier::arrive::one shared::cluster? MULTICAST? b64; pointer; TCGEN05
tcgen05.mma tcgen05.mma.sp: tcgen05, updates, tensor, tiles, orders, signals;
    address matrix descriptor address@sp elsewhere address*2@block_scale value value? value?;
    CTA_GROUP MMA_KIND COLLECTOR? | CTA_GROUP MMA_KIND ashift collector::a::discard/collector::a::lastuse? |
    CTA_GROUP kind::mxf8f6f4 block_scale scale_vec::1X/block32? COLLECTOR? |
    CTA_GROUP kind::mxf4 block_scale scale_vec::2X/block32? COLLECTOR? |
    CTA_GROUP kind::mxf4nvf4 block_scale scale_vec::2X/scale_vec::4X/block16/block32 COLLECTOR?;
    tensor tensor - tensor - tensor tensor;
    TCGEN05 | kind::i8 8.6 sm_100a/sm_101a/sm_110a | scale_vec::4X 8.6 sm_100a/sm_101a/sm_103a/sm_110a
tcgen05.mma.ws tcgen05.mma.ws.sp: tcgen05, updates, tensor, tiles, orders, signals;
    address matrix descriptor address@sp elsewhere value value?; cta_group::1 MMA_KIND COLLECTOR_OF_B?;
    tensor tensor - tensor
clusterlaunchcontrol.try_cancel: async_copy, stores, shared, serial, cancels, orders, signals; address address;
    async SHARED? COMPLETE multicast::cluster::all? b128; pointer pointer;
    8.6 sm_100 | multicast::cluster::all 8.6 sm_100f/sm_101f/sm_110f/sm_120f
clusterlaunchcontrol.query_cancel: move; result value; is_canceled pred b128 |
    get_first_ctaid::x/get_first_ctaid::y/get_first_ctaid::z b32 b128 | get_first_ctaid v4 b32 b128; U T; 8.6 sm_100

wgmma.fence: wgmma, other; -; sync.aligned;; 8.0 sm_90a
wgmma.commit_group: wgmma, orders; -; sync.aligned;; 8.0 sm_90a
wgmma.wait_group: wgmma, orders, signals; barrier; sync.aligned;; 8.0 sm_90a

setmaxnreg: control, waits, signals, polls, registers; barrier; inc/dec sync.aligned u32;;
    8.0 sm_90a/sm_100f/sm_101f/sm_110f/sm_120f
brkpt: control, other; -; -
trap: control, other, ends; -; -
brx: control, other, branches; branch branch
brx.idx: control, other, branches; branch branch; uni?;; 6.0 sm_30
call: control, other, calls, stack; branch value? value? value?; uni?
%beyond: control, other; branch value; -
"""
"""Rows: the beginnings of opcodes, a colon, and, between semicolons, the class with the effects of the instruction, its
operands, the modifiers that may follow, the types of the operands, and the version of the PTX ISA and the target that
the instruction needs. Modifiers and types that a row lacks are those of a shorter beginning, and what that needs the
instruction needs too.

Classes are those of `CLASSES`; "arithmetic" is "float" or "integer" by the type of the opcode. Effects are those of
`EFFECTS`; an instruction without effects computes results from its operands. Words of `QUALITIES` may follow.

Operands: ``result`` and ``address`` are what they say, ``policy`` is a cache policy, ``target`` a label; the others
name what a value is for. ``value*2`` stands for two, ``value?`` for one that may be missing, ``value@and/or`` for one
that is there if, and only if, the opcode has one of these modifiers.

Modifiers: they follow in one of the ways that ``|`` parts. ``/`` parts a choice, ``?`` behind a choice lets it be left
out, and capitals name words of `modifiers.WORDS`. ``-`` stands for no operand, or no modifier.

Types: T is the last type of the opcode and U the first. ``count`` is an integer of 32 bits, ``state`` one of 64,
``integer`` one of any width, ``ignored`` a count of bytes or a predicate, and ``-`` is not told here. Of an address
``pointer`` is a register of 32 or 64 bits, ``wide`` one of 64, ``generic`` a pointer where the opcode names no state
space, ``tensor`` a register of 32 bits that holds an address of tensor memory, and ``-`` is one of any width, but of
32 bits only where the opcode names a narrow state space.

Needs: ``|`` parts them. One may begin with modifiers, all of which an opcode with that need has, in this order; ``/``
or a blank parts a choice. ``8.1 sm_89, 7.8 sm_90`` is the first in modules of that version, and else the second.
Capitals name words of `NEEDS`. What modifiers of any instruction need is in `features.py`.
"""

NEEDS = {
    "WMMA": "6.0 sm_70 | aligned 6.3 sm_70 | s8/u8/s32 6.3 sm_72 | s4/u4/b1/m8n8k32/m8n8k128 6.3 sm_75 | "
    "bf16/f64/m16n16k8 7.0 sm_80 | and 7.1 sm_80",
    "TCGEN05": "8.6 sm_100f/sm_101f/sm_110f",
}
"""Needs of families of instructions."""

EFFECTS = {
    "loads": "reads memory",
    "stores": "writes memory",
    "shared": "accesses shared memory, where its opcode names no state space",
    "global": "accesses global memory, where its opcode names no state space",
    "tensor": "accesses tensor memory",
    "updates": "reads and writes the same memory",
    "copies": "reads the last memory that the opcode names, and writes the first",
    "reduces": "copies, and reads what it replaces",
    "access": "accesses memory, and does nothing else",
    "votes": "exchanges predicates at the barrier of a CTA",
    "exchanges": "gives a lane what other lanes of its warp hold",
    "waits": "may wait for other threads",
    "tries": "tests the phase of an mbarrier",
    "orders": "orders what its thread does with what others do, or issues what others wait for",
    "signals": "changes or reads barriers, pending copies or registers of the warpgroup",
    "tiles": "multiplies or copies tiles, which takes most of a kernel's time",
    "serial": "shows the order in which CTAs run: sums in global memory, written tensor maps",
    "cancels": "takes clusters that have not begun from the grid",
    "private": "has an effect that no other thread sees",
    "other": "has another effect",
}
"""Effects of instructions."""

QUALITIES = {
    "moves": "brings bits of its operands elsewhere, and computes nothing with them",
    "strict": "its result has no value where one of its sources has none; others may use a part of the bits",
    "maps": "gives the address of the same variable in another state space or CTA",
    "widens": "takes registers that are wider than its type",
    "branches": "says where its thread goes on",
    "ends": "ends its thread, or the function that it is in",
    "calls": "runs a function",
    "stack": "uses the stack of its thread, of which only the whole program says where it ends",
    "fences": "orders accesses to memory of its thread",
    "polls": "asks again, while its thread waits, whether it may go on",
    "issues": "issues what completes later: a copy, a store or an MMA",
    "of_thread": "copies a few bytes that its thread names",
    "arrives": "counts as an arrival at its barrier",
    "named": "its barrier is one of those of a CTA that have numbers",
    "of_warp": "its barrier is that of a warp",
    "cluster": "its barrier is that of a cluster",
    "mbarrier": "its barrier is an mbarrier",
    "makes": "initialises its mbarrier",
    "ends_use": "ends the life of its mbarrier",
    "counts": "reads a count out of a state of an mbarrier",
    "renames": "its result is its operand as it is",
    "transfers": "brings registers to memory, or back, and computes nothing with them",
    "rows": "its lanes give addresses of rows of matrices, and not their own",
    "tensor_map": "a tensor map describes its box in global memory",
    "discards": "leaves memory without a value",
    "peers": "gives an address in another CTA of the cluster",
    "shuffles": "gives each lane what one other lane holds",
    "transposes": "exchanges rows and columns of a matrix that the lanes of a warp hold",
    "elects": "chooses one lane of a warp",
    "converges": "its result tells which lanes of a warp execute it together",
    "registers": "changes how many registers the threads of a warpgroup have",
    "allocates": "allocates columns of tensor memory",
    "frees": "frees columns of tensor memory",
    "grids": "orders its grid with the one before or after it",
    "sleeps": "lets time pass",
}
"""Qualities of instructions: they tell apart instructions of the same class and effects."""

CLASSES = (
    *("memory", "atomic", "async_copy", "matrix", "wgmma", "tcgen05", "barrier", "warp", "control", "conversion"),
    *("comparison", "move", "float", "integer"),
)
"""Classes of instructions, for counts."""
CLOCKS = frozenset("clock clock64 clock_hi globaltimer globaltimer_lo globaltimer_hi".split())
"""Special registers that tell the time, and so the order in which CTAs run."""
SPACES = ("shared", "global", "local", "param", "const")
OWN_SPACES = frozenset(("local", "param", "const"))
"""State spaces in which no other thread writes."""
COMMUTATIVE = frozenset("add and or xor min max".split())
"""Reductions of integers whose order does not matter."""
REDUCTIONS = COMMUTATIVE | frozenset("exch cas inc dec".split())


def reduction_of(parts: Sequence[str]) -> str:
    """Return the reduction that an opcode names.

    Examples
    --------
    >>> reduction_of("red.global.add.u32".split("."))
    'add'
    """
    return next(part for part in parts if part in REDUCTIONS)


_FLOAT_TYPES = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "f32x2")
_OF_WARPGROUPS = ("wgmma", "setmaxnreg")
_WORD = re.compile(r"(?P<name>\w+)(?:\*(?P<count>\d))?(?P<optional>\?)?(?:@(?P<modifiers>\S+))?")


class Form(NamedTuple):
    """Operands of an opcode.

    Attributes
    ----------
    words : tuple of str
        Role of each operand.
    optional : int
        Number of operands that may be missing, beside the result.
    """

    words: tuple[str, ...]
    optional: int


class Row(NamedTuple):
    """Row of the table: class, effects, qualities, operands, ways to spell modifiers, types of operands, and needs."""

    kind: str
    effects: frozenset[str]
    qualities: frozenset[str]
    operands: str
    ways: tuple[str, ...]
    types: tuple[str, ...]
    needs: tuple[str, ...]


def _has(word: str) -> cached_property[bool]:
    """Make an attribute of `Traits` that is True if the row of the instruction has a word, an effect or a quality."""
    return cached_property(lambda traits: word in traits.qualities or word in traits.effects)


@dataclass(frozen=True)
class Traits:
    """Traits of an instruction, as its opcode says them.

    Attributes
    ----------
    kind : str
        The class, one of `CLASSES`.
    effects : frozenset of str
        Effects beside results; empty if the instruction is not known.
    qualities : frozenset of str
        Words of `QUALITIES`.
    form : Form or None
        Its operands; None if the instruction is not known.
    loads, stores : tuple of str
        The state spaces that it reads and writes; "generic" is any of them, "barrier" where predicates meet.
    cta_group : int
        CTAs whose tensor cores work together: 2 with ``.cta_group::2``, else 1.
    is_bulk : bool
        True of bulk and tensor copies, and of operations on bulk groups.
    is_relaxed : bool
        True with ``.relaxed``: at a barrier, an arrival releases and a wait acquires nothing.
    is_sparse : bool
        True of an MMA whose A is sparse.
    brings_bytes : bool
        True if an mbarrier counts the bytes that it writes.
    announces_bytes : bool
        True if it adds to the bytes that a phase of an mbarrier expects.
    takes_registers : bool
        True of ``setmaxnreg.inc``.
    threads : int
        Threads that must execute it together: 1, a warp of 32, or a warpgroup of 128. The modifier ``.aligned``
        says so, which ``bar`` has without its name. Under a condition all must evaluate it alike; otherwise what the
        instruction does is undefined.
    """

    kind: str
    effects: frozenset[str]
    qualities: frozenset[str]
    form: Form | None
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    cta_group: int
    is_bulk: bool
    is_relaxed: bool
    is_sparse: bool
    brings_bytes: bool
    announces_bytes: bool
    takes_registers: bool
    threads: int

    is_access = _has("access")
    """True if all it does is to access memory."""
    moves = _has("moves")
    """True if it brings bits of its operands elsewhere, and computes nothing with them."""
    renames = _has("renames")
    """True if its result is its operand as it is."""
    transfers = _has("transfers")
    """True if it brings registers to memory, or back, and computes nothing with them."""
    is_strict = _has("strict")
    """True if its result has no value where one of its sources has none."""
    maps = _has("maps")
    """True if it gives the address of the same variable in another state space or CTA."""
    reaches_peers = _has("peers")
    """True if it gives an address in another CTA of the cluster."""
    branches = _has("branches")
    """True if it says where its thread goes on."""
    calls = _has("calls")
    """True if it runs a function."""
    fences = _has("fences")
    """True if it orders accesses to memory of its thread."""
    polls = _has("polls")
    """True if it asks again, while its thread waits, whether it may go on."""
    issues = _has("issues")
    """True if it issues an operation that completes later: a copy, a store or an MMA of Hopper."""
    is_copy_of_thread = _has("of_thread")
    """True if it copies a few bytes that its thread names."""
    has_tensor_map = _has("tensor_map")
    """True if a tensor map describes its box in global memory."""
    takes_rows = _has("rows")
    """True if its lanes give addresses of rows of matrices, and not their own."""
    discards = _has("discards")
    """True if it leaves memory without a value."""
    shuffles = _has("shuffles")
    """True if it gives each lane the value of one other lane."""
    transposes = _has("transposes")
    """True if it exchanges rows and columns of a matrix that the lanes of a warp hold."""
    elects = _has("elects")
    """True if it chooses one lane of a warp."""
    tells_active = _has("converges")
    """True if its result tells which lanes of a warp execute it together."""
    sets_registers = _has("registers")
    """True if it changes how many registers the threads of a warpgroup have."""
    allocates = _has("allocates")
    """True if it allocates columns of tensor memory."""
    frees = _has("frees")
    """True if it frees columns of tensor memory."""
    orders_grids = _has("grids")
    """True if it orders its grid with the one before or after it."""
    sleeps = _has("sleeps")
    """True if it lets time pass."""
    makes_mbarrier = _has("makes")
    """True if it initialises an mbarrier."""
    ends_mbarrier = _has("ends_use")
    """True if it ends the life of an mbarrier."""
    counts_pending = _has("counts")
    """True if it reads a count out of a state of an mbarrier."""
    arrives = _has("arrives")
    """True if it counts as an arrival at its barrier."""
    exchanges = _has("exchanges")
    """True if it gives a lane values of other lanes of its warp."""
    waits = _has("waits")
    """True if it may wait for other threads."""
    tries = _has("tries")
    """True if it tests the phase of an mbarrier."""
    orders = _has("orders")
    """True if it orders its thread's accesses with others', or issues operations that others wait for."""
    signals = _has("signals")
    """True if it changes or reads barriers, pending copies or registers of the warpgroup."""
    votes = _has("votes")
    """True if threads exchange predicates at a named barrier; the first operand is then the result."""

    @property
    def is_known(self) -> bool:
        """True if a row describes the instruction."""
        return self.form is not None

    @property
    def is_plain(self) -> bool:
        """True if all it does is to compute results, or to have effects that no other thread sees."""
        return self.form is not None and self.effects <= _PRIVATE

    @property
    def is_pure(self) -> bool:
        """True if all it does is to compute results from its operands."""
        return self.form is not None and not self.effects

    @property
    def access(self) -> Literal["", "read", "write", "atomic"]:
        """Access of a load, a store or an atomic of threads; empty for every other instruction."""
        if self.is_atomic:
            return "atomic"
        if self.kind not in ("memory", "matrix"):
            return ""
        return "read" if self.loads else "write" if self.stores else ""

    @property
    def is_atomic(self) -> bool:
        """True if its threads read and write memory in one step."""
        return self.kind == "atomic"

    @property
    def has_result(self) -> bool:
        """True if it writes a register by itself."""
        return self.form is not None and "result" in self.form.words

    @property
    def reads_memory(self) -> bool:
        """True if a thread gets the old contents of memory, from a load or an atomic."""
        return self.kind in ("memory", "atomic") and bool(self.loads) and self.has_result

    @property
    def gathers(self) -> bool:
        """True if its results are made of values that other lanes of its warp give."""
        return self.kind == "warp" and self.form is not None and "value" in self.form.words

    @property
    def is_warp_mma(self) -> bool:
        """True if the lanes of a warp multiply tiles of their registers."""
        return self.kind == "matrix" and "tiles" in self.effects

    @property
    def is_tensor_load(self) -> bool:
        """True if a warp gets the contents of tensor memory."""
        return self.loads == ("tensor",) and self.has_result

    @property
    def is_tensor_store(self) -> bool:
        """True if a warp puts registers into tensor memory."""
        return self.stores == ("tensor",) and self.kind == "tcgen05" and "tiles" not in self.effects and not self.loads

    @property
    def is_warpgroup_mma(self) -> bool:
        """True if it is an asynchronous MMA of a warpgroup."""
        return self.kind == "wgmma" and "tiles" in self.effects

    @property
    def commits(self) -> bool:
        """True if it makes an mbarrier track its thread's operations of the tensor core: tcgen05.commit."""
        return self.kind == "tcgen05" and self.arrives

    @property
    def is_tensor_mma(self) -> bool:
        """True if it is an MMA of the tensor core with accumulators in tensor memory."""
        return self.kind == "tcgen05" and {"tiles", "updates"} <= self.effects

    @property
    def returns(self) -> bool:
        """True if it ends a function that was called."""
        return {"ends", "stack"} <= self.qualities

    @property
    def barrier(self) -> str:
        """The barrier that it is about: "named" of a CTA, "of_warp", "cluster", "mbarrier"; empty if there is none."""
        return next(iter(self.qualities & _BARRIERS), "")

    @property
    def meets(self) -> bool:
        """True if its barrier is one of the hardware, for threads of a warp, a CTA or a cluster."""
        return self.barrier not in ("", "mbarrier")


_PRIVATE = frozenset(("private",))
_BARRIERS = frozenset(("named", "of_warp", "cluster", "mbarrier"))


def _read(table: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row_text in rows_of(table):
        names, _, told = row_text.partition(": ")
        columns = [column.strip() for column in told.split(";")]
        traits, operands, modifiers, types, needs = columns + [""] * (5 - len(columns))
        kind, *others = traits.split(", ")
        ways = tuple(way.strip(" -") for way in modifiers.split("|")) if modifiers else ()
        of = tuple(one for need in filter(None, needs.split(" | ")) for one in NEEDS.get(need, need).split(" | "))
        words = frozenset(others)
        effects, qualities = words - QUALITIES.keys(), words & QUALITIES.keys()
        row = Row(kind, effects, qualities, operands.strip("-"), ways, tuple(types.split()), of)
        found |= dict.fromkeys(names.split(), row)
    return found


ROWS = _read(_TABLE)
"""The row of each beginning of an opcode; the longest one counts."""


def beginning(opcode: str, names: Collection[str]) -> str:
    """Return the longest beginning of an opcode that is one of some names; empty if none is.

    Examples
    --------
    >>> beginning("mbarrier.arrive.shared.b64", ROWS), beginning("something.new", ROWS)
    ('mbarrier.arrive', '')
    """
    while opcode not in names:
        if "." not in opcode:
            return ""
        opcode = opcode[: opcode.rindex(".")]
    return opcode


def row_of(opcode: str) -> Row | None:
    """Return the row of an opcode; None of one that has none."""
    return ROWS.get(beginning(opcode, ROWS))


@lru_cache(maxsize=1 << 12)
def short_name(opcode: str) -> str:
    """Return the name of an instruction in reports: its opcode without types, state spaces and other modifiers.

    Examples
    --------
    >>> short_name("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"), short_name("barrier.sync.aligned")
    ('wgmma.mma_async', 'barrier.sync')
    >>> short_name("setmaxnreg.dec.sync.aligned.u32"), short_name("shfl.sync.idx.b32"), short_name("ld.global.f32")
    ('setmaxnreg', 'shfl.sync', 'ld')
    >>> short_name("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")
    'cp.async.bulk'
    >>> short_name("mbarrier.arrive.expect_tx.shared.b64"), short_name("mbarrier.try_wait.parity.shared.b64")
    ('mbarrier.arrive.expect_tx', 'mbarrier.try_wait')
    """
    parts, told = opcode.split("."), traits(opcode)
    how = _HOW_ALIGNED if "aligned" in parts and not told.meets else _HOW
    names = [part for part in parts if part.isidentifier() and (part not in how or told.fences)]
    if told.access or told.kind == "matrix" or (len(names) < 2 and not told.fences):
        return beginning(opcode, ROWS) or parts[0]
    count = 4 if names[0] == "cp" else 3 if told.barrier == "cluster" or parts[2:3] == ["expect_tx"] else 2
    return ".".join(names[:count])


_HOW = frozenset(
    "aligned cta inc dec relaxed uni shared global bulk_group cp_mask m8n8".split()
    + "b16 b32 b64 u16 u32 u64 s32 s64 f16 f32 f64".split()
)
"""Modifiers that the name of an instruction lacks."""
_HOW_ALIGNED = _HOW | {"sync"}


@lru_cache(maxsize=1 << 12)
def traits(opcode: str) -> Traits:
    """Decode an opcode.

    Of an instruction that is not known, any memory is taken to be read and written.

    Examples
    --------
    >>> traits("setp.lt.and.u32").form.words, traits("ld.global.L2::cache_hint.u32").form.words
    (('result', 'value', 'value', 'value'), ('result', 'address', 'policy'))
    >>> traits("cp.async.ca.shared.global").form
    Form(words=('address', 'address', 'bytes', 'bytes'), optional=1)
    >>> [traits(opcode).kind for opcode in ("fma.rn.f32", "add.s32", "ld.global.f32", "bra.uni")]
    ['float', 'integer', 'memory', 'control']
    >>> copy = traits("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")
    >>> copy.loads, copy.stores
    (('global',), ('shared',))
    >>> opcodes = "bar.sync", "barrier.sync", "bar.warp.sync", "mma.sync.aligned", "setmaxnreg.inc.sync.aligned"
    >>> [traits(opcode).threads for opcode in opcodes]
    [32, 1, 1, 32, 128]
    >>> copy.is_bulk, copy.brings_bytes, traits("mbarrier.arrive.expect_tx.relaxed.cluster.b64").is_relaxed
    (True, True, True)
    >>> [traits(f"tcgen05.mma{sparse}.cta_group::2.kind::f16").is_sparse for sparse in ("", ".sp")]
    [False, True]
    """
    parts = opcode.split(".")
    row = row_of(opcode)
    kind = "arithmetic" if row is None else row.kind
    if kind == "arithmetic":
        kind = "float" if parts[-1] in _FLOAT_TYPES else "integer"
    threads, modified = _threads(parts), _modified(kind, parts)
    spaces = [space for space in (part.partition("::")[0] for part in parts[1:]) if space in SPACES]
    if row is None:
        spaces = spaces[:1] or ["generic"]
        return Traits(kind, frozenset(), frozenset(), None, (*spaces,), (*spaces,), *modified, threads)
    effects = row.effects
    spaces = spaces or [next((space for space in ("shared", "global", "tensor") if space in effects), "generic")]
    into, taken = spaces[0], spaces[-1] if effects & {"copies", "reduces"} else spaces[0]
    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    if "votes" in effects:
        loads = stores = ("barrier",)
    else:
        if effects & {"loads", "updates", "copies", "reduces"}:
            loads = (taken, into) if "reduces" in effects else (taken,)
        if effects & {"stores", "updates", "copies", "reduces"}:
            stores = (into,)
        if kind == "tcgen05" and "tiles" in effects:  # operands in shared memory
            loads = (*loads, "shared")
    return Traits(kind, effects, row.qualities, _form(row.operands, parts), loads, stores, *modified, threads)


def _modified(kind: str, parts: list[str]) -> tuple[int, bool, bool, bool, bool, bool, bool]:
    """Return the fields of `Traits` that modifiers decide."""
    return (
        2 if "cta_group::2" in parts else 1,
        kind == "async_copy" and "bulk" in parts,
        "relaxed" in parts,
        "sp" in parts or "sp::ordered_metadata" in parts,
        "mbarrier::complete_tx::bytes" in parts,
        "expect_tx" in parts,
        parts[:2] == ["setmaxnreg", "inc"],
    )


def _threads(parts: list[str]) -> int:
    if "aligned" not in parts and (parts[0] != "bar" or "warp" in parts):
        return 1
    return WARPGROUP_THREADS if parts[0] in _OF_WARPGROUPS else WARP_THREADS


def _form(operands: str, parts: list[str]) -> Form:
    words: list[str] = []
    optional = 0
    for match in map(_WORD.fullmatch, operands.split()):
        assert match is not None
        if match["modifiers"] is None or not {*match["modifiers"].split("/")}.isdisjoint(parts):
            words += [match["name"]] * int(match["count"] or 1)
            optional += match["optional"] is not None
    return Form(tuple(words), optional)
