"""The queries of docs/lake.md run as they are written, over tables that a compaction made."""

import re
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.lake.columns import TABLES
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.stores import open_lake
from strandline.pipeline.triage import TriageState
from strandline.testing.persistence_helpers import (
    OTHER_POLICY,
    POLICY,
    WRITER,
    Location,
    after,
    batch_of,
    decision,
    done,
    found,
)

PAGE = Path(__file__).parents[3] / "docs" / "lake.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """A lake with one secret at two items, of which one finding is decided, under two policies."""
    folder = tmp_path_factory.mktemp("lake")
    with LakeDatabase(f"file://{folder}/lake") as database:
        database.migrate()
        lake = open_lake(database)
        for policy, names in ((POLICY, "ab"), (OTHER_POLICY, "a")):
            writer = WRITER._replace(policy=policy)
            rows = [found("key", item=name, writer=writer, location=Location(1, f"team-{name}/file")) for name in names]
            lake.findings.upsert_batch(batch_of(*rows))
            ledger = [done("x", writer=writer)._replace(ovid=found("key", item=name).observation.ovid) for name in "ab"]
            lake.ledger.batch_upsert(ledger, after=after(ledger))
        lake.findings.record_triage([decision(found("key", item="b"), TriageState.REVOKED)])
        Compaction(database).run()
    opened = duckdb.connect()
    for name in TABLES:
        opened.register(name, DeltaTable(f"{folder}/lake/tables/{name}").to_pyarrow_table())
    return opened


def test_the_queries_of_the_page_answer(connection: duckdb.DuckDBPyConnection) -> None:
    team, coverage, secret, changed = QUERIES
    assert connection.execute(team).fetchall() == [("team-a", 1)]
    assert [row[1:] for row in connection.execute(coverage).fetchall()] == [(10, 4, 400)]
    assert [row[1:] for row in connection.execute(secret).fetchall()] == [(2, "team-a/file")]
    policies = {"old": POLICY.hex().upper(), "new": OTHER_POLICY.hex().upper()}
    lost = found("key", item="b").finding.finding_id.hex().upper()
    assert connection.execute(changed, policies).fetchall() == [(lost, True, False)]
