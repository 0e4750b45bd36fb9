"""`scan --explain` says what would be done and leaves nothing, on a server too."""

import json
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from strandline.objects import open_objects
from strandline.pipeline.stores import open_database, open_stores
from strandline.pipeline.tenant_keys import CHECK_KEY
from strandline.scan.state import tenant_named
from tests.cli.runs import run_command
from tests.pipeline.databases import databases
from tests.servers_postgres import PostgresServer


def test_explaining_makes_nothing_on_a_server(postgres_server: PostgresServer, tmp_path: Path) -> None:
    key = tmp_path / "tenant.key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("x")
    words = ["scan", str(tmp_path / "tree"), "--explain", "--key-file", str(key), "--state"]
    with databases(postgres_server) as create:
        address = create("explained")
        ran = run_command(*words, address)
        assert (ran.code, ran.err) == (0, "")
        assert "1 of 1 items to scan" in ran.out
        with open_database(address) as database:
            assert not database.status().applied
            database.migrate()
        assert run_command(*words, address).code == 0, "a tenant that is not known yet"
        with open_stores(address) as stores:
            assert stores.state.multi_get(tenant_named("default"), [CHECK_KEY]) == [None]


def test_explaining_a_large_scan_prints_its_parts_and_the_rule_that_cuts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket is cut, a SQLite file is not, and a small scan has no parts."""
    address = f"memory://{uuid.uuid4().hex}"
    store = open_objects(address)
    for number in range(40):
        store.put(f"logs/{number:03}", b"x")
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
        connection.execute("CREATE TABLE a (x)")
        connection.execute("INSERT INTO a VALUES ('text')")
    monkeypatch.setattr("strandline.scan.sources.key_ranges.PROBE_KEYS", 4)
    words = ["scan", address, f"sqlite:{tmp_path / 'app.db'}", "--explain", "--state", str(tmp_path / "state")]
    ran = run_command(*words)
    assert (ran.code, ran.err) == (0, "")
    assert "listed and planned by: this process (fewer than 200,000 listed items)" in ran.out
    assert "parts of" not in ran.out
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    ran = run_command(*words)
    assert "listed and planned by: tasks of Spark" in ran.out
    parts = {
        line.split(": ")[0]: line.split(": ", 1)[1] for line in ran.out.splitlines() if line.startswith("parts of")
    }
    assert len(parts) == 2
    of_bucket, of_sqlite = parts.values()
    assert int(of_bucket.split()[0]) > 4
    assert "ranges of keys, cut at sampled keys or at folders" in of_bucket
    assert of_sqlite == "1 (one part: 65,536 rows are an item, so that even large databases have few)"
    record = json.loads(run_command(*words, "--json").out)
    assert [one["parts"] > 4 for one in record["parts"]] == [True, False]
