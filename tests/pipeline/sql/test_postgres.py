"""PostgreSQL: transactions, servers that go away, and what its refusals are called."""

import multiprocessing
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from strandline.errors import (
    Closed,
    CommitFailed,
    FormatError,
    InvalidInput,
    StorageRefused,
    StrandlineError,
    Unavailable,
)
from strandline.pipeline.errors import AccessRefused
from strandline.pipeline.sql import PostgresDatabase
from strandline.pipeline.sql.postgres import Connection
from strandline.pipeline.sql.postgres_errors import postgres_commit_error, postgres_error
from strandline.pipeline.sql.state import SqlState
from strandline.pipeline.state import Put
from tests.pipeline.rows import TENANT, found
from tests.pipeline.sql.stores import change, count
from tests.servers_postgres import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S

INSERT = "INSERT INTO scanner_state (tenant, key, value) VALUES (%s, %s, %s)"


@pytest.fixture(scope="module")
def mortal_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def own_server(mortal_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that a test may kill."""
    yield mortal_server
    mortal_server.kill()
    mortal_server.start()


@pytest.fixture
def own(own_server: PostgresServer) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(own_server.dsn, schema=f"s{time.monotonic_ns()}") as database:
        database.migrate()
        yield database


def put(database: PostgresDatabase, key: bytes) -> None:
    SqlState(database).apply_batch(TENANT, [Put(key, b"v")])


def test_an_error_undoes_the_transaction_and_the_connection_goes_on(postgres: PostgresDatabase) -> None:
    def work(connection: Connection) -> None:
        connection.execute(INSERT, (TENANT, b"k", b"v"))
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError):
            postgres.write(work)
    assert count(postgres, "scanner_state") == 0


def test_a_read_writes_nothing(postgres: PostgresDatabase) -> None:
    with pytest.raises(StorageRefused, match="read-only"):
        postgres.read(lambda connection: connection.execute("DELETE FROM scanner_state").rowcount)


def test_a_swallowed_error_is_not_taken_for_a_commit(postgres: PostgresDatabase) -> None:
    def work(connection: Connection) -> None:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")

    with pytest.raises(AssertionError, match="ROLLBACK"):
        postgres.write(work)


def test_a_deadlock_is_run_again(postgres: PostgresDatabase) -> None:
    both_hold_one, attempts = threading.Barrier(2, timeout=PATIENCE_S), []
    for key in (b"a", b"b"):
        put(postgres, key)

    def lock_both(first: bytes, second: bytes) -> None:
        def work(connection: Connection) -> None:
            attempts.append(first)
            statement = "UPDATE scanner_state SET value = value || 'x' WHERE key = %s"
            connection.execute(statement, (first,))
            if attempts.count(first) == 1:
                both_hold_one.wait()
            connection.execute(statement, (second,))

        postgres.write(work)

    threads = [threading.Thread(target=lock_both, args=keys) for keys in ((b"a", b"b"), (b"b", b"a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(attempts) > 2, "one of them was given up by the server"
    assert SqlState(postgres).multi_get(TENANT, [b"a", b"b"]) == [b"vxx", b"vxx"]


def test_a_server_that_was_killed_is_connected_to_again(own_server: PostgresServer, own: PostgresDatabase) -> None:
    put(own, b"before")
    own_server.kill()
    with pytest.raises(Unavailable) as caught:
        put(own, b"meanwhile")
    assert not isinstance(caught.value, StorageRefused)
    assert caught.value.retryable
    own_server.start()
    put(own, b"after")
    assert SqlState(own).multi_get(TENANT, [b"before", b"meanwhile", b"after"]) == [b"v", None, b"v"]


def test_a_server_that_came_back_meanwhile_was_never_missed(own_server: PostgresServer, own: PostgresDatabase) -> None:
    put(own, b"before")
    own.read(lambda _: own.read(lambda _: None))  # so that two connections are idle
    own_server.kill()
    own_server.start()
    put(own, b"after")
    assert SqlState(own).multi_get(TENANT, [b"before", b"after"]) == [b"v", b"v"]


def test_a_server_that_goes_before_the_commit_leaves_nothing(own_server: PostgresServer, own: PostgresDatabase) -> None:
    def work(connection: Connection) -> None:
        connection.execute(INSERT, (TENANT, b"k", b"v"))
        own_server.kill()
        connection.execute(INSERT, (TENANT, b"l", b"v"))

    with pytest.raises(Unavailable):
        own.write(work)
    own_server.start()
    assert count(own, "scanner_state") == 0


def test_a_server_that_goes_during_the_commit_leaves_the_outcome_open(
    own_server: PostgresServer, own: PostgresDatabase
) -> None:
    def work(connection: Connection) -> None:
        connection.execute(INSERT, (TENANT, b"k", b"v"))
        own_server.kill()

    with pytest.raises(CommitFailed, match="commit failed") as caught:
        own.write(work)
    assert "check whether the rows are stored" in str(caught.value.hint)
    own_server.start()
    put(own, b"k")
    assert count(own, "scanner_state") == 1


def test_what_was_read_before_the_server_went_is_returned(own_server: PostgresServer, own: PostgresDatabase) -> None:
    put(own, b"k")

    def work(connection: Connection) -> object:
        found = connection.execute("SELECT value FROM scanner_state").fetchone()
        own_server.kill()
        return found

    assert own.read(work) == (b"v",)


def test_a_fork_opens_connections_of_its_own(postgres: PostgresDatabase) -> None:
    put(postgres, b"parent")
    children = [
        multiprocessing.get_context("fork").Process(target=put, args=(postgres, b"child %d" % number))
        for number in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 3
    put(postgres, b"parent again")
    assert count(postgres, "scanner_state") == 5


def test_a_closed_database_is_told(postgres: PostgresDatabase) -> None:
    put(postgres, b"k")
    postgres.close()
    postgres.close()
    with pytest.raises(Closed):
        put(postgres, b"l")


def test_a_commit_is_durable_even_where_the_server_would_not_wait(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.dsn + " options='-c synchronous_commit=off'"
    with PostgresDatabase(dsn) as database:
        row = database.read(lambda connection: connection.execute("SHOW synchronous_commit").fetchone())
    assert row == ("on",)


@pytest.mark.parametrize("schema", ["", "Upper", "a b", 'x"y', "x" * 64, "1x"])
def test_a_schema_is_a_plain_name(schema: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a schema"):
        PostgresDatabase("host=x", schema=schema)


@pytest.mark.parametrize(
    "dsn", ["hunter2", "password='hunter2", "postgresql://u:hunter2@[x/db", "hunter2=1 password=hunter2"]
)
def test_a_connection_string_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PostgresDatabase(dsn)
    shown = [caught.value, caught.value.__cause__, caught.value.__context__]
    assert "hunter2" not in "".join(map(str, shown))


def test_a_wrong_address_is_told_without_the_password(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for place in (f"host=127.0.0.1 port={nobody.getsockname()[1]}", f"host={tmp_path}"):
            with PostgresDatabase(f"{place} user=me password=hunter2 dbname=x") as database:
                with pytest.raises(Unavailable, match=r"Is the server running|refused") as caught:
                    database.migrate()
                assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{database!r}{database.describe()}"


def test_an_unknown_database_is_told(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.dsn.replace("dbname=postgres", "dbname=none")
    with PostgresDatabase(dsn) as database, pytest.raises(StorageRefused, match="does not exist") as caught:
        database.history()
    assert caught.value.code == "3D000"


def test_a_user_without_rights_is_told(postgres_server: PostgresServer, postgres: PostgresDatabase) -> None:
    schema = postgres.describe().rsplit(" ", 1)[1]
    with psycopg.connect(postgres_server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {schema}_nobody LOGIN")
        try:
            dsn = postgres_server.dsn.replace("user=postgres", f"user={schema}_nobody")
            with PostgresDatabase(dsn, schema=schema) as database, pytest.raises(StrandlineError) as caught:
                count(database, f"{schema}.scanner_state")
        finally:
            admin.execute(f"DROP ROLE {schema}_nobody")
    assert isinstance(caught.value, StorageRefused)
    assert caught.value.code == "42501"


def test_a_row_that_breaks_a_rule_is_refused_without_its_bytes(postgres: PostgresDatabase) -> None:
    finding, *_ = found(1)
    columns = "tenant, finding_id, item, rule, secret, committed_ns"
    statement = f"INSERT INTO findings ({columns}) VALUES (?, ?, ?, ?, ?, 1)"  # noqa: S608
    change(postgres, statement, finding)
    with pytest.raises(InvalidInput, match="findings_pkey") as caught:
        change(postgres, statement, finding)
    assert caught.value.__cause__ is None
    assert finding.secret.hex() not in str(caught.value)


class Refusal(psycopg.Error):
    """An error as the server would send it."""

    def __init__(self, state: str) -> None:
        super().__init__("words of the server")
        self.sqlstate = state


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", StorageRefused),
        ("25006", StorageRefused),
        ("28P01", AccessRefused),
        ("3D000", AccessRefused),
        ("42501", AccessRefused),
        ("53300", Unavailable),
        ("57P03", Unavailable),
        ("55P03", Unavailable),
        ("40001", Unavailable),
        ("08006", Unavailable),
        ("42P01", FormatError),
        ("22003", InvalidInput),
        ("42601", StrandlineError),
    ],
)
def test_each_refusal_has_a_name(state: str, kind: type[StrandlineError]) -> None:
    typed = postgres_error("here", Refusal(state))
    assert type(typed) is kind
    assert str(pickle.loads(pickle.dumps(typed))) == str(typed)  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("state", "is_open"), [("40001", False), ("23503", False), ("40003", True), ("57P01", True), ("", True)]
)
def test_only_some_errors_of_a_commit_leave_the_outcome_open(state: str, is_open: bool) -> None:
    assert isinstance(postgres_commit_error("here", Refusal(state)), CommitFailed) == is_open
