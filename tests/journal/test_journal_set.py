"""Journal sets: many journals by name under one lock, with few threads and few open files among them."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from strandline.errors import (
    Closed,
    CommitFailed,
    FormatError,
    InvalidInput,
    Locked,
    OffsetBelowRetained,
    Poisoned,
    StorageRefused,
)
from strandline.files import OsDisk
from strandline.journal import WRITTEN, Journal, JournalConfig, JournalReader, JournalSet, examine
from strandline.journal.config import KiB
from strandline.journal.journal_set import check_name
from tests.journal.helpers import (
    WAIT_S,
    Heard,
    WatchedDisk,
    contents,
    in_threads,
    numbered,
    open_descriptors,
    values_of,
)


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["a", "orders/0", "Orders_2024/part=7,8/x+y@z", "a.b/c..d", "0", "-", "journal", "x.journal", "journals"],
    )
    def test_good_ones(self, name: str, tmp_path: Path) -> None:
        with JournalSet.open(tmp_path / "set") as journals:
            journals.journal(name).append([name.encode()])
            assert journals.names() == [name]
            assert journals.journal(name).path == tmp_path / "set" / name
        with JournalSet.open(tmp_path / "set") as journals:
            assert values_of(journals.journal(name)) == [name.encode()]

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            ".a",
            "a/.b",
            "a b",
            "a\n",
            "é",
            "a\0b",
            "a\\b",
            "x" * 1025,
            "quarantine",
            "a/quarantine/b",
            "lock",
            "a/manifest",
            "frontier",
            "manifest.tmp",
            "a/00000000000000000007.journal",
            "a/00000000000000000007.index",
            "a/00000000000000000007.journal.tmp",
            "strandline-journals",
        ],
        ids=repr,
    )
    def test_bad_ones_are_refused_and_make_nothing(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="not a journal's name") as caught:
            check_name(name)
        assert caught.value.hint
        with JournalSet.open(tmp_path / "set") as journals:
            before = sorted(tmp_path.rglob("*"))
            with pytest.raises(InvalidInput):
                journals.journal(name)
            assert sorted(tmp_path.rglob("*")) == before

    def test_all_on_the_disk_are_listed_opened_or_not(self, tmp_path: Path) -> None:
        names = ["b/1", "a", "b/0", "a/nested/deep", "b"]
        with JournalSet.open(tmp_path / "set") as journals:
            for name in names:
                journals.journal(name).append([name.encode()])
        with JournalSet.open(tmp_path / "set") as journals:
            assert journals.names() == sorted(names)
            (tmp_path / "set" / "empty" / "folder").mkdir(parents=True)
            (tmp_path / "set" / "a" / "quarantine").mkdir()
            (tmp_path / "set" / "a" / "quarantine" / ("0" * 20 + ".journal")).write_bytes(b"moved aside")
            assert journals.names() == sorted(names)
            for name in names:
                assert values_of(journals.journal(name)) == [name.encode()]

    def test_a_name_too_long_for_the_file_system_is_a_typed_error(self, tmp_path: Path) -> None:
        with JournalSet.open(tmp_path / "set") as journals, pytest.raises(StorageRefused, match="ENAMETOOLONG"):
            journals.journal("x" * 300)


class TestTheLock:
    def test_a_second_set_is_refused_here_and_in_another_process(self, tmp_path: Path) -> None:
        code = (
            "import sys\nfrom strandline.errors import Locked\nfrom strandline.journal import JournalSet\n"
            "try:\n    JournalSet.open(sys.argv[1]).close()\nexcept Locked:\n    sys.exit(7)\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "set")]
        with JournalSet.open(tmp_path / "set"):
            with pytest.raises(Locked):
                JournalSet.open(tmp_path / "set")
            assert subprocess.run(command, check=False, timeout=WAIT_S).returncode == 7
        assert subprocess.run(command, check=False, timeout=WAIT_S).returncode == 0

    def test_one_of_its_journals_cannot_be_opened_beside_it(self, tmp_path: Path) -> None:
        with JournalSet.open(tmp_path / "set") as journals:
            journals.journal("a/b").append([b"x"])
            for member in ("a/b", "new/one"):
                with pytest.raises(Locked):
                    Journal.open(tmp_path / "set" / member)
            (tmp_path / "link").symlink_to(tmp_path / "set" / "a")
            with pytest.raises(Locked):
                Journal.open(tmp_path / "link" / "b")
            assert values_of(JournalReader.open(tmp_path / "set" / "a" / "b")) == [b"x"]
        with Journal.open(tmp_path / "set" / "a" / "b") as journal:
            assert values_of(journal) == [b"x"]
            with pytest.raises(Locked):
                JournalSet.open(tmp_path / "set")

    def test_a_journal_that_was_open_before_its_folder_became_a_set(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "set" / "a") as journal, JournalSet.open(tmp_path / "set") as journals:
            with pytest.raises(Locked):
                journals.journal("a")
            journals.journal("b").append([b"x"])
            journal.append([b"still mine"])
        with JournalSet.open(tmp_path / "set") as journals:
            assert values_of(journals.journal("a")) == [b"still mine"]

    def test_a_set_within_a_set_is_covered_by_the_outer_one(self, tmp_path: Path) -> None:
        with JournalSet.open(tmp_path / "set" / "inner") as inner:
            inner.journal("a").append([b"x"])
            with JournalSet.open(tmp_path / "set") as outer, pytest.raises(Locked):
                outer.journal("inner/a")
        with JournalSet.open(tmp_path / "set") as outer:
            outer.journal("inner/a").append([b"y"])
            with pytest.raises(Locked):
                JournalSet.open(tmp_path / "set" / "inner")
            with pytest.raises(Locked):
                Journal.open(tmp_path / "set" / "inner" / "a")
        with JournalSet.open(tmp_path / "set" / "inner") as inner:
            assert values_of(inner.journal("a")) == [b"x", b"y"]

    def test_folders_that_only_look_like_a_set_are_none(self, tmp_path: Path) -> None:
        """Journals under `…/journals/` are strangers to each other."""
        (tmp_path / "journals").mkdir()
        (tmp_path / "strandline-journals").mkdir()
        with Journal.open(tmp_path / "journals" / "a") as one, Journal.open(tmp_path / "journals" / "b") as two:
            one.append([b"1"])
            two.append([b"2"])

    def test_a_journal_is_not_a_set_nor_a_set_a_journal(self, tmp_path: Path) -> None:
        Journal.open(tmp_path / "j").close()
        with pytest.raises(FormatError, match="is a journal"):
            JournalSet.open(tmp_path / "j")
        JournalSet.open(tmp_path / "s").close()
        with pytest.raises(FormatError, match="not a journal"):
            Journal.open(tmp_path / "s")
        Journal.open(tmp_path / "j").close()


class TestSharing:
    @pytest.fixture
    def in_memory(self, tmp_path: Path) -> Iterator[Path]:
        """A folder where a sync costs nothing, if there is one: this is about counting."""
        shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
        with TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
            yield Path(folder)

    def test_five_hundred_journals_need_few_files_and_threads(self, in_memory: Path) -> None:
        files, threads = open_descriptors(), threading.active_count()
        config = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0)
        with JournalSet.open(in_memory / "set", config, open_files_max=16, writer_threads=2) as journals:
            for number in range(500):
                journals.journal(f"t/{number}").append([b"%d" % number], durability=WRITTEN)
                assert open_descriptors() <= files + 16 + 3
            futures = [
                journals.journal(f"t/{number}").append_soon([bytes(600)], durability=WRITTEN) for number in range(500)
            ]
            assert [future.result(WAIT_S).base_offset for future in futures] == [1] * 500
            assert open_descriptors() <= files + 16 + 6
            assert threading.active_count() <= threads + 2
            for number in range(0, 500, 7):
                assert values_of(journals.journal(f"t/{number}")) in ([b"%d" % number, bytes(600)], [])
            for number in range(0, 500, 50):
                journal = journals.journal(f"t/{number}")
                journal.sync()
                assert values_of(journal) == [b"%d" % number, bytes(600)]
        assert open_descriptors() == files
        assert threading.active_count() == threads
        with JournalSet.open(in_memory / "set", open_files_max=16) as journals:
            assert len(journals.names()) == 500
            for number in range(0, 500, 13):
                assert values_of(journals.journal(f"t/{number}")) == [b"%d" % number, bytes(600)]

    def test_a_journal_is_opened_once(self, tmp_path: Path) -> None:
        with JournalSet.open(tmp_path / "set") as journals:
            outcomes = in_threads([lambda: journals.journal("a")] * 8)
            assert len({id(outcome) for outcome in outcomes}) == 1
            assert isinstance(outcomes[0], Journal)

    def test_many_threads_over_many_journals(self, tmp_path: Path) -> None:
        config = JournalConfig(segment_bytes_max=KiB)
        with JournalSet.open(tmp_path / "set", config, open_files_max=4) as journals:

            def work(who: int) -> int:
                for number in range(40):
                    journal = journals.journal(f"{(who + number) % 5}")
                    journal.append([b"%d/%d" % (who, number)], durability=WRITTEN)
                return who

            assert in_threads([lambda n=n: work(n) for n in range(6)]) == list(range(6))  # type: ignore[misc]
            for name in journals.names():
                journals.journal(name).sync()
            found = [value for name in journals.names() for value in values_of(journals.journal(name))]
            assert sorted(found) == sorted(b"%d/%d" % (who, number) for who in range(6) for number in range(40))
        for folder in (tmp_path / "set").iterdir():
            if folder.is_dir():
                assert not examine(OsDisk(), folder, deep=True).damage

    def test_a_reader_whose_file_was_put_away_and_removed_gets_the_retained_range(self, tmp_path: Path) -> None:
        """The handle that would have kept the file alive was lent to somebody else meanwhile."""
        config = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0)
        with JournalSet.open(tmp_path / "set", config, open_files_max=1) as journals:
            journal = journals.journal("a")
            for number in range(10):
                journal.append(numbered(number, number + 1, 300))
            scan = journal.scan(0)
            next(scan)
            journals.journal("b").append([b"takes the handle"])
            journal.remove_below(8)
            with pytest.raises(OffsetBelowRetained) as caught:
                list(scan)
            assert caught.value.first == journal.first_offset > 0


class TestFailures:
    def test_one_journal_that_fails_leaves_the_others_alone_and_can_be_opened_again(self, tmp_path: Path) -> None:
        sick = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if sick and operation == "sync" and "sick" in path.parts:
                raise OSError(5, "no")

        with JournalSet.open(tmp_path / "set", disk=WatchedDisk(OsDisk(), watch)) as journals:
            journal = journals.journal("sick")
            journal.append([b"a"])
            sick = True
            with pytest.raises(CommitFailed):
                journal.append([b"b"])
            assert journals.journal("sick") is journal
            with pytest.raises(Poisoned):
                journal.append([b"c"])
            journals.journal("well").append([b"x"])
            journal.close()
            sick = False
            again = journals.journal("sick")
            assert again is not journal
            assert values_of(again)[0] == b"a"
            again.append([b"d"])
            assert values_of(again)[-1] == b"d"

    def test_a_damaged_one_does_not_keep_others_from_opening(self, tmp_path: Path) -> None:
        with JournalSet.open(tmp_path / "set") as journals:
            journals.journal("a").append([b"a"])
            journals.journal("b").append([b"b"])
        segment = tmp_path / "set" / "a" / ("0" * 20 + ".journal")
        segment.write_bytes(segment.read_bytes()[:-8])
        before = contents(tmp_path / "set" / "a")
        with JournalSet.open(tmp_path / "set") as journals:
            for _ in range(2):
                with pytest.raises(Exception, match="cannot be read"):
                    journals.journal("a")
            assert values_of(journals.journal("b")) == [b"b"]
        assert contents(tmp_path / "set" / "a") == before

    def test_closing_closes_every_journal_whatever_one_of_them_says(self, tmp_path: Path) -> None:
        sick = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if sick and operation == "sync" and "sick" in path.parts:
                raise OSError(5, "no")

        heard = Heard()
        journals = JournalSet.open(tmp_path / "set", disk=WatchedDisk(OsDisk(), watch), events=heard.hub)
        for name in ("a", "sick", "z"):
            journals.journal(name).append([name.encode()], durability=WRITTEN)
        sick = True
        with pytest.raises(CommitFailed):
            journals.close()
        sick = False
        with JournalSet.open(tmp_path / "set") as again:
            for name in ("a", "sick", "z"):
                assert values_of(again.journal(name)) == [name.encode()]

    def test_a_closed_set_gives_no_journals(self, tmp_path: Path) -> None:
        journals = JournalSet.open(tmp_path / "set")
        journal = journals.journal("a")
        futures = [journal.append_soon([b"%d" % n]) for n in range(20)]
        journals.close()
        journals.close()
        assert [future.result(0).base_offset for future in futures] == list(range(20))
        with pytest.raises(Closed):
            journals.journal("a")
        with pytest.raises(Closed):
            journal.append([b"x"])

    @pytest.mark.parametrize("arguments", [{"writer_threads": 0}, {"open_files_max": 0}])
    def test_settings_that_cannot_work(self, tmp_path: Path, arguments: dict[str, int]) -> None:
        with pytest.raises(InvalidInput):
            JournalSet.open(tmp_path / "set", **arguments)  # type: ignore[arg-type]
