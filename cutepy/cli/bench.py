"""`cutepy bench`: time kernels against peers, and the simulator and the compiler."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from cutepy.cli.commands import Commands
from cutepy.cli.dtypes import BENCH_DTYPES
from cutepy.cli.failure import fail, fail_by
from cutepy.cli.products import PRODUCTS, parse_product
from cutepy.cli.script_options import check_output

if TYPE_CHECKING:
    from cutepy.suites.measurement import Output

app = typer.Typer(
    cls=Commands,
    help="Time kernels on a Hopper GPU, simulator and compiler anywhere, against peers.",
    no_args_is_help=True,
)


_Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Save the measurements here.")]
_Picture = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the rows beneath the roofline: .svg, .png, .pdf. Needs matplotlib."),
]
_Against = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Fail where a row is slower than in this saved report.")
]


_Between = Annotated[
    str, typer.Option(help="Kernel between two launches, whose time is subtracted: none, elementwise or norm.")
]


def _output(json: Path | None, picture: Path | None, against: Path | None) -> "Output":
    from cutepy.suites.measurement import Output

    if against is not None and not against.is_file():
        fail(f"there is no file {against} for --against")
    for option, path in (("--json", json), ("--picture", picture)):
        if path is not None:
            check_output(path, option=option)
    if picture is not None and picture.suffix not in (".svg", ".png", ".pdf"):
        fail(f"--picture takes a file that ends in .svg, .png or .pdf, got {str(picture)!r}")
    return Output(json, picture, against)


def _exit_with(measure: Callable[[], int]) -> NoReturn:
    """End a command with the status of its measurement, or with an error that users can correct."""
    try:
        status = measure()
    except (ValueError, ImportError) as error:
        fail_by(error)
    raise typer.Exit(status)


def _check_positive(values: Iterable[int] | None, option: str) -> None:
    """End the command if a number of an option is below 1."""
    if (least := min(values or (1,))) < 1:
        fail(f"{option} must be at least 1, got {least}")


def _check_known(*options: tuple[Iterable[str], Collection[str], str]) -> None:
    """End the command if an option was given a name that is not among those it takes."""
    for chosen, known, option in options:
        for name in chosen:
            if name not in known:
                fail(f"{option} must be one of {', '.join(known)}, got {name!r}")


@app.command("gemm")
def bench_gemm(
    problem: Annotated[
        list[str] | None,
        typer.Argument(metavar=PRODUCTS, help="Products to measure instead: bfloat16:512x1024x64:k,mn."),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="squares, llama, skinny, batched, cubes, short or rows; may be given again. "
            "Default: squares and llama."
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(BENCH_DTYPES)}; may be given again. Default: float16."),
    ] = None,
    sweep: Annotated[int, typer.Option(help="Measure so many random problems instead.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.")] = 0,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="cuBLAS, QuACK, DeepGEMM, or package.module:name; may be given again. Default: cuBLAS."),
    ] = None,
    between: _Between = "none",
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time the GEMM against its peers, and check every result."""
    from cutepy.suites.gemm import run_gemm
    from cutepy.suites.gemm_problems import GEMM_SUITES, gemm_problems, random_problems
    from cutepy.suites.measurement import COMPANY
    from cutepy.suites.peers import find

    if sweep and (suite or dtype):
        fail("--sweep draws extents and types, so --suite and --dtype can't be given with it")
    if problem and (sweep or suite or dtype):
        fail("products say their extents and types, so --sweep, --suite and --dtype can't be given with them")
    suite, dtype = suite or ["squares", "llama"], dtype or ["float16"]
    suite, dtype = [name.lower() for name in suite], [name.lower() for name in dtype]
    _check_known((suite, GEMM_SUITES, "--suite"), (dtype, BENCH_DTYPES, "--dtype"), ([between], COMPANY, "--between"))
    if problem:
        problems = list(dict.fromkeys(map(parse_product, problem)))
    else:
        problems = random_problems(sweep, seed) if sweep else gemm_problems(suite, dtype)
    output = _output(json, picture, against)
    names = peer or ["cuBLAS"]
    _exit_with(lambda: run_gemm(problems, dict(map(find, names)), output, summed=bool(sweep), between=between))


