"""Rotation of a tenant's key: every finding gets its id under the new key, and keeps its history.

A secret's hash under the new key is the keyed hash of its hash under the old one. So nothing has to be scanned again,
and the old key alone is no longer enough to test guesses against what is stored.

    check     nothing is damaged before
    begin     one transaction: the rotation is recorded, all keys are refused, the findings are listed in pages
    pages     one transaction each: ids of findings, occurrences, observations and decisions are derived anew
    strays    what was written under the old key meanwhile, by a writer that does not compare keys
    check     nothing is left under the old key, and no finding is missing
    finish    one transaction: decisions about secrets are kept under the new hashes, and the new key is the tenant's

Invariants: each step is one transaction and may be repeated; a rotation that was killed goes on where it was; between
begin and finish no key is accepted, also not from scans at work, so nothing is kept under two keys; nothing but ids and
hashes changes, and times of commits stay what they were.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from strandline.errors import Conflict, Damaged, InvalidInput
from strandline.pipeline.identity import (
    FindingId,
    ObjectVersionId,
    OccurrenceId,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
    TenantSecretKey,
    finding_id,
    observation_id,
    occurrence_id,
    rotated_hash,
)
from strandline.pipeline.secret_decisions import (
    DECIDED_END,
    DECIDED_FIRST,
    format_decision_key,
    parse_decision_key,
)
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.tenant_keys import (
    CHECK_KEY,
    PAGES_END,
    PAGES_FIRST,
    ROTATION_KEY,
    RotationRecord,
    check_value,
    format_page,
    format_page_key,
    format_rotation,
    parse_page,
    parse_rotation,
    rotating_value,
)
from strandline.pipeline.triage import TriageEvent, TriageState, event_id
from strandline.pipeline.verifications import (
    VERIFIED_END,
    VERIFIED_FIRST,
    format_verification_key,
    parse_verification_key,
)

PAGE_FINDINGS = 200
_LISTED = 10_000
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """The steps that a rotation has left."""

    findings: int
    pages: int
    is_begun: bool
    is_done: bool

    def describe(self) -> list[str]:
        """Return a sentence for each step that is left."""
        if self.is_done:
            return []
        begin = [] if self.is_begun else [f"refuse all keys, and list {self.findings:,} findings in pages"]
        pages = [f"derive the ids of {self.findings:,} findings anew, in {self.pages:,} transactions"]
        return [*begin, *pages, "check that nothing is left under the old key", "accept the new key alone"]


class Rotation:
    """A rotation of one tenant's key, from what it was to one with one more epoch."""

    def __init__(self, database: Database, tenant: TenantId, old: TenantSecretKey, new: TenantSecretKey) -> None:
        if new.epochs[:-1] != old.epochs:
            raise InvalidInput("the new key does not continue the old one", hint="make it with `rotate-key`")
        self._database = database
        self._tenant = tenant
        self._from, self._to = check_value(old), check_value(new)
        self._epoch = new.epochs[-1]
        self._sql = statements(database.dialect, "rotation")

    def plan(self) -> RotationPlan:
        """Return the steps that are left, without changing anything. `Conflict` if the store is under another key."""

        def look(connection: AnyConnection) -> RotationPlan:
            record = self._record(connection)
            if record is None:
                known = self._get(connection, CHECK_KEY)
                if known == self._to:
                    return RotationPlan(0, 0, is_begun=True, is_done=True)
                if known != self._from:
                    raise Conflict("the results are under another key", hint="give the file with the tenant's key")
                (count,) = self._execute(connection, "count_findings").fetchone()
                return RotationPlan(count, -(-count // PAGE_FINDINGS), is_begun=False, is_done=False)
            pages = [value for _, value in self._pages(connection, limit=2**31)]
            return RotationPlan(sum(len(parse_page(page)) for page in pages), len(pages), is_begun=True, is_done=False)

        return self._database.read(look)

    def run(self, check: Callable[[], None], on_step: Callable[[str, int], None]) -> None:
        """Run the steps that are left; if `check` raises, the rotation does not begin, or does not finish.

        `on_step` hears of each step when it is durable: its name, and how many pages it was.
        """
        plan = self.plan()
        if plan.is_done:
            return
        if not plan.is_begun:
            check()  # damage that was there before would leave the tenant without a key that is accepted
            self._database.write(self._begin)
            on_step("begin", 0)
        while self._database.write(self._rotate_page):
            on_step("page", 1)
        while self._database.write(self._rotate_strays):
            on_step("strays", 0)
        check()
        on_step("check", 0)
        self._database.write(self._finish)
        on_step("finish", 0)

    # The steps; each is one transaction.

    def _begin(self, connection: AnyConnection) -> None:
        # The lock waits for findings that are being written, so that they are listed, and for other rotations.
        check = self._execute(connection, "lock_state", key=CHECK_KEY).fetchone()
        if self._record(connection) is not None:
            return  # this transaction was run twice
        if check is None or bytes(check[0]) != self._from:
            raise Conflict("the results are under another key by now", hint="check whether another command rotated it")
        findings = list(self._list_findings(connection))
        for number, first in enumerate(range(0, len(findings), PAGE_FINDINGS)):
            self._put(connection, format_page_key(number), format_page(findings[first : first + PAGE_FINDINGS]))
        now_ns = self._database.clock.now_ns()
        record = RotationRecord(self._from.hex(), self._to.hex(), now_ns, len(findings))
        self._put(connection, ROTATION_KEY, format_rotation(record))
        self._put(connection, CHECK_KEY, rotating_value(self._to))

    def _rotate_page(self, connection: AnyConnection) -> bool:
        self._begun(connection)
        pages = list(self._pages(connection, limit=1))
        for key, value in pages:
            self._rotate(connection, parse_page(value))
            self._execute(connection, "delete_state", key=key)
        return bool(pages)

    def _rotate_strays(self, connection: AnyConnection) -> bool:
        """Rotate findings that were committed during the rotation; they are under the old key."""
        begun_ns = self._begun(connection).begun_ns
        rows = self._execute(connection, "strays", begun_ns=begun_ns, limit=PAGE_FINDINGS).fetchall()
        self._rotate(connection, [FindingId(row[0]) for row in rows], before_ns=begun_ns)
        return bool(rows)

    def _finish(self, connection: AnyConnection) -> None:
        record = self._record(connection)
        if record is None:
            return  # this transaction was run twice
        (count,) = self._execute(connection, "count_findings").fetchone()
        if count < record.findings or list(self._pages(connection, limit=1)):
            raise Damaged(
                self._database.describe(),
                f"{record.findings:,} findings were to be rotated, and {count:,} are there",
                safe="the old and the new key are kept; restore the database from a backup and rotate again",
            )
        self._rotate_secret_decisions(connection)
        self._rotate_verifications(connection)
        self._execute(connection, "delete_state", key=ROTATION_KEY)
        self._put(connection, CHECK_KEY, self._to)

    # Rows.

    def _rotate(self, connection: AnyConnection, ids: list[FindingId], before_ns: int | None = None) -> None:
        """Derive findings and their rows anew; a finding that exists under the new key is merged."""
        if not ids:
            return
        wanted = self._database.array(ids)
        findings: dict[bytes, FindingId] = {}
        for old, item, rule, secret, committed_ns in self._execute(connection, "findings", ids=wanted).fetchall():
            hashed = rotated_hash(self._epoch, SecretHash(secret))
            new = finding_id(self._tenant, StableItemId(item), RuleFingerprint(rule), hashed)
            findings[old] = new
            at_ns = committed_ns if before_ns is None else before_ns - 1
            self._execute(
                connection, "add_finding", new=new, item=item, rule=rule, secret=bytes(hashed), committed_ns=at_ns
            )
        self._rotate_occurrences(connection, wanted, findings)
        self._rotate_decisions(connection, wanted, findings)
        self._execute(connection, "delete_occurrences", ids=wanted)
        self._execute(connection, "delete_decisions", ids=wanted)
        self._execute(connection, "delete_findings", ids=wanted)

    def _rotate_occurrences(self, connection: AnyConnection, wanted: object, findings: dict[bytes, FindingId]) -> None:
        occurrences: dict[bytes, OccurrenceId] = {}
        for old, finding, version, offset, length, committed_ns in self._all(connection, "occurrences", wanted):
            new = occurrence_id(findings[finding], ObjectVersionId(version), offset, length)
            occurrences[old] = new
            fields = {"version": version, "offset": offset, "length": length, "committed_ns": committed_ns}
            self._execute(connection, "add_occurrence", new=new, finding=findings[finding], **fields)
        if not occurrences:
            return
        seen = self._database.array(list(occurrences))
        for old, occurrence, policy in self._all(connection, "observations", seen):
            new_observation = observation_id(self._tenant, PolicyHash(policy), occurrences[occurrence])
            moved = {"old": old, "new": new_observation, "occurrence": occurrences[occurrence]}
            self._execute(connection, "move_observation", **moved)
        self._execute(connection, "delete_observations", ids=seen)

    def _rotate_decisions(self, connection: AnyConnection, wanted: object, findings: dict[bytes, FindingId]) -> None:
        for finding, state, when_ns, who, why, committed_ns in self._all(connection, "decisions", wanted):
            event = TriageEvent(self._tenant, findings[finding], TriageState(state), when_ns, who, why)
            fields = {"state": int(state), "when_ns": when_ns, "who": who, "why": why, "committed_ns": committed_ns}
            self._execute(connection, "add_decision", finding=findings[finding], event=event_id(event), **fields)

    def _rotate_secret_decisions(self, connection: AnyConnection) -> None:
        found = {"first": DECIDED_FIRST, "end": DECIDED_END, "limit": 2**31}
        for key, value in self._execute(connection, "pages", **found).fetchall():
            secret, when_ns = parse_decision_key(bytes(key))
            self._execute(connection, "delete_state", key=bytes(key))
            self._put(connection, format_decision_key(rotated_hash(self._epoch, secret), when_ns), bytes(value))

    def _rotate_verifications(self, connection: AnyConnection) -> None:
        found = {"first": VERIFIED_FIRST, "end": VERIFIED_END, "limit": 2**31}
        for key, value in self._execute(connection, "pages", **found).fetchall():
            hashed = rotated_hash(self._epoch, parse_verification_key(bytes(key)))
            self._execute(connection, "delete_state", key=bytes(key))
            self._put(connection, format_verification_key(hashed), bytes(value))

    def _all(self, connection: AnyConnection, name: str, ids: object) -> list[Row]:
        rows: list[Row] = self._execute(connection, name, ids=ids).fetchall()
        return rows

    def _list_findings(self, connection: AnyConnection) -> Iterator[FindingId]:
        after = b""
        while rows := self._execute(connection, "list_findings", after=after, limit=_LISTED).fetchall():
            yield from (FindingId(row[0]) for row in rows)
            after = rows[-1][0]

    # Keys and values of the rotation itself.

    def _begun(self, connection: AnyConnection) -> RotationRecord:
        record = self._record(connection)
        if record is None:
            raise Conflict("the rotation was finished by another command meanwhile", hint="nothing is left to do")
        return record

    def _record(self, connection: AnyConnection) -> RotationRecord | None:
        data = self._get(connection, ROTATION_KEY)
        if data is None:
            return None
        record = parse_rotation(data)
        if (record.from_check, record.to_check) != (self._from.hex(), self._to.hex()):
            raise Conflict(
                "a rotation to another key is under way", hint="go on with the files of the key that it began with"
            )
        return record

    def _get(self, connection: AnyConnection, key: bytes) -> bytes | None:
        row = self._execute(connection, "get_state", key=key).fetchone()
        return None if row is None else bytes(row[0])

    def _put(self, connection: AnyConnection, key: bytes, value: bytes) -> None:
        self._execute(connection, "put_state", key=key, value=value)

    def _pages(self, connection: AnyConnection, limit: int) -> list[tuple[bytes, bytes]]:
        found = self._execute(connection, "pages", first=PAGES_FIRST, end=PAGES_END, limit=limit).fetchall()
        return [(bytes(key), bytes(value)) for key, value in found]

    def _execute(self, connection: AnyConnection, name: str, **parameters: object) -> Any:  # noqa: ANN401 - a cursor
        return connection.execute(self._sql[name], {"tenant": self._tenant, **parameters})
