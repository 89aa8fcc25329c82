"""Commands of `cutepy`, each a thin wrapper of the module that does the work."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from cutepy.cli import bench, cache, export, tune
from cutepy.cli.commands import Commands
from cutepy.cli.failure import fail, fail_by
from cutepy.cli.script_options import (
    check_folder,
    check_output,
    check_script,
    parse_ctas,
    parse_schedules,
    parse_seconds,
    simulated_gpu,
)
from cutepy.cli.scripts import Script
from cutepy.cli.write_errors import report_write_errors

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="cutepy",
    cls=Commands,
    help="See, write, check and run Hopper and Blackwell kernels on the CuTe DSL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        import cutepy

        typer.echo(f"cutepy {cutepy.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def tutorial(
    chapter: Annotated[int | None, typer.Argument(help="The chapter's number. Default: all of them, in order.")] = None,
    contents: Annotated[bool, typer.Option("--list", help="List the chapters, and leave.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Print the WGMMA tutorial's tensors, each beside what C++ CuTe prints.")
    ] = False,
) -> None:
    """Learn layouts, swizzles, wgmma and TMA, with pictures; on a terminal it asks questions and checks answers."""
    if check:
        from cutepy.cli.conformance import run as run_conformance

        raise typer.Exit(run_conformance(typer.echo))
    from cutepy.cli.tutorial import walk

    if contents:
        walk.list_chapters()
        return
    try:
        raise typer.Exit(walk.run(chapter))
    except ValueError as error:
        fail(str(error))


@app.command()
def demo() -> None:
    """Check layouts against C++ CuTe's, compile the GEMM and check its PTX, and run it: on a GPU or simulated."""
    from cutepy.cli.demo import run

    raise typer.Exit(run())


_Given = Annotated[
    str | None,
    typer.Option("--set", metavar="INTEGERS", help="Values for each ? in the text, from left to right: 128,64,64."),
]

_Shape = Annotated[
    str | None,
    typer.Option("--shape", metavar="INTEGERS", help="Extents of the tensor, for an encoding of Triton: 64,64."),
]


@app.command()
def parse(
    text: Annotated[
        str,
        typer.Argument(help="Lines that C++ CuTe, the DSL, Triton, Gluon or cutepy prints; - reads standard input."),
    ],
    bits: Annotated[int | None, typer.Option(help="Width of an element, where the text does not tell it.")] = None,
    given: _Given = None,
    shape: _Shape = None,
) -> None:
    """Read layouts, tensors, tilers, printed MMAs and copies, name the kind of each, and draw it."""
    from cutepy.cli.parse import describe, told
    from cutepy.layouts import LayoutError, ParseError
    from cutepy.layouts.render.output import terminal_width

    width = terminal_width()
    try:
        description, errors = describe(_pasted(text), width, bits=bits, given=_integers(given), shape=_extents(shape))
    except ParseError as error:
        fail(told(error, width))
    except LayoutError as error:
        fail(str(error))
    typer.echo(description)
    for unread in errors:
        typer.echo(f"error: {told(unread, width)}", err=True)
    if errors:
        raise typer.Exit(2)


def _pasted(text: str) -> str:
    # In any locale: text that is not UTF-8 is marked, and refused or skipped as other noise is.
    return typer.get_binary_stream("stdin").read().decode("utf-8", "replace") if text == "-" else text


def _integers(text: str | None, option: str = "--set") -> tuple[int, ...]:
    try:
        return () if text is None else tuple(int(part) for part in text.strip("()").split(","))
    except ValueError:
        fail(f"{option} takes integers with commas between, as 128,64,64; got {text!r}")


