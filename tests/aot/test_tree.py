"""Files of an export: the folder they are written to, and files of others that stay as they are."""

import os
from pathlib import Path

import pytest

from tests.messages import refuses

pytestmark = pytest.mark.dsl


def make(out, *, overwrite=False, sources=(), content=b"new"):
    """Write a folder as an export does, without kernels."""
    from cutepy.aot.tree import Tree

    with Tree(Path(out), overwrite=overwrite, sources=sources) as tree:
        tree.write("README.md", content)
        tree.write_objects({})
        return tree.finish()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_or_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "in/new/folders"):
        assert names(make(tmp_path / name)) == ["README.md", "objects"]
    assert names(tmp_path) == ["empty", "in", "new"]


def test_an_export_is_replaced_on_demand_only(tmp_path):
    make(tmp_path / "out", content=b"old")
    (tmp_path / "out/build").mkdir()
    with refuses(FileExistsError):
        make(tmp_path / "out")
    assert (tmp_path / "out/README.md").read_bytes() == b"old"
    make(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out/README.md").read_bytes() == b"new"
    assert names(tmp_path / "out") == ["README.md", "objects"]
    assert names(tmp_path) == ["out"]


def test_a_folder_that_is_no_export_is_never_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("precious")
    for overwrite in (False, True):  # so that no option is named that would not help
        with refuses(FileExistsError):
            make(tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / "out/mine.txt").read_text() == "precious"
    assert names(tmp_path) == ["out"]


def test_what_is_no_folder_is_never_replaced(tmp_path):
    (tmp_path / "file").write_text("precious")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "pipe", "link"):
        with refuses(FileExistsError):
            make(tmp_path / name, overwrite=True)
    assert names(tmp_path) == ["file", "link", "pipe"]
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "precious"


def test_a_link_stays_and_its_folder_is_filled(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "dangling").symlink_to("elsewhere")
    assert make(tmp_path / "link") == tmp_path / "folder"
    assert make(tmp_path / "link", overwrite=True) == tmp_path / "folder"
    assert make(tmp_path / "dangling") == tmp_path / "elsewhere"
    assert names(tmp_path) == ["dangling", "elsewhere", "folder", "link"]
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("out", [".", "..", "", "../here"])
def test_the_current_folder_is_left_alone(tmp_path, monkeypatch, out):
    here = tmp_path / "here"
    make(here)
    monkeypatch.chdir(here)
    for overwrite in (False, True):
        with refuses(FileExistsError):
            make(out, overwrite=overwrite)
    assert names(here) == ["README.md", "objects"]


def test_what_an_export_is_made_from_is_never_replaced(tmp_path):
    make(tmp_path / "out")
    (tmp_path / "out/my_export.py").write_text("")
    with refuses(FileExistsError):
        make(tmp_path / "out", overwrite=True, sources=[tmp_path / "out/my_export.py"])
    assert (tmp_path / "out/my_export.py").exists()


def test_where_moving_fails_the_earlier_export_is_back(tmp_path, monkeypatch):
    make(tmp_path / "out", content=b"old")
    rename = Path.rename

    def failing(self, target):
        if (self / "README.md").read_bytes() == b"new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with refuses(OSError):
        make(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out/README.md").read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("inside", ["x", "x/y"])
def test_a_file_in_the_path_is_named(tmp_path, inside):
    (tmp_path / "afile").touch()
    with refuses(NotADirectoryError):
        make(tmp_path / "afile" / inside)
    assert names(tmp_path) == ["afile"]
