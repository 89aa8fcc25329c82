"""The tutorial: what it claims is computed, its answers are right, and it is legible wherever it is written."""

import io
import itertools
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.cli.tutorial import walk
from cutepy.cli.tutorial.answers import judge
from cutepy.cli.tutorial.chapter import Drawing, Prose, Session, evaluate, load, sources, titles
from cutepy.layouts import Layout, parse
from cutepy.layouts.render import render_html, render_svg
from tests.messages import refuses

NUMBERS = range(1, len(titles()) + 1)
TOPICS = (
    "Layouts",
    "Coordinates",
    "Composition",
    "Swizzles",
    "GMMA",
    "Threads",
    "TMA",
    "pipeline",
    "your own kernel",
)

# Worked out on paper, or printed by C++ CuTe, and by no code of cutepy.
ANSWERS = {
    "1.1": 29,
    "1.2": 15 * 20 + 15 + 1,
    "1.3": "(4,6):(1,4)",
    "2.1": "(1,(1,2))",
    "2.2": "64:1",
    "2.3": 6,
    "3.1": "8:8",
    "3.2": 9,
    "3.3": 8,
    "3.4": 36,
    "4.1": 16,
    "4.2": 216,
    "4.3": 4,
    "4.4": "Sw<3,2,3>",
    "5.1": "(8,64)",
    "5.2": 49152,
    "5.3": 1024,
    "5.4": 0x400 + (64 + 512 + 1024) * 16,
    "6.1": "(9,2)",
    "6.2": 128,
    "6.3": 8192,
    "7.1": 32768,
    "7.2": 2,
    "7.3": 1008,
    "8.1": 49152,
    "8.2": 2,
    "8.3": 0,
    "8.4": 24,
    "8.5": 128,
    "9.1": "SW64",
    "9.2": 0x440,
    "9.3": 5,
    "9.4": 64 * 128 * 2,
}

# A number written out goes stale. Digits within a name, as in SW128 and m64n128k16, are the name.
FENCED = re.compile(r"^```(?!question).*?^```$", re.MULTILINE | re.DOTALL)
COMPUTED = re.compile(r"\{[^{}]+\}|^answer:.*$", re.MULTILINE)
WORDS = "three four five six seven eight nine ten twelve sixteen thirty sixty hundred"
NUMBER = re.compile(rf"(?<![A-Za-z0-9_])\d|\b({WORDS.replace(' ', '|')})\b", re.IGNORECASE)


def written_out(source):
    text = COMPUTED.sub("", FENCED.sub("", source))
    return [text[max(0, found.start() - 20) : found.end() + 20] for found in NUMBER.finditer(text)]


def test_the_chapters_are_there():
    assert len(titles()) == len(TOPICS)
    assert all(topic in title for topic, title in zip(TOPICS, titles(), strict=True))


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_computed(number):
    assert written_out(sources()[number - 1]) == []


@pytest.mark.parametrize(
    "text", ["It has 32 banks.", "eight rows", "```question\nask: 3?\nhint: x\n```", "`Sw<3,4,3>`"]
)
def test_a_number_that_is_written_out_is_seen(text):
    assert written_out(text)


@pytest.mark.parametrize("text", ["{32} banks of SW128", "```python\nx = 3\n```", "answer: 3", "one of two"])
def test_computed_numbers_and_names_pass(text):
    assert not written_out(text)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_chapter_has_pictures_questions_sessions_and_checks(number):
    chapter = load(number)
    assert chapter.title == titles()[number - 1]
    assert any(isinstance(part, Drawing) for part in chapter.parts)
    assert any(isinstance(part, Session) for part in chapter.parts)
    assert "```check\n" in sources()[number - 1]
    assert len(chapter.questions) >= 3
    assert all(question.hint and question.because for question in chapter.questions)


@pytest.mark.parametrize("number", NUMBERS)
def test_answers_are_those_worked_out_by_hand(number):
    questions = load(number).questions
    assert [question.number for question in questions] == [key for key in ANSWERS if key.startswith(f"{number}.")]
    for question in questions:
        right = ANSWERS[question.number]
        assert judge(str(right), question.answer).right, question
        assert not judge("12345" if isinstance(right, int) else "(7,7):(7,7)", question.answer).right