def _extents(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else _integers(text, "--shape")


@app.command()
def show(
    text: Annotated[
        str,
        typer.Argument(
            help="A layout, tensor, MMA or copy as C++ CuTe, the DSL, Triton or cutepy prints it, or an atom's name: "
            "SM100_MMA_..., SM90_64x64x16_..., SM80_16x8x16_..., SM75_...; - reads standard input."
        ),
    ],
    given: _Given = None,
    shape: _Shape = None,
    bits: Annotated[int | None, typer.Option(help="Width of an element, for bytes and banks.")] = None,
    banks: Annotated[bool, typer.Option("--banks", help="Write banks into the cells; needs --bits.")] = False,
    units: Annotated[bool, typer.Option("--units", help="A cell for each unit of 16 bytes; needs --bits.")] = False,
    tv: Annotated[bool, typer.Option("--tv", help="Read (thread, value), and draw who holds each element.")] = False,
    tile: Annotated[str | None, typer.Option(help="With --tv: the tile's shape or layout, e.g. '(64,16)'.")] = None,
    operand: Annotated[str | None, typer.Option(help="Of an atom or a printed MMA: A, B or C alone.")] = None,
    width: Annotated[int | None, typer.Option(min=20, help="Columns of characters. Default: the terminal's.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw into an SVG file instead.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw into an HTML file to hover over.")] = None,
    tex: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw into a LaTeX file.")] = None,
) -> None:
    """Draw a layout, a thread-value layout, an MMA or a copy."""
    from cutepy.cli.parse import told
    from cutepy.cli.show import draw
    from cutepy.layouts import ParseError
    from cutepy.layouts.notation.atoms import names_atom
    from cutepy.layouts.render.output import terminal_width

    files = []
    for file, suffix in ((svg, ".svg"), (html, ".html"), (tex, ".tex")):
        if file is not None:
            if file.suffix.lower() != suffix:
                fail(f"--{suffix[1:]} takes a file that ends in {suffix}, got {str(file)!r}")
            files.append(file)
    if tile is not None and not tv:
        fail("--tile is the tile of a thread-value layout: it needs --tv")
    text = _pasted(text)
    if operand is not None and not names_atom(text) and "mma" not in text.lower():
        fail(
            "--operand is A, B or C of an MMA: name one, as SM90_64x64x16_F16F16F16_SS, "
            "SM80_16x8x16_F32F16F16F32_TN, or paste a printed one"
        )
    options = {"bits": bits, "banks": banks, "units": units, "tv": tv, "operand": operand, "given": _integers(given)}
    options["shape"] = _extents(shape)
    try:
        draw(text, files, width=width, tile=tile, **{name: value for name, value in options.items() if value != ()})
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except ParseError as error:
        fail(told(error, width or terminal_width()))
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))


@app.command()
def explore(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE.cutepy|FILE.json|FILE.trace]...", help="Saved runs, profiles and timelines to show."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. Default: one that is free.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host under which a proxy serves the page; repeatable."),
    ] = None,
) -> None:
    """Serve a page on this machine: layouts, operations and atoms to hover over; runs to scrub; profiles; timelines."""
    from cutepy.cli.explore import run

    for file in files or ():
        if not file.is_file():
            fail(f"there is no file {file}")
    try:
        run(port, files or [], hosts=allow_host or [], open_browser=open_browser, say=typer.echo)
    except ValueError as error:
        fail(str(error))


@app.command()
def desc(
    value: Annotated[str, typer.Argument(help="The descriptor, decimal or 0x-hexadecimal.")],
    major: Annotated[str | None, typer.Option(help="The operand's major, MN or K: the bits do not tell it.")] = None,
    bits: Annotated[int | None, typer.Option(help="Width of an element: the bits do not tell it.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Kind of the tcgen05.mma, f16 or so: the value is its instruction descriptor.")
    ] = None,
) -> None:
    """Decode a shared-memory descriptor of wgmma or tcgen05, or an instruction descriptor, and explain it."""
    from cutepy.layouts import sm90, sm100

    try:
        word = int(value, 0)
    except ValueError:
        fail(f"the descriptor must be a decimal or 0x-hexadecimal number, got {value!r}")
    try:
        if kind is not None:
            text = sm100.InstrDescriptor.decode(word, kind=kind).explain()
        else:
            # Only tcgen05's have a version.
            known = sm100.SmemDescriptor if sm100.SmemDescriptor.FIELDS["version"].read(word) else sm90.GmmaDescriptor
            text = known.decode(word, major=cast("sm90.Major | None", major), bits=bits).explain()
    except ValueError as error:
        fail(str(error))
    typer.echo(text)


