"""Certify our GEMM in configurations drawn at random, at sizes that enter each of its loops and roles.

python -m tests.sim.sanitize.certificate.any_rounds.gemm_trial [SECONDS [FIRST_SEED [RECORD]]]

Each configuration is launched twice: with two output tiles of many k-tiles, and with many output tiles of few. Both
launches are to be certified, and each loop of one of them for any number of further rounds. What is not is printed, and
written to the record, a line of JSON each.
"""

import json
import math
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch

from cutepy.frontends import simulate
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm
from cutepy.sim import HazardError

_TYPES = (
    ["float16", "float16"],
    ["bfloat16", "bfloat16"],
    *([a, b] for a in ("float8_e4m3fn", "float8_e5m2") for b in ("float8_e4m3fn", "float8_e5m2")),
)
_OUTPUTS = ("float16", "bfloat16", "float32")
_MOST_WORK = 150_000_000
"""Multiplications of the launches of a configuration, which take some seconds."""


def draw(seed):
    """Draw a configuration that a GPU can run."""
    rng = random.Random(f"gemm {seed}")
    while True:
        with suppress(ValueError):
            config = _drawn(rng)
            if _work(config) < _MOST_WORK:
                return config


def _work(config):
    """Return how many multiplications the launches take."""
    return sum(m * n * k * math.prod(batch) for (m, n, k), batch, _ in launches(config))


def _drawn(rng):
    a_dtype, b_dtype = rng.choice(_TYPES)
    c_dtype = rng.choice((None, None, *_OUTPUTS))
    signature = GemmSignature.standard(
        a_dtype=a_dtype,
        b_dtype=b_dtype,
        out_dtype=rng.choice(_OUTPUTS),
        a_major=rng.choice(("k", "mn")),
        b_major=rng.choice(("k", "mn")),
        out_major=rng.choice(("row", "col")),
        c_dtype=c_dtype,
        c_major=rng.choice(("row", "col")) if c_dtype else None,
        bias_dtype=rng.choice((None, None, *_OUTPUTS)),
        activation=rng.choice((None, None, "relu", "gelu")),
        batch_modes=rng.choice((0, 0, 1, 2)),
    )
    return GemmConfig(
        signature=signature,
        tile_m=rng.choice((64, 64, 64, 128, 128, 192, 256)),
        tile_n=rng.choice((32, 32, 64, 64, 96, 128, 256)),
        tile_k=rng.choice((0, 32, 32, 64)),
        warpgroups=rng.choice((1, 2)),
        consumers=rng.choice((1, 1, 2)),
        stages=rng.choice((2, 2, 3, 4)),
        cluster_m=rng.choice((1, 1, 1, 2, 2, 4)),
        cluster_n=rng.choice((1, 1, 2)),
        split_k=rng.choice((1, 1, 1, 1, 2, 2, 4)),
        epi_n=rng.choice((16, 32, 32, 64)),
        epi_stages=rng.choice((0, 0, 2, 3)),
        c_stages=rng.choice((0, 1, 2, 3)) if c_dtype else 0,
        band_rows=rng.choice((1, 8)),
    )


def launches(config):
    """Return the extents, the batch, and for how many CTAs, of launches that enter all loops often enough."""
    ctas = config.cluster_m * config.cluster_n * config.split_k
    m, n, k = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n, config.tile_k * config.split_k
    batch = (2,) + (1,) * (config.signature.batch_modes - 1) if config.signature.batch_modes else ()
    long = 4 * config.stages * config.consumers + 6
    many = _tiles(config)
    turns = config.consumers
    return (
        ((m * turns, n * (2 - len(batch[:1])), k * long), batch, ctas),
        ((m * many // (2 if batch else 1), n, k), batch, ctas),
    )


def _tiles(config):
    """Return after how many output tiles of one k-tile each all rings are where they were, twice and some more."""
    period = 2 * math.lcm(config.stages, config.c_stages or 1, config.epi_stages)
    return config.consumers * (3 * period + 8)


def run(config):
    """Return the certificates and hazards of the launches of a configuration."""
    kernel, signature = compile_gemm(config), config.signature
    types = dict(zip((operand.name for operand in signature.graph.operands), signature.operand_types, strict=True))
    with suppress(HazardError), simulate(sanitize=True) as simulation:
        for (m, n, k), batch, ctas in launches(config):
            a = _matrix(batch, m, k, signature.a_dtype, signature.a_major == "k")
            b = _matrix(batch, n, k, signature.b_dtype, signature.b_major == "k")
            c = _matrix(batch, m, n, types["c"][0], types["c"][1] == "row") if "c" in types else None
            out = _matrix(batch, m, n, signature.out_dtype, signature.out_major == "row")
            bias = torch.zeros(n, dtype=getattr(torch, types["bias"][0])) if "bias" in types else None
            kernel(a, b, c, out, ctas, bias)
    return simulation.certificates, simulation.hazards


def _matrix(batch, rows, columns, dtype, is_row_major):
    shape = (*batch, rows, columns) if is_row_major else (*batch, columns, rows)
    found = torch.zeros(shape).to(getattr(torch, dtype))
    return found if is_row_major else found.transpose(-1, -2)


def examine(seed):
    """Return the name of a configuration, and what is not certified, or not for further rounds."""
    config = draw(seed)
    certificates, hazards = run(config)
    wrong = [f"{hazard.kind}" for hazard in hazards]
    wrong += [f"not certified: {reason}" for one in certificates for reason in one.reasons]
    extended = {where for one in certificates for e in one.extends if e.holds for where, _ in e.loops}
    for one in certificates:
        wrong += [str(e) for e in one.extends if not e.holds and e.loops[0][0] not in extended]
    return config, wrong


def trial(seconds, first, record=None):
    """Examine configurations for a while; returns how many are not certified, or not extended."""
    counts, seed, end = Counter(), first, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            config, wrong = examine(seed)
            name = config.name
        except Exception as error:
            name, wrong = draw(seed).name, [f"{type(error).__name__}: {str(error)[:500]}"]
        kind = "wrong" if wrong else "certified and extended"
        if wrong and all(one.startswith("not beyond") for one in wrong):
            kind = "certified, not extended"
        counts[kind] += 1
        fact = {"seed": seed, "name": name, "kind": kind, "wrong": wrong, "seconds": round(time.monotonic() - began, 1)}
        if record is not None:
            with Path(record).open("a") as file:
                file.write(json.dumps(fact) + "\n")
        if wrong:
            print(fact, flush=True)
        seed += 1
    print(dict(counts))
    return counts["wrong"]


if __name__ == "__main__":
    seconds, first = (int(x) for x in (*sys.argv[1:3], *("60", "0")[len(sys.argv[1:3]) :]))
    sys.exit(1 if trial(seconds, first, *sys.argv[3:4]) else 0)
