"""Version of the DSL: the distributions that make it up, each of which may be replaced."""

import sys

import pytest

from cutepy.dsl.version import installed, installed_parts
from cutepy.host.declared import Deferred, declared_key


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Ask anew, with folders for distributions on the path before all others."""
    monkeypatch.syspath_prepend(tmp_path / "second")
    monkeypatch.syspath_prepend(tmp_path / "first")

    def ask():
        installed_parts.cache_clear()
        return installed_parts()

    yield ask
    installed_parts.cache_clear()


def distribution(folder, name):
    (folder / f"{name}.dist-info").mkdir(parents=True)


def test_parts_are_found_in_all_folders_of_the_path(parts, tmp_path):
    here = parts()
    for name in ("nvidia_cutlass_dsl_libs_cu13-9.1", "nvidia_cutlass_dsl-9.0", "numpy-1.0", "nvidia_cutlass-3.5"):
        distribution(tmp_path / "second", name)
    distribution(tmp_path / "first", "Nvidia-Cutlass-DSL_libs_base-9.2")
    distribution(tmp_path / "first", "nvidia_cutlass_dsl-9.0")
    (tmp_path / "first" / "nvidia_cutlass_dsl").mkdir()
    mine = ("Nvidia-Cutlass-DSL_libs_base-9.2", "nvidia_cutlass_dsl-9.0", "nvidia_cutlass_dsl_libs_cu13-9.1")
    assert parts() == (*mine, *here)


def key():
    return declared_key(Deferred("m:f"), (), (), {}, "")


def test_a_part_that_is_swapped_is_in_the_key(parts, tmp_path):
    parts()
    keys = {key()}
    distribution(tmp_path / "first", "nvidia_cutlass_dsl_libs_base-4.8.1.post1")
    parts()
    keys.add(key())
    (tmp_path / "first" / "nvidia_cutlass_dsl_libs_base-4.8.1.post1.dist-info").rename(
        tmp_path / "first" / "nvidia_cutlass_dsl_libs_base-4.8.1.post2.dist-info"
    )
    parts()
    assert len(keys | {key()}) == 3


@pytest.mark.dsl
def test_the_installed_dsl_has_parts(parts):
    found = parts()
    assert f"nvidia_cutlass_dsl-{installed()}" in found
    assert any("libs_base" in part for part in found)


def test_a_path_of_anything_is_read(parts, tmp_path, monkeypatch):
    (tmp_path / "archive.zip").touch()
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "missing"), str(tmp_path / "archive.zip"), "__hook__"])
    monkeypatch.chdir(tmp_path)
    distribution(tmp_path, "nvidia_cutlass_dsl-1")
    assert parts() == ("nvidia_cutlass_dsl-1",)
