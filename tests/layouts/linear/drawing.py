"""Strategies of linear layouts."""

from hypothesis import strategies as st

from cutepy.layouts.linear import LinearLayout

NAMES = ["register", "lane", "warp", "block"]
OUTS = ["dim0", "dim1", "dim2"]


def permutations(names):
    return st.permutations(list(names.items())).map(dict)


@st.composite
def linear_layouts(draw, ins=None, outs=None):
    """Any map of few bits; mostly of powers of two, often invertible."""
    if ins is None:
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        ins = {name: 1 << draw(st.integers(0, 2)) for name in names}
    if outs is None:
        names = draw(st.lists(st.sampled_from(OUTS), unique=True, min_size=1, max_size=3))
        outs = {name: 1 << draw(st.integers(0, 2)) for name in names}
    bits = sum(size.bit_length() - 1 for size in ins.values())
    width = sum(size.bit_length() - 1 for size in outs.values())
    any_column = st.integers(0, (1 << width) - 1)
    units = st.sampled_from([0, *(1 << i for i in range(width))])
    columns = draw(
        st.one_of(
            st.lists(any_column, min_size=bits, max_size=bits),
            st.lists(units, min_size=bits, max_size=bits),
            st.permutations([1 << i for i in range(max(bits, width))]).map(
                lambda p: [c % (1 << width) for c in p[:bits]]
            ),
        )
    )
    return LinearLayout.of_columns(columns, ins, outs)
