"""Every source is scanned by a driver alone and in parts by tasks, to the same rows, inventory, coverage and counts.

The sources are those that the package has: one that is added without a case here is an error.
"""

import asyncio
import importlib
import inspect
import io
import pkgutil
import sqlite3
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig

from strandline.journal import Journal
from strandline.objects import MemoryObjects, open_objects
from strandline.scan import sources as package
from strandline.scan.path_globs import parse_globs
from strandline.scan.request import ScanRequest
from strandline.scan.sources import (
    ExportSource,
    FileSource,
    GitSource,
    ImageSource,
    JournalSource,
    ObjectSource,
    Source,
    SqliteSource,
    StdinSource,
    StreamSource,
    TableSource,
)
from strandline.scan.sources import objects as objects_module
from strandline.scan.sources.listing_parts import UNCUT, PartedSource, cut_of
from tests.scan.parted_workers import PartThreads
from tests.scan.scan_results import everything, summary
from tests.scan.sources.export_builder import confluence, confluence_html, jira, slack
from tests.scan.sources.export_builder import write as write_export
from tests.scan.sources.helpers import Repository, write
from tests.scan.sources.image_builder import Built
from tests.scan.sources.inventories import WRITERS, deliver
from tests.scan.threaded_workers import TENANT, made, request_for, scanned
from tests.servers_nats import NatsServer, fresh_bucket
from tests.servers_seaweed import SeaweedServer, fresh_address
from tests.spark.rows import Rows

COUNT = 24


class Case(NamedTuple):
    """A source, what changes some of its items, and into how many parts it is cut at least."""

    source: Source
    change: Callable[[], object]
    parts: int = 1


def text(number: int, more: str = "") -> bytes:
    return (
        b"" if number == 5 else f"text alpha_{number:03} {more}".encode() if number % 4 else f"nothing {more}".encode()
    )


def names(folder: str = "") -> list[str]:
    return [f"{folder}{['', 'd/', 'd/e-f/', 'd-e/', 'é/'][at % 5]}item-{at:03}" for at in range(COUNT)]


def files(folder: Path) -> Case:
    write(folder / "tree", {name: text(at) for at, name in enumerate(names())} | {"left.log": b"alpha_999"})

    def change() -> None:
        write(folder / "tree", {"d/item-001": b"beta_123 beta_456", "d-e/new": b"alpha_777"})
        (folder / "tree" / "item-000").unlink()

    return Case(FileSource.at(folder / "tree", excludes=parse_globs("*.log")), change, 2)


def one_file(folder: Path) -> Case:
    write(folder, {"only": b"alpha_100"})
    return Case(FileSource.at(folder / "only"), lambda: write(folder, {"only": b"beta_200"}))


def repository(folder: Path) -> Repository:
    made_in = Repository(folder / "repository")
    made_in.commit({name: text(at, "x") for at, name in enumerate(names())})
    made_in.commit({"item-000": b"beta_111"})
    return made_in


def git(folder: Path) -> Case:
    found = repository(folder)
    return Case(GitSource.at(folder / "repository"), lambda: found.commit({"new": b"beta_555"}))


def work_tree(folder: Path) -> Case:
    repository(folder)
    source = FileSource.at(folder / "repository", in_repository=True)
    return Case(source, lambda: write(folder / "repository", {"d/new": b"beta_555"}), 2)


def tables(folder: Path) -> Case:
    def save(name: str, *values: str) -> None:
        path = folder / "table" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": list(range(len(values))), "data": list(values)}), path, row_group_size=2)

    for at in range(12):
        save(f"day={at % 4}/part-{at:02}.parquet", f"alpha_{at:03}", "nothing", f"beta_{at:03}")
    write(folder / "table", {"day=1/notes.txt": b"not a table", "_log/x": b"hidden"})
    return Case(
        TableSource.at(f"parquet:{folder / 'table'}", key="n", columns=["data"]),
        lambda: save("day=2/new.parquet", "alpha_888"),
        2,
    )


def journal(folder: Path) -> Case:
    def append(first: int, count: int) -> None:
        with Journal.open(folder / "journal") as opened:
            opened.append([b"alpha_%04d" % at if at % 700 == 3 else b"nothing %d" % at for at in range(first, count)])

    append(0, 9_000)
    return Case(JournalSource.at(folder / "journal"), lambda: append(9_000, 11_000), 4)


