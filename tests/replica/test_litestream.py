"""litestream 0.5, the real one: it restores what we wrote, and we restore what it wrote."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from strandline.objects import KeyRing, ObjectStore, open_objects
from strandline.replica import Layout, Maintenance, Replicator, plan_restore, restore, tables
from strandline.replica.pages import ReplicaPages
from tests.replica.databases import PAGE_SIZES, content, database, fill
from tests.replica.litestream_program import litestream
from tests.servers_seaweed import ACCESS_KEY, SECRET_KEY, SeaweedServer
from tests.waiting import PATIENCE_S, eventually

Make = Callable[[apsw.Connection], None]


def rows(connection: apsw.Connection) -> None:
    """Ordinary rows."""
    fill(connection, 40)


def keyed(connection: apsw.Connection) -> None:
    """A table without row ids."""
    connection.execute("CREATE TABLE k (name TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
    for number in range(50):
        connection.execute("INSERT INTO k VALUES (?, randomblob(300))", (f"key {number}",))


def texts(connection: apsw.Connection) -> None:
    """A full-text index."""
    connection.execute("CREATE VIRTUAL TABLE f USING fts5 (body)")
    for number in range(50):
        connection.execute("INSERT INTO f VALUES (?)", (f"the line of the tide {number}",))


def blobs(connection: apsw.Connection) -> None:
    """Blobs of many pages."""
    connection.execute("CREATE TABLE b (body BLOB)")
    for size in (100_000, 3_000_000):
        connection.execute("INSERT INTO b VALUES (randomblob(?))", (size,))
    connection.execute("DELETE FROM b WHERE length(body) < 1000000")


def shrunk(connection: apsw.Connection) -> None:
    """A database that became smaller."""
    fill(connection, 200)
    connection.execute("DELETE FROM t WHERE id > 20")
    connection.execute("VACUUM")


MAKERS = [rows, keyed, texts, blobs, shrunk]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_litestream_restores_what_we_wrote(tmp_path: Path, make: Make) -> None:
    check_their_restore(tmp_path, make, 4096)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_litestream_restores_our_pages_of_every_size(tmp_path: Path, page_size: int) -> None:
    check_their_restore(tmp_path, rows, page_size)


def check_their_restore(tmp_path: Path, make: Make, page_size: int) -> None:
    """Replicate a database while it is made, and have litestream restore it."""
    store = open_objects(f"file://{tmp_path}/replica")
    with database(tmp_path / "a.db", page_size) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 2, table="first")
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
            make(connection)
            running.wait_durable(PATIENCE_S)
    store.close()
    command = [litestream(), "restore", "-o", str(tmp_path / "out.db"), f"file://{tmp_path}/replica"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert content(tmp_path / "out.db") == content(tmp_path / "a.db")


def test_litestream_does_not_read_what_is_encrypted(tmp_path: Path) -> None:
    store = open_objects(f"file://{tmp_path}/replica", keys=KeyRing({"key": bytes(32)}))
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        rows(connection)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
    command = [litestream(), "restore", "-o", str(tmp_path / "theirs.db"), f"file://{tmp_path}/replica"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert not (tmp_path / "theirs.db").exists()


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_we_restore_what_litestream_wrote(tmp_path: Path, make: Make) -> None:
    check_our_restore(tmp_path, make, 4096)


@pytest.mark.parametrize("page_size", [512, 65536])
def test_we_restore_the_pages_that_litestream_wrote(tmp_path: Path, page_size: int) -> None:
    check_our_restore(tmp_path, rows, page_size)


def check_our_restore(tmp_path: Path, make: Make, page_size: int) -> None:
    """Have litestream replicate a database while it is made, and restore it."""
    path, replica = tmp_path / "a.db", tmp_path / "replica"
    (tmp_path / "litestream.yml").write_text(
        f"dbs:\n  - path: {path}\n    monitor-interval: 50ms\n    replicas:\n"
        f"      - type: file\n        path: {replica}\n        sync-interval: 50ms\n"
    )
    with database(path, page_size) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 2, table="first")
        command = [litestream(), "replicate", "-config", str(tmp_path / "litestream.yml")]
        theirs = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: any(replica.rglob("*.ltx")), "the first file of litestream's")
            make(connection)
            connection.execute("CREATE TABLE marker (id)")
            expected = content(path)
            eventually(lambda: _has_marker(tmp_path), "the last commit in litestream's replica")
        finally:
            theirs.terminate()
            theirs.wait(PATIENCE_S)
        found = content(_restored(tmp_path))
    assert [row for row in found if not str(row[0]).startswith("_litestream")] == [
        row for row in expected if not str(row[0]).startswith("_litestream")
    ]
    check_tables(open_objects(f"file://{replica}"), found)


def check_tables(store: ObjectStore, expected: list[tuple[object, ...]]) -> None:
    """Read every table from the pages of a replica, without a restore."""
    with ReplicaPages(store, plan_restore(Layout(store).all_files())) as pages:
        read = tables.read_database(pages, pages.header.commit)
        names = tables.list_tables(pages, read)
        assert names
        for name in names:
            table = tables.find_table(pages, read, name)
            columns = [column.name for column in table.columns]
            rows = [(name, *row) for row in tables.read_table(pages, read, table, columns)]
            assert sorted(rows, key=repr) == sorted((row for row in expected if row[0] == name), key=repr)


def _restored(tmp_path: Path) -> Path:
    out = tmp_path / "out.db"
    out.unlink(missing_ok=True)
    store = open_objects(f"file://{tmp_path}/replica")
    restore(store, Layout(store), out)
    store.close()
    return out


def _has_marker(tmp_path: Path) -> bool:
    connection = apsw.Connection(str(_restored(tmp_path)))
    try:
        return bool(list(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'marker'")))
    finally:
        connection.close()


def litestreams_environ() -> dict[str, str]:
    """Return an environment in which litestream talks to S3: it fails where a bundle of certificates is named."""
    return {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}


def s3_config(tmp_path: Path, server: SeaweedServer, address: str) -> Path:
    """Write a configuration of litestream's for a replica in S3."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    path = tmp_path / "litestream.yml"
    path.write_text(
        f"dbs:\n  - path: {tmp_path}/a.db\n    monitor-interval: 50ms\n    replica:\n      type: s3\n"
        f"      bucket: {bucket}\n      path: {prefix}\n      endpoint: {server.endpoint}\n      region: us-east-1\n"
        "      force-path-style: true\n      sync-interval: 50ms\n"
        f"      access-key-id: {ACCESS_KEY}\n      secret-access-key: {SECRET_KEY}\n"
    )
    return path


