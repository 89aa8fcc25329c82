"""All that follows from the fields of a configuration: tiles, stages, shared and tensor memory, MMAs, names."""

import dataclasses
import itertools

import pytest

from cutepy.kernels.mla.config import MlaConfig
from cutepy.kernels.rows import config as rows, tiling
from cutepy.kernels.rows.tiling import NormConfig, RowTiling
from cutepy.kernels.sm100.config import UmmaGemmConfig
from cutepy.kernels.sm100.signature import FLOAT4, UmmaGemmSignature
from tests.messages import pins, refuses


def derived(config):
    """Describe a configuration by its fields and its properties, but for those of a signature, one a line."""
    kind = type(config)
    found = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    for name in dir(kind):
        if not name.startswith("_") and name not in found and not callable(getattr(kind, name)):
            found[name] = getattr(config, name)
    return "\n".join(f"{name} = {getattr(value, 'name', value)}" for name, value in found.items() if name != "tiling")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"causal": True, "page": 64, "is_split": False},
        {"page": 48, "quantised": True, "cluster": 2},
        {"page": 16, "is_split": False, "cluster": 2},
    ],
    ids=str,
)
def test_latent_attention(fields):
    config = MlaConfig(dtype="bfloat16", **fields)
    last = [config.last_row(tile) for tile in range(4)]
    pins(f"{derived(config)}\nlast_row = {last}")


NVFP4 = {"a_dtype": FLOAT4, "b_dtype": FLOAT4, "scale_dtype": "float8_e4m3fn"}
MXFP8 = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e5m2", "scale_dtype": "float8_e8m0fnu"}
HALF = {"a_dtype": "float16", "b_dtype": "float16"}
KINDS = {"half": HALF, "nvfp4": NVFP4, "mxfp8": MXFP8}


def umma(kind, **fields):
    return UmmaGemmConfig(signature=UmmaGemmSignature(**KINDS[kind], out_dtype="float16"), **fields)


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize(
    ("kind", "tile_n"), [("half", 256), ("half", 96), ("half", 40), ("nvfp4", 128), ("mxfp8", 256), ("mxfp8", 128)]
)
def test_products_of_blackwell(kind, tile_n, ctas):
    try:
        pins(derived(umma(kind, tile_n=tile_n, ctas=ctas)))
    except ValueError as error:
        pins(str(error))


def test_products_of_blackwell_up_to_their_bounds():
    """The values of each field that are taken, and the words that refuse others."""
    tried = {
        ("half", "ctas"): (0, 1, 2, 3),
        ("half", "tile_n"): (0, 8, 16, 24, 32, 144, 256, 264),
        ("half", "tile_k"): (-1, 8, 16, 24, 64, 1024),
        ("half", "stages"): (-1, 1, 2, 6, 7, 8, 9),
        ("half", "accumulators"): (-1, 1, 2, 3, 4, 5),
        ("half", "epi_n"): (-1, 4, 8, 16, 24, 64, 128),
        ("half", "epi_stages"): (-1, 1, 2, 3, 100),
        ("half", "c_stages"): (-1, 1, 2),
        ("half", "band_rows"): (-1, 0, 1),
        ("nvfp4", "tile_n"): (64, 128, 192, 256),
        ("nvfp4", "tile_k"): (16, 32, 64, 96, 128, 256, 512),
        ("mxfp8", "tile_n"): (64, 128, 192, 256),
        ("mxfp8", "tile_k"): (32, 64, 96, 128, 160, 256),
    }
    lines = []
    for (kind, name), values in tried.items():
        for value in values:
            try:
                told = umma(kind, **{name: value}).name
            except ValueError as error:
                told = str(error)
            lines.append(f"{kind} {name}={value}: {told}")
    pins("\n".join(lines))


NARROW, WIDE, CLUSTER = RowTiling(2, 8, 3), RowTiling(8, 512, 4), RowTiling(8, 256, 2, 4)
COLUMNS = (1, 32, 33, 200, 256, 257, 1000, 1024, 1025, 3000, 4096, 8193, 16384, 16385, 50257, 65537, 131073, 262144)


