"""Choices of tiles for problems of every kind, pinned: a change of a rule, table or cost shows what it moves."""

from dataclasses import MISSING, fields
from itertools import product

import pytest

pytest.importorskip("cutlass")

from cutepy.kernels.attention import tuned as tuned_attention
from cutepy.kernels.attention.choice import (
    SHORT,
    choose_backward,
    choose_batches,
    choose_decode,
    choose_forward,
    choose_shared,
    ctas_of,
    heads_packed,
    splits_of,
)
from cutepy.kernels.attention.config import ScoreSettings
from cutepy.kernels.gemm import GemmSignature, tuned as tuned_gemm
from cutepy.kernels.gemm.gpu import H100, H200
from cutepy.kernels.gemm.heuristic.choice import choose, chosen_us
from cutepy.kernels.gemv.choice import choose_gemv, configs, fastest
from cutepy.kernels.grouped.choice import select_grouped
from cutepy.kernels.rows import tiling
from cutepy.runtime.invariance import batch_invariant
from tests.messages import pins

EIGHT = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
HALF = {"a_dtype": "bfloat16", "b_dtype": "bfloat16", "out_dtype": "bfloat16"}
SIGNATURES = {
    "bf16": GemmSignature(**HALF),
    "by threads": GemmSignature(**HALF, a_align=4, b_align=4),
    "B major in N": GemmSignature(**HALF, b_major="mn"),
    "both major in M and N": GemmSignature(**HALF, a_major="mn", b_major="mn"),
    "tf32": GemmSignature(a_dtype="float32", b_dtype="float32", out_dtype="float32"),
    "with C": GemmSignature.standard(**HALF, c_dtype="float32", c_major="row", bias_dtype="float32", activation="gelu"),
    "fp8": GemmSignature(**EIGHT),
    "scaled by blocks": GemmSignature(**EIGHT, scale_rows=(1, 128)),
    "scaled by rows": GemmSignature(**EIGHT, scale_rows=(1, 1)),
}
EXTENTS = [
    (1, 4096, 7168), (4, 2048, 1024), (8, 130, 520), (64, 64, 8192), (64, 7168, 4096), (200, 1000, 300),
    (512, 512, 512), (1024, 3072, 2048), (4096, 4096, 4096), (8192, 8192, 512), (65536, 256, 256),
]  # fmt: skip


def told(config, *without):
    """Write the fields of a configuration that differ from their defaults."""
    found = []
    for each in fields(config):
        value = getattr(config, each.name)
        if each.name not in without and (each.default is MISSING or value != each.default):
            found.append(f"{each.name}={value}")
    return " ".join(found)


@pytest.mark.parametrize("name", SIGNATURES)
def test_tiles_of_products(name):
    signature, lines = SIGNATURES[name], []
    for m, n, k in EXTENTS:
        for gpu in (H200, H100):
            transposed, config = choose(signature, m, n, k, gpu=gpu)
            us = chosen_us(signature, m, n, k, gpu=gpu)
            lines.append(f"{m}x{n}x{k}: {us:.3g} us, {'transposed ' * transposed}{told(config, 'signature')}")
    with batch_invariant():
        lines += [f"invariant: {told(choose(signature, *each).config, 'signature')}" for each in EXTENTS[::3]]
    lines += [f"batch of 9: {told(choose(signature, *each, batch=9).config, 'signature')}" for each in EXTENTS[::3]]
    pins("\n".join(lines))


@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_products_of_few_rows(name):
    signature, lines = SIGNATURES[name], []
    for m, n, k in product((1, 2, 3, 8), (100, 1408, 8192), (520, 2744, 7168)):
        transposed, config = choose_gemv(signature, n, m, k) if m == 3 else choose_gemv(signature, m, n, k)
        family = type(fastest(signature, m, n, k).config).__name__
        ranked = configs(signature, m, n, k)
        lines.append(
            f"{m}x{n}x{k}: {'transposed ' * transposed}{told(config, 'signature')}; {family} of {len(ranked)}, "
            f"{ranked[0][0]:.3g} to {ranked[-1][0]:.3g} us"
        )
    pins("\n".join(lines))


@pytest.mark.parametrize("along", ["m", "k"])
def test_grouped_products(along):
    lines = []
    kinds = ("bf16", "fp8", "scaled by blocks") if along == "m" else ("both major in M and N",)
    for name, groups, padded in product(kinds, (4, 64), (False, True)):
        for mnk in ((2048, 4096, 7168), (8192, 1024, 2048), (512, 7168, 4096)):
            transposed, config = select_grouped(SIGNATURES[name], along, mnk, groups, padded=padded)
            how = f"{name} {mnk} {groups} {'padded ' * padded}"
            lines.append(f"{how}: {'transposed ' * transposed}{told(config.gemm, 'signature')}")
    pins("\n".join(lines))


WIDTHS = [(16, 16), (64, 64), (80, 64), (128, 128), (144, 144), (192, 128), (208, 16), (192, 192), (256, 256)]
HOW = ("dtype", "head", "head_v", "left", "right")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_tiles_of_attention(dtype):
    lines = []
    for (head, head_v), queries, (left, right) in product(
        WIDTHS, (SHORT, SHORT + 1), ((False, False), (False, True), (True, True))
    ):
        config = choose_forward(dtype, head, head_v, queries, left=left, right=right)
        how = f"{head}, {head_v}, {queries} queries{', left' * left}{', right' * right}"
        lines.append(f"{how}: {told(config, *HOW)}")
        for group in (1, 8):
            ends = told(choose_batches(dtype, head, head_v, queries, group, left=left, right=right), *HOW)
            lines.append(f"  batches, {group} heads to one: {ends}")
    for head, head_v in WIDTHS if dtype == "bfloat16" else WIDTHS[1::2]:
        for page, is_split in ((0, False), (16, True)):
            decode = choose_decode(dtype, head, head_v, left=False, right=False, page=page, is_split=is_split)
            lines.append(f"{head}, {head_v}: decode {told(decode, *HOW)}")
        for queries in (8, 9) if dtype == "bfloat16" else ():
            shared = choose_shared(dtype, head, head_v, queries, page=16, packed=8)
            lines.append(f"{head}, {head_v}: shared by {queries}: {told(shared, *HOW)}")
    pins("\n".join(lines))


