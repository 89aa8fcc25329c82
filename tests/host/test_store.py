import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cutepy.host.entry import DamagedEntryError, Entry
from cutepy.host.folder import CacheFolderError, Folder
from cutepy.host.lock import exclusive
from cutepy.host.store import CacheWarning, Store
from tests.messages import pins, refuses
from tests.processor_time import is_below

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef"
ENTRY = Entry({"function": "gemm"}, {"object": b"\x7fELF\0" * 100, "ptx": b".version 8.0\n"})
NOBODY = 65534


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "programs"


@pytest.fixture
def store(folder):
    return Store(folder, 2**30)


def build():
    return ENTRY


def fail():
    raise AssertionError("built what was there")


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_entries_are_kept(store, folder):
    assert store.load(KEY) is None
    assert not folder.exists()
    store.save(KEY, ENTRY)
    assert store.load(KEY) == ENTRY
    assert Store(folder, 1).load(KEY) == ENTRY
    assert store.load("another") is None


def test_nobody_else_can_read_or_write(store, folder):
    store.get_or_build(KEY, build)
    store.load(KEY)
    assert files(folder) == [f"{KEY}.program", f"{KEY}.uses"]
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o600, 0o600]


def test_an_entry_is_built_once(store, folder):
    assert store.get_or_build(KEY, build) == (ENTRY, True)
    assert store.get_or_build(KEY, fail) == (ENTRY, False)
    assert Store(folder, 1).get_or_build(KEY, fail) == (ENTRY, False)


@pytest.mark.parametrize("key", ["", "a/b", "..", "a.b", "x" * 129, "a b", "a\n"])
def test_keys_are_names_of_files(store, key):
    for ask in (
        store.load,
        store.remove,
        lambda key: store.save(key, ENTRY),
        lambda key: store.get_or_build(key, fail),
    ):
        with refuses(ValueError):
            ask(key)


