"""What children of `tests.pipeline.child` left behind, held against what they said.

The checks look with connections of their own, at one moment of the database, whether or not somebody still works on it.
What they cannot show is a power cut: what a killed process wrote is in the kernel's hands, synced or not.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple, cast

from strandline.pipeline.coordination.codec import parse_run, parse_shard
from strandline.pipeline.findings import FindingRecord, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import OvidHash
from strandline.pipeline.ledger import DoneStatus, LedgerRecord, fold
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.stores import SqlAnyDatabase, open_database
from strandline.pipeline.verify import verify
from strandline.protocol.runs import RunRecord, RunStatus
from strandline.protocol.shards import ShardRecord, ShardSpec, ShardStatus, within
from tests.pipeline import scanned
from tests.pipeline.rows import POLICY, TENANT
from tests.pipeline.scanned import RUN, key


class Step(NamedTuple):
    """Something a child was told: what, of which shard, under which fence, asked for when, about which items."""

    what: str
    shard: int
    fence: int
    at_ns: int
    numbers: tuple[int, ...]


@dataclass
class Said:
    """What children said, over one life or several."""

    steps: list[Step] = field(default_factory=list)
    pages: list[Step] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    retried: list[str] = field(default_factory=list)
    ready: int = 0
    over: bool = False

    def listen(self, output: bytes) -> None:
        """Take in what was said; a line that the end cut off was not said."""
        for line in output.decode().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            match line.split():
                case ["ready"]:
                    self.ready += 1
                case ["over"]:
                    self.over = True
                case ["failed", kind, *_]:
                    self.failed.append(kind)
                case ["again", kind]:
                    self.retried.append(kind)
                case ["lost", _, _, kind]:
                    self.lost.append(kind)
                case words:
                    what, *numbers = words
                    shard, fence, at_ns, *about = map(int, numbers)
                    steps = self.pages if what == "writing" else self.steps
                    steps.append(Step(what, shard, fence, at_ns, tuple(about)))

    def items(self, what: str) -> set[int]:
        """Return the items of which something was said."""
        return {number for step in self.steps if step.what == what for number in step.numbers}


class Stored(NamedTuple):
    """What a database holds at one moment."""

    ledger: list[LedgerRecord]
    findings: list[FindingRecord]
    occurrences: list[OccurrenceRecord]
    observations: list[ObservationRecord]
    shards: dict[int, ShardRecord]
    run: RunRecord | None


def stored(database: SqlAnyDatabase) -> Stored:
    """Read everything at one moment."""
    sql = statements(database.dialect, "verify")

    def rows(connection: Any, table: str) -> list[tuple[Any, ...]]:  # noqa: ANN401 - either driver's
        return list(connection.execute(sql[table]).fetchall())

    def read(connection: Any) -> Stored:  # noqa: ANN401 - either driver's
        shards = [parse_shard(row[-1]) for row in rows(connection, "shards")]
        runs = [parse_run(row[-1]) for row in rows(connection, "runs")]
        observations = connection.execute(_OBSERVATIONS).fetchall()
        return Stored(
            [LedgerRecord(*row) for row in rows(connection, "ledger")],
            [FindingRecord(*row) for row in rows(connection, "findings")],
            [OccurrenceRecord(*row) for row in rows(connection, "occurrences")],
            [ObservationRecord(*row) for row in observations],
            {shard.shard: shard for shard in shards},
            next(iter(runs), None),
        )

    return database.read(read)


_OBSERVATIONS = """
    SELECT
        tenant, observation_id, occurrence_id, policy, ovid, run_id, shard_id, fence, seen_at,
        location_seen_at, location_display, location_url
    FROM observations