def test_a_claim_that_does_not_hold_is_seen():
    with pytest.raises(AssertionError):
        evaluate("# T\n\n```check\nassert 1 + 1 == 3\n```\n", 1)
    with refuses(AssertionError):
        evaluate("# T\n\n```python raises\n1 + 1\n```\n", 1)
    with pytest.raises(NameError) as caught:
        evaluate("# T\n\nIt is {unheard_of}.\n", 3)
    assert caught.value.__notes__ == ["chapter 3 of the tutorial: {unheard_of}"]


@pytest.mark.parametrize(
    "body",
    ["```question\nask: x\nanswer: 1\n```\n", "```picture\nx\n```\n"],
)
def test_a_chapter_of_another_form_is_refused(body):
    with refuses(ValueError):
        evaluate(f"# T\n\n{body}", 1)


def test_what_a_chapter_prints_is_what_python_prints():
    block = "```python\nfor i in range(2):\n    print(i)\nx = 'a'\nx\nNone\n```"
    session, prose, item = evaluate(f"# T\n\n{block}\n\nIt is\n{{(1, 2)}}, {{True}}.\n\n- {{x}}\n", 1).parts
    assert session.steps == (
        ("for i in range(2):\n    print(i)", "0\n1"),
        ("x = 'a'", ""),
        ("x", "'a'"),
        ("None", ""),
    )
    assert (prose, item) == (Prose("It is (1,2), yes."), Prose("a", item=True))


# Legible


def printed(capsys, number, width):
    walk.run(number, screen=walk.Screen(width))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("number", NUMBERS)
