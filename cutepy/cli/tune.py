"""`cutepy tune`: find the fastest candidates on this GPU, and list the winners."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cutepy.cli.commands import Commands
from cutepy.cli.failure import fail
from cutepy.cli.products import PRODUCTS, parse_product

if TYPE_CHECKING:
    from cutepy.kernels.attention.tuned import Problem

app = typer.Typer(
    cls=Commands, help="Find the fastest way to run a kernel on this GPU, and keep it.", no_args_is_help=True
)


@app.command("gemm")
def tune_gemm(
    problem: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=PRODUCTS,
            help="Products: 4096x4096x4096, or bfloat16:512x1024x64:k,mn with types and majors of A and B.",
        ),
    ] = None,
    suite: Annotated[list[str] | None, typer.Option(help="Those of `cutepy bench gemm`; may be given again.")] = None,
    sweep: Annotated[int, typer.Option(min=0, help="So many random problems, too.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.")] = 0,
    candidates: Annotated[int, typer.Option(min=1, help="Of each problem, those expected to be fastest.")] = 100,
    again: Annotated[bool, typer.Option("--again", help="Time what was timed before, too.")] = False,
    prune: Annotated[
        float | None,
        typer.Option(min=1.0, help="Leave out candidates predicted to take so many times the shortest time: 1.3."),
    ] = None,
) -> None:
    """Tune products: `cutepy.ops.gemm` uses the winners, in processes that start afterwards.

    Candidates are compiled on all cores and timed on all GPUs. What was timed is kept at once, so that tuning which was
    ended goes on where it was. Under torchrun, the processes of all hosts share the work.
    """
    from cutepy.host import environment
    from cutepy.suites.gemm_problems import GEMM_SUITES, gemm_problems, random_problems
    from cutepy.suites.gemm_tuning import run_tuning
    from cutepy.suites.progress import shown_progress

    problems = [parse_product(text) for text in problem or []]
    for name in suite or []:
        if name not in GEMM_SUITES:
            fail(f"--suite must be one of {', '.join(GEMM_SUITES)}, got {name!r}")
    problems += gemm_problems(suite or [], ["float16"])
    problems += random_problems(sweep, seed)
    problems = list(dict.fromkeys(problems))
    if not problems:
        fail("name a product, such as 4096x4096x4096, or give --suite or --sweep")
    started = environment.torchrun()
    with shown_progress(started is None or started.rank == 0) as note:
        status = run_tuning(problems, most=candidates, resume=not again, note=note, prune=prune)
    raise typer.Exit(status)


ATTENTION = "[forward:|backward:][DTYPE:]BATCHxTOKENSxHEADS[/KV_HEADS]xHEAD[:causal]..."
_ATTENTION = re.compile(r"(?:(forward|backward):)?(?:(\w+):)?(\d+)x(\d+)x(\d+)(?:/(\d+))?x(\d+)(:causal)?")


@app.command("attention")
def tune_attention(
    problem: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=ATTENTION,
            help="Attention: 4x4096x16x128:causal of bfloat16, or backward:float16:4x4096x32/8x128 of heads that share "
            "keys.",
        ),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Of each problem, those with fewest empty tiles.")] = 100,
    again: Annotated[bool, typer.Option("--again", help="Time what was timed before, too.")] = False,
    dry: Annotated[bool, typer.Option("--dry", help="List the candidates; needs no GPU.")] = False,
) -> None:
    """Tune attention: `cutepy.ops.attention` uses the winners, in processes that start afterwards.

    Tiles, stages and warpgroups of the kernels are found for a batch, tokens, heads and mask, and for its gradients by
    itself. All else is as of `cutepy tune gemm`.
    """
    from cutepy.host import environment
    from cutepy.kernels.attention import tuned
    from cutepy.suites import attention_tuning
    from cutepy.suites.progress import shown_progress

    problems = list(dict.fromkeys(parse_attention(text) for text in problem or []))
    if not problems:
        fail("name a problem of attention, such as 4x4096x16x128:causal")
    if dry:
        for each in problems:
            found = tuned.candidates(each, candidates)
            count = f"{len(found)} candidate{'s' if len(found) != 1 else ''}"
            typer.echo(f"{attention_tuning.text_of(each)}: {count}")
            first = tuned.candidate_of(tuned.rules_choice(each))
            typer.echo(f"  {_short(first)} (without tuning)")
            for candidate in found:
                if candidate != first:
                    typer.echo(f"  {_short(candidate)}")
        return
    started = environment.torchrun()
    with shown_progress(started is None or started.rank == 0) as note:
        status = attention_tuning.run_tuning(problems, most=candidates, resume=not again, note=note)
    raise typer.Exit(status)


def parse_attention(text: str) -> Problem:
    """Parse a problem of attention, forward and of bfloat16 by default; refuse one that there are no kernels of."""
    from cutepy.kernels.attention.tuned import Problem, check

    match = _ATTENTION.fullmatch(text)
    if match is None:
        fail(
            "a problem of attention is written [forward:|backward:][DTYPE:]BATCHxTOKENSxHEADS[/KV_HEADS]xHEAD[:causal],"
            f" such as backward:4x4096x32/8x128:causal; got {text!r}"
        )
    kind, dtype, batch, tokens, heads, kv_heads, head, causal = match.groups()
    extents = int(batch), int(tokens), int(tokens), int(heads), int(kv_heads or heads), int(head), int(head)
    found = Problem(
        "backward" if kind == "backward" else "forward", dtype or "bfloat16", *extents, None, 0 if causal else None
    )
    if complaint := check(found):
        fail(f"{complaint}, in {text!r}")
    return found


@app.command("list")
def list_winners() -> None:
    """List the winners, by GPU and kernel."""
    from rich.console import Console
    from rich.table import Table

    from cutepy.host import environment
    from cutepy.tune.winners import read

    root = environment.cache_dir() / "tuned"
    table = Table("GPU", "kernel", "problem", "candidate", box=None, pad_edge=False, header_style="bold")
    for column in ("us", "gain"):
        table.add_column(column, justify="right", no_wrap=True)
    found = 0
    for path in sorted(root.glob("*/*.jsonl")):
        for won in read(path).values():
            found += 1
            texts = (_short(settings) for settings in (won.problem, won.candidate))
            table.add_row(path.parent.name, path.stem, *texts, f"{won.us:.1f}", f"{won.gain:.2f}")
    if found:
        Console().print(table, markup=False)
    typer.echo(f"{found} tuned problem{'' if found == 1 else 's'}, in {root}")


def _short(settings: object) -> str:
    facts = cast("dict[str, object]", settings)
    return " ".join(f"{name}={value}" for name, value in facts.items() if value not in (None, False))


@app.command("clear")
def clear() -> None:
    """Remove winners and journals; kernels are chosen by their models again."""
    from cutepy.host import environment

    root = environment.cache_dir() / "tuned"
    removed = [*root.glob("*/*.jsonl"), *root.glob("*/*.heats")]
    for path in removed:
        path.unlink()
    typer.echo(f"removed {len(removed)} file{'' if len(removed) == 1 else 's'}")