@app.command("grouped")
def bench_grouped(
    groups: Annotated[list[int] | None, typer.Option(help="Experts; may be given again. Default: 8 and 64.")] = None,
    routing: Annotated[
        list[str] | None, typer.Option(help="balanced or skewed; may be given again. Default: both.")
    ] = None,
    along: Annotated[
        list[str] | None, typer.Option(help="m, rows by weights, or k, gradients; may be given again. Default: both.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="bfloat16, or 8-bit floats with scales: row or block; may be given again. Default: all."),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="torch or DeepGEMM; may be given again. Default: torch.")
    ] = None,
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time products of groups (mixture of experts) against torch's and DeepGEMM's, and check every result."""
    from cutepy.suites.grouped import run_grouped
    from cutepy.suites.grouped_peers import PEERS
    from cutepy.suites.grouped_problems import FORMS, KINDS, ROUTINGS, grouped_problems

    names = peer or ["torch"]
    routings, forms, kinds = routing or [*ROUTINGS], along or [*FORMS], kind or [*KINDS]
    options = ((routings, ROUTINGS, "--routing"), (forms, FORMS, "--along"), (kinds, KINDS, "--kind"))
    _check_known(*options, (names, PEERS, "--peer"))
    _check_positive(groups, "--groups")
    problems = grouped_problems(groups or [8, 64], *(cast("Any", chosen) for chosen, _, _ in options))
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_grouped(problems, chosen, _output(json, picture, against)))


@app.command("attention")
def bench_attention(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="forward, backward, varlen, masks, decode, e4m3 or mla; may be given again. Default: forward."
        ),
    ] = None,
    head: Annotated[
        list[int] | None,
        typer.Option(help="Extents of a row; may be given again. Default: 64, 128, 256; of gradients 64, 128."),
    ] = None,
    keys: Annotated[
        list[int] | None,
        typer.Option(
            help="Keys of a sequence; may be given again. Default: 512, 1024, 4096, 16384; to decode 8192, 131072; "
            "mla 4096, 8192."
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="cuDNN, FA4, FA3, FlashMLA or torch.compile; may be given again. Default: cuDNN."),
    ] = None,
    between: _Between = "none",
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time attention against peers, and check every result."""
    from cutepy.suites.attention import run_attention
    from cutepy.suites.attention_peers import PEERS
    from cutepy.suites.attention_problems import SUITES, attention_problems
    from cutepy.suites.measurement import COMPANY

    suites, names = suite or ["forward"], peer or ["cuDNN"]
    _check_known((suites, SUITES, "--suite"), (names, PEERS, "--peer"), ([between], COMPANY, "--between"))
    if any(each % 16 or not 16 <= each <= 256 for each in head or ()):
        fail(f"--head must be multiples of 16 up to 256, got {', '.join(map(str, head or ()))}")
    _check_positive(keys, "--keys")
    problems = [
        problem
        for each in suites
        for problem in attention_problems(
            cast("Any", each),
            head or ([64, 128] if each == "backward" else [64, 128, 256]),
            keys or {"decode": [8192, 131072], "mla": [4096, 8192]}.get(each, [512, 1024, 4096, 16384]),
        )
    ]
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_attention(problems, chosen, _output(json, picture, against), between=between))


@app.command("scaled")
def bench_scaled(
    kind: Annotated[
        list[str] | None, typer.Option(help="tensor, row or block; may be given again. Default: block.")
    ] = None,
    fast: Annotated[bool, typer.Option(help="Sum in the tensor cores alone; not for block.")] = False,
    peer: Annotated[
        list[str] | None, typer.Option(help="torch or DeepGEMM; may be given again. Default: torch.")
    ] = None,
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time products of 8-bit floats with scales against torch's and DeepGEMM's, and check every result."""
    from cutepy.suites.scaled import BLOCKS, EXTENTS, PEERS, ScaledProblem, run_scaled

    kinds, names = kind or ["block"], peer or ["torch"]
    _check_known((kinds, BLOCKS, "--kind"), (names, PEERS, "--peer"))
    if fast and "block" in kinds:
        fail("--fast is for tensor and row; scales of blocks are applied every 128 of K")
    problems = [ScaledProblem(*extents, each, fast) for each in kinds for extents in EXTENTS]
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_scaled(problems, chosen, _output(json, picture, against)))


@app.command("fused")
def bench_fused(
    what: Annotated[
        list[str] | None,
        typer.Option(help="swiglu, bias_gelu, residual or scales; may be given again. Default: all."),
    ] = None,
    tokens: Annotated[
        list[int] | None, typer.Option(help="Rows of the product; may be given again. Default: 4096 and 512.")
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="bfloat16 or float16; may be given again. Default: bfloat16.")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="torch.compile or QuACK; may be given again. Default: torch.compile.")
    ] = None,
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time products with fused epilogues against fused peers and our unfused pair, and check every result."""
    from cutepy.suites.gemm_epilogue_problems import DTYPES, KINDS, TOKENS, fused_problems
    from cutepy.suites.gemm_epilogues import PEERS, run_fused

    whats, dtypes, names = what or [*KINDS], dtype or [DTYPES[0]], peer or ["torch.compile"]
    _check_known((whats, KINDS, "--what"), (dtypes, DTYPES, "--dtype"), (names, PEERS, "--peer"))
    _check_positive(tokens, "--tokens")
    problems = fused_problems(whats, tokens or TOKENS, dtypes)
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_fused(problems, chosen, _output(json, picture, against)))


@app.command("rows")
def bench_rows(
    operation: Annotated[
        list[str] | None,
        typer.Option(help="rms_norm, layer_norm, softmax, cross_entropy or swiglu; may be given again. Default: all."),
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option(help="forward, backward or decode; may be given again. Default: forward.")
    ] = None,
    columns: Annotated[
        list[int] | None, typer.Option(help="Elements of a row; may be given again. Default: 256 to 131072.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="torch, torch.compile or QuACK; may be given again. Default: the first two."),
    ] = None,
    between: _Between = "none",
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time operations on rows against peers and a copy of the same bytes, and check every result."""
    from cutepy.suites.measurement import COMPANY
    from cutepy.suites.rows import PEERS, run_rows
    from cutepy.suites.rows_problems import OPERATIONS, SUITES, rows_problems

    operations, suites, names = operation or [*OPERATIONS], suite or ["forward"], peer or ["torch", "torch.compile"]
    options = ((operations, OPERATIONS, "--operation"), (suites, SUITES, "--suite"), (names, PEERS, "--peer"))
    _check_known(*options, ([between], COMPANY, "--between"))
    _check_positive(columns, "--columns")
    problems = rows_problems(cast("Any", operations), cast("Any", suites), columns or ())
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_rows(problems, chosen, _output(json, picture, against), between=between))


@app.command("loss")
def bench_loss(
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="torch, torch.compile, torch chunked, QuACK or Liger; may be given again. Default: the first three."
        ),
    ] = None,
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time a linear layer's cross entropy with its gradients against peers, and find the peak memory."""
    from cutepy.suites.loss import PEERS, PROBLEMS, run_loss

    names = peer or ["torch", "torch.compile", "torch chunked"]
    _check_known((names, PEERS, "--peer"))
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_loss(PROBLEMS, chosen, _output(json, picture, against)))


@app.command("layer")
def bench_layer(
    suite: Annotated[list[str] | None, typer.Option(help="train or decode; may be given again. Default: both.")] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="torch, torch.compile or max-autotune; may be given again. Default: the first two."),
    ] = None,
    parts: Annotated[bool, typer.Option(help="Time each part of the layer too.")] = True,
    json: _Json = None,
    picture: _Picture = None,
    against: _Against = None,
) -> None:
    """Time a decoder layer of Llama 3 8B, training and decoding, against torch's, part by part, and its launches."""
    from cutepy.suites.layer import PEERS, PROBLEMS, run_layer

    suites, names = suite or [*PROBLEMS], peer or ["torch", "torch.compile"]
    _check_known((suites, PROBLEMS, "--suite"), (names, PEERS, "--peer"))
    problems = [problem for each in suites for problem in PROBLEMS[each]]
    chosen = {name: PEERS[name] for name in names}
    _exit_with(lambda: run_layer(problems, chosen, _output(json, picture, against), parts=parts))


