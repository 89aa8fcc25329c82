"""`cutepy predict`: times of a script's kernels on a GPU, and their bounds, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutepy.cli.failure import fail
from cutepy.cli.scripts import Script

if TYPE_CHECKING:
    from cutepy.sim.machine.selected_ctas import Coordinates


def run(
    script: Script,
    gpu: str,
    *,
    ctas: Coordinates | None = None,
    json_path: Path | None = None,
    timeline: Path | None = None,
) -> int:
    """Run a script as `__main__`, sampled CTAs of every launch simulated, and print the predicted times.

    Parameters
    ----------
    script : Script
    gpu : str
        "h100" or "h200".
    ctas : sequence of coordinates, optional
        The CTAs to simulate of each launch.
    json_path, timeline : Path, optional
        Files to write the predictions to, and the timelines as a Chrome trace.

    Returns
    -------
    int
        2 if the script failed, else 0.
    """
    from rich.console import Console

    from cutepy.cli.simulate import INTERRUPTED, execute
    from cutepy.frontends import serve_cuda
    from cutepy.frontends.inherited import inherited_by_runs
    from cutepy.predict.gpu import ConstantError
    from cutepy.predict.report import as_json, timeline as timeline_of, write
    from cutepy.predict.timer import Timer

    try:
        timer = Timer(gpu, keeps_events=timeline is not None)
    except ConstantError as error:
        fail(str(error))
    options: dict[str, Any] = {"time": timer, **({"ctas": ctas} if ctas else {})}
    with serve_cuda(**options), inherited_by_runs(options):
        code = execute(script)
    echo = script.echo
    if code == INTERRUPTED:
        return code
    if code:
        echo("cutepy: the script failed; of each launch only sampled CTAs ran, so that it must not check results")
    if not timer.predictions:
        echo("cutepy: the script launched no kernel")
        return 2 if code else 0
    write(timer.predictions, Console())
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(timer.predictions), indent=1) + "\n", encoding="utf-8")
    if timeline is not None:
        timeline.write_text(json.dumps(timeline_of(timer.predictions)), encoding="utf-8")
    return 2 if code else 0
