"""Options of commands that run a script, checked before the script runs."""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cutepy.cli.failure import fail

if TYPE_CHECKING:
    from cutepy.sim.machine.selected_ctas import Coordinates


def check_script(script: Path) -> None:
    """Refuse a script that does not exist."""
    if str(script).startswith("-") and not script.exists():
        fail(f"there is no option {script}; options stand before FILE.py, what follows it is the script's")
    if script.is_dir():
        fail(f"FILE.py must be a script, got {str(script)!r}, which is a folder")
    if not script.is_file():
        fail(f"there is no file {script}")
    if script.suffix == ".ptx":
        fail(f"FILE.py must be a script, got {script}, which is PTX; launch it in one by cutepy.load_ptx")


def check_folder(folder: Path, option: str) -> None:
    """Make the folder of an option, to write to; refuse one that can't be made."""
    if folder.exists() and not folder.is_dir():
        fail(f"{option} takes a folder, got {str(folder)!r}, which is a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{option} {folder} can't be written: {error.strerror}")
    if not os.access(folder, os.W_OK):
        fail(f"{option} {folder} can't be written")


def check_output(output: Path, script: Path | None = None, option: str = "--output") -> None:
    """Refuse an output file that can't be written, or is the script."""
    if output.is_dir():
        fail(f"{option} takes a file, got {str(output)!r}, which is a folder")
    if not output.resolve().parent.is_dir():
        fail(f"there is no folder {output.parent} for {option}")
    if script is not None and output.exists() and output.samefile(script):
        fail(f"{option} {output} would write over the script")
    if not os.access(output if output.exists() else output.resolve().parent, os.W_OK):
        fail(f"{option} {output} can't be written")


def parse_schedules(text: str | None, seed: int | None, limit: int | None) -> int | Literal["all"]:
    """Parse the number of schedules, and check that a seed and a limit are used with it only."""
    if text is not None and text != "all" and not (text.isascii() and text.isdecimal()):
        fail(f"--schedules must be a number or all, got {text!r}")
    count = 0 if text in (None, "all") else int(text[:_DIGITS])
    if count > _MOST_SCHEDULES:
        fail(f"--schedules must be at most {_MOST_SCHEDULES}, got {text}")
    if seed is not None and (text == "all" or not count):
        fail(f"--seed {seed} is the first of a number of schedules: give --schedules 100 with it")
    if limit is not None and text != "all":
        fail(f"--limit {limit} is how many are played of all: give --schedules all with it")
    return "all" if text == "all" else count


_MOST_SCHEDULES = 10**6
"""Largest number of schedules of a launch; more would take days, and memory for each."""
_DIGITS = 20
"""Largest number of digits of a number: a longer one is too large in any case."""


def parse_seconds(seconds: float | None) -> float | None:
    """Parse the time limit of a launch in seconds; refuse a text that is no time."""
    if seconds is not None and not 0 < seconds < math.inf:
        fail(f"--limit-seconds must be a number of seconds above 0, got {seconds:g}")
    return seconds


def simulated_gpu(arch: str | None) -> AbstractContextManager[object]:
    """Let simulations of the context stand for the GPU of an architecture; of None, for the default."""
    from cutepy.frontends.chosen_device import simulating_chosen

    try:
        return simulating_chosen(arch)
    except ValueError as error:
        fail(str(error))


def parse_ctas(text: str | None) -> Coordinates | None:
    """Parse coordinates of CTAs; None if there are none."""
    from cutepy.sim.machine.selected_ctas import parse_ctas

    try:
        return None if text is None else parse_ctas(text)
    except ValueError as error:
        fail(str(error))