"""


class Checker:
    """Looks at what children leave behind, again and again; what it saw once may only grow."""

    def __init__(self, address: str, items: int) -> None:
        self._address = address
        self._model = Model(items)
        self._shards: dict[int, ShardRecord] = {}
        self._rows = (0, 0, 0, 0)

    def check(self, said: Said) -> Stored | None:
        """Check everything that holds at any moment; None if there is no database yet."""
        with cast("SqlAnyDatabase", open_database(self._address)) as database:
            status = database.status()
            if status.pending:
                assert not status.applied, "a migration was applied in part"
                assert not said.steps, "the tables are gone"
                return None
            now = stored(database)
            problems = verify(database, lambda _: None).problems
        assert not problems, problems
        self._model.check_rows(now)
        self._model.check_cursors(now)
        self._check_growth(now)
        _check_covers(now.shards.values())
        _check_fences(now, said)
        self._model.check_told(now, said)
        self._model.check_whole(now, said)
        return now

    def check_over(self, said: Said) -> None:
        """Check that the run is over, and that what is stored is what a run leaves that nobody disturbed."""
        now = self.check(said)
        assert now is not None
        assert now.run is not None
        assert now.run.status == RunStatus.DONE
        assert {shard.status for shard in now.shards.values()} <= {ShardStatus.DONE, ShardStatus.SPLIT}
        self._model.check_all(now)

    def _check_growth(self, now: Stored) -> None:
        sizes = (len(now.ledger), len(now.findings), len(now.occurrences), len(now.observations))
        assert all(new >= old for new, old in zip(sizes, self._rows, strict=True)), "rows are gone"
        for shard, old in self._shards.items():
            new = now.shards[shard]
            assert new.fence >= old.fence, "a fence went back"
            assert new.cursor.key >= old.cursor.key, "a cursor went back"
            assert old.status in (ShardStatus.ACTIVE, ShardStatus.PARKED, new.status), "what was over is not"
        self._rows, self._shards = sizes, now.shards


class Model:
    """What items lead to, and what must be stored of them."""

    def __init__(self, items: int) -> None:
        context = WriteContext(TENANT, POLICY, RUN.run, 0, 0)
        self._rows = {number: scanned.ledger_row(number, context) for number in range(items)}
        self._found = {number: set(_bare_findings(scanned.found(number, context))) for number in range(items)}
        self._numbers: dict[OvidHash, list[int]] = {}
        for number in range(items):
            self._numbers.setdefault(scanned.ovid(number), []).append(number)

    def check_rows(self, now: Stored) -> None:
        """Nothing is there twice, nothing that no item leads to, and nothing scanned without its findings."""
        there = _Stored(now)
        expected = set().union(*self._found.values())
        assert len(there.found) == len(now.findings) + len(now.occurrences) + len(now.observations), (
            "a finding is there twice"
        )
        assert len(there.ledger) == len(now.ledger), "a row of the ledger is there twice"
        assert there.found <= expected, "a finding is there that nobody found"
        for row in now.ledger:
            said_by = self._explained(row)
            assert said_by, "a row of the ledger says what nobody said"
            if row.status >= DoneStatus.SCANNED_PARTIAL:
                whole = any(self._are_found(numbers, there) for numbers in said_by)
                assert whole, "the ledger says scanned, and the findings are not there"

    def check_cursors(self, now: Stored) -> None:
        """Whatever a cursor passed is done, and its findings are there."""
        there = _Stored(now)
        for shard in now.shards.values():
            for number in self._rows:
                passed = key(number) <= shard.cursor.key or shard.status == ShardStatus.DONE
                if passed and within(shard.spec, key(number)):
                    assert self._is_done(number, there), "the cursor is ahead of the ledger"
                    assert self._are_found([number], there), "the cursor is ahead of the findings"

    def check_told(self, now: Stored, said: Said) -> None:
        """Whatever a child was told is durable is there."""
        there = _Stored(now)
        assert self._are_found(said.items("found") | said.items("done"), there), "acknowledged findings are gone"
        for number in said.items("done") | said.items("checkpointed"):
            assert self._is_done(number, there), "an acknowledged row of the ledger is gone"
        for step in said.steps:
            shard = now.shards[step.shard]
            assert shard.fence >= step.fence, "a fence that was given is gone"
            match step.what:
                case "checkpointed":
                    assert shard.cursor.key >= key(step.numbers[0]), "an acknowledged checkpoint is gone"
                case "completed":
                    assert shard.status == ShardStatus.DONE, "an acknowledged completion is gone"
                case "parked":
                    kept = shard.status == ShardStatus.PARKED or shard.fence > step.fence
                    assert kept, "an acknowledged parking is gone"
                case "split":
                    assert shard.spawned, "an acknowledged split is gone"
                case _:
                    pass

    def check_whole(self, now: Stored, said: Said) -> None:
        """Of a page, all findings are there or none, and all rows of the ledger or none."""
        there = _Stored(now)
        for page in said.pages:
            # A row of several items may come from another page.
            alone = [number for number in page.numbers if len(self._numbers[scanned.ovid(number)]) == 1]
            ovids = {scanned.ovid(number) for number in alone}
            who = RUN.run, page.shard, page.fence
            if any(row.ovid in ovids and row[5:8] == who for row in now.observations):
                assert self._are_found(page.numbers, there), "a page's findings are there in part"
            if any(there.ledger[ovid][10:13] == who for ovid in ovids & there.ledger.keys()):
                assert ovids <= there.ledger.keys(), "a page's rows of the ledger are there in part"
        occurring = {row.finding_id for row in now.occurrences}
        observed = {row.occurrence_id for row in now.observations}
        assert {row.finding_id for row in now.findings} == occurring, "a batch's findings are there in part"
        assert {row.occurrence_id for row in now.occurrences} == observed, "a batch's findings are there in part"

    def check_all(self, now: Stored) -> None:
        """Everything is there."""
        assert {_bare(row) for row in now.ledger} == {_bare(row) for row in fold(self._rows.values())}
        assert _Stored(now).found == set().union(*self._found.values())

    def _explained(self, row: LedgerRecord) -> list[tuple[int, ...]]:
        """Return the sets of items that a row is the outcome of."""
        numbers = self._numbers.get(row.ovid, [])
        sets = [chosen for size in range(1, len(numbers) + 1) for chosen in combinations(numbers, size)]
        return [chosen for chosen in sets if _bare(*fold(self._rows[number] for number in chosen)) == _bare(row)]

    def _is_done(self, number: int, there: "_Stored") -> bool:
        """Return whether the ledger says what the item says, or more."""
        row = there.ledger.get(scanned.ovid(number))
        return row is not None and any(number in chosen for chosen in self._explained(row))

    def _are_found(self, numbers: Iterable[int], there: "_Stored") -> bool:
        return all(self._found[number] <= there.found for number in numbers)


class _Stored:
    """What is stored, to look up."""

    def __init__(self, now: Stored) -> None:
        self.ledger = {row.ovid: row for row in now.ledger}
        self.found = {*now.findings, *now.occurrences, *map(_bare_observation, now.observations)}


def _bare_findings(
    rows: list[tuple[FindingRecord, OccurrenceRecord, ObservationRecord]],
) -> Iterable[tuple[Any, ...]]:
    """Return the rows of all layers without run, shard and fence."""
    for finding, occurrence, observation in rows:
        yield from (finding, occurrence, _bare_observation(observation))


def _bare_observation(row: ObservationRecord) -> tuple[Any, ...]:
    return row[:5] + row[8:]


def _bare(row: LedgerRecord) -> tuple[Any, ...]:
    """Return a row of the ledger without run, shard and fence."""
    return row[:10] + row[13:]


def _check_covers(shards: Iterable[ShardRecord]) -> None:
    """What is not replaced by its parts covers every key once."""
    leaves: list[ShardSpec] = sorted(shard.spec for shard in shards if shard.status != ShardStatus.SPLIT)
    if leaves:
        ends = [b"", *(spec.end for spec in leaves)]
        assert [*(spec.start for spec in leaves), b""] == ends, "shards overlap, or leave a gap"


def _check_fences(now: Stored, said: Said) -> None:
    """A fence is given once, no row has a later one than its shard, and an old one does nothing any more."""
    claims = [step for step in said.steps if step.what == "claimed"]
    given = Counter((step.shard, step.fence) for step in claims)
    assert not [claim for claim, times in given.items() if times > 1], "a fence was given twice"
    for row in now.ledger:
        assert row.fence <= now.shards[row.shard_id].fence
    for step in said.steps:
        if step.what != "claimed":
            newer = [claim for claim in claims if claim.shard == step.shard and claim.fence > step.fence]
            late = [claim for claim in newer if claim.at_ns < step.at_ns]
            assert not late, f"a zombie's step ({step.what}) was accepted"
