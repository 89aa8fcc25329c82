"""Tables written as text, such as the instruction set: one function that splits a text into rows."""

import re


def rows_of(table: str) -> list[str]:
    r"""Split a table into its rows, each as one line.

    A row begins at the left, and goes on in the indented lines below. A line that begins with # is a comment.

    Examples
    --------
    >>> rows_of("# Colours.\nred: of blood\n  and roses\nblue: of the sky")
    ['red: of blood and roses', 'blue: of the sky']
    """
    without_comments = re.sub(r"(?m)^#.*\n?", "", table)
    return [" ".join(row.split()) for row in re.split(r"\n+(?! )", without_comments.strip())]
