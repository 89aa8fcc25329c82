"""`cutepy explain`: the anatomy of a kernel, from PTX or from a script that is run under the simulator."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cutepy.cli.scripts import Script

if TYPE_CHECKING:
    from cutepy.anatomy import Explanation


def of_file(
    script: Script, *, ptxas: bool, arch: str | None = None, costs: str | None = None
) -> tuple[Explanation, int]:
    """Explain a file of PTX, or run a script and explain its launches.

    Parameters
    ----------
    script : Script
        A file that does not end in ``.py`` is PTX.
    ptxas : bool
        True to ask ptxas.
    arch : str, optional
        The GPU that code must be for.
    costs : str, optional
        The GPU, "h100" or "h200", on which the cost of slow places is predicted.

    Returns
    -------
    (Explanation, int)
        The second is the script's exit code.

    Raises
    ------
    ExplainError
        If there is nothing to explain, or PTX is for another GPU.
    """
    from cutepy.anatomy import Costs, ExplainError, Watch, explain
    from cutepy.sim.ptx.header import has_instructions

    path = script.path
    if path.suffix != ".py":
        explanation = explain(path, assembler=ptxas)
        if arch is not None and not has_instructions(arch, explanation.target):
            target = explanation.target
            raise ExplainError(f"{arch} does not run {path}, which is for .target {target}; leave out --arch")
        return explanation, 0
    from cutepy.cli.simulate import run

    watch = Watch()
    timer = Costs(costs) if costs is not None and ptxas else None
    # The script's own output is not the explanation: it goes to standard error.
    with contextlib.redirect_stdout(sys.stderr):
        code = run(script, observers=[watch], time=timer)
    if code and next(watch.kernels, None) is None:
        raise ExplainError(f"{path.name} ended with exit code {code} before it launched a kernel")
    return explain(watch, assembler=ptxas, name=path.name, costs=timer), code


def write(explanation: Explanation, html: Path | None, as_json: bool, width: int | None) -> None:
    """Write an explanation into a file, as JSON, or as text: in colour on a terminal, unless NO_COLOR is set."""
    if html is not None:
        explanation.save(html)
    if as_json:
        print(json.dumps(explanation.json(), indent=1))
    elif html is None:
        from cutepy.anatomy.text import draw
        from cutepy.cli.show import paint_drawing
        from cutepy.layouts.render.output import terminal_width

        paint_drawing(draw(explanation, terminal_width() if width is None else width))
