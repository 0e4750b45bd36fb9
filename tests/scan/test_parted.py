"""Large scans, whose listing, plan and settle are the work of tasks: the results of a driver that does it alone."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.errors import Conflict
from strandline.pipeline.lake import LakeDatabase, ledger_fold, ledger_runs
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.state_log import Operation, StateLog
from strandline.pipeline.ledger import DoneStatus
from strandline.scan.driver import explain
from strandline.scan.errors import SourceNotShared
from strandline.scan.inventory import find_inventory
from strandline.scan.parted.part_tasks import NewRows
from strandline.scan.parted.parted_scan import plan_parts
from strandline.scan.path_globs import parse_globs
from strandline.scan.request import ScanRequest
from strandline.scan.sources import FileSource, GitSource, Problem, Source, left_out
from strandline.scan.sources.listing_parts import ListingPart, list_part, listing_parts, parts_at, rest_of
from strandline.scan.sources.source import Tell, batches
from tests.scan.parted_workers import PartThreads
from tests.scan.scan_results import everything, summary
from tests.scan.sources.helpers import Repository
from tests.scan.things import Thing, Things
from tests.scan.threaded_workers import TENANT, ThreadWorkers, made, request_for, scanned

AT_ONCE = "strandline.scan.workers.LARGE_ITEMS"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files in folders of different depth, with secrets, a link, and excluded ones."""
    root = tmp_path / "tree"
    for number in range(60):
        folder = root.joinpath(*[f"d{number % 7}", f"e{number % 3}"][: number % 3])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file {number:03}").write_text(f"text alpha_{number:03}" if number % 5 else "nothing")
    (root / "d1.txt").write_text("beta_123")
    (root / "d1" / "left.log").write_text("beta_999")
    (root / "link").symlink_to("d1.txt")
    return root


@pytest.fixture(autouse=True)
def _few_parts_and_trusted_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into few parts, and trust files however fresh they are: whether one is would depend on the clock."""
    monkeypatch.setattr("strandline.scan.parted.parted_scan.FIRST_PARTS", 6)
    monkeypatch.setattr("strandline.scan.sources.stat_cache.RACY_MARGIN_NS", -(10**12))


def files(tree: Path) -> Source:
    return FileSource.at(tree, excludes=parse_globs("*.log"))


def things(tree: Path) -> Source:
    found = Things(tree.parent / "things.json")
    fails = {7: Problem.IO_ERROR.value}
    found.write({f"item {number:02}": Thing(f"alpha_{number:03}", fails=fails.get(number)) for number in range(20)})
    return found


def git(tree: Path) -> Source:
    repository = Repository(tree.parent / "repository")
    for number in range(3):
        repository.commit({f"file{number}": f"alpha_{number:03} beta_111".encode()})
    return GitSource.at(tree.parent / "repository")


SOURCES: dict[str, Callable[[Path], list[Source]]] = {
    "files": lambda tree: [files(tree)],
    "one file": lambda tree: [FileSource.at(tree / "d1.txt")],
    "git": lambda tree: [git(tree)],
    "several": lambda tree: [things(tree), files(tree), git(tree)],
}


@pytest.mark.parametrize(
    ("which", "times"),
    [("files", 2), ("one file", 1), ("git", 1), pytest.param("several", 2, marks=pytest.mark.long)],
)
def test_tasks_come_to_the_results_of_a_driver_alone(
    which: str, times: int, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first scan, one without changes, and one after changes: the same rows, inventory and counts both ways."""
    sources = SOURCES[which](tree)
    alone, parted = (request_for(made(str(tmp_path / name)), *sources) for name in ("alone.db", "parted.db"))
    workers = PartThreads(times=times)
    monkeypatch.setattr(AT_ONCE, 1)
    for step in ("first", "again", "changed", "back"):
        if step == "changed":
            (tree / "d1.txt").write_text("beta_123 beta_456")
            (tree / "d2" / "new").write_text("alpha_777")
            (tree / "file 000").unlink()
        expected, outcome = scanned(alone), scanned(parted, workers)
        assert summary(outcome) == summary(expected), step
        assert everything(parted) == everything(alone), step
    assert ("plan_part", 1 if which in ("one file", "git") else max(size for _, size in workers.calls)) in workers.calls
    with parted.open_stores() as stores:  # nothing of a plan is left
        assert stores.state.list_range(TENANT, b"manifest/", b"manifest0") == []
        assert stores.state.list_range(TENANT, b"begun/", b"begun0") == []