@app.command("accuracy")
def bench_accuracy(
    k: Annotated[
        list[int] | None, typer.Option(help="Multiples of 128; may be given again. Default: 1024, 16384.")
    ] = None,
) -> None:
    """Print the errors of 8-bit products against float64, by scales and by summation. Needs no GPU."""
    from cutepy.suites.accuracy import run_accuracy

    if any(each < 128 or each % 128 for each in k or []):
        fail(f"--k must be multiples of 128, got {k}")
    raise typer.Exit(run_accuracy(k or [1024, 16384]))


@app.command("sim")
def bench_sim(
    large: Annotated[bool, typer.Option(help="Also a product of 4096x4096x4096, on all cores.")] = True,
    json: _Json = None,
) -> None:
    """Time a GEMM in the simulator against numpy, and check every result."""
    from cutepy.suites import sim

    raise typer.Exit(sim.run_sim(large=sim.LARGE if large else None, json_path=json))


@app.command("launch")
def bench_launch(json: _Json = None) -> None:
    """Time the host's part of a call of a compiled function, against the DSL's own and torch's."""
    from cutepy.suites.launch import run_launch

    raise typer.Exit(run_launch(json))


@app.command("compile")
def bench_compile(
    rounds: Annotated[int, typer.Option(min=1, help="Processes of each way; the figures are their medians.")] = 7,
    json: _Json = None,
) -> None:
    """Time compiling the GEMM against the DSL's own compiler, and finding it compiled. Needs no GPU."""
    from cutepy.suites.compilation import run_compile

    raise typer.Exit(run_compile(rounds, json))