def test_what_build_raises_passes_and_frees_the_key(store, folder):
    with pytest.raises(ZeroDivisionError):
        store.get_or_build(KEY, lambda: 1 // 0)
    assert files(folder) == []
    assert store.get_or_build(KEY, build) == (ENTRY, True)


def test_an_os_error_of_build_is_not_taken_for_the_folders(store):
    with refuses(FileNotFoundError):
        store.get_or_build(KEY, lambda: Path("nvdisasm").read_text())


def test_a_build_that_waits_for_itself_is_refused(store):
    with refuses(RuntimeError):
        store.get_or_build(KEY, lambda: store.get_or_build(KEY, build)[0])


def test_a_build_may_ask_for_other_keys(store):
    assert store.get_or_build(KEY, lambda: store.get_or_build("part", build)[0]) == (ENTRY, True)
    assert store.load("part") == ENTRY


DAMAGES = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[:-1],
    "flipped": lambda data: data[:300] + bytes([data[300] ^ 1]) + data[301:],
    "other version": lambda data: data[:6] + b"\xff\xff" + data[8:],
    "not an entry": lambda data: b"hello",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_removed_and_rebuilt(store, folder, damage):
    store.save(KEY, ENTRY)
    file = folder / f"{KEY}.program"
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    with pytest.raises(DamagedEntryError):
        store.peek(KEY)
    with pytest.warns(CacheWarning) as told:
        assert store.load(KEY) is None
    pins(str(told[0].message))
    assert files(folder) == []

    file.write_bytes(DAMAGES[damage](whole))
    with pytest.warns(CacheWarning):
        assert store.get_or_build(KEY, build) == (ENTRY, True)
    assert store.load(KEY) == ENTRY


def test_an_entry_under_another_name_is_not_taken_for_it(store, folder):
    store.save(KEY, ENTRY)
    (folder / f"{KEY}.program").rename(folder / "another.program")
    with pytest.warns(CacheWarning) as told:
        assert store.load("another") is None
    pins(str(told[0].message))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_gives_no_entry(store, folder, data):
    store.save(KEY, ENTRY)
    file = folder / f"{KEY}.program"
    whole = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    file.write_bytes(whole)
    with pytest.warns(CacheWarning):
        assert store.load(KEY) is None


def test_entries_are_listed_in_the_order_of_their_use(store):
    before = time.time()
    for key in ("a", "b", "c"):
        store.save(key, Entry({"function": key}, {}))
    for key in ("b", "c", "a", "c"):
        store.load(key)
    store.peek("b")
    entries = store.entries()
    assert [(entry.key, entry.uses, entry.metadata) for entry in entries] == [
        (key, uses, {"function": key}) for key, uses in [("b", 1), ("a", 1), ("c", 2)]
    ]
    for entry in entries:
        assert before - 1e-6 <= entry.created <= entry.last_used <= time.time()
        assert entry.size_bytes == (store.folder / f"{entry.key}.program").stat().st_size


def test_a_save_right_after_a_use_is_the_later(store):
    store.save("a", ENTRY)
    for number in range(20):
        store.load("a")
        store.save(f"b{number}", ENTRY)
        assert [entry.key for entry in store.entries()[-2:]] == ["a", f"b{number}"]


def test_an_entry_saved_anew_is_the_last_used(store):
    for key in ("a", "b"):
        store.save(key, ENTRY)
        store.load(key)
    store.save("a", ENTRY)
    assert [entry.key for entry in store.entries()] == ["b", "a"]


def test_unreadable_files_are_not_listed_and_yet_cleared(store, folder):
    store.save(KEY, ENTRY)
    (folder / "broken.program").write_bytes(b"CUTEPY")
    (folder / "not a key.program").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    assert [entry.key for entry in store.entries()] == [KEY]
    assert store.clear() == 2
    assert files(folder) == ["not a key.program", "notes.txt"]


def test_a_folder_in_the_place_of_an_entry_is_cleared_if_it_is_empty(store, folder):
    for key in ("a", "z"):
        store.save(key, ENTRY)
    for key in ("empty", "full"):
        (folder / f"{key}.program").mkdir()
    (folder / "full.program" / "work").touch()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (folder / "link.program").symlink_to(elsewhere)
    assert sorted(path.name for path in store.unreadable()) == ["empty.program", "full.program", "link.program"]
    with refuses(OSError):
        store.clear()
    assert (files(folder), elsewhere.exists()) == (["full.program"], True)
    (folder / "full.program" / "work").unlink()
    assert store.clear() == 1
    assert store.unreadable() == []


def test_locks_that_nobody_holds_are_swept_after_an_hour_and_cleared(store, folder):
    store.save(KEY, ENTRY)
    for name in ("old", "new", "held"):
        (folder / f"{name}.lock").touch()
        if name != "new":
            os.utime(folder / f"{name}.lock", (time.time() - 4000,) * 2)
    with exclusive(folder / "held.lock"):
        Store(folder, 2**30).save("another", ENTRY)
        assert files(folder) == [f"{KEY}.program", "another.program", "held.lock", "new.lock"]
        store.clear()
        assert files(folder) == ["held.lock"]
    assert files(folder) == []


def test_leftovers_of_killed_processes_are_cleared_after_an_hour(store, folder):
    """Halves of files, and uses of programs that are gone; a process may still be writing younger ones."""
    store.save(KEY, ENTRY)
    for name in ("old.12.partial", "new.12.partial", "gone.uses", "young.uses", "a.txt"):
        (folder / name).touch()
        if name.startswith(("old", "gone", "a")):
            os.utime(folder / name, (time.time() - 4000,) * 2)
    assert store.clear() == 1
    assert files(folder) == ["a.txt", "new.12.partial", "young.uses"]


def test_remove_and_clear(store, folder):
    assert (store.clear(), store.entries(), store.remove(KEY)) == (0, [], False)
    for key in ("a", "b", "c"):
        store.save(key, ENTRY)
        store.load(key)
    assert (store.remove("b"), store.remove("b")) == (True, False)
    assert store.load("b") is None
    assert store.clear() == 2
    assert files(folder) == []


def sized(size_bytes):
    return Entry({}, {"object": b"\0" * size_bytes})


def test_the_least_recently_used_go_beyond_the_limit(folder):
    store = Store(folder, 10_000)
    for key in "abcd":
        store.save(key, sized(2000))
    for key in "dba":
        store.load(key)
    store.save("e", sized(2000))
    assert [entry.key for entry in store.entries()] == ["d", "b", "a", "e"]
    store.save("f", sized(6000))
    assert [entry.key for entry in store.entries()] == ["e", "f"]
    assert sum(entry.size_bytes for entry in store.entries()) <= 10_000


@pytest.fixture
def listings(monkeypatch):
    """Collect the folders that are listed; what is written many times may be lost with the power."""
    listed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    programs = Folder.programs
    monkeypatch.setattr(Folder, "programs", lambda folder: listed.append(folder.path) or programs(folder))
    return listed


def size_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.program"))


def test_saving_lists_the_folder_once_while_there_is_room(folder, listings):
    store = Store(folder, 10_000_000)
    for number in range(100):
        store.save(f"k{number}", sized(1000))
    assert len(listings) == 1


@pytest.mark.parametrize("stores", [1, pytest.param(3, marks=pytest.mark.deep)])
def test_the_limit_is_kept_to_with_few_listings(folder, listings, stores):
    limit = 100_000
    in_turn = [Store(folder, limit) for _ in range(stores)]
    largest = 0
    for number in range(800):
        in_turn[number % stores].save(f"k{number}", sized(20))
        largest = max(largest, size_of(folder)) if number % 40 == 0 else largest
    before = len(listings)
    assert before < 800 / 2
    for number in range(60):
        in_turn[number % stores].save(f"m{number}", sized(20))
    assert len(listings) - before < 60 * 0.75  # room for a few at a time is made
    assert 0.9 * limit < largest < limit + (stores - 1) * limit / 16
    in_turn[0].save("last", sized(limit // 16))
    assert 0.9 * limit < size_of(folder) <= limit


def test_what_others_wrote_is_found_within_a_minute(folder, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    store = Store(folder, 1_000_000)
    store.save("mine", sized(1000))
    for number in range(20):  # as a process would that died before it looked
        Folder(folder).write(f"k{number}", bytes(100_000))
    store.save("soon", sized(1000))
    assert size_of(folder) > 2_000_000
    now[0] += 60.0
    store.save("later", sized(1000))
    assert 900_000 < size_of(folder) <= 1_000_000
    assert store.load("later") == sized(1000)


def test_removed_entries_leave_room(folder, listings):
    store = Store(folder, 1_000_000)
    for number in range(30):
        store.save(f"k{number}", sized(30_000))
    store.clear()
    listings.clear()
    for number in range(30):
        store.save(f"k{number}", sized(30_000))
    assert len(list(folder.glob("*.program"))) == 30
    assert len(listings) > 1


def test_the_entry_just_saved_stays(folder):
    store = Store(folder, 100)
    store.save("small", sized(10))
    store.save("large", sized(1000))
    assert [entry.key for entry in store.entries()] == ["large"]
    assert store.load("large") == sized(1000)


def test_an_entry_that_was_read_outlives_its_file(store):
    store.save(KEY, ENTRY)
    entry = store.load(KEY)
    store.clear()
    assert entry == ENTRY


def test_what_dead_processes_left_is_swept_after_an_hour(store, folder):
    store.save(KEY, ENTRY)
    store.load(KEY)
    for name in ("x.0123.partial", "y.uses", "new.0123.partial", "new.uses"):
        (folder / name).write_bytes(b".")
        if not name.startswith("new"):
            os.utime(folder / name, (time.time() - 4000,) * 2)
    os.utime(folder / f"{KEY}.uses", (time.time() - 4000,) * 2)
    Store(folder, 2**30).save("another", ENTRY)
    assert files(folder) == [f"{KEY}.program", f"{KEY}.uses", "another.program", "new.0123.partial", "new.uses"]


@pytest.fixture
def as_a_user():
    """Give up root's rights to write anywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(before)


@pytest.fixture
def read_only(tmp_path_factory):
    """Make a folder that holds one entry and cannot be written, within reach of every user."""
    folder = tmp_path_factory.mktemp("read_only") / "programs"
    Store(folder, 2**30).save(KEY, ENTRY)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555)
    reachable = [path for path in folder.parents if path.stat().st_uid == os.geteuid() and path != Path("/")]
    modes = {path: path.stat().st_mode for path in reachable}
    for path in reachable:
        path.chmod(modes[path] | 0o111)
    yield folder
    for path, mode in modes.items():
        path.chmod(mode)
    folder.chmod(0o755)


def test_a_folder_that_cannot_be_written_is_read_and_warned_of_once(read_only, as_a_user):
    store = Store(read_only, 2**30)
    assert store.get_or_build(KEY, fail) == (ENTRY, False)
    with pytest.warns(CacheWarning) as caught:
        assert store.get_or_build("another", build) == (ENTRY, True)
    assert store.get_or_build("another", build) == (ENTRY, True)  # a second warning would be an error
    (warning,) = caught
    assert str(read_only) in str(warning.message)
    pins(str(warning.message))


def test_an_entry_that_cannot_be_read_is_built(store, folder):
    (folder / f"{KEY}.program").mkdir(parents=True)
    folder.chmod(0o700)
    with pytest.warns(CacheWarning) as told:
        assert store.load(KEY) is None
    pins(str(told[0].message))
    assert store.get_or_build(KEY, build) == (ENTRY, True)


def test_a_folder_that_cannot_be_made_is_warned_of_once(tmp_path):
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "cache", 2**30)
    assert store.load(KEY) is None
    assert store.entries() == []
    with pytest.warns(CacheWarning) as caught:
        assert store.get_or_build(KEY, build) == (ENTRY, True)
    assert store.get_or_build(KEY, build) == (ENTRY, True)
    assert len(caught) == 1


def test_a_full_disk_leaves_no_part_of_an_entry(folder):
    code = (
        "import resource, sys, warnings\nfrom pathlib import Path\n"
        "from cutepy.host.store import CacheWarning, Entry, Store\n"
        "store = Store(Path(sys.argv[1]), 2**30)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    entry = Entry({}, {'object': bytes(9000)})\n"
        "    print(store.get_or_build('large', lambda: entry) == (entry, True), len(caught), caught[0].message)\n"
        "    print(store.get_or_build('small', lambda: Entry({}, {}))[1], len(caught))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    pins(first)
    assert second == "True 1"
    assert files(folder) == ["small.program"]


def test_a_folder_that_any_user_can_write_to_is_refused(store, folder):
    store.save(KEY, ENTRY)
    folder.chmod(0o777)
    fresh = Store(folder, 2**30)
    for ask in (fresh.load, fresh.peek, lambda key: fresh.save(key, ENTRY), lambda key: fresh.get_or_build(key, fail)):
        with refuses(CacheFolderError):
            ask(KEY)
    with pytest.raises(CacheFolderError):
        fresh.entries()


def test_a_folder_of_another_user_is_refused(folder, monkeypatch):
    Store(folder, 2**30).save(KEY, ENTRY)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with refuses(CacheFolderError):
        Store(folder, 2**30).get_or_build(KEY, fail)


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.filterwarnings("ignore::cutepy.host.store.CacheWarning")
def test_threads_build_once_in_two_stores(folder, damaged):
    stores = [Store(folder, 2**30), Store(folder, 2**30)]
    if damaged:
        stores[0].save(KEY, ENTRY)
        (folder / f"{KEY}.program").write_bytes(b"")
    builds = []

    def slow():
        builds.append(threading.get_ident())
        time.sleep(0.1)
        return ENTRY

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda index: stores[index % 2].get_or_build(KEY, slow), range(8)))
    assert len(builds) == 1
    assert sorted(built for _, built in answers) == [False] * 7 + [True]
    assert all(entry == ENTRY for entry, _ in answers)


def test_different_keys_are_built_at_the_same_time(store):
    together = threading.Barrier(2, timeout=10)

    def wait_for_the_other():
        together.wait()
        return ENTRY

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda key: store.get_or_build(key, wait_for_the_other)[1], "ab")) == [True, True]


@pytest.mark.integration
def test_loading_is_fast(store):
    binary, text = os.urandom(400_000), b"add.s32 %r1, %r2, %r3;\n" * 4000
    store.save(KEY, Entry({"fingerprint": [["source", "0" * 64]] * 50}, {"object": binary, "ptx": text}))

    def seconds():
        start = time.perf_counter()
        entry = store.load(KEY)
        assert len(entry.sections["object"]) == len(binary)
        return time.perf_counter() - start

    assert is_below(3e-3, lambda: min(seconds() for _ in range(20)))


def test_a_warning_made_an_error_leaves_the_damaged_entry_removed(store, folder):
    store.save(KEY, ENTRY)
    (folder / f"{KEY}.program").write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CacheWarning):
            store.get_or_build(KEY, fail)
    assert store.get_or_build(KEY, build) == (ENTRY, True)


@pytest.mark.parametrize("suffix", [".program", ".uses", ".lock"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, suffix):
    store = Store(tmp_path, 2**20)
    if suffix == ".uses":
        store.save(KEY, Entry({}, {"object": b"x"}))
    os.mkfifo(tmp_path / f"{KEY}{suffix}")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        entry, _ = store.get_or_build(KEY, lambda: Entry({}, {"object": b"x"}))
    assert bytes(entry.sections["object"]) == b"x"


def test_a_folder_in_the_place_of_a_program_gives_way(tmp_path):
    store = Store(tmp_path, 2**20)
    (tmp_path / f"{KEY}.program").mkdir()
    store.save(KEY, Entry({}, {"object": b"x"}))
    assert bytes(store.load(KEY).sections["object"]) == b"x"