def table(choose, *given):
    """Write the choices for all arguments, with the columns from which on they are another."""
    lines = []
    for rest in itertools.product(*given):
        line = [f"{', '.join(map(str, rest))}:"]
        for chosen, columns in itertools.groupby(COLUMNS, key=lambda n, rest=rest: choose(n, *rest)):
            line.append(f"{next(columns)} -> {getattr(chosen, 'name', chosen)}")
        lines.append(" ".join(line))
    return "\n".join(lines)


@pytest.mark.parametrize("given", [NARROW, WIDE, CLUSTER], ids=lambda given: given.name)
def test_tilings_of_rows(given):
    found = derived(given)
    for plan in (given.plan(), given.plan({"weights": 5}, x=(16, 2), y=(32, 1))):
        regions = ", ".join(f"{region.name} {region.content}" for region in plan)
        found += f"\nplan = {regions}: {plan.size_bytes}"
    pins(found)


def test_kinds_and_names_of_rows():
    found = [rows.SoftmaxConfig(WIDE, logarithm).kind for logarithm in (True, False)]
    found += [rows.QuantiseConfig(WIDE, *given).kind for given in ((), ("int8", "row"), ("float8_e5m2", "block"))]
    found += [NormConfig(WIDE, centres, scaled).kind for centres in (True, False) for scaled in ("", "row", "block")]
    found += [
        f"{each.name} of {each.sorters}: {each.exchanges}"
        for each in (
            rows.SelectionConfig(WIDE, 5, 1024, sorters, largest)
            for sorters, largest in itertools.product((16, 32, 64, 128, 256), (True, False))
        )
    ]
    for k, cuts, greedy in itertools.product((0, 50), (True, False), (True, False)):
        found.append(rows.SampleConfig(CLUSTER, 16, k, cuts, greedy).name)
    found += [derived(rows.RotaryConfig(*given)) for given in ((8, 128, 64), (4, 100, 20, True), (1, 576, 32))]
    found.append(rows.GatedConfig(CLUSTER, "gelu").name)
    pins("\n".join(found))


def test_norms_that_cannot_be():
    for given in ((WIDE, False, "column"), (NARROW, False, "block")):
        with refuses(ValueError):
            NormConfig(*given)


FITS = ["NORM", "NORM_GRADIENT", "SOFTMAX", "SOFTMAX_GRADIENT", "SELECTION", "SAMPLE"]


@pytest.mark.parametrize("fit", FITS)
def test_tilings_that_a_fit_chooses(fit):
    chosen = getattr(tiling, fit)
    pins(table(lambda n, elems, staged: tiling.tile_rows(n, elems, chosen, staged), (1, 8), (0, 4)))


def test_threads_that_rows_have_at_least():
    pins(table(lambda n, least: tiling.tile_rows(n, 8, least_threads=least), (32, 512)))


@pytest.mark.parametrize("columns", [0, 262145])
def test_rows_without_a_tiling(columns):
    with refuses(ValueError):
        tiling.tile_rows(columns, 8)


def test_bytes_of_staged_rows():
    choose = tiling.staged_bytes
    pins(
        "\n".join(
            (
                table(lambda n, elems, *sizes: choose(n, elems, *sizes), (1, 2, 8), (2, 4), (2,)),
                table(lambda n, size, stages: choose(n, 8, size, stages=stages), (1, 4), (1, 2)),
            )
        )
    )


def test_pieces_of_rows():
    pins(table(tiling.tile_pieces, (1, 8, 32)))


def test_selections():
    pieces = table(lambda n, count, k: tiling.pieces_of_selection(count, n, k), (1, 64), (1, 64, 1000))
    pins(f"{pieces}\n{table(tiling.tile_lanes, (1, 8), (1, 16, 32, 33))}")
    tilings = NARROW, WIDE, RowTiling(8, 4, 2)
    pins(
        "\n".join(
            f"{each.name} k={k}: {(room := tiling.room_of_selection(each, k))} by {tiling.sorters_of(each, room)}"
            for each in tilings
            for k in (1, 2, 3, 25, 26, 50, 64, 205, 206, 819, 820, 1000, 1024)
        )
    )
