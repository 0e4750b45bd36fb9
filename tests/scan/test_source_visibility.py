"""Workers that do not see what the driver listed: an error with the reason, and nothing is lost for a later scan."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from strandline.pipeline.ledger import DoneStatus
from strandline.scan.errors import SourceNotShared
from strandline.scan.source_visibility import check_sources
from strandline.scan.sources import Content, FileSource, GitSource, ItemReader, JournalSource, Problem
from strandline.scan.workers import WorkerTask
from tests.scan.things import Things
from tests.scan.threaded_workers import ThreadWorkers, request_for, scanned


@dataclass(frozen=True)
class Elsewhere(Things):
    """Items as a worker sees them that has some of the files alone."""

    unseen: frozenset[str] = frozenset()
    code: Problem = Problem.VANISHED

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader that does not find what is unseen."""
        with super().open() as reader:
            return nullcontext(Blind(reader, self))


@dataclass
class Blind:
    """Reads what can be seen."""

    reader: ItemReader
    source: Elsewhere

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        """Return an item that can be seen."""
        if locator.decode() in self.source.unseen:
            raise self.source.code.error()
        return self.reader.read(locator, extra)


@dataclass
class OtherMachine(ThreadWorkers):
    """Workers that see another file system than the driver."""

    are_here: bool = False
    unseen: frozenset[str] = frozenset()
    code: Problem = Problem.VANISHED

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work until no shard is active."""

        def given(slots: int) -> WorkerTask:
            ours = task(slots)
            (things,) = ours.request.sources
            assert isinstance(things, Things)
            blind = Elsewhere(things.file, things.name, things.knows_versions, self.unseen, self.code)
            return replace(ours, request=replace(ours.request, sources=(blind,)))

        super().run(given, shards, poll)


NAMES = [f"item {number:02}" for number in range(30)]


@pytest.fixture
def listed(things: Things) -> Things:
    things.write(dict.fromkeys(NAMES, "alpha_100"))
    return things


@pytest.mark.parametrize(
    ("unseen", "code"), [(30, Problem.VANISHED), (29, Problem.PERMISSION_DENIED), (4, Problem.IO_ERROR)]
)
def test_what_workers_cannot_read_and_the_driver_can_is_an_error(
    listed: Things, address: str, unseen: int, code: Problem
) -> None:
    request = request_for(address, listed)
    with pytest.raises(SourceNotShared) as caught:
        scanned(request, OtherMachine(unseen=frozenset(NAMES[:unseen]), code=code))
    assert f"{unseen} of 30 items that this machine can ({code})" in str(caught.value)
    assert "same path" in str(caught.value.hint)
    again = scanned(request)
    assert (again.is_whole, again.new_items, len(again.findings)) == (True, unseen, 30)


def test_what_is_gone_for_everybody_is_told_item_by_item_and_is_not_for_good(things: Things, address: str) -> None:
    things.write(dict.fromkeys(NAMES, "alpha_100"))

    class Removed(ThreadWorkers):
        def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
            things.write({})
            super().run(task, shards, poll)

    outcome = scanned(request_for(address, things), Removed(are_here=False))
    assert outcome.codes == {"VANISHED": 30}
    assert outcome.statuses == {DoneStatus.FAILED_RETRYABLE: 30}


def test_a_few_items_that_workers_did_not_find_are_no_error(listed: Things, address: str) -> None:
    outcome = scanned(request_for(address, listed), OtherMachine(unseen=frozenset(NAMES[:2])))
    assert outcome.codes == {"VANISHED": 2}


def sources(folder: Path) -> Iterator[FileSource | JournalSource | GitSource]:
    from strandline.journal import Journal  # noqa: PLC0415 - only here

    (folder / "tree").mkdir()
    with Journal.open(folder / "journal") as journal:
        journal.append([b"x"])
    yield FileSource.at(folder / "tree")
    yield JournalSource.at(folder / "journal")
    subprocess.run(["git", "init", "--quiet", folder / "repository"], check=True)  # noqa: S607
    yield GitSource.at(folder / "repository")


NAME_OF_SOURCE = {FileSource: "tree", JournalSource: "journal", GitSource: "repository"}


def test_a_worker_without_a_source_says_which_and_where(tmp_path: Path, address: str) -> None:
    for source in sources(tmp_path):
        request = request_for(address, source)
        check_sources(request)
        place = tmp_path / NAME_OF_SOURCE[type(source)]
        place.rename(tmp_path / "gone")
        with pytest.raises(SourceNotShared, match="does not see it") as caught:
            check_sources(request)
        assert str(place) in str(caught.value)
        (tmp_path / "gone").rename(place)


def test_a_folder_that_may_be_passed_and_not_listed_is_enough_for_one_file_of_it(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    request = request_for(address, FileSource.at(tmp_path / "file"))

    def refuse(_: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as unreadable:
        unreadable.setattr("os.scandir", refuse)
        check_sources(request)
        with pytest.raises(SourceNotShared, match="PERMISSION_DENIED"):
            check_sources(request_for(address, FileSource.at(tmp_path)))
