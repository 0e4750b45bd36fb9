"""`strandline scan` when the world is bad: a clear word or a recorded gap, the rest goes on, and nothing is lost."""

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.cli.scan_progress import ScanProgress
from strandline.errors import Unavailable
from strandline.findings.report_builder import scan_report
from strandline.findings.reports.values import Report
from strandline.scan import Event, Planned
from strandline.scan.state import State
from tests.cli.scan_command import Here
from tests.servers_postgres import running_postgres
from tests.spark.killed_world import coverage, plant, watching
from tests.spark.lives import MAIN, living, wait_for
from tests.waiting import PATIENCE_S

PAGES_LEFT, LOOKS_AT_A_FULL_DISK = 16, 10
NO_JAVA = f"import strandline.spark.java as java; java._homes = lambda environ: iter(()); {MAIN}"


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


# Root reads everything, unless this is taken from it.
UNABLE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def run_apart(
    program: str, arguments: list[object], environ: dict[str, str] | None = None, *before: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    words = [*before, sys.executable, "-c", program, "scan", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environ)


@pytest.mark.usefixtures("spark")
def test_without_java_the_first_scan_says_so_and_one_with_nothing_to_do_needs_none(here: Here) -> None:
    here.write(one="alpha_12345678")
    arguments: list[object] = [here.files, "--rules", here.rules, "--state", here.state, "--json", "--exit-zero"]
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nonexistent"}
    first = run_apart(NO_JAVA, [*arguments, "--with-spark"], environ)
    assert first.returncode == 1
    assert "Spark needs Java 17 or 21, and there is none" in first.stderr
    assert "hint: install one" in first.stderr
    assert "Traceback" not in first.stderr
    places, _ = here.found()
    assert places == ["one:1:1"]
    last = run_apart(NO_JAVA, [*arguments, "--with-spark"], environ)
    assert last.returncode == 0, last.stderr
    assert json.loads(last.stdout.splitlines()[0])["location"] == "one:1:1"


def bomb() -> bytes:
    """Return an archive of archives that would fill any disk."""
    data = bytes(50 << 20)
    for level in range(3):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(1 if level == 0 else 10):
                archive.writestr(f"{level}-{number}.zip" if level else "zeros", data)
        data = packed.getvalue()
    return data


@pytest.mark.usefixtures("spark")
def test_what_cannot_be_read_is_a_gap_and_the_rest_is_scanned(here: Here) -> None:
    here.write(good="alpha_12345678", locked="alpha_12345678", also_good="beta_12345678")
    (here.files / "closed").mkdir()
    (here.files / "closed" / "inside").write_text("alpha_12345678")
    (here.files / "loop").symlink_to("loop")
    (here.files / "up").symlink_to("..")
    os.mkfifo(here.files / "pipe")
    (here.files / "bomb.zip").write_bytes(bomb())
    (here.files / "broken.zip").write_bytes(b"PK\x03\x04 alpha_00000042 and no more")
    (here.files / "empty").touch()
    (here.files / "locked").chmod(0)
    (here.files / "closed").chmod(0)
    arguments: list[object] = [here.files, "--rules", here.rules, "--state", here.state]
    ran = run_apart(MAIN, [*arguments, "--json", "--without-spark", "--exit-zero"], None, *UNABLE)
    assert ran.returncode == 0, ran.stderr
    *rows, last = map(json.loads, ran.stdout.splitlines())
    summary = last["summary"]
    places = {row["location"] for row in rows}
    assert places >= {"good:1:1", "also_good:1:1"}
    assert not any(place.startswith(("locked", "closed")) for place in places)
    assert summary["codes"] == {"PERMISSION_DENIED": 1, "UNREADABLE_FOLDER": 1, "SYMLINK": 2, "NOT_A_FILE": 1}
    assert summary["gaps"]["members_skipped"] >= 2
    assert not summary["whole"]
    for name, mode in {"locked": 0o644, "closed": 0o755}.items():
        (here.files / name).chmod(mode)
    found, summary = here.found()
    assert set(found) - places == {"locked:1:1", "closed/inside:1:1"}
    assert summary["codes"] == {"SYMLINK": 2, "NOT_A_FILE": 1}


@pytest.mark.usefixtures("spark")
def test_files_that_vanish_or_change_after_the_listing_are_told(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write(gone="alpha_00000001", changed="nothing", grown="", stays="beta_12345678")
    grown = here.files / "grown"
    grown.write_bytes(b"x" * (8 << 20))
    stop = threading.Event()

    def grow() -> None:
        with grown.open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"y")

    writer = threading.Thread(target=grow)
    told = ScanProgress.tell

    def tell(self: ScanProgress, event: Event) -> None:
        told(self, event)
        if isinstance(event, Planned) and not writer.is_alive() and not stop.is_set():
            (here.files / "gone").unlink()
            here.write(changed="alpha_00000002")
            writer.start()

    monkeypatch.setattr(ScanProgress, "tell", tell)
    try:
        places, summary = here.found()
    finally:
        stop.set()
        writer.join()
    assert places == ["changed:1:1", "stays:1:1"]
    assert summary["codes"].pop("VANISHED") == 1
    assert summary["codes"].keys() <= {"CHANGED_WHILE_READ"}
    monkeypatch.undo()
    places, summary = here.found()
    assert places == ["changed:1:1", "stays:1:1"]
    assert (summary["items"], summary["codes"], summary["whole"]) == (3, {}, True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Put a small disk at a folder, by a link: pytest cannot remove what a killed run left mounted."""
    mounted = Path(tempfile.mkdtemp(prefix="strandline-disk-"))
    words = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(mounted)]
    try:
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("only root may make a disk that is full, and not everywhere")
        folder.symlink_to(mounted)
        try:
            yield folder
        finally:
            words = ["umount", str(mounted)]
            subprocess.run(words, check=True)
    finally:
        mounted.rmdir()


def enlarge(folder: Path) -> None:
    words = ["mount", "-o", "remount,size=64m", str(folder)]
    subprocess.run(words, check=True)


def enlarge_when_full(folder: Path) -> None:
    """Wait until next to nothing is left of a disk, and until that stays so for several attempts of a writer."""
    deadline, looks = time.monotonic() + PATIENCE_S, 0
    while looks < LOOKS_AT_A_FULL_DISK and time.monotonic() < deadline:
        looks = looks + 1 if os.statvfs(folder).f_bavail <= PAGES_LEFT else 0
        time.sleep(0.1)
    enlarge(folder)


def fill(here: Here) -> None:
    for number in range(3_000):
        (here.files / f"file{number}").write_text(f"alpha_{number:08}\n")


@pytest.mark.usefixtures("spark")
def test_a_full_disk_is_waited_for_a_while(here: Here) -> None:
    fill(here)
    with small_disk(here.state):
        later = threading.Thread(target=enlarge_when_full, args=[here.state])
        later.start()
        places, summary = here.found()
        later.join()
    assert len(places) == 3_000
    assert summary["whole"]


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_disk_that_stays_full_is_told_and_nothing_is_lost(here: Here) -> None:
    fill(here)
    with small_disk(here.state):
        ran = here.scan()
        assert ran.code == 1
        assert "full" in ran.err or "space" in ran.err, ran.err
        assert "hint: " in ran.err
        assert "Traceback" not in ran.err
        enlarge(here.state)
        places, summary = here.found()
    assert len(places) == 3_000
    assert summary["whole"]


@pytest.mark.parametrize(
    "workers", [["--without-spark"], pytest.param(["--with-spark"], marks=pytest.mark.long)], ids=["local", "spark"]
)
def test_a_server_that_stops_in_the_middle_and_comes_back_is_waited_for(tmp_path: Path, workers: list[str]) -> None:
    corpus = plant(tmp_path / "corpus", 80)
    with running_postgres() as server:
        state = server.address("postgres")
        with living([*corpus.arguments(state), *workers]) as lives:
            with watching(state) as watch:
                life = lives.start()
                assert wait_for(lambda: watch.committed() > 0, life)
            server.kill()
            server.start()
            code = life.wait()
            assert code == 0, life.err
            assert life.summary["items"] == corpus.items
            assert not life.summary["not_looked_at"]
            assert coverage(lives.finish()) == coverage(life)


def test_a_store_that_is_away_while_the_results_are_read_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(tmp_path)
    (here.files / "one").write_text("alpha_00000001\n")
    calls: list[bytes] = []

    def away_once(state: State, inputs_digest: bytes, *, coverage: bool = False) -> Report:
        calls.append(inputs_digest)
        if len(calls) == 1:
            raise Unavailable("the server closed the connection")
        return scan_report(state, inputs_digest, coverage=coverage)

    monkeypatch.setattr("strandline.cli.scan.scan_report", away_once)
    places, summary = here.found()
    assert len(calls) == 2
    assert len(places) == 1
    assert summary["whole"]


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    here = Here(tmp_path)
    key = tmp_path / "key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    words = [here.files, "--rules", here.rules, "--key-file", key]
    ran = run_apart(MAIN, [*words, "--state", f"postgresql://me:hunter2@/x?host={tmp_path}"])
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert "hint: " in ran.stderr
    assert "hunter2" not in ran.stderr + ran.stdout
