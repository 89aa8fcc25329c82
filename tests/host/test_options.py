"""Files named by the compiler's options: what is in them counts, however they are named."""

import pytest

from cutepy.host import compilation
from cutepy.host.family import Family
from cutepy.host.options import named_files
from cutepy.host.specs import TensorSpec
from cutepy.host.store import CacheWarning, Entry, default_store
from tests.host import kernels

VECTOR = TensorSpec("float32", (32,))


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def library(folder):
    """Make a file whose path holds separators."""
    (folder / "a, b=1").mkdir()
    file = folder / "a, b=1" / "lib.bc"
    file.write_bytes(b"one")
    (folder / "other.bc").write_bytes(b"other")
    return file


@pytest.mark.parametrize(
    "options",
    [
        "--link-libraries='{}'",
        "--opt-level 2 --link-libraries '{}' --opt-level 3",
        "--link-libraries='other.bc,{}'",
        "'--link-libraries={},other.bc'",
        '--ptxas-options "--first --second={}"',
        "--ptxas-options='--second \"{}\"'",
    ],
)
def test_what_a_named_file_holds_is_in_the_key(options, library):
    options = options.format(library)
    before, key = named_files(options), compilation.entry_key("", (), options)
    assert str(library) in dict(before)
    assert ("other.bc" in dict(before)) == ("other.bc" in options)
    library.write_bytes(b"two")
    assert named_files(options) != before
    assert compilation.entry_key("", (), options) != key


def test_options_without_files_name_none(library):
    for options in (
        "",
        "--opt-level 2",
        "--link-libraries=missing.bc",
        "--open 'quote",
        f"--x={'y' * 5000} \0",
        "cache",
    ):
        assert named_files(options) == []


@pytest.mark.dsl
def test_a_file_that_changes_while_it_is_compiled_in_is_not_kept(library, monkeypatch):
    original = compilation.build

    def build(*arguments):
        return original(*arguments[:3], "", *arguments[4:])  # without the library, which is none

    def build_and_change(*arguments):
        library.write_bytes(b"two")
        return build(*arguments)

    monkeypatch.setattr(compilation, "build", build_and_change)
    options = f"--link-libraries='{library}'"
    with pytest.warns(CacheWarning, match="biased is not kept on the disk.*lib.bc"):
        compilation.compile(kernels.biased, VECTOR, options=options)
    assert not default_store().entries()
    monkeypatch.setattr(compilation, "build", build)
    key, found = compilation.find(kernels.biased, VECTOR, options=options)
    assert found is None
    compilation.compile(kernels.biased, VECTOR, options=options)
    assert [entry.key for entry in default_store().entries()] == [key]
    assert compilation.find(kernels.biased, VECTOR, options=options)[1] is not None
    library.write_bytes(b"three")
    assert compilation.find(kernels.biased, VECTOR, options=options)[1] is None


def test_a_family_keeps_nothing_of_a_file_that_changes(library, monkeypatch):
    family = Family("tests.host.kernels:biased", sources=("tests.host",), options=f"--link-libraries='{library}'")

    def build(*_):
        library.write_bytes(library.read_bytes() + b"more")
        return Entry({}, {})

    monkeypatch.setattr(Family, "_build", build)
    monkeypatch.setattr(compilation, "open_entry", lambda entry, _: entry)
    monkeypatch.setattr(compilation, "stages", lambda *_, **__: {})
    family.function(1, {})
    assert not default_store().entries()
    monkeypatch.setattr(Family, "_build", lambda *_: Entry({}, {}))
    family.function(2, {})
    assert len(default_store().entries()) == 1