def test_lines_fit_and_nothing_is_left_out(number, width, capsys):
    text = printed(capsys, number, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert text.isascii()
    assert "left out" not in text
    assert re.findall(r"^Question (\S+):", text, re.MULTILINE) == re.findall(r"^- (\d\.\d):", text, re.MULTILINE)


@pytest.mark.parametrize("number", NUMBERS)
def test_sources_are_not_broken_at_80_columns(number, capsys):
    text = printed(capsys, number, 80)
    for part in load(number).parts:
        if isinstance(part, Session):
            for source, _ in part.steps:
                assert source.replace("\n", "\n... ") in text
        elif isinstance(part, Drawing):
            assert f">>> show({part.arguments})\n" in text


@pytest.mark.parametrize("number", NUMBERS)
def test_its_pictures_are_drawn_by_every_renderer(number):
    for part in load(number).parts:
        if isinstance(part, Drawing):
            assert render_svg(part.picture).startswith("<svg")
            assert "<td" in render_html(part.picture)


# Interactive


class Reader:
    """Answers prompts from a list, then leaves."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, prompt):
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)


def walked(capsys, *answers, number=1):
    assert walk.run(number, screen=walk.Screen(80), ask=Reader(*answers)) == 0
    return capsys.readouterr().out


def test_right_answers_are_counted(capsys):
    text = walked(capsys, "29", "316", "(_4,_6):(_1,_4)")
    assert text.count("Right. ") == 3
    assert text.endswith("End of chapter 1: 3 of 3 right at the first try.\nNext: cutepy tutorial 2\n")
    assert "Answers to chapter" not in text


def test_a_wrong_answer_gets_another_try_and_a_hint(capsys):
    text = walked(capsys, "28", "30", "?", "29", "", "4:1")
    assert text.count("Not that.") == 3
    assert text.count("Hint: 3 steps of 8") == 2
    assert "It is 316." in text
    assert "until next time: cutepy tutorial 1 begins" in text.lower()


def test_what_cannot_be_read_is_no_try(capsys):
    text = walked(capsys, "many", "29", "q")
    assert "a number, decimal or 0x-hexadecimal?" in text
    assert "Not that." not in text
    assert text.count("Right. ") == 1


def test_a_caret_points_into_a_wrong_layout(capsys):
    assert "  (4,6:(1,4)\n       ^\n" in walked(capsys, "29", "316", "(4,6:(1,4)")


def test_the_walk_goes_on_to_the_next_chapter(capsys):
    assert walk.run(screen=walk.Screen(80), ask=Reader("29", "316", "(4,6):(1,4)", "")) == 0
    assert "\n2. Coordinates and hierarchies\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given_text", "answer", "right"),
    [
        ("0x440", 1088, True),
        ("1088 bytes", 1088, True),
        ("", 0, None),
        ("yes", True, True),
        ("No", True, False),
        ("maybe", True, None),
        ("`sw64`", "SW64", True),
        ("SW32", "SW64", False),
        ("(1, (1, 2))", (1, (1, 2)), True),
        ("(1,1)", (1, (1, 2)), False),
        ("Sw<3,2,3>", parse("Sw<3,2,3>"), True),
        ("8:1", Layout((2, 4)), True),
        ("8:2", Layout((2, 4)), False),
        ("__import__('os')", Layout(4), None),
    ],
)
def test_answers_are_judged(given_text, answer, right):
    assert judge(given_text, answer).right is right


@given(st.text(max_size=12), st.sampled_from([3, True, "SW64", (1, 2), Layout((2, 4)), parse("Sw<3,2,3>")]))
def test_no_answer_breaks_the_walk(text, answer):
    assert judge(text, answer).right in (True, False, None)


# The command


def test_the_contents_are_listed():
    result = CliRunner().invoke(app, ["tutorial", "--list"])
    assert result.output.splitlines() == [f"{number}  {title}" for number, title in enumerate(titles(), 1)]


def test_a_chapter_that_is_not_there_is_refused():
    result = CliRunner().invoke(app, ["tutorial", "10"])
    assert (result.exit_code, result.output) == (
        2,
        "error: the tutorial has chapters 1 to 9, got 10; --list names them\n",
    )


def test_into_a_pipe_nothing_is_asked():
    result = CliRunner().invoke(app, ["tutorial", "2"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert result.output.startswith("2. Coordinates and hierarchies\n====")
    assert "\nAnswers to chapter 2\n" in result.output


def on_terminal(typed, **variables):
    """Run chapter 1 in a process whose terminal this is."""
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **variables}
    with subprocess.Popen(
        [sys.executable, "-m", "cutepy", "tutorial", "1"],
        stdin=child, stdout=child, stderr=child, env=environment, cwd=Path(__file__).parents[2],
    ) as process:  # fmt: skip
        os.close(child)
        os.write(parent, typed.encode())
        written = io.BytesIO()
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            written.write(piece)
    os.close(parent)
    return process.returncode, written.getvalue().decode()


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_on_a_terminal_it_asks_in_colour_unless_told_not_to(variables, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    returned, text = on_terminal("29\n316\n(4,6):(1,4)\n", **variables)
    assert returned == 0
    assert "3 of 3 right at the first try" in text
    assert ("\x1b[" in text) is not bool(variables)


def test_layouts_are_right_where_they_are_the_same_function():
    """Functions in one group, by their values; the last one has none: the outer layout takes no pair."""
    groups = [
        ["8:1", "(2,4):(1,2)", "((2,2),2):((1,2),4)", "S<2,0,3> o 0 o 8:1", "8:1 o 0 o (4,2):(1,4)"],
        ["8:2", "(2,4):(2,4)", "8:1 o 0 o 8:2"],
        ["(2,4):(4,1)"],
        ["4:1", "(2,2):(1,2)"],
        ["8:1 o 3 o 8:1", "8:1 o 3 o (2,4):(1,2)"],
        ["(2,4):(1@0,1@1)"],
        ["8:1 o 0 o (2,4):(1@0,1@1)"],
    ]
    for group, other in itertools.product(groups, repeat=2):
        for one, answer in itertools.product(group, other):
            verdict = judge(one, parse(answer))
            assert verdict.right is (group is other), (one, answer)
            assert bool(verdict.remark) == (group is other and parse(one) != parse(answer))
