"""A server that wants passwords: what it refuses is told at once, and how a process logged in can be spelled out."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from strandline.pipeline.errors import AccessRefused
from strandline.pipeline.sql import PostgresDatabase
from strandline.pipeline.sql.postgres_login import Login, spelled_out
from strandline.scan.retries import retried
from tests.servers_postgres import PostgresServer, running_postgres

PASSWORD = "sol & sombra/100%+ñ"  # noqa: S105 - made up for these tests


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that lets `anna` in with her password, and `carl` in nowhere."""
    with running_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE anna LOGIN PASSWORD '{PASSWORD}'")
            connection.execute(f"CREATE ROLE carl PASSWORD '{PASSWORD}'")
        server.ask_for_passwords()
        yield server


@pytest.fixture(autouse=True)
def _no_settings_of_the_tester(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def place(server: PostgresServer) -> str:
    return server.dsn.split()[0].removeprefix("host=")


@pytest.mark.parametrize(
    ("user", "database", "environ", "code"),
    [
        ("anna", "postgres", {}, "28000"),
        ("anna", "postgres", {"PGPASSWORD": "wrong"}, "28000"),
        ("nobody", "postgres", {"PGPASSWORD": "wrong"}, "28000"),
        ("carl", "postgres", {"PGPASSWORD": PASSWORD}, "28000"),
        ("anna", "none", {"PGPASSWORD": PASSWORD}, "3D000"),
        ("anna", "postgres", {"PGPASSWORD": PASSWORD, "PGREQUIREAUTH": "md5"}, "28000"),
        ("anna", "postgres", {"PGSERVICE": "none"}, "service"),
    ],
)
def test_a_refused_login_is_told_at_once_and_is_no_outage(
    guarded: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    database: str,
    environ: dict[str, str],
    code: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    calls = 0

    def look() -> None:
        nonlocal calls
        calls += 1
        with PostgresDatabase(f"postgresql://{user}@/{database}?host={place(guarded)}") as opened:
            opened.history()

    with pytest.raises(AccessRefused) as caught:
        retried(look)
    assert (caught.value.code, caught.value.retryable, calls) == (code, False, 1)
    assert "running" not in str(caught.value.hint)
    assert PASSWORD not in f"{caught.value}{caught.value.__cause__}"


@contextmanager
def without_tls() -> Iterator[int]:
    """A server that answers the question for TLS with no."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"N")
                connection.recv(1)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def test_a_server_without_tls_is_told_at_once_where_tls_is_asked_for() -> None:
    with without_tls() as port, PostgresDatabase(f"postgresql://anna@127.0.0.1:{port}/x?sslmode=require") as database:
        with pytest.raises(AccessRefused, match="SSL was required") as caught:
            database.history()
        assert "sslmode" in str(caught.value.hint)


def logs_in(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Log in as a process without any setting of its own would, and return as whom."""
    with monkeypatch.context() as elsewhere:
        for name in [name for name in os.environ if name.startswith("PG")]:
            elsewhere.delenv(name)
        elsewhere.setenv("USER", "spark")
        with psycopg.connect(address) as connection:
            return f"{connection.info.user}@{connection.info.dbname}"


def check_login(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    assert login.password == PASSWORD
    assert PASSWORD not in f"{login!r}{login.address}"
    assert logs_in(login.with_password(), monkeypatch) == "anna@postgres"
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        logs_in(login.address, monkeypatch)


def test_what_the_environment_gave_is_spelled_out_and_the_password_apart(
    guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"PGUSER": "anna", "PGPASSWORD": PASSWORD, "PGDATABASE": "postgres", "PGHOST": place(guarded)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    check_login(spelled_out("postgresql://", "here"), monkeypatch)


def test_what_a_service_file_gave_is_spelled_out(
    guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "services").write_text(
        f"[main]\nhost={place(guarded)}\nuser=anna\ndbname=postgres\npassword={PASSWORD}\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    check_login(spelled_out("postgresql://?service=main", "here"), monkeypatch)
    monkeypatch.setenv("PGSERVICE", "main")
    check_login(spelled_out("postgresql://", "here"), monkeypatch)


def test_a_password_of_a_file_is_found(guarded: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / ".pgpass").write_text(f"*:*:*:anna:{PASSWORD}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    login = spelled_out(f"postgresql://anna@/postgres?host={place(guarded)}", "here")
    assert login.password == PASSWORD
    assert ".pgpass" not in login.address


def test_an_address_with_its_password_stays_as_it_is(guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Login(f"postgresql://?host={place(guarded)}&user=anna&dbname=postgres", PASSWORD).with_password()
    monkeypatch.setenv("PGUSER", "carl")
    login = spelled_out(given, "here")
    assert login.password is None
    assert logs_in(login.address, monkeypatch) == "anna@postgres"


def test_no_password_is_spelled_out_where_none_was_asked_for(
    guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    login = spelled_out(f"postgresql://postgres@/postgres?host={place(guarded)}", "here")
    assert login.password is None
