"""Questions about Blackwell: shared-memory atoms and descriptors, tensor memory, its copies, MMA atoms."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from cutepy.layouts import sm100
from cutepy.layouts.sm100.kinds import KINDS
from cutepy.layouts.sm100.tmem_cp import SHAPES as CP_SHAPES
from cutepy.layouts.sm100.umma import CPP_TYPES
from tests.oracle.draw import write
from tests.oracle.questions import Question

_BITS = {"half_t": 16, "bfloat16_t": 16, "int8_t": 8, "float_e4m3_t": 8, "tfloat32_t": 32}
_MODES = ("INTER", "SW32", "SW64", "SW128", "SW128_32B")
_CPP = {ptx: name for name, ptx in CPP_TYPES.items()}


def fixed() -> list[Question]:
    """Every question of the reference vectors of Blackwell, in order."""
    return [*_atoms(), *_descriptors(), *_fragments(), *_copies(), *_instr_descs(), *_traits(), *_tiled_copies()]


def blackwell(seed: int, count: int) -> Iterator[Question]:
    """At most `count` of the questions above and of many more descriptors and atoms, in random order."""
    draw = random.Random(seed)
    asked = [*fixed(), *_descriptors(draw, 4 * count), *_instr_descs(draw, count)]
    draw.shuffle(asked)
    yield from list(dict.fromkeys(asked))[:count]


def _atoms() -> Iterator[Question]:
    for major, mode, kind in product(("MN", "K"), _MODES, _BITS):
        if mode != "SW128_32B" or (major == "MN" and _BITS[kind] == 32):
            yield "umma_atom", (major, mode, kind, _BITS[kind])


def _descriptors(draw: random.Random | None = None, count: int = 0) -> Iterator[Question]:
    """Tiles of an MMA in a larger one, at several places."""
    cases = [
        (major, mode, kind, mn)
        for major, mode, kind in product(("MN", "K"), _MODES, ("half_t", "float_e4m3_t", "tfloat32_t"))
        for mn in (64, 128)
        if mode != "SW128_32B" or (major == "MN" and kind == "tfloat32_t")
    ]
    chosen = cases if draw is None else [draw.choice(cases) for _ in range(count)]
    for case in chosen:
        major, mode, kind, mn = case
        bits = _BITS[kind]
        k = 256 // bits
        blocks = (2, max(4, 1024 // 256 * 4)) if draw is None else (draw.choice((1, 2, 4)), draw.choice((4, 8)))
        places = [(0, 0), (1, 3)] if draw is None else [(draw.randrange(blocks[0]), draw.randrange(4))]
        for mn_block, k_block in places:
            address = "0x2000" if draw is None else draw.choice(("0x400", "0x2400", "0xc400", "0x20400"))
            shape = write((mn * blocks[0], k * 4))
            yield "make_umma_desc", (major, mode, kind, shape, mn, k, mn_block, k_block, address)


def _fragments() -> Iterator[Question]:
    for kind, m, n in product(("float", "half_t", "int32_t"), (64, 128), (8, 64, 256)):
        yield "tmem_frg", (kind, "uint32_t", 1, "Interleaved", m, n)
    for m, n in product((64, 128), (32, 128, 256)):
        yield "tmem_frg", ("float", "uint32_t", 2, "Interleaved", m, n)
    for m, n in product((32, 64, 128), (64, 128, 256)):
        yield "tmem_frg_ws", ("float", "uint32_t", m, n)
    for kind, k in (("half_t", 16), ("tfloat32_t", 8), ("uint8_t", 32)):
        for m in (64, 128):
            yield "tmem_frg", (kind, kind, 1, "NonInterleaved", m, k)
            yield "tmem_frg", (kind, kind, 2, "Duplicated", m, k)
    for rows, (vector, count), is_a in product((128, 256), ((16, 4), (32, 2), (32, 1)), ("true", "false")):
        yield "tmem_sf_frg", ("float_ue8m0_t", vector, 1, is_a, "ScaleFactorDuplicated4by1", rows, count)
    for rows in (128, 256):
        yield "tmem_sf_frg", ("float_ue8m0_t", 16, 2, "false", "ScaleFactorDuplicated2by2", rows, 4)
    for kind, k in (("tfloat32_t", 16), ("half_t", 32), ("uint8_t", 64), ("float_e2m1_t", 128)):
        yield "tmem_e_frg", (kind, 128, k)


def _copies() -> Iterator[Question]:
    for name in sm100.tmem_copy_names():
        yield "tmem_copy_traits", (name,)
    for shape, group in product(CP_SHAPES.values(), (1, 2)):
        yield "tmem_copy_traits", (f"SM100_UTCCP_{shape.cute}_{group}cta",)


def _instr_descs(draw: random.Random | None = None, count: int = 0) -> Iterator[Question]:
    """Every pair of types of a kind, with a few shapes; C++ tells packed fp4 by the type alone."""
    for kind in KINDS.values():
        pairs = [(a, b) for a, b in product(kind.codes, kind.codes) if kind.name != "mxf4"]
        for (a, b), scale in product(pairs, kind.scale_codes or ("",)):
            choices = [(128, 64, "K", "K", 0, 0), (128, 256, "MN", "K", 0, 1)]
            if draw is not None:
                m = draw.choice((128, 256))
                n = draw.choice(kind.n_choices(cta_group=m // 128, b_major="MN"))
                choices = [(m, n, *draw.choices(("K", "MN"), k=2), *draw.choices((0, 1), k=2))]
            for m, n, a_major, b_major, a_neg, b_neg in choices:
                a_major, b_major = (x if kind.takes_mn_major(t) else "K" for x, t in ((a_major, a), (b_major, b)))
                a_neg, b_neg = (0, 0) if kind.name == "i8" else (a_neg, b_neg)
                narrow = {"e2m3": "detail::float_e2m3_unpacksmem_t", "e3m2": "detail::float_e3m2_unpacksmem_t"}
                narrow |= {} if kind.packs_fp4 else {"e2m1": "detail::float_e2m1_unpacksmem_t"}
                types = [f"UMMA::{narrow[x]}" if x in narrow else _CPP[x] for x in (a, b)]
                types = [name.replace("UMMA::detail", "cute::detail") for name in types]
                if kind.block_scaled:
                    scaled = (_CPP[scale], m, n, a_major, b_major, a_neg, b_neg, 0)
                    yield "umma_instr_desc_scaled", (*types, *scaled)
                else:
                    d = "int32_t" if kind.name == "i8" else "float"
                    yield "umma_instr_desc", (*types, d, m, n, a_major, b_major, a_neg, b_neg, 0, 0, 0)
    yield "umma_instr_desc", ("int8_t", "uint8_t", "int32_t", 64, 32, "K", "K", 0, 0, 1, 0, 0)
    yield "umma_instr_desc", ("half_t", "half_t", "half_t", 64, 64, "K", "MN", 0, 0, 0, 1, 2)


def _traits() -> Iterator[Question]:
    for kind in ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"):
        for group, source in product((1, 2), ("smem", "tmem")):
            if kind.startswith("mx") and source == "tmem":
                continue
            for m, n in ((64, 64), (128, 32), (128, 256), (256, 128)):
                known = KINDS[kind]
                if m not in known.m_choices(cta_group=group) or (kind == "mxf8f6f4" and (m, group) == (128, 2)):
                    continue
                yield "umma_traits", (sm100.umma_traits(kind, m, n, cta_group=group, a_source=source).name,)
    for kind in ("f16", "tf32", "i8", "mxf8f6f4"):
        m, group = 256, 2
        yield "umma_traits", (sm100.umma_traits(kind, m, 128, cta_group=group, sparse=True).name,)


def _tiled_copies() -> Iterator[Question]:
    """Loads and stores tiled over accumulators."""
    whole = ("tmem_frg", "float", "uint32_t", 1, "Interleaved", 128, 128)
    half = ("tmem_frg", "float", "uint32_t", 1, "Interleaved", 64, 64)
    pair = ("tmem_frg", "float", "uint32_t", 2, "Interleaved", 64, 128)
    cases = [
        *((f"32dp32b{n}x", whole) for n in (1, 8, 32, 128)),
        *((f"16dp256b{n}x", whole) for n in (1, 4)),
        *((f"16dp256b{n}x", half) for n in (1, 2, 8)),
        *((f"16dp128b{n}x", half) for n in (1, 4)),
        *((f"16dp64b{n}x", half) for n in (2, 16)),
        *((f"32dp32b{n}x", pair) for n in (1, 16, 64)),
    ]
    for (name, tensor), room, op in product(cases, ("LOAD", "STORE"), ("make_tmem_copy_TV", "make_tmem_copy_tiler")):
        yield op, (f"SM100_TMEM_{room}_{name}", *tensor)