def stream(_: Path, server: NatsServer) -> Case:
    async def on(work: Callable[[Any], Awaitable[None]]) -> None:
        client = Client()
        await client.connect(server.url)
        await work(client.jetstream())
        await client.close()

    name = fresh_bucket()

    def publish(first: int, end: int) -> None:
        async def run(js: Any) -> None:  # noqa: ANN401
            if not first:
                await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
            for at in range(first, end):
                await js.publish_async(f"{name}.a", f"alpha_{at:04}".encode() if at % 500 == 3 else b"nothing")
            await js.publish_async_completed()

        asyncio.run(on(run))

    publish(0, 4_500)
    return Case(StreamSource.at(f"{server.url}/{name}"), lambda: publish(4_500, 5_500), 4)


def bucket(_: Path, *, sorts_bytes: bool = True, prefix: str = "") -> Case:
    address = f"memory://{uuid.uuid4().hex}"
    store = open_objects(address)
    assert isinstance(store, MemoryObjects)
    store.sorts_bytes = sorts_bytes
    for at, name in enumerate([*names(), *names("logs/"), "left.log"]):
        store.put(name, text(at % COUNT))

    def change() -> None:
        store.put("logs/d/item-001", b"beta_123 beta_456")
        store.put("logs/d-e/new", b"alpha_777")
        store.delete("logs/item-000")

    return Case(ObjectSource.at(address + prefix, excludes=parse_globs("*.log"), size_max=1_000), change, 3)


