"""Subjects of commits: at most 72 characters, `area: summary`; merges are excepted."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAST_UNCHECKED = "aaa03116fb"
"""Commit that the first checked one follows."""
MOST_CHARACTERS = 72
SUBJECT = re.compile(r"[\w.-]+(?:, [\w.-]+)*:(?: \S+)+")


def fault(subject: str) -> str | None:
    """Say what is wrong with a commit's subject; None if nothing is."""
    if len(subject) > MOST_CHARACTERS:
        return f"{len(subject)} characters"
    return None if SUBJECT.fullmatch(subject) else "not `area: summary`"


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the repository."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.integration
def test_subjects_are_short_and_name_an_area():
    if shutil.which("git") is None or git("merge-base", "--is-ancestor", LAST_UNCHECKED, "HEAD").returncode:
        pytest.skip(f"needs git and a checkout whose history has {LAST_UNCHECKED}")
    subjects = git("log", "--no-merges", "--format=%h %s", f"{LAST_UNCHECKED}..HEAD").stdout.splitlines()
    found = {each: fault(each.partition(" ")[2]) for each in subjects}
    assert {each: why for each, why in found.items() if why} == {}


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("sim: refuse textures by name", None),
        ("attention, device: deal and place CTAs one way", None),
        ("sim.ptx: read .b128", None),
        ("tests: add " + 62 * "x", "73 characters"),
        ("Add a test", "not `area: summary`"),
        ("tests: add  two spaces", "not `area: summary`"),
    ],
)
def test_faults_of_subjects_are_found(subject, why):
    assert fault(subject) == why
