"""`scan --explain` says what would be done and leaves nothing, on a server too."""

from pathlib import Path

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