def bucket_of_a_server(_: Path, seaweed: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> Case:
    for name, value in seaweed.environ.items():
        monkeypatch.setenv(name, value)
    address = fresh_address()
    store = open_objects(address)
    for at, name in enumerate(
        [*names("a/"), *names("a-b/"), "a.log"]
    ):  # SeaweedFS lists "a/" first, by bytes it is last
        store.put(name, text(at % COUNT))

    def change() -> None:
        store.put("a/d/item-001", b"beta_123 beta_456")
        store.put("a-b/d-e/new", b"alpha_777")
        store.delete("a/item-000")

    return Case(ObjectSource.at(address, excludes=parse_globs("*.log")), change, 3)


def inventory(_: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> Case:
    store = MemoryObjects("inventory")
    monkeypatch.setattr(objects_module, "opened", lambda _: nullcontext(store))

    def put(keys: list[str], more: str = "") -> None:
        rows = []
        for at, key in enumerate(keys):
            etag = store.put(key, text(at, more)).strip('"')
            rows.append(["source", key, "v1", True, False, len(text(at, more)), "2026-11-17T10:00:00.000Z", etag])
        rows.insert(2, ["source", "gone", "v1", True, True, 0, "2026-11-17T10:00:00.000Z", ""])
        rows.insert(4, ["source", "a//b", "v1", True, False, 7, "2026-11-17T10:00:00.000Z", "e"])
        manifest = deliver(store, form, rows, WRITERS[form])
        assert manifest == "inventory/2026-11-18T01-00Z/manifest.json"

    put(names())
    source = ObjectSource.at("s3://source", inventory="s3://reports/inventory/2026-11-18T01-00Z/manifest.json")
    return Case(source, lambda: put([*names()[2:], "new"], "beta_777"), 2)


def listed_by_table(folder: Path) -> Case:
    """A bucket that a Parquet table lists, in row groups of seven rows."""
    address = f"memory://{uuid.uuid4().hex}"
    store = open_objects(address)

    def put(keys: list[str], more: str = "") -> None:
        for at, key in enumerate(keys):
            store.put(key, text(at, more))
        infos = [store.head(key) for key in keys]
        rows = [{"path": one.key, "etag": one.etag, "bytes": one.size} for one in infos if one is not None]
        pq.write_table(pa.Table.from_pylist(rows), folder / "objects.parquet", row_group_size=7)

    put(names())
    columns = "key=path,version=etag,size=bytes"
    source = ObjectSource.at(address, inventory=str(folder / "objects.parquet"), columns=columns)
    return Case(source, lambda: put([*names()[2:], "new"], "beta_777"), 4)


def image(folder: Path) -> Case:
    layers = [{name: text(at) for at, name in enumerate(names())}, {"item-000": b"beta_111"}]
    Built(layers).layout(folder / "image")

    def change() -> None:
        Built([*layers, {"new": b"beta_222"}]).layout(folder / "image")

    return Case(ImageSource.at(f"oci:{folder / 'image'}"), change)


def sqlite(folder: Path) -> Case:
    def run(*statements: str) -> None:
        with closing(sqlite3.connect(folder / "app.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    run("CREATE TABLE a (x)", "INSERT INTO a VALUES ('alpha_100'), ('nothing')", "CREATE TABLE b (y)")
    run("INSERT INTO b VALUES ('beta_100')")
    return Case(SqliteSource.at(f"sqlite:{folder / 'app.db'}"), lambda: run("INSERT INTO b VALUES ('beta_101')"))


def export(folder: Path, kind: str) -> Case:
    made_of: dict[str, Callable[[str], dict[str, str]]] = {
        "slack": slack,
        "jira": jira,
        "confluence": confluence,
        "html": confluence_html,
    }
    write_export(folder / kind, made_of[kind]("the key is alpha_100"))
    name = "ENG" if kind == "html" else ""
    source = ExportSource.at(f"export:{folder / kind}", name=name)
    return Case(source, lambda: write_export(folder / kind, made_of[kind]("the key is beta_300")))


def stdin(_: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    class Pipe:
        buffer = io.BytesIO(b"one\ntwo alpha_123\n")

    monkeypatch.setattr(sys, "stdin", Pipe())
    return Case(StdinSource.named("stdin"), lambda: None)


CASES: dict[str, tuple[type, Callable[..., Case]]] = {
    "files": (FileSource, files),
    "one file": (FileSource, one_file),
    "work tree": (FileSource, work_tree),
    "git": (GitSource, git),
    "tables": (TableSource, tables),
    "journal": (JournalSource, journal),
    "stream": (StreamSource, stream),
    "bucket": (ObjectSource, bucket),
    "prefix": (ObjectSource, lambda folder: bucket(folder, prefix="/logs")),
    "bucket by folder": (ObjectSource, lambda folder: bucket(folder, sorts_bytes=False)),
    "bucket of a server": (ObjectSource, bucket_of_a_server),
    **{
        f"inventory as {form}": (
            ObjectSource,
            lambda folder, monkeypatch, form=form: inventory(folder, monkeypatch, form),
        )
        for form in WRITERS
    },
    "listed by a table": (ObjectSource, listed_by_table),
    "image": (ImageSource, image),
    "sqlite": (SqliteSource, sqlite),
    **{
        f"export of {kind}": (ExportSource, lambda folder, kind=kind: export(folder, kind))
        for kind in ("slack", "jira", "confluence", "html")
    },
    "stdin": (StdinSource, stdin),
}


def kinds() -> set[type]:
    """Return the sources of the package: all classes of its modules that list items and open a reader."""
    found: set[type] = set()
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(one.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            is_a_protocol = getattr(kind, "_is_protocol", False)
            if (
                kind.__module__ == one.name
                and not is_a_protocol
                and hasattr(kind, "list_items")
                and hasattr(kind, "open")
            ):
                found.add(kind)
    return found


def test_every_source_has_a_case_and_says_how_it_is_cut() -> None:
    assert kinds() == {kind for kind, _ in CASES.values()}
    assert {kind.__name__ for kind in kinds()} == {
        name for name in package.__all__ if name.endswith("Source") and name != "Source"
    }
    assert all(hasattr(kind, "cut") for kind in kinds())
    assert all(issubclass(kind, PartedSource) != str(kind.cut).startswith(UNCUT) for kind in kinds())  # type: ignore[attr-defined]
    assert {kind.__name__ for kind in kinds() if issubclass(kind, PartedSource)} == {
        *("FileSource", "JournalSource", "ObjectSource", "StreamSource", "TableSource")
    }


@pytest.fixture(autouse=True)
def _few_items_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut what is small into parts, and those again; and trust files however fresh they are."""
    for name, value in {
        "parted.parted_scan.FIRST_PARTS": 6,
        "parted.parted_scan.PART_ROWS_MAX": 7,
        "parted.part_planner.PART_ROWS_MAX": 7,
        "sources.walk.BOUND_ROWS": 3,
        "sources.key_ranges.PROBE_KEYS": 4,
        "sources.key_ranges.CHILD_ROWS": 4,
        "sources.listing_parts.BLOCKS_MIN": 1,
        "sources.stat_cache.RACY_MARGIN_NS": -(10**12),
    }.items():
        monkeypatch.setattr(f"strandline.scan.{name}", value)


def covered(request: ScanRequest) -> object:
    """Return what the ledger says is covered."""
    with request.open_stores() as stores:
        return stores.reads.coverage(TENANT, request.policy_hash)


def comparable(which: str, found: tuple[Rows, list[dict[str, Any]]]) -> tuple[Rows, list[dict[str, Any]]]:
    """Leave out what is no result: sizes of blocks, which each listing estimates, and the order of a server."""
    rows, items = found
    if which in ("journal", "stream"):
        items = [{**row, "size": None} for row in items]
    return rows, sorted(items, key=lambda row: row["locator"]) if which == "bucket of a server" else items


@pytest.mark.parametrize("which", CASES)
def test_both_ways_come_to_the_same(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    kind, make = CASES[which]
    given = {
        "monkeypatch": monkeypatch,
        "server": request.getfixturevalue("nats_server") if which == "stream" else None,
        "seaweed": request.getfixturevalue("seaweed_server") if which == "bucket of a server" else None,
    }
    wanted = {name: value for name, value in given.items() if name in inspect.signature(make).parameters}
    case = make(tmp_path, **wanted)
    assert type(case.source) is kind
    alone, parted = (request_for(made(str(tmp_path / name)), case.source) for name in ("alone.db", "parted.db"))
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    workers = PartThreads()
    for step in ("first", "again", "changed", "back"):
        if step == "changed":
            case.change()
        expected, outcome = scanned(alone), scanned(parted, workers)
        assert summary(outcome) == summary(expected), step
        assert comparable(which, everything(parted)) == comparable(which, everything(alone)), step
        assert covered(parted) == covered(alone), step
        if step == "first":
            assert outcome.items, "the case has items"
            assert outcome.findings, "and findings"
            assert sum(size for name, size in workers.calls if name == "plan_part") >= case.parts
            assert cut_of(case.source) != UNCUT
    assert any(size >= case.parts for name, size in workers.calls if name == "plan_part")
    if getattr(case.source, "displays_locator", False):
        rows = [row for batch in case.source.list_items(lambda _: None) for row in batch.to_pylist()]
        shown = [case.source.display(row["locator"], row["extra"]).encode(errors="surrogateescape") for row in rows]
        assert shown == [row["locator"] for row in rows]


def test_large_parts_of_a_bucket_are_cut_again_while_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cut knows nothing of where keys are: it is one part."""
    case = bucket(tmp_path)
    alone, parted = (request_for(made(str(tmp_path / name)), case.source) for name in ("alone.db", "parted.db"))
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    monkeypatch.setattr("strandline.scan.parted.parted_scan.FIRST_PARTS", 1)
    monkeypatch.setattr("strandline.scan.parted.part_planner.SPLITS", 3)
    workers = PartThreads()
    expected, outcome = scanned(alone), scanned(parted, workers)
    assert summary(outcome) == summary(expected)
    assert everything(parted) == everything(alone)
    rounds = [size for name, size in workers.calls if name == "plan_part"]
    assert rounds[0] == 1
    assert len(rounds) >= 2
    (settled,) = (size for name, size in workers.calls if name == "settle_part")
    assert settled == sum(rounds) >= 4
    workers.calls.clear()
    scanned(parted, workers)
    assert workers.calls == [("plan_part", settled)], (
        "a listing without changes keeps its parts, and is not settled again"
    )
    assert dict(outcome.left_out) == {"empty": 2, "excluded": 1}


def test_parts_of_a_tree_that_ended_behind_their_bound_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most files are in a folder that no cut of the tree by its first levels divides."""
    shallow = {f"d{at:02}/file": b"nothing" for at in range(40)}
    deep = {f"d05/{at // 12}/{at // 4 % 3}/{at % 4}": text(at) for at in range(36)}
    write(tmp_path / "tree", shallow | deep)
    parted = request_for(made(str(tmp_path / "parted.db")), FileSource.at(tmp_path / "tree"))
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    monkeypatch.setattr("strandline.scan.sources.walk.BATCH_ROWS", 5)
    workers = PartThreads()
    scanned(parted, workers)
    assert [name for name, _ in workers.calls].count("plan_part") > 1, "parts ended early"
    (settled,) = (size for name, size in workers.calls if name == "settle_part")
    workers.calls.clear()
    scanned(parted, workers)
    assert workers.calls == [("plan_part", settled)]


def test_a_part_that_ends_where_it_ended_before_has_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole groups of one folder's files end exactly at a bound of the last cut."""
    write(tmp_path / "tree", {f"file-{at:03}": text(at) for at in range(36)})
    parted = request_for(made(str(tmp_path / "parted.db")), FileSource.at(tmp_path / "tree"))
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    monkeypatch.setattr("strandline.scan.sources.walk.BOUND_ROWS", 18)
    monkeypatch.setattr("strandline.scan.sources.walk.BATCH_ROWS", 7)
    workers = PartThreads()
    scanned(parted, workers)
    (settled,) = (size for name, size in workers.calls if name == "settle_part")
    for _ in range(2):
        workers.calls.clear()
        assert scanned(parted, workers).items == 36
        assert workers.calls == [("plan_part", settled)]
