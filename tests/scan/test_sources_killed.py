"""Scans of every kind of source are killed at writes of the stores, and go on: the rows are those of a calm run."""

import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pytest

from strandline.objects import open_objects
from strandline.scan.request import ScanRequest
from strandline.scan.sources import ExportSource, ImageSource, ObjectSource, Source, SqliteSource, StdinSource
from tests.scan.dying import LEASE_S, hours_later, live
from tests.scan.sources.export_builder import confluence, jira, packed, slack
from tests.scan.sources.image_builder import Built
from tests.scan.threaded_workers import TENANT, made, request_for, scanned
from tests.spark.rows import Rows, rows_of

WRITES = (3, 8, 13)
"""Writes of the stores at which a driver dies: of the plan, of a first page, and of later ones."""
Made = Iterator[Callable[[], Source]]
Kind = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Callable[[], Source]]]


@contextmanager
def bucket(_: Path, __: pytest.MonkeyPatch) -> Made:
    address = f"memory://{uuid4().hex}"
    store = open_objects(address)
    for number in range(12):
        store.put(f"d/{number:02}", b"alpha_%03d and beta_%03d" % (number, number))
    yield lambda: ObjectSource.at(address)


@contextmanager
def stdin(_: Path, patch: pytest.MonkeyPatch) -> Made:
    class Pipe:
        buffer = BytesIO(b"".join(b"alpha_%03d\n" % number for number in range(12)))
        close = BytesIO().close

    def again() -> Source:  # the user pipes the same into the next command
        Pipe.buffer.seek(0)
        source = StdinSource.named()
        source.spool()  # a forked child has no standard input
        return source

    patch.setattr(sys, "stdin", Pipe)
    yield again


@contextmanager
def image(folder: Path, _: pytest.MonkeyPatch) -> Made:
    layers = [{f"d/{number}": b"alpha_%03d beta_%03d" % (number, number)} for number in range(12)]
    layout = Built([*layers, {"d/.wh.3": b""}], env=["TOKEN=alpha_555"]).layout(folder / "image")
    yield lambda: ImageSource.at(f"oci:{layout}")


@contextmanager
def sqlite(folder: Path, _: pytest.MonkeyPatch) -> Made:
    with closing(sqlite3.connect(folder / "app.db")) as connection, connection:
        for number in range(12):
            connection.execute(f"CREATE TABLE t{number:02} (x)")
            connection.execute(f"INSERT INTO t{number:02} VALUES ('alpha_{number:03}')")  # noqa: S608 - ours
    yield lambda: SqliteSource.at(f"sqlite:{folder / 'app.db'}")


def export(make: Callable[..., dict[str, str]], **more: str) -> Kind:
    @contextmanager
    def opened(folder: Path, _: pytest.MonkeyPatch) -> Made:
        files = {**make(**more), **{f"attachments/{number}": f"alpha_{number:03}" for number in range(12)}}
        path = packed(folder / "export.zip", files)
        yield lambda: ExportSource.at(f"export:{path}")

    return opened


ISSUES = "".join(f'<Issue id="{number}" key="X-{number}" summary="alpha_{number:03}"/>' for number in range(12))
KINDS = {"sqlite": sqlite, "bucket": bucket, "image": image, "stdin": stdin}
LONG_KINDS = {"slack": export(slack), "jira": export(jira, more=ISSUES), "confluence": export(confluence)}


def stored(request: ScanRequest) -> Rows:
    with request.open_stores() as stores:
        return rows_of(stores, TENANT)


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.long) for kind in LONG_KINDS)])
def test_a_scan_that_is_killed_goes_on_to_the_rows_of_a_calm_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (KINDS | LONG_KINDS)[kind](tmp_path, monkeypatch) as source:
        calm = request_for(made(str(tmp_path / "calm.db")), source())
        assert scanned(calm).findings
        wanted = stored(calm)
        killed = 0
        for writes in WRITES:
            address = made(str(tmp_path / f"killed{writes}.db"))
            ended = live(request_for(address, source(), lease_ttl_s=LEASE_S), writes, after=bool(writes % 2))
            assert ended in (0, -signal.SIGKILL)
            killed += ended != 0
            again = request_for(address, source(), lease_ttl_s=LEASE_S)
            with hours_later():
                assert scanned(again).unseen == 0
            assert stored(again) == wanted
        assert killed >= 2, "too few writes to die at"