_PASSES_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Settings of a command that hands what follows its script to the script."""
_echo = partial(typer.echo, err=True)
_Script = Annotated[Path, typer.Argument(metavar="FILE.py", help="The script, followed by its arguments.")]
_LimitSeconds = Annotated[float | None, typer.Option(metavar="SECONDS", help="Time limit of a launch. Default: none.")]
_Arch = Annotated[
    str | None,
    typer.Option(
        metavar="sm_90a|sm_100a|sm_103a|sm_120a",
        help="The GPU to simulate and to compile for: an H200, a B200, a B300 or an RTX 5090. Default: CUTE_DSL_ARCH.",
    ),
]
_LimitInstructions = Annotated[
    int | None, typer.Option(min=1, help="Limit of the instructions that the warps of a launch execute.")
]


@app.command(context_settings=_PASSES_ARGUMENTS)
def simulate(
    context: typer.Context,
    script: _Script,
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Print counts, and bank conflicts and waits by line of Python.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(help="Completion of copies and MMAs: late, youngest, random[:SEED], or schedule[:SEED]."),
    ] = None,
    ctas: Annotated[
        str | None, typer.Option(help='Run these CTAs only, with their clusters: "0 3,1 -1,-1". Default: all.')
    ] = None,
    limit_seconds: _LimitSeconds = None,
    limit_instructions: _LimitInstructions = None,
    arch: _Arch = None,
) -> None:
    """Run a GPU script on the CPU: device cuda is served from host memory, and every launch is simulated."""
    from cutepy.cli.simulate import run
    from cutepy.sim.machine.policies import policy_named

    check_script(script)
    try:
        if policy is not None:
            policy_named(policy)
    except ValueError as error:
        fail(str(error))
    with simulated_gpu(arch):
        status = run(
            Script(script, context.args, _echo),
            inspect=inspect,
            policy=policy,
            ctas=parse_ctas(ctas),
            limit_seconds=parse_seconds(limit_seconds),
            limit_instructions=limit_instructions,
        )
    raise typer.Exit(status)


@app.command(context_settings=_PASSES_ARGUMENTS)
def predict(
    context: typer.Context,
    script: _Script,
    gpu: Annotated[Literal["h100", "h200"], typer.Option(help="The GPU.")] = "h200",
    ctas: Annotated[
        str | None, typer.Option(help='Simulate these CTAs, as for simulate: "0 3,1 -1,-1". Default: a sample.')
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the predictions here.")] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Write timelines of warps, copies and tensor cores here, for `cutepy explore`.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=V,V,...", help="Predict with each of these values of the script's --NAME; repeatable."
        ),
    ] = None,
) -> None:
    """Predict the times of a script's kernels on a GPU, and their bounds, without a GPU.

    Of each launch sampled CTAs are simulated, so that results are incomplete: the script must not check them.
    """
    from cutepy.cli.predict import run

    check_script(script)
    for path, option in ((json, "--json"), (timeline, "--timeline")):
        if path is not None:
            check_output(path, script, option)
    if vary:
        from cutepy.cli import what_if

        if timeline is not None or ctas is not None:
            fail("--vary prints a table of configurations; give --timeline and --ctas with one configuration")
        varied = what_if.read(vary)
        raise typer.Exit(what_if.run(Script(script, context.args, _echo), varied, gpu, json and json.absolute()))
    paths = {"json_path": json and json.absolute(), "timeline": timeline and timeline.absolute()}
    raise typer.Exit(run(Script(script, context.args, _echo), gpu, ctas=parse_ctas(ctas), **paths))


@app.command(context_settings=_PASSES_ARGUMENTS)
def sanitize(
    context: typer.Context,
    script: _Script,
    form: Annotated[
        Literal["text", "json", "sarif"] | None,
        typer.Option("--format", help="Format of the report on standard output, or in --output."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Also write the report into a file, as text or in --format.")
    ] = None,
    schedules: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="Number of seeded schedules to compare each launch with, or all."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The first of N seeds. Default: 0.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Schedules to play of --schedules all. Default: 1000.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Look for a schedule that shows each hazard.")] = False,
    reproducers: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a script for each hazard that looks for it on a GPU.")
    ] = None,
    ctas: Annotated[str | None, typer.Option(help='Run these CTAs only, as for simulate: "0 3,1 -1,-1".')] = None,
    limit_seconds: _LimitSeconds = None,
    limit_instructions: _LimitInstructions = None,
    strict: Annotated[bool, typer.Option("--strict", help="Count advisories as hazards.")] = False,
    arch: _Arch = None,
) -> None:
    """Simulate a GPU script, and report unordered accesses: races, missing waits and fences.

    Status 1 if there are hazards, 2 if the script itself failed.
    """
    from cutepy.cli.sanitize import run

    check_script(script)
    if output is not None:
        check_output(output, script)
        output = output.absolute()  # scripts may change the folder
    if reproducers is not None:
        check_folder(reproducers, "--reproducers")
        reproducers = reproducers.absolute()
    again = partial(
        run,
        schedules=parse_schedules(schedules, seed, limit),
        seed=seed,
        limit=limit,
        replay=replay,
        reproducers=reproducers,
        strict=strict,
        ctas=parse_ctas(ctas),
        limit_seconds=parse_seconds(limit_seconds),
        limit_instructions=limit_instructions,
    )
    with simulated_gpu(arch):
        status = again(Script(script, context.args, _echo), form, output)
    raise typer.Exit(status)


@app.command(context_settings=_PASSES_ARGUMENTS)
def profile(
    context: typer.Context,
    script: _Script,
    simulated: Annotated[
        bool, typer.Option("--simulate", help="Simulate the script's launches, which then have no times.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the profile here.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto or chrome://tracing.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fail where a call is slower than in this saved profile.")
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Record ranges of warps in kernels of cutepy.device; write a trace for Perfetto."
        ),
    ] = None,
    counters: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Run the script under ncu, and name what bounds each of its first N launches."
        ),
    ] = None,
    stalls: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run it under ncu, and name the lines where its first N launches stall."),
    ] = None,
    arch: _Arch = None,
) -> None:
    """Run a GPU script, and print where its kernels' time goes, by the scopes of cutepy.scope.

    Status 1 if something is slower than in --against.
    """
    from cutepy.cli.profile import run, run_under_ncu
    from cutepy.profiling.counters import count
    from cutepy.profiling.stalls import sample

    check_script(script)
    for option, launches, measure in (("--counters", counters, count), ("--stalls", stalls, sample)):
        if launches is None:
            continue
        if simulated or (counters and stalls) or any((json, trace, against, timeline)):
            fail(f"{option} runs the script under ncu, which replays its launches; give it alone")
        raise typer.Exit(run_under_ncu(Script(script, context.args, _echo), launches, measure))
    if against is not None and not against.is_file():
        fail(f"there is no file {against} for --against")
    for option, path in (("--json", json), ("--trace", trace), ("--timeline", timeline)):
        if path is not None:
            check_output(path, script, option)
    with simulated_gpu(arch):
        status = run(
            Script(script, context.args, _echo),
            simulate=simulated,
            json=None if json is None else json.absolute(),
            trace=None if trace is None else trace.absolute(),
            against=against,
            timeline=None if timeline is None else timeline.absolute(),
        )
    raise typer.Exit(status)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def explain(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.ptx|FILE.py",
            help="PTX, or a script, to which other arguments and all behind -- are passed.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML page that needs nothing else.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    width: Annotated[int | None, typer.Option(min=20, help="Columns of characters. Default: the terminal's.")] = None,
    ptxas: Annotated[bool, typer.Option(help="Ask ptxas for registers, spills and advisories.")] = True,
    costs: Annotated[bool, typer.Option(help="Predict what slow places of a script's kernels cost.")] = True,
    gpu: Annotated[Literal["h100", "h200"], typer.Option(help="The GPU on which costs are predicted.")] = "h200",
    arch: _Arch = None,
) -> None:
    """Explain kernels: MMAs, TMA copies, barriers, shared memory, registers; those of a script as simulated."""
    from cutepy.cli.explain import of_file, write

    if not file.is_file():
        fail(f"there is no file {file}")
    if html is not None and html.suffix.lower() != ".html":
        fail(f"--html takes a file that ends in .html, got {str(html)!r}")
    if file.suffix != ".py" and context.args:
        fail(f"only a script, FILE.py, takes arguments, and {file} got {' '.join(context.args)!r}")
    try:
        with simulated_gpu(arch):
            asked = Script(file, context.args, _echo)
            explanation, code = of_file(asked, ptxas=ptxas, arch=arch, costs=gpu if costs else None)
        write(explanation, html, json, width)
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except (ValueError, ImportError, OSError) as error:
        fail_by(error)
    raise typer.Exit(code)


new = typer.Typer(cls=Commands, help="Write a template of a kernel and its test.", no_args_is_help=True)


@new.command()
def kernel(
    name: Annotated[str, typer.Argument(help="A new module's name: NAME.py and test_NAME.py are written.")],
    folder: Annotated[Path, typer.Option(file_okay=False, help="Folder to write to.")] = Path(),
    like: Annotated[
        str,
        typer.Option(help="gemm (with bias and relu), attention (causal), rows (RMS norm), or blackwell (tcgen05)."),
    ] = "gemm",
) -> None:
    """Write a kernel made of cutepy.device's blocks, and a test that passes in the simulator."""
    try:
        from cutepy.cli.new import write_kernel

        written = write_kernel(name, folder, like)
    except (ImportError, ValueError, OSError) as error:
        fail_by(error)
    for file in written:
        typer.echo(f"wrote {file}")
    typer.echo(f"now: python -m pytest {written[-1]}")


app.add_typer(new, name="new")
app.add_typer(bench.app, name="bench")
app.add_typer(tune.app, name="tune")
app.add_typer(cache.app, name="cache")
app.add_typer(export.app, name="export")


def main() -> None:
    """Run the command line on `sys.argv`; the process ends with the command's exit code."""
    with report_write_errors():
        app()
