"""What the tests of machine code share."""

import pytest


@pytest.fixture(scope="module")
def patched():
    with pytest.MonkeyPatch.context() as patch:
        yield patch
