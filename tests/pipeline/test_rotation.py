"""Rotating a tenant's key: nothing lost, nothing left under the old key, wherever it is killed."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from strandline.errors import Conflict, InvalidInput, StrandlineError
from strandline.pipeline.identity import (
    Secret32,
    SecretHash,
    TenantId,
    TenantSecretKey,
    norm_hash,
    rotated_hash,
    secret_hash,
)
from strandline.pipeline.key_files import format_key, parse_key
from strandline.pipeline.rotation import Rotation
from strandline.pipeline.sql import PostgresDatabase, SqliteDatabase
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.findings import PostgresFindings, SqliteFindings
from strandline.pipeline.sql.ledger import PostgresLedger, SqliteLedger
from strandline.pipeline.sql.state import SqlState
from strandline.pipeline.tenant_keys import (
    CHECK_KEY,
    ROTATION_KEY,
    KeyChanged,
    RotationRecord,
    check_value,
    format_page,
    format_page_key,
    format_rotation,
    parse_page,
    parse_page_key,
    parse_rotation,
)
from strandline.pipeline.triage import TriageEvent, TriageState
from strandline.pipeline.verify import verify
from tests.pipeline.rows import CONTEXT, TENANT, digest
from tests.pipeline.scanned import page

OLD = TenantSecretKey(b"o" * 32)
NEW = TenantSecretKey(OLD + b"n" * 32)
AnyDatabase = SqliteDatabase | PostgresDatabase
T = TypeVar("T")


def test_a_key_grows_by_an_epoch_and_hashes_follow() -> None:
    norm = norm_hash(b"hunter2")
    first = secret_hash(OLD, norm)
    assert secret_hash(NEW, norm) == rotated_hash(Secret32(b"n" * 32), first) != first
    third = TenantSecretKey(NEW + b"m" * 32)
    assert secret_hash(third, norm) == rotated_hash(Secret32(b"m" * 32), secret_hash(NEW, norm))
    assert parse_key(format_key(third)) == third
    assert parse_key(format_key(OLD)) == OLD == parse_key(bytes(OLD))
    assert len({check_value(key) for key in (OLD, NEW, third, TenantSecretKey(b"n" * 32))}) == 4
    for wrong in (b"", b"x" * 31, b"x" * 33, b"x" * 32 * 65):
        with pytest.raises(InvalidInput):
            TenantSecretKey(wrong)
    assert "nnn" not in repr(NEW) + str(NEW) + repr(NEW.epochs)


def test_formats_come_back_as_they_went() -> None:
    record = RotationRecord("ab", "cd", 5, 6)
    assert parse_rotation(format_rotation(record)) == record
    assert parse_page_key(format_page_key(17)) == 17
    ids = [digest(1), digest(2)]
    assert parse_page(format_page(ids)) == ids  # type: ignore[arg-type]
    with pytest.raises(StrandlineError):
        parse_rotation(b'{"version": 9}')


class Stop(BaseException):
    """Ends a rotation as a kill would, between two of its system calls."""


class Stopping:
    """A database that stops before or after the commit of its n-th transaction."""

    def __init__(self, database: AnyDatabase, stop_at: int, *, after: bool) -> None:
        self._database = database
        self._left = stop_at
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def write(self, work: Callable[[AnyConnection], T]) -> T:
        self._left -= 1

        def undone(connection: AnyConnection) -> T:
            work(connection)
            raise Stop

        result = self._database.write(work if self._left or self._after else undone)
        if not self._left:
            raise Stop
        return result


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnyDatabase]:
    monkeypatch.setattr("strandline.pipeline.rotation.PAGE_FINDINGS", 10)
    if request.param == "sqlite":
        opened: AnyDatabase = SqliteDatabase(tmp_path / "pipeline.db")
    else:
        server, schema = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_schema")
        opened = PostgresDatabase(server.dsn, schema=schema)
    with opened:
        opened.migrate()
        yield opened


def fill(database: AnyDatabase, numbers: range, tenant: TenantId = TENANT) -> None:
    """Store what a scan of these items finds, and decide about some of it."""
    is_sqlite = isinstance(database, SqliteDatabase)
    findings = SqliteFindings(database) if is_sqlite else PostgresFindings(database)
    ledger = SqliteLedger(database) if is_sqlite else PostgresLedger(database)
    scanned = page(numbers, CONTEXT._replace(tenant=tenant))
    ledger.batch_upsert(scanned.items, after=findings.upsert_batch(scanned.findings))
    ids = sorted({row.finding_id for row in scanned.findings.findings})
    findings.record_triage(
        [TriageEvent(tenant, found, TriageState.REVOKED, at, "ann", f"why {at}") for at, found in enumerate(ids[::3])]
    )
    SqlState(database).put_first(tenant, CHECK_KEY, check_value(OLD))


def known(database: AnyDatabase, epoch: Secret32 | None = None) -> list[str]:
    """Return all that is known of findings, by what they are and not by id; with an epoch, as it will be after it."""
    rows = """
        SELECT f.tenant, f.item, f.rule, f.secret, f.committed_ns,
            c.version, c.byte_offset, c.byte_length, c.committed_ns,
            o.policy, o.ovid, o.run_id, o.fence, o.seen_at, o.location_display, o.committed_ns
        FROM findings AS f JOIN occurrences AS c ON c.tenant = f.tenant AND c.finding_id = f.finding_id
        JOIN observations AS o ON o.tenant = c.tenant AND o.occurrence_id = c.occurrence_id
    """
    decisions = """
        SELECT f.tenant, f.item, f.rule, f.secret, e.state, e.when_ns, e.who, e.why, e.committed_ns
        FROM findings AS f JOIN triage_events AS e ON e.tenant = f.tenant AND e.finding_id = f.finding_id
    """

    def read(connection: AnyConnection) -> list[tuple[Any, ...]]:
        return [row for asked in (rows, decisions) for row in connection.execute(asked).fetchall()]

    found = database.read(read)
    if epoch is not None:
        found = [
            (*row[:3], bytes(rotated_hash(epoch, SecretHash(row[3]))), *row[4:]) if row[0] == TENANT else row
            for row in found
        ]
    return sorted(map(repr, found))


def finish(rotation: Rotation) -> list[str]:
    steps: list[str] = []
    rotation.run(lambda: None, lambda step, _: steps.append(step))
    return steps


def test_everything_known_is_known_afterwards_under_the_new_key(database: AnyDatabase) -> None:
    fill(database, range(100))
    fill(database, range(10), TenantId(digest(2, 1)))
    expected = known(database, Secret32(b"n" * 32))
    rotation = Rotation(database, TENANT, OLD, NEW)
    plan = rotation.plan()
    assert (plan.findings > 50, plan.pages, plan.is_begun) == (True, -(-plan.findings // 10), False)
    steps = finish(rotation)
    assert steps == ["begin", *["page"] * plan.pages, "check", "finish"]
    assert known(database) == expected
    assert verify(database, lambda _: None).problems == []
    state = SqlState(database)
    assert state.multi_get(TENANT, [CHECK_KEY, ROTATION_KEY]) == [check_value(NEW), None]
    assert state.list_range(TENANT, b"tenant/", b"tenant0") == [(CHECK_KEY, check_value(NEW))]
    assert rotation.plan().is_done
    assert finish(rotation) == []
    with pytest.raises(Conflict, match="another key"):
        Rotation(database, TENANT, OLD, TenantSecretKey(OLD + b"z" * 32)).plan()
    with pytest.raises(InvalidInput, match="does not continue"):
        Rotation(database, TENANT, OLD, TenantSecretKey(b"z" * 64))


def test_it_may_be_stopped_at_any_step_and_goes_on(database: AnyDatabase) -> None:
    key = OLD
    fill(database, range(40))
    stops = 0
    for after in (False, True):
        for stop_at in range(1, 30):
            newer = TenantSecretKey(key + bytes([stop_at, after]) * 16)
            expected = known(database, newer.epochs[-1])
            try:
                finish(Rotation(Stopping(database, stop_at, after=after), TENANT, key, newer))  # type: ignore[arg-type]
            except Stop:
                stops += 1
                if SqlState(database).multi_get(TENANT, [ROTATION_KEY]) != [None]:
                    with pytest.raises(Conflict, match="a rotation to another key is under way"):
                        Rotation(database, TENANT, key, TenantSecretKey(key + b"q" * 32)).plan()
                finish(Rotation(database, TENANT, key, newer))
                assert known(database) == expected
                key = newer
            else:
                key = newer
                break
        else:
            raise AssertionError("it never came to its end")
    assert stops >= 2 * 6
    assert verify(database, lambda _: None).problems == []


def test_what_a_late_worker_wrote_under_the_old_key_is_rotated_too(database: AnyDatabase) -> None:
    fill(database, range(24))
    before = known(database, Secret32(b"n" * 32))
    with pytest.raises(Stop):
        finish(Rotation(Stopping(database, 3, after=True), TENANT, OLD, NEW))  # type: ignore[arg-type]
    fill(database, range(16, 40))  # some of it was there before, and has been rotated
    steps = finish(Rotation(database, TENANT, OLD, NEW))
    assert "strays" in steps
    assert verify(database, lambda _: None).problems == []
    hashed = {bytes(secret_hash_of(number)) for number in range(1, 5)}

    def read(connection: AnyConnection) -> set[bytes]:
        return {bytes(row[0]) for row in connection.execute("SELECT secret FROM findings")}

    assert database.read(read) == hashed
    assert len(known(database)) > len(before)


def secret_hash_of(number: int) -> SecretHash:
    return rotated_hash(Secret32(b"n" * 32), SecretHash(digest(number, 6)))


def test_a_check_that_fails_leaves_the_rotation_unfinished(database: AnyDatabase) -> None:
    fill(database, range(10))

    def refuse() -> None:
        raise Conflict("not whole")

    with pytest.raises(Conflict, match="not whole"):
        Rotation(database, TENANT, OLD, NEW).run(refuse, lambda *_: None)
    assert SqlState(database).multi_get(TENANT, [CHECK_KEY, ROTATION_KEY]) == [check_value(OLD), None], "not begun"
    with pytest.raises(Stop):
        finish(Rotation(Stopping(database, 1, after=True), TENANT, OLD, NEW))  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="not whole"):
        Rotation(database, TENANT, OLD, NEW).run(refuse, lambda *_: None)
    assert SqlState(database).multi_get(TENANT, [CHECK_KEY])[0] not in (check_value(OLD), check_value(NEW))
    assert finish(Rotation(database, TENANT, OLD, NEW)) == ["check", "finish"]


def sink(database: AnyDatabase, key: TenantSecretKey) -> SqliteFindings | PostgresFindings:
    """Return where a scan with this key stores findings."""
    is_sqlite = isinstance(database, SqliteDatabase)
    return SqliteFindings(database, check_value(key)) if is_sqlite else PostgresFindings(database, check_value(key))


def test_a_scan_at_work_stores_no_finding_under_a_key_that_is_not_accepted(database: AnyDatabase) -> None:
    late = page(range(40, 50), CONTEXT).findings
    assert late.findings
    sink(database, OLD).upsert_batch(page(range(50, 60), CONTEXT).findings)  # no check value yet: any key is taken
    fill(database, range(24))
    with pytest.raises(Stop):
        finish(Rotation(Stopping(database, 2, after=True), TENANT, OLD, NEW))  # type: ignore[arg-type]
    for key in (OLD, NEW):
        with pytest.raises(KeyChanged):
            sink(database, key).upsert_batch(late)
    finish(Rotation(database, TENANT, OLD, NEW))
    with pytest.raises(KeyChanged):
        sink(database, OLD).upsert_batch(late)
    assert sink(database, NEW).upsert_batch(late).finding_count


class Slow:
    """A PostgreSQL database whose transactions commit only when another one waits for them."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.is_held = threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def write(self, work: Callable[[AnyConnection], T]) -> T:
        def held(connection: AnyConnection) -> T:
            result = work(connection)
            self.is_held.set()
            waiting = "SELECT count(*) FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            limit_s = time.monotonic() + 60
            while not connection.execute(waiting).fetchone()[0]:
                assert time.monotonic() < limit_s, "nobody waits for this transaction"
                time.sleep(0.02)
            return result

        return self._database.write(held)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_rotation_waits_for_findings_that_are_being_written(database: PostgresDatabase) -> None:
    fill(database, range(24))
    slow = Slow(database)
    with ThreadPoolExecutor(1) as other:
        writing = other.submit(sink(slow, OLD).upsert_batch, page(range(30, 40), CONTEXT).findings)  # type: ignore[arg-type]
        assert slow.is_held.wait(60)
        steps = finish(Rotation(database, TENANT, OLD, NEW))
        assert writing.result().finding_count
    assert "strays" not in steps
    assert verify(database, lambda _: None).problems == []

    def read(connection: AnyConnection) -> set[bytes]:
        return {bytes(row[0]) for row in connection.execute("SELECT secret FROM findings")}

    assert database.read(read) == {bytes(secret_hash_of(number)) for number in range(1, 5)}


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_of_two_rotations_that_begin_at_once_one_is_refused(database: PostgresDatabase) -> None:
    fill(database, range(24))
    expected = known(database, Secret32(b"n" * 32))
    slow = Slow(database)

    def begin() -> None:
        with pytest.raises(Stop):
            finish(Rotation(Stopping(slow, 1, after=True), TENANT, OLD, NEW))  # type: ignore[arg-type]

    with ThreadPoolExecutor(1) as other:
        beginning = other.submit(begin)
        assert slow.is_held.wait(60)
        with pytest.raises(Conflict, match="a rotation to another key is under way"):
            finish(Rotation(database, TENANT, OLD, TenantSecretKey(OLD + b"z" * 32)))
        beginning.result()
    finish(Rotation(database, TENANT, OLD, NEW))
    assert known(database) == expected
