"""Lines of a file that can have a breakpoint."""

import itertools

import pytest

from cutepy.sim.inspect import breakpoints
from cutepy.sim.inspect.breakpoints import lines_with_code

SOURCE = '''"""A module's docstring,
of two lines."""

# A comment.
x = (
    1,

    "text"
    " that goes on",
)


def f(a):
    """A function's docstring.

    Of several lines.
    """
    if a:
        return "text"
    """Text in between."""
    return (
        a
    )
'''


def test_lines_of_docstrings_comments_and_blanks_have_no_code(tmp_path):
    """Nor has the start of a text that nothing uses; a text that is used is a part of its statement."""
    file = tmp_path / "module.py"
    file.write_text(SOURCE)
    lines = SOURCE.splitlines()
    found = [lines[n - 1].strip() for n in sorted(lines_with_code(str(file)))]
    assert found == ["x = (", "1,", ")", "def f(a):", "if a:", 'return "text"', "return (", "a", ")"]


def test_a_file_that_cannot_be_read_has_none(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:")
    assert not lines_with_code(str(tmp_path / "broken.py"))
    assert not lines_with_code(str(tmp_path / "none.py"))


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product(["x = 1\n", "\nx = 1\n", "\n\nx = 1\n"], repeat=2))
)
def test_a_line_needs_code_in_one_of_the_files_of_the_name(tmp_path, monkeypatch, first, second):
    """A launched kernel shows which of the files is meant."""
    files = []
    for folder, text in (("one", first), ("two", second)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "mine.py")
        files[-1].write_text(text)
    other = tmp_path / "other.py"
    other.write_text("x = 1\n" * 9)
    monkeypatch.setattr(breakpoints, "_loaded_files", lambda: [*map(str, files), str(other)])
    for line in (1, 2, 3, 4):
        has_code = [text.splitlines()[line - 1 : line] == ["x = 1"] for text in (first, second)]
        for where, expected in (("mine.py", any(has_code)), ("one/mine.py", has_code[0]), ("two/mine.py", has_code[1])):
            if expected:
                assert breakpoints.Breakpoint(f"{where}:{line}", print).hits == 0
            else:
                with pytest.raises(breakpoints.BreakpointError):
                    breakpoints.Breakpoint(f"{where}:{line}", print)
    assert breakpoints.Breakpoint("unloaded.py:7", print).hits == 0
