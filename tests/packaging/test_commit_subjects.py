"""Subjects of commits: at most 72 characters, `area: imperative summary`; merges are excepted."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAST_UNCHECKED = "e67cb706f9"
"""Commit that the first checked one follows."""
MOST_CHARACTERS = 72
VERBS = frozenset(
    """
    accept account add adjust admit align allocate allow announce answer apply ask assemble assert assign assume
    attach avoid await balance batch begin bind bound break bring broadcast build bump cache calibrate call cancel
    carry cast certify change check choose claim classify clean clear close cluster collect combine compare compile
    complete compose compute condense confine confirm connect convert copy correct count cover cross cut date deal
    decide declare decode decouple deduplicate default defer define delay delete derive describe detect disable
    discard dispatch distinguish divide do document download draw drop dump edit emit empty enable encode end enforce
    ensure estimate evaluate examine exclude execute exempt expand expect explain export expose extend extract factor
    fail fall fence fetch fill filter find finish fit fix flatten flush fold follow forbid force forget format forward
    free freeze fuse gate gather generalise generate get give go group guard halve handle have hide hold ignore
    implement import improve include increase infer inherit initialise inline insert install interleave introduce
    invalidate issue join judge keep kill label launch lay lead learn leave lengthen let lift limit link lint list
    load lock log look loosen lower make map mark match mean measure mend merge mirror mock model move multiply name
    narrow normalise note number observe offer omit open optimise order overlap own pack pad parallelise parametrise
    parse part pass patch permit pick pin place plan play point poll prefer prefetch prepare prevent print profile
    promote propagate protect prove prune publish push put quantise query quote raise randomise reach read rearrange
    recognise recompute record reduce refactor refer refine refuse regenerate register reject relax release reload
    rely remember remove rename render reorder repair repeat replace replay report require rerun reset resolve respect
    restore restrict restructure retry return reuse revert review revise rewrite round route run sample sanitize save
    say scale scan schedule search see select send separate serialise serve set shard share shift shorten show shrink
    shuffle silence simplify simulate skip snapshot sort speed spell split spread stack stage start state stay steer
    stop store stream strengthen subtract sum support suppress swap switch synchronise tabulate take teach tell test
    throw tidy tie tighten time touch trace track train translate transpose treat trim trust try tune turn type unify
    unroll unwrap update upgrade use validate vary verify wait wake walk warm warn widen work wrap write yield zero
    """.split()
)
"""Imperatives that may begin a summary. Add a verb here when a subject needs it."""
SUBJECT = re.compile(r"[\w.-]+(?:, [\w.-]+)*: (\S+)(?: \S+)*")


def fault(subject: str) -> str | None:
    """Say what is wrong with a commit's subject; None if nothing is."""
    if len(subject) > MOST_CHARACTERS:
        return f"{len(subject)} characters"
    found = SUBJECT.fullmatch(subject)
    if found is None:
        return "not `area: summary`"
    return None if found[1] in VERBS else f"{found[1]!r} is no imperative of VERBS"


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the repository."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.integration
def test_subjects_are_short_and_imperative():
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
        ("tests: " + "add" + 62 * "x", "'add" + 62 * "x" + "' is no imperative of VERBS"),
        ("tests: add " + 62 * "x", "73 characters"),
        ("Add a test", "not `area: summary`"),
        ("tests: add  two spaces", "not `area: summary`"),
        ("tests: the tests of rooms", "'the' is no imperative of VERBS"),
        ("host: says the page's text", "'says' is no imperative of VERBS"),
    ],
)
def test_faults_of_subjects_are_found(subject, why):
    assert fault(subject) == why
