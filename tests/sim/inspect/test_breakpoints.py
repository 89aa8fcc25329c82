"""Lines of a file that can have a breakpoint."""

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