def test_litestream_restores_what_we_wrote_to_s3(
    tmp_path: Path, seaweed_server: SeaweedServer, seaweed_address: str
) -> None:
    store = open_objects(seaweed_address, conditional=True, environ=seaweed_server.environ)
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 2, table="first")
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
            rows(connection)
            first = running.wait_durable(PATIENCE_S)
            Maintenance(store).compact(1)
            keyed(connection)
            running.wait_durable(PATIENCE_S)
            Maintenance(store).snapshot()
            texts(connection)
            running.wait_durable(PATIENCE_S)
    expected = content(tmp_path / "a.db")
    config = s3_config(tmp_path, seaweed_server, seaweed_address)
    command = [litestream(), "restore", "-config", str(config), "-o", str(tmp_path / "out.db"), str(tmp_path / "a.db")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=litestreams_environ())
    assert ran.returncode == 0, ran.stderr
    assert content(tmp_path / "out.db") == expected
    restore(store, Layout(store), tmp_path / "ours.db")
    assert content(tmp_path / "ours.db") == expected
    restore(store, Layout(store), tmp_path / "then.db", txid=first.txid)
    assert {row[0] for row in content(tmp_path / "then.db")} == {"first", "t"}
    store.close()


def test_we_restore_what_litestream_wrote_to_s3(
    tmp_path: Path, seaweed_server: SeaweedServer, seaweed_address: str
) -> None:
    store = open_objects(seaweed_address, environ=seaweed_server.environ)
    config = s3_config(tmp_path, seaweed_server, seaweed_address)
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 2, table="first")
        theirs = subprocess.Popen(
            [litestream(), "replicate", "-config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=litestreams_environ(),
        )
        try:
            eventually(lambda: Layout(store).all_files(), "the first file of litestream's")
            rows(connection)
            (count,) = next(iter(connection.execute("SELECT count(*) FROM t")))
            eventually(lambda: _rows_restored(store, tmp_path / "out.db") == count, "all rows in litestream's replica")
        finally:
            theirs.terminate()
            theirs.wait(PATIENCE_S)
    store.close()


def _rows_restored(store: ObjectStore, out: Path) -> int:
    out.unlink(missing_ok=True)
    restore(store, Layout(store), out)
    return sum(row[0] == "t" for row in content(out))
