"""Names of a module's own `forward`: its arguments of each kind, behind decorators and cutepy's own functions."""

import functools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.nn.code_names import arguments_of  # noqa: E402

WAYS = {
    "places": lambda self, x, y: None,
    "places only": lambda self, x, /, y: None,
    "names only": lambda self, *, x, y: None,
    "both": lambda self, x, *, y: None,
    "defaults": lambda self, x=1, *, y=2: None,
    "the rest": lambda self, x, *rest, y, **named: None,
}


def with_locals(self, x, *, y):
    z = x + y
    return z


def module(forward, base=torch.nn.Module):
    return type("Mine", (base,), {"forward": forward})


@pytest.mark.parametrize("forward", [*WAYS.values(), with_locals], ids=[*WAYS, "locals"])
def test_arguments_of_each_kind_are_listed(forward):
    """Neither locals nor the names of what is left over are arguments."""

    @functools.wraps(forward)
    def decorated(*given, **named):
        return forward(*given, **named)

    for kind in (module(forward), module(decorated), module(forward, module(lambda self, q: None))):
        assert arguments_of(kind) == {"self", "x", "y"}


def test_what_cutepy_puts_around_is_not_the_modules_own():
    def around(self, *given):
        return given

    around.__module__ = "cutepy.nn.adjoining_weights"
    assert arguments_of(module(around, module(lambda self, x, *, y: None))) == {"self", "x", "y"}
    assert arguments_of(type("Bare", (), {})) == set()
