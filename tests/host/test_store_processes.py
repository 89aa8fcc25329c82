"""Several processes share a store: each entry is built once, whoever dies meanwhile, and what is read is whole."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cutepy.host.lock import _held, exclusive, remove_if_free
from cutepy.host.store import Entry, Store
from tests.messages import refuses

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PROCESSES = 16

# Prints "asks" and then, once it has the entry, "built" or "loaded". The first builder of all, noted in the log, takes
# as long as the test says.
WORKER = """
import os, sys, time
from pathlib import Path
from cutepy.host.store import Entry, Store

folder, log, first_takes_s, fork = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4] == "fork"

def build():
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\\n" % os.getpid())
    if len(Path(log).read_text().split()) == 1:
        if fork and (child := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        if fork:
            os.write(descriptor, b"child %d\\n" % child)
        time.sleep(first_takes_s)
    return Entry({"function": "f"}, {"object": bytes(100_000)})

print("asks", flush=True)
entry, built = Store(folder, 2**30).get_or_build("key", build)
assert len(entry.sections["object"]) == 100_000
print("built" if built else "loaded", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Start workers, and end those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start_one(first_takes_s: float, *, fork: bool = False) -> subprocess.Popen[str]:
        # -W error: no damaged entry, and no folder that cannot be written.
        command = [sys.executable, "-W", "error", "-c", WORKER, tmp_path / "cache", tmp_path / "log"]
        command += [str(first_takes_s), "fork" if fork else "no"]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        started.append(worker)
        return worker

    yield start_one
    for worker in started:
        worker.kill()
        worker.communicate()


def wait_until(condition, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def outcomes(workers):
    texts = []
    for worker in workers:
        out, err = worker.communicate(timeout=30)
        assert (worker.returncode, err) == (0, "")
        texts.append(out.split())
    return texts


def builders(tmp_path):
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_many_processes_build_once(start, tmp_path):
    workers = [start(first_takes_s=0.5) for _ in range(PROCESSES)]
    texts = outcomes(workers)
    assert sorted(texts) == [["asks", "built"]] + [["asks", "loaded"]] * (PROCESSES - 1)
    assert len(builders(tmp_path)) == 1
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["key.program", "key.uses"]
    (entry,) = Store(tmp_path / "cache", 2**30).entries()
    assert entry.uses == PROCESSES - 1


def test_a_killed_builder_frees_the_key(start, tmp_path):
    workers = [start(first_takes_s=60) for _ in range(PROCESSES)]
    for worker in workers:
        assert worker.stdout.readline() == "asks\n"
    wait_until(lambda: builders(tmp_path))
    time.sleep(0.3)  # the others are waiting by now
    (holder,) = builders(tmp_path)
    os.kill(int(holder), signal.SIGKILL)
    killed = [worker for worker in workers if worker.pid == int(holder)]
    rest = [worker for worker in workers if worker.pid != int(holder)]
    assert (len(killed), killed[0].wait(10)) == (1, -signal.SIGKILL)
    assert sorted(outcomes(rest)) == [["built"]] + [["loaded"]] * (PROCESSES - 2)
    assert len(builders(tmp_path)) == 2
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["key.program", "key.uses"]


def test_a_child_of_a_killed_builder_holds_nobody_up(start, tmp_path):
    first = start(first_takes_s=60, fork=True)
    wait_until(lambda: len(builders(tmp_path)) == 2)
    child = int(builders(tmp_path)[1].removeprefix("child "))
    try:
        second = start(first_takes_s=60)
        assert second.stdout.readline() == "asks\n"
        first.kill()
        assert outcomes([second]) == [["built"]]
        os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_excludes(tmp_path):
    inside, worst = 0, 0

    def enter(_):
        nonlocal inside, worst
        with exclusive(tmp_path / "lock"):
            inside += 1
            worst = max(worst, inside)
            time.sleep(0.001)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(200)))
    assert (inside, worst) == (0, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_excludes_while_free_ones_are_removed(tmp_path):
    """A process that waits on a lock file that is removed takes the next file."""
    inside, worst, removed = 0, 0, 0
    done = threading.Event()

    def enter(_):
        nonlocal inside, worst
        with exclusive(tmp_path / "lock"):
            inside += 1
            worst = max(worst, inside)
            time.sleep(0.0005)
            inside -= 1

    def remove():
        nonlocal removed
        while not done.is_set():
            removed += remove_if_free(tmp_path / "lock")

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(enter, range(400)))
    finally:
        done.set()
        remover.join()
    assert (inside, worst) == (0, 1)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lock").touch()
    assert (remove_if_free(tmp_path / "lock"), remove_if_free(tmp_path / "lock")) == (True, False)
    assert not _held


def test_a_lock_is_not_entered_twice_by_one_thread(tmp_path):
    path = tmp_path / "lock"
    with exclusive(path), exclusive(tmp_path / "another"), refuses(RuntimeError):
        with exclusive(path):
            pass
    with exclusive(path):
        pass


# Entries of many sizes, in a folder that holds half of them: what is read is right, whoever evicts and saves meanwhile.
STRESS = """
import random, sys, time, zlib
from pathlib import Path
from cutepy.host.store import Entry, Store

def entry_of(key):
    binary = random.Random(key).randbytes(1000 * (1 + int(key))) + b"\\0"
    return Entry({"key": key}, {"object": binary, "ptx": key.encode()})

wanted = {str(number): entry_of(str(number)) for number in range(16)}
store, draw = Store(Path(sys.argv[1]), 70_000), random.Random(int(sys.argv[2]))
end = time.monotonic() + float(sys.argv[3])
counts = dict.fromkeys(("built", "found", "absent", "saved", "removed"), 0)
while time.monotonic() < end:
    key = str(draw.randrange(16))
    action = draw.random()
    if action < 0.5:
        entry, built = store.get_or_build(key, lambda: wanted[key])
        assert entry == wanted[key]
        counts["built" if built else "found"] += 1
    elif action < 0.8:
        entry = store.load(key)
        assert entry is None or entry == wanted[key]
        counts["absent" if entry is None else "found"] += 1
    elif action < 0.9:
        store.save(key, wanted[key])
        counts["saved"] += 1
    elif action < 0.95:
        counts["removed"] += store.remove(key)
    else:
        assert all(info.metadata == {"key": info.key} for info in store.entries())
print(*counts.values())
"""


def test_what_is_read_while_others_write_and_evict_is_whole(tmp_path):
    command = [sys.executable, "-W", "error", "-c", STRESS, tmp_path / "cache"]
    workers = [
        subprocess.Popen(
            [*command, str(seed), "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        for seed in range(4)
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=60)
        assert (worker.returncode, err) == (0, "")
        assert all(int(count) > 0 for count in out.split())
    store = Store(tmp_path / "cache", 70_000)
    store.save("0", Entry({}, {}))
    assert sum(entry.size_bytes for entry in store.entries()) <= 70_000
    assert all(path.suffix in (".program", ".uses") for path in (tmp_path / "cache").iterdir())


def test_a_waiting_thread_can_be_interrupted(tmp_path):
    # Ctrl-C while another process compiles ends the wait, not the other.
    code = (
        "import signal, sys\nfrom pathlib import Path\nfrom cutepy.host.lock import exclusive\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "print('waits', flush=True)\nwith exclusive(Path(sys.argv[1])):\n    print('entered')\n"
    )
    with exclusive(tmp_path / "lock"):
        worker = subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / "lock"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert worker.stdout.readline() == "waits\n"
        time.sleep(0.2)
        worker.send_signal(signal.SIGINT)
        out, err = worker.communicate(timeout=20)
    assert (out, err.splitlines()[-1]) == ("", "KeyboardInterrupt")