@pytest.mark.parametrize("which", ["files", pytest.param("several", marks=pytest.mark.long)])
def test_tasks_over_a_lake_come_to_the_results_of_a_driver_over_a_database(
    which: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the ledger is in many runs, most of them in files, and where a compaction comes between two scans."""
    monkeypatch.setattr(ledger_fold, "RUN_ROWS", 4)
    monkeypatch.setattr(ledger_fold, "RUNS_MAX", 3)
    monkeypatch.setattr(ledger_fold, "KEYS_AT_ONCE", 3)
    monkeypatch.setattr(ledger_runs, "MEMORY_ROWS_MAX", 3)
    monkeypatch.setattr(ledger_runs, "MERGE_ROWS", 5)
    monkeypatch.setattr(AT_ONCE, 1)
    sources = SOURCES[which](tree)
    alone = request_for(made(str(tmp_path / "alone.db")), *sources)
    parted = request_for(made(f"file://{tmp_path}/lake"), *sources)
    for step in ("first", "again", "changed", "back"):
        if step == "changed":
            (tree / "d1.txt").write_text("beta_123 beta_456")
            (tree / "d2" / "new").write_text("alpha_777")
            (tree / "file 000").unlink()
        expected, outcome = scanned(alone), scanned(parted, PartThreads())
        assert summary(outcome) == summary(expected), step
        assert everything(parted) == everything(alone), step
        with LakeDatabase(parted.address) as lake:
            Compaction(lake, grace_s=0).run()
        assert everything(parted) == everything(alone), f"{step}, compacted"


def test_a_scan_without_changes_writes_one_head_and_settles_nothing_again(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AT_ONCE, 1)
    request = request_for(made(str(tmp_path / "state.db")), files(tree))
    workers = PartThreads()
    scanned(request, workers)
    with request.open_stores() as stores:
        before = find_inventory(stores.state, TENANT, request.inputs_digest)
    workers.calls.clear()
    outcome = scanned(request, workers)
    assert outcome.is_whole is False  # the link is no file
    assert outcome.statuses[DoneStatus.SKIPPED] == 1
    ((called, parts),) = workers.calls
    assert called == "plan_part"
    assert parts > 3
    with request.open_stores() as stores:
        after = find_inventory(stores.state, TENANT, request.inputs_digest)
    assert before is not None
    assert after is not None
    assert after.parts == before.parts


def test_a_part_costs_one_batch_of_scanner_state_however_many_chunks_it_has(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches follow one another, whatever the number of tasks; chunks of 4,096 items would each wait for the last."""
    for name in ("run.manifest", "parted.part_planner", "parted.part_settler", "parted.parted_scan", "inventory"):
        monkeypatch.setattr(f"strandline.scan.{name}.CHUNK_ROWS", 2, raising=False)
    monkeypatch.setattr(AT_ONCE, 1)
    request, workers = request_for(made(f"file://{tmp_path}/lake"), files(tree)), PartThreads()
    batches: list[int] = []
    append = StateLog.append

    def counted(log: StateLog, decide: Callable[[StateLog], Sequence[Operation] | None]) -> None:
        batches.append(len(decide(log) or ()))
        append(log, decide)

    monkeypatch.setattr(StateLog, "append", counted)
    with request.open_stores() as stores:
        planned = plan_parts(stores, request, workers, frozenset(), NewRows({}), lambda _: None)
    chunks = [len(part.manifest) + len(part.planned) for part in planned.parts]
    assert max(chunks) > 4
    assert sorted(size for size in batches if size > 1) == sorted(filter(None, chunks))


def test_a_listing_that_grows_past_the_bound_is_begun_again_by_tasks(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (request_for(made(str(tmp_path / name)), files(tree)) for name in ("few.db", "many.db"))
    monkeypatch.setattr(AT_ONCE, 63)
    workers = PartThreads()
    scanned(few, workers)
    assert workers.calls == []  # 62 items
    (tree / "another").write_text("beta_321")
    scanned(many, workers)
    assert [name for name, _ in workers.calls] == ["plan_part", "settle_part"]
    plain = PartThreads()
    monkeypatch.setattr(AT_ONCE, 10_000)
    scanned(many, plain)  # back to the driver, over an inventory of parts
    assert plain.calls == []
    assert everything(many)[0]["findings"]
    scanned(few, ThreadWorkers())
    assert everything(few)[1] == everything(many)[1]


@pytest.mark.parametrize("at", ["plan_part", "settle_part"])
def test_a_scan_that_another_replaced_meanwhile_says_so_and_goes_on(
    at: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AT_ONCE, 1)
    request = request_for(made(str(tmp_path / "state.db")), files(tree))
    scanned(request, PartThreads())
    (tree / "d1.txt").write_text("beta_124")

    class Overtaken(PartThreads):
        is_overtaken = False

        def map_parts(self, call: Any, request: ScanRequest, tasks: Any) -> Any:  # noqa: ANN401
            answers = list(super().map_parts(call, request, tasks))
            if call.__name__ == at and not self.is_overtaken:
                self.is_overtaken = True
                monkeypatch.setattr(AT_ONCE, 10_000)
                (tree / "more").write_text("beta_555")
                scanned(request, ThreadWorkers())  # a driver alone, which writes an inventory of its own
                monkeypatch.setattr(AT_ONCE, 1)
            yield from answers

    with pytest.raises(Conflict, match="ended meanwhile"):
        scanned(request, Overtaken())
    assert len(everything(request)[1]) == 63, "the inventory of the other is whole"
    assert scanned(request, PartThreads()).items == 63


@dataclass(frozen=True)
class Unmounted(FileSource):
    """A folder as a machine sees it that has not mounted its file system."""

    def list_some(self, part: ListingPart, tell: Tell, items_max: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield nothing."""
        return batches((), tell, Counter())


@dataclass
class PartsElsewhere(PartThreads):
    """Tasks on other machines, of which every third has not mounted the folder."""

    are_here: bool = False

    def map_parts(self, call: Any, request: ScanRequest, tasks: Any) -> Iterator[Any]:  # noqa: ANN401
        (seen,) = request.sources
        fields = vars(seen)
        blind = replace(request, sources=(Unmounted(**fields),))
        for number, task in enumerate(tasks):
            yield from super().map_parts(call, request if number % 3 else blind, [task])


def test_parts_in_which_workers_do_not_see_the_files_are_an_error(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AT_ONCE, 1)
    request = request_for(made(str(tmp_path / "state.db")), files(tree))
    with pytest.raises(SourceNotShared, match=r"nothing in \d of \d+ parts of it, where this machine finds"):
        scanned(request, PartsElsewhere())
    assert scanned(request, PartThreads()).items == 62
    with pytest.raises(SourceNotShared):
        scanned(request, PartsElsewhere())
    assert len(everything(request)[1]) == 62, "what was listed before is not taken for gone"


def test_parts_that_are_empty_on_every_machine_are_no_error(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AT_ONCE, 1)
    request = request_for(made(str(tmp_path / "state.db")), files(tree))
    workers = PartThreads(are_here=False)
    scanned(request, workers)
    shutil.rmtree(tree)
    tree.mkdir()
    assert scanned(request, workers).items == 0


def test_explain_counts_without_keeping_items(tree: Path, tmp_path: Path) -> None:
    request = request_for(made(str(tmp_path / "state.db")), files(tree))
    plan = explain(request)
    assert (plan.items, plan.todo_items, dict(plan.left_out)) == (62, 62, {"excluded": 1})
    assert list(plan.planned) == []


NAMES = st.sampled_from([b"a", b"a.b", b"a0", b"b", b"b-", b".git", b"c\xff"])
TREES = st.recursive(st.none(), lambda below: st.dictionaries(NAMES, below, max_size=5), max_leaves=25)


def build(where: bytes, tree: dict[bytes, Any] | None) -> None:
    if tree is None:
        Path(os.fsdecode(where)).write_bytes(b"x")
        return
    Path(os.fsdecode(where)).mkdir()
    for name, below in tree.items():
        build(where + b"/" + name, below)


@given(tree=TREES.filter(lambda tree: tree is not None), bounds=st.lists(st.lists(NAMES, min_size=1, max_size=3)))
def test_parts_of_a_tree_are_its_listing_wherever_it_is_cut(
    tree: dict[bytes, Any], bounds: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("trees") / "tree"
    build(os.fsencode(root), tree)
    source = FileSource.at(root, excludes=parse_globs("a0"))
    whole = list(source.list_items(lambda _: None))
    for parts in (
        parts_at(sorted({b"/".join(one) for one in bounds})),
        *(listing_parts(source, n) for n in (1, 3, 99)),
    ):
        assert parts[0].start == b""
        assert parts[-1].end is None
        rows, counts = [], Counter[str]()
        for part in parts:
            for batch in list_part(source, part, lambda _: None):
                rows += batch.to_pylist()
                counts.update(left_out(batch))
        assert rows == [row for batch in whole for row in batch.to_pylist()]
        assert +counts == Counter(left_out(whole[-1]))


@given(tree=TREES.filter(lambda tree: tree is not None), most=st.integers(1, 4), cut=st.integers(1, 3))
@example(tree={b"a": None, b"a0": None, b"b": {b"a": None}}, most=1, cut=1)
def test_parts_of_a_tree_that_end_early_and_their_rests_are_its_listing(
    tree: dict[bytes, Any], most: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("trees") / "tree"
    build(os.fsencode(root), tree)
    source = FileSource.at(root, excludes=parse_globs("a0"))
    whole = list(source.list_items(lambda _: None))
    rows, counts = list[dict[str, Any]](), Counter[str]()
    left = [ListingPart()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.scan.sources.walk.BATCH_ROWS", 2)
        while left:
            part = left.pop(0)
            found = list(source.list_some(part, lambda _: None, most))
            rows += [row for batch in found for row in batch.to_pylist()]
            counts.update(left_out(found[-1]))
            end = rest_of(found[-1])
            if end is not None:
                left = [*source.split(ListingPart(end, part.end), cut), *left]
    assert rows == [row for batch in whole for row in batch.to_pylist()]
    assert +counts == Counter(left_out(whole[-1]))


def test_a_part_of_a_tree_ends_before_a_folder_or_within_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.scan.sources.walk.BATCH_ROWS", 3)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for number in range(5):
            (tmp_path / name / f"{number}").touch()
    source = FileSource.at(tmp_path)

    def listed(start: bytes, most: int) -> tuple[int, bytes | None]:
        found = list(source.list_some(ListingPart(start, b"c/4"), lambda _: None, most))
        return sum(map(len, found)), rest_of(found[-1])

    assert listed(b"", 2) == (3, b"a/2\0")
    assert listed(b"", 4) == (5, b"b/")
    assert listed(b"b/", 5) == (5, b"c/")
    assert listed(b"b/", 50) == (9, None)
    assert source.split(ListingPart(b"a/3", None), 9) == [
        ListingPart(b"a/3", b"b/"),
        ListingPart(b"b/", b"c/"),
        ListingPart(b"c/", None),
    ]


@pytest.mark.parametrize("beside", ["files", "depth"])
def test_what_is_left_of_a_part_is_cut_whatever_is_outside_it(
    beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither many files before it, nor the folders that it is in, stand for places within it."""
    monkeypatch.setattr("strandline.scan.sources.walk.BOUND_ROWS", 3)
    above = "z" if beside == "files" else "a/b/c/d/e/f/g/h/i"
    for number in range(20):
        (tmp_path / above / f"{number:02}").mkdir(parents=True)
        if beside == "files":
            (tmp_path / f"file {number:02}").touch()
            (tmp_path / f"more {number:02}").touch()
    left = ListingPart(os.fsencode(f"{above}/03/"), None)
    assert len(FileSource.at(tmp_path).split(left, 8)) >= 8


def test_a_large_folder_is_cut_at_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.scan.sources.walk.BOUND_ROWS", 10)
    for number in range(35):
        (tmp_path / f"{number:02}").touch()
    parts = listing_parts(FileSource.at(tmp_path), 8)
    assert parts == [
        ListingPart(b"", b"10"),
        ListingPart(b"10", b"20"),
        ListingPart(b"20", b"30"),
        ListingPart(b"30", None),
    ]
