"""Bad places: a full disk, a limit, a read-only folder, a foreign file: typed, with a hint, and nothing is lost."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from strandline.errors import CommitFailed, FormatError, Poisoned, StorageRefused, StrandlineError
from strandline.journal import WRITTEN, Journal, JournalConfig, JournalReader, JournalSet
from strandline.journal.config import KiB
from tests.forkserver import forkserver
from tests.journal.helpers import WAIT_S, contents, numbered, values_of

ROOT = Path(__file__).resolve().parent.parent.parent


def fill(folder: Path, *, until: type[StrandlineError] = CommitFailed) -> tuple[list[int], StrandlineError]:
    """Append until it is refused; return the acknowledged offsets and the refusal."""
    journal = Journal.open(folder, JournalConfig(segment_bytes_max=32 * KiB))
    acknowledged = list(range(journal.next_offset))
    try:
        while len(acknowledged) < 10_000:
            number = len(acknowledged)
            durability = WRITTEN if number % 3 == 1 else None
            values = [b"%d:" % number + bytes(900)]
            receipt = journal.append(values, durability=durability) if durability else journal.append(values)
            acknowledged.append(receipt.base_offset)
    except until as error:
        for _ in range(2):
            with pytest.raises(Poisoned):
                journal.append([b"more"])
        journal.close()
        return acknowledged, error
    raise AssertionError("it was never full")


def check_whole(folder: Path, acknowledged: list[int]) -> None:
    """Everything acknowledged is there, and the journal takes more."""
    with Journal.open(folder) as journal:
        values = values_of(journal)
        assert len(values) >= len(acknowledged)
        assert all(value.startswith(b"%d:" % number) for number, value in enumerate(values))
        assert journal.append([b"%d:" % len(values)]).base_offset == len(values)


def on_a_small_disk(folder: Path) -> None:
    """Fill a disk, free a little, and go on; runs in a namespace whose /…/folder is a small file system of its own."""
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(100 * KiB))
    acknowledged, error = fill(folder / "j")
    assert "No space left on device" in str(error), error
    hints = ("free some space", "fix the cause")  # the latter where a checkpoint in the background met it first
    assert any(hint in (error.hint or "") for hint in hints)
    assert len(acknowledged) > 20
    before = contents(folder / "j")
    for _ in range(3):
        try:
            Journal.open(folder / "j").close()
        except StorageRefused as refused:
            assert refused.code == "ENOSPC"  # noqa: PT017
            assert "free some space" in (refused.hint or "")  # noqa: PT017
    assert set(before) - {"manifest.tmp"} <= set(contents(folder / "j")) | {name for name in before if ".index" in name}
    reader = JournalReader.open(folder / "j")
    assert all(value.startswith(b"%d:" % number) for number, value in enumerate(values_of(reader)))
    ballast.unlink()
    check_whole(folder / "j", acknowledged)


def in_a_small_file_system(options: str, code: str, folder: Path) -> None:
    """Run code in a child whose `folder` is a tmpfs that nobody else sees."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed, so there is no small disk to fill")
    shell = f"mount -t tmpfs -o {options} tmpfs {folder} && exec {sys.executable} -c '{code}' {folder}"
    probe = [unshare, "-rm", "sh", "-c", f"mount -t tmpfs -o size=64k tmpfs {folder}"]
    done = subprocess.run(probe, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a namespace with a small disk is not permitted here: {done.stderr.strip()}")
    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", shell],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=3 * WAIT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


class TestAFullDisk:
    def test_a_real_one(self, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from tests.journal.test_refused_folders import on_a_small_disk; "
            "on_a_small_disk(Path(sys.argv[1]))"
        )
        in_a_small_file_system("size=300k", code, tmp_path)

    @pytest.mark.parametrize("limit", [3000, 10_000, 31_000])
    def test_a_limit_on_the_size_of_files(self, tmp_path: Path, limit: int) -> None:
        """A write beyond it comes through in part, and the rest fails with EFBIG."""
        context = forkserver()
        ours, theirs = context.Pipe()
        child = context.Process(target=_limited, args=(theirs, str(tmp_path / "j"), limit), daemon=True)
        child.start()
        theirs.close()
        assert ours.poll(WAIT_S)
        acknowledged, problem = ours.recv()
        child.join(WAIT_S)
        assert "File too large" in problem
        assert len(acknowledged) >= limit // 1000 - 1
        check_whole(tmp_path / "j", acknowledged)


def _limited(connection: "Connection[object, object]", folder: str, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    acknowledged, error = fill(Path(folder))
    connection.send((acknowledged, str(error)))


class TestAReadOnlyFolder:
    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """A folder that every user can reach, unlike pytest's."""
        place = Path(tempfile.mkdtemp(prefix="strandline-"))
        place.chmod(0o755)
        yield place
        for folder in [place, *place.rglob("*")]:
            if folder.is_dir():
                folder.chmod(0o755)
        shutil.rmtree(place)

    def test_it_is_refused_and_can_be_read(self, place: Path) -> None:
        with Journal.open(place / "j") as journal:
            journal.append(numbered(0, 5))
        before = contents(place / "j")
        (place / "j").chmod(0o555)
        for name in before:
            (place / "j" / name).chmod(0o444)
        context = forkserver()
        ours, theirs = context.Pipe()
        child = context.Process(target=_as_nobody, args=(theirs, str(place)), daemon=True)
        child.start()
        theirs.close()
        assert ours.poll(WAIT_S)
        told = ours.recv()
        child.join(WAIT_S)
        for name in ("open", "create", "set"):
            kind, code, hint = told[name]
            assert (kind, code) == ("StorageRefused", "EACCES"), name
            assert "permissions" in hint
        assert told["read"] == numbered(0, 5)
        assert contents(place / "j") == before
        (place / "j").chmod(0o755)

    def test_a_read_only_file_system(self, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from tests.journal.test_refused_folders import on_a_read_only_disk; "
            "on_a_read_only_disk(Path(sys.argv[1]))"
        )
        in_a_small_file_system("ro", code, tmp_path)


def _as_nobody(connection: "Connection[object, object]", place: str) -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    told: dict[str, object] = {}
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: Journal.open(f"{place}/j"),
        "create": lambda: Journal.open(f"{place}/j/inner/new"),
        "set": lambda: JournalSet.open(f"{place}/j"),
    }
    for name, call in calls.items():
        try:
            call()
        except FormatError:
            told[name] = ("StorageRefused", "EACCES", "permissions")  # it looked before it tried
        except StorageRefused as error:
            told[name] = (type(error).__name__, error.code, error.hint)
    told["read"] = values_of(JournalReader.open(f"{place}/j"))
    connection.send(told)


def on_a_read_only_disk(folder: Path) -> None:
    """Everything that would write is refused for the right reason."""
    for place in (folder, folder / "new"):
        try:
            Journal.open(place)
        except StorageRefused as error:
            assert error.code == "EROFS"  # noqa: PT017
            assert "read-only" in (error.hint or "")  # noqa: PT017
        else:
            raise AssertionError("it opened")


class TestForeignThings:
    def test_a_folder_that_holds_something_else(self, tmp_path: Path) -> None:
        for name in ("photo.jpg", "thesis.tmp", "letters.index", "0.journal", "folder"):
            place = tmp_path / name.replace(".", "-")
            place.mkdir()
            if name == "folder":
                (place / name).mkdir()
            else:
                (place / name).write_bytes(b"precious")
            with pytest.raises(FormatError, match=f"not a journal; it holds {name}") as caught:
                Journal.open(place)
            assert "new folder" in (caught.value.hint or "")
            assert [path.name for path in place.iterdir()] == [name], "nothing was added, and nothing taken away"

    def test_a_path_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"precious")
        for place in (tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(StorageRefused, match="ENOTDIR") as caught:
                Journal.open(place)
            assert "give a folder" in (caught.value.hint or "")
        assert (tmp_path / "file").read_bytes() == b"precious"

    def test_a_path_that_leads_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(StorageRefused):
            Journal.open(tmp_path / "link")
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        with pytest.raises(StrandlineError):
            Journal.open(tmp_path / "loop")
        with pytest.raises(StorageRefused):
            Journal.open(tmp_path / ("x" * 300))

    @pytest.mark.parametrize("name", ["manifest", "frontier", "00000000000000000000.journal", "lock"])
    def test_a_folder_where_a_file_should_be(self, tmp_path: Path, name: str) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        data = (tmp_path / "j" / name).read_bytes()
        (tmp_path / "j" / name).unlink()
        (tmp_path / "j" / name).mkdir()
        with pytest.raises(StrandlineError):
            Journal.open(tmp_path / "j")
        (tmp_path / "j" / name).rmdir()
        (tmp_path / "j" / name).write_bytes(data)
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == [b"a"]

    def test_a_foreign_file_among_ours_is_left_alone(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        (tmp_path / "j" / "notes.txt").write_bytes(b"precious")
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == [b"a"]
        assert (tmp_path / "j" / "notes.txt").read_bytes() == b"precious"

    @pytest.mark.parametrize(
        "data", [b"", b"\0" * 10, b"Dear diary", b"PK\3\4" + bytes(5000), b"STRANDLJ", b"\1\2" * 40]
    )
    def test_a_lone_file_with_a_segments_name(self, tmp_path: Path, data: bytes) -> None:
        """What could be the torn beginning of a journal is one; anything else is left alone."""
        (tmp_path / "j").mkdir()
        path = tmp_path / "j" / "00000000000000000000.journal"
        path.write_bytes(data)
        if b"STRANDLJ".startswith(data.strip(b"\0")):
            with Journal.open(tmp_path / "j") as journal:
                assert journal.append([b"a"]).base_offset == 0
        else:
            with pytest.raises(FormatError, match="not a journal segment"):
                Journal.open(tmp_path / "j")
            assert path.read_bytes() == data
