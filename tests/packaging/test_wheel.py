import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
LINKS = {"cutepy/layouts": "layouts", "cutepy/kernels": "kernels"}


def files_under(folder: str) -> set[str]:
    """Name the files of a top-level folder, links not followed, without Python's caches."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def expected_files() -> set[str]:
    """Name what the wheel must hold: the package's own files, and those behind the two links."""
    files = {name for name in files_under("cutepy") if not name.startswith(tuple(LINKS))}
    for link, folder in LINKS.items():
        files |= {f"{link}/{name.removeprefix(folder + '/')}" for name in files_under(folder)}
    return files


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> tuple[Path, Path]:
    """Build the sdist from a copy of the repository, and the wheel from the sdist."""
    source = tmp_path_factory.mktemp("source")
    out = tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("cutepy", *LINKS.values()):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def test_wheel_holds_exactly_the_source_tree(archives):
    names = zipfile.ZipFile(archives[1]).namelist()
    assert {name for name in names if ".dist-info/" not in name} == expected_files()


def test_wheel_carries_the_licence_and_the_entry_point(archives):
    wheel = zipfile.ZipFile(archives[1])
    (licence,) = [name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    (entry_points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert b"cutepy = cutepy.cli.app:main" in wheel.read(entry_points)


def test_sdist_holds_every_source_file(archives):
    with tarfile.open(archives[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert expected_files() <= names


def test_wheel_works_unpacked_elsewhere(archives, tmp_path):
    zipfile.ZipFile(archives[1]).extractall(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from cutepy import layouts
print(layouts.__file__, layouts.to_text(layouts.parse('(_2,_3):(_3,_1)')))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "cutepy/layouts/__init__.py"), "(2,3):(3,1)"]