def test_tiles_of_gradients():
    steps = "v0 = acc()", "v1 = head_index()", "v2 = gather(v1, 't0')", "v3 = add(v0, v2)", "return score: v3"
    table = "\n  ".join(("(t0: f32[1])", *steps))
    lines = []
    for (head, head_v), dtype, (left, right) in product(
        WIDTHS, ("float16", "bfloat16"), ((False, False), (False, True), (True, False))
    ):
        for name, changes in {
            "": {},
            "ragged": {"is_ragged": True},
            "short": {"is_short": True},
            "scored": {"scoring": ScoreSettings(table)},
            "derived": {"scoring": ScoreSettings(table, derived=("t0",))},
        }.items():
            config = choose_backward(dtype, head, head_v, left=left, right=right, **changes)
            how = f"{head}, {head_v} {dtype}{', left' * left}{', right' * right}{', ' * bool(name)}{name}"
            found = told(config, *HOW, "scoring"), config.ds_mode, config.overlays_out, config.dq_registers
            lines.append(f"{how}: {', '.join(map(str, found))}")
    pins("\n".join(lines))


def test_launches_of_attention():
    lines = [
        f"{queries}{', uneven' * uneven}, gradients of {of}, width {width}: {ctas_of(queries, uneven, 132, of, width)}"
        for queries, uneven, of, width in product((SHORT, SHORT + 1), (False, True), (0, 64, 65), (0, 192, 193))
    ]
    lines += [
        f"{tiles} tiles, {keys} keys: {splits_of(tiles, keys, 128, 132)}"
        for tiles, keys in product((1, 7, 40, 105, 106, 132), (100, 512, 8192, 131072))
    ]
    lines += [
        f"{group} heads, {tokens} tokens, {sequences} sequences: {heads_packed(group, tokens, sequences)}"
        for group, tokens, sequences in product((1, 6, 64), (1024, 1025, 16384), (0, 1, 16))
    ]
    pins("\n".join(lines))


def test_candidates_of_attention():
    lines = []
    for kind, dtype, (head, head_v), queries in product(
        ("forward", "backward"),
        ("bfloat16", "float8_e4m3fn"),
        ((64, 64), (128, 128), (192, 128), (256, 256)),
        (64, 4096),
    ):
        if (kind, dtype) == ("backward", "float8_e4m3fn"):
            continue
        problem = tuned_attention.Problem(kind, dtype, 2, queries, queries, 8, 2, head, head_v, None, 0)
        space = tuned_attention.FORWARD if kind == "forward" else tuned_attention.BACKWARD
        lines.append(
            f"{kind} {dtype} {head}, {head_v}, {queries}: {sum(1 for _ in space.candidates(problem.settings))}"
        )
        lines += [f"    {count} {why}" for why, count in sorted(space.left_out(problem.settings).items())]
    pins("\n".join(lines))


def test_candidates_of_products():
    lines = []
    for m, n, k, batch in ((64, 512, 8192, 1), (384, 200, 1024, 3), (2000, 3000, 128, 1)):
        facts = {"m": m, "n": n, "spans": -(-k // 64), "batch": batch}
        points = list(tuned_gemm.SPACE.candidates(facts))
        lines.append(f"{m}x{n}x{k}, batch of {batch}: {len(points)}")
        lines += [f"    {count} {why}" for why, count in sorted(tuned_gemm.SPACE.left_out(facts).items())]
        lines += [f"    {name} {sorted({point[name] for point in points})}" for name in tuned_gemm.SPACE.axes]
    found = tuned_gemm._with_tensor_cores(SIGNATURES["bf16"], False, 64, 9000, 1024, 1)
    for name in ("stream_k", "dynamic", "transposed"):
        for value in (False, True):
            times = [us for us, candidate in found if candidate[name] == value]
            lines.append(
                f"{name} {value}: {len(times)}" + (f", {min(times):.4g} to {max(times):.4g} us" if times else "")
            )
    problem = tuned_gemm.problem_of(SIGNATURES["bf16"], 8, 2000, 512)
    lines += map(str, tuned_gemm.candidates(problem, most=40))
    pins("\n".join(lines))


def test_tilings_of_rows():
    fits = {name: fit for name, fit in vars(tiling).items() if isinstance(fit, tiling.RowFit)}
    lines = []
    for columns in (1, 100, 1000, 1030, 4096, 8200, 16384, 40000, 65536, 128256, 262144):
        lines += [
            f"{columns} by {elems}: {tiling.tile_pieces(columns, elems).name} pieces, "
            + ", ".join(f"{name} {tiling.tile_rows(columns, elems, fit).name}" for name, fit in fits.items())
            for elems in (1, 4, 8)
        ]
        staged = (
            tiling.staged_bytes(columns, 8, 2, 2),
            tiling.staged_bytes(columns, 1, 2),
            tiling.staged_bytes(columns, 4, 4),
        )
        lines.append(f"{columns}: {staged}, {tiling.tile_rows(columns, 8, tiling.NORM, staged=staged[0]).name}")
        for rows, k in product((1, 50, 5000), (1, 64, 1024)):
            lines.append(f"{k} of {columns}, {rows} rows: {tiling.pieces_of_selection(rows, columns, k)} pieces")
    pins("\n".join(lines))
