"""Whether stores merge as the pure rules do: in every order and batch by batch, with ties, and from writers at once.

A set of rows is written once for each of its permutations, under a key for each, and every key must end with the same
row: the fold of the set. All permutations go side by side, so that a set of five takes five rounds and not 600.
"""

import random
import threading
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

from strandline.pipeline import findings as findings_rules
from strandline.pipeline import ledger as ledger_rules
from strandline.pipeline.findings import ObservationRecord
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.scope import WriteContext
from strandline.testing.contract import expect, same
from strandline.testing.persistence_helpers import (
    POLICY,
    TENANT,
    WRITER,
    CheckedPersistence,
    Found,
    Location,
    PersistenceCheck,
    digest,
    done,
    found,
    observed,
    ovid,
    record,
    record_all,
    rows_of,
    same_row,
    same_rows,
    write,
    write_all,
)

_SETS = 12
_ROUNDS, _ROWS = 8, 12
_HANGS_S = 60.0
_TIED = WRITER._replace(run_id=-1), WRITER._replace(shard_id=3), WRITER._replace(fence=6), WRITER


def every_pair_of_statuses_gives_the_larger(stores: CheckedPersistence) -> None:
    """Whichever comes first, and in one batch or in two; the whole row is the merged one."""
    pairs = list(product(DoneStatus, repeat=2))
    first = [_telling(f"{one.name} {two.name}", one, finished_at=20) for one, two in pairs]
    second = [_telling(f"{one.name} {two.name}", two, finished_at=15) for one, two in pairs]
    record(stores, *first)
    record(stores, *second)
    together = [f"both {one.name} {two.name}" for one, two in pairs]
    record(
        stores,
        *(row._replace(ovid=ovid(name)) for rows in (first, second) for row, name in zip(rows, together, strict=True)),
    )
    for names in ([f"{one.name} {two.name}" for one, two in pairs], together):
        for (one, two), row, before, after in zip(pairs, rows_of(stores, *names), first, second, strict=True):
            what = f"{one.name} then {two.name}"
            same(f"the status of {what}", row and row.status, max(one, two))
            merged = ledger_rules.merge(before, after)
            same_row(f"the row of {what}", row and row._replace(ovid=merged.ovid), merged)


def rows_in_every_order_end_as_their_fold(stores: CheckedPersistence) -> None:
    """Sets of rows whose columns tie one after another, and sets drawn with ties everywhere."""
    source = random.Random(3)  # noqa: S311 - the same rows every time
    sets = [
        _rows_that_tie(),
        *_duels(),
        [_telling("a", status) for status in DoneStatus if status != DoneStatus.SCANNED_PARTIAL],
        *([_any_row(source) for _ in range(4)] for _ in range(_SETS)),
    ]
    for number, rows in enumerate(sets):
        orders = list(permutations(rows))
        names = [f"{number} {order}" for order in range(len(orders))]
        for position in range(len(rows)):
            step = zip(names, orders, strict=True)
            record_all(stores, [order[position]._replace(ovid=ovid(name)) for name, order in step])
        (wanted,) = ledger_rules.fold(rows)
        seen = [row and row._replace(ovid=wanted.ovid) for row in rows_of(stores, *names)]
        same_rows(f"what the orders of set {number} end as", seen, [wanted] * len(names))


def rows_of_one_key_in_one_batch_are_merged(stores: CheckedPersistence) -> None:
    """Also with what is there already; the receipt counts keys."""
    source = random.Random(4)  # noqa: S311 - the same rows every time
    stored, written = _drawn(source, 20), _drawn(source, 200)
    record(stores, *stored)
    receipt = record(stores, *written)
    same("the receipt's count", receipt.record_count, len({row.ovid for row in written}))
    wanted = {row.ovid: row for row in ledger_rules.fold([*stored, *written])}
    names = [str(number) for number in range(10)]
    same_rows("the rows", rows_of(stores, *names), [wanted.get(ovid(name)) for name in names])


def writers_at_once_lose_no_row(stores: CheckedPersistence) -> None:
    """Several of them, over the same keys in other orders, end with the fold of all."""
    rows = [
        [_telling(str(number), status, writer, finished_at=20 + number % 3) for number in range(_ROUNDS * _ROWS)]
        for writer, status in zip(_TIED, (DoneStatus.SKIPPED, DoneStatus.SCANNED_CLEAN) * 2, strict=True)
    ]
    _at_once(lambda mine, some: record(stores, *random.Random(mine).sample(rows[mine][some], _ROWS)))  # noqa: S311
    wanted = ledger_rules.fold(row for some in rows for row in some)
    same_rows("the rows", rows_of(stores, *map(str, range(_ROUNDS * _ROWS))), wanted)
    same("how many are done", len(stores.ledger.list_done_hashes(TENANT, POLICY)), _ROUNDS * _ROWS)


# Observations.


def observations_in_every_order_end_as_their_fold(stores: CheckedPersistence) -> None:
    """Full ties of time included: the writer and the location are each the largest, as units."""
    source = random.Random(5)  # noqa: S311 - the same rows every time
    sets = [
        *_observations_that_tie(),
        *([_any_sight(source) for _ in range(4)] for _ in range(_SETS)),
    ]
    for number, sights in enumerate(sets):
        orders = list(permutations(sights))
        for position in range(len(sights)):
            write_all(stores, [_seen(f"{number} {at}", *order[position]) for at, order in enumerate(orders)])
        (wanted,) = findings_rules.fold(_seen("wanted", *sight).observation for sight in sights)
        for at in range(len(orders)):
            (seen,) = observed(stores, _seen(f"{number} {at}", *sights[0]))
            same_row(f"order {at} of set {number}", _stripped(seen), _stripped(wanted))


def observations_of_one_id_in_one_batch_are_merged(stores: CheckedPersistence) -> None:
    """Also with what is there already; the receipt counts distinct rows."""
    source = random.Random(6)  # noqa: S311 - the same rows every time
    stored = [_seen(str(at % 5), WRITER, *_any_sight(source)[1:]) for at in range(10)]
    written = [_seen(str(at % 10), WRITER, *_any_sight(source)[1:]) for at in range(100)]
    write(stores, *stored)
    receipt = write(stores, *written)
    same("the receipt", (receipt.finding_count, receipt.occurrence_count, receipt.observation_count), (10, 10, 10))
    wanted = findings_rules.fold(row.observation for row in (*stored, *written))
    for number, row in enumerate(wanted):
        same_rows(f"observation {number}", observed(stores, _seen(str(number), WRITER)), [row])


def writers_at_once_lose_no_finding(stores: CheckedPersistence) -> None:
    """Several of them, with the same findings in other orders, end with the fold of all."""
    rows = [
        [_seen(str(number), writer, number % 3, Location(number % 2, f"{at}")) for number in range(_ROUNDS * _ROWS)]
        for at, writer in enumerate(_TIED)
    ]
    _at_once(lambda mine, some: write(stores, *random.Random(mine).sample(rows[mine][some], _ROWS)))  # noqa: S311
    wanted = findings_rules.fold(row.observation for some in rows for row in some)
    for number, row in enumerate(wanted):
        same_rows(f"observation {number}", observed(stores, rows[0][number]), [row])
    (counts,) = stores.reads.counts_by_policy(TENANT)
    same("the counts", counts[1:], (_ROUNDS * _ROWS,) * 3)


def _telling(name: str, status: DoneStatus, writer: WriteContext = WRITER, finished_at: int = 20) -> LedgerRecord:
    """Return a row whose every column tells where it came from."""
    row = done(name, status, writer)._replace(bytes_seen=int(status), finished_at=finished_at)
    match status:
        case DoneStatus.SCANNED_CLEAN:
            return row
        case DoneStatus.SCANNED_PARTIAL:
            return row._replace(members_skipped=4, decodes_skipped=1)
        case DoneStatus.SCANNED_WITH_FINDINGS:
            return row._replace(findings_count=finished_at, members_skipped=3, findings_dropped=2)
        case _:
            return row._replace(findings_count=90 + status, decodes_skipped=9 - status, error_code=f"E{status.value}")


def _rows_that_tie() -> list[LedgerRecord]:
    """Return rows that tie in all but one of the columns that decide who wins."""
    row = done("a", DoneStatus.SKIPPED)
    return [
        row._replace(error_code="B", bytes_seen=1, members_skipped=2),
        row._replace(error_code="a", bytes_seen=9, members_skipped=1, decodes_skipped=9),
        row._replace(shard_id=-4, findings_count=9, members_skipped=5),
        row._replace(run_id=-1, fence=5, findings_count=2, members_skipped=3),
        row._replace(started_at=9, fence=8, members_skipped=4),
    ]


def _duels() -> Iterator[list[LedgerRecord]]:
    """Yield pairs in which one column decides, and every column after it says the opposite."""
    row = done("a", DoneStatus.SKIPPED)._replace(finished_at=60)
    columns = ("finished_at", "started_at", "fence", "run_id", "shard_id", "error_code")
    for at in range(len(columns)):
        last = 60 - at
        winner: dict[str, Any] = {columns[at]: last} | dict.fromkeys(columns[at + 1 :], 1)
        loser: dict[str, Any] = {columns[at]: last - 1} | dict.fromkeys(columns[at + 1 :], 2)
        yield [row._replace(**columns | {"error_code": str(columns["error_code"])}) for columns in (winner, loser)]
    gaps = ("members_skipped", "decodes_skipped", "findings_dropped")
    for status in (DoneStatus.SCANNED_WITH_FINDINGS, DoneStatus.SKIPPED):
        for at in range(len(gaps)):
            fewer: dict[str, Any] = {gaps[at]: 1} | dict.fromkeys(gaps[at + 1 :], 9)
            more: dict[str, Any] = {gaps[at]: 2} | dict.fromkeys(gaps[at + 1 :], 1)
            yield [done("a", status)._replace(**columns) for columns in (fewer, more)]


def _any_row(source: random.Random) -> LedgerRecord:
    status = source.choice(list(DoneStatus))
    row = _telling("a", status, source.choice(_TIED), finished_at=source.choice((20, 21)))
    changes: dict[str, Any] = {"bytes_seen": source.randrange(3), "started_at": source.choice((1, 2))}
    if not status.is_scanned:
        changes["error_code"] = source.choice(("B", "a", "a b"))
        changes["findings_count"] = source.choice((0, 1, 99))
    if status != DoneStatus.SCANNED_CLEAN:
        changes["members_skipped"] = source.choice((1, 2))
        changes["findings_dropped"] = source.randrange(3)
    return row._replace(**changes)


def _drawn(source: random.Random, count: int) -> list[LedgerRecord]:
    own: dict[str, Any] = {"run_id": WRITER.run_id, "shard_id": WRITER.shard_id, "fence": WRITER.fence}
    return [_any_row(source)._replace(ovid=ovid(str(source.randrange(10))), **own) for _ in range(count)]


_Sight = tuple[WriteContext, int, Location | tuple[None, None, None]]
_NOWHERE = (None, None, None)


def _seen(
    secret: str, writer: WriteContext, seen_at: int = 1, location: Location | tuple[None, None, None] = _NOWHERE
) -> Found:
    return found(secret, writer=writer, seen_at=seen_at, location=location)


def _any_sight(source: random.Random) -> _Sight:
    seen_at = source.randrange(3)
    if source.random() < 1 / 3:
        return source.choice(_TIED), seen_at, _NOWHERE
    display, url = source.choice(("B", "a", "é", "z")), source.choice((None, "u", "é"))
    return source.choice(_TIED), seen_at, Location(source.choice((0, seen_at)), display, url)


def _observations_that_tie() -> Iterator[list[_Sight]]:
    yield [(writer, 1, _NOWHERE) for writer in _TIED]
    yield [(WRITER._replace(fence=1), 2, _NOWHERE), (WRITER._replace(fence=2), 1, _NOWHERE)]
    yield [(WRITER._replace(fence=2, run_id=1), 1, _NOWHERE), (WRITER._replace(fence=1, run_id=2), 1, _NOWHERE)]
    yield [(WRITER._replace(run_id=2, shard_id=1), 1, _NOWHERE), (WRITER._replace(run_id=1, shard_id=2), 1, _NOWHERE)]
    yield [(WRITER, 1, Location(2, "a", "z")), (WRITER, 1, Location(1, "b", "z"))]
    yield [(WRITER, 1, Location(1, "b", "a")), (WRITER, 1, Location(1, "a", "b"))]
    yield [(writer, 1, Location(1, "same")) for writer in _TIED]
    yield [(WRITER, 1, Location(1, display)) for display in ("B", "a", "é", "z", "\U0001f511")]
    yield [(WRITER, 1, Location(1, "same", url)) for url in (None, "B", "a", "é")]
    yield [(WRITER, 1, _NOWHERE), (WRITER, 1, Location(0, "old", "u")), (WRITER, 0, Location(1, "new"))]
    yield [
        (WRITER, 5, _NOWHERE),
        (WRITER._replace(fence=9), 4, Location(4, "x")),
        (WRITER._replace(run_id=9), 5, _NOWHERE),
    ]


def _stripped(row: ObservationRecord) -> ObservationRecord:
    """Return a row without what differs from copy to copy of a set."""
    blank = digest("")
    return row._replace(observation_id=blank, occurrence_id=blank, ovid=blank)


def _at_once(work: Callable[[int, slice], object]) -> None:
    """Let every writer work on the same rows at the same moment, round after round, each time on other rows."""
    failures: list[BaseException] = []
    together = threading.Barrier(len(_TIED))

    def begin(number: int) -> None:
        try:
            for at in range(0, _ROUNDS * _ROWS, _ROWS):
                together.wait(_HANGS_S)
                work(number, slice(at, at + _ROWS))
        except BaseException as error:  # noqa: BLE001 - told below, in the thread of the check
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(len(_TIED))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_HANGS_S)
    expect(not any(thread.is_alive() for thread in threads), "a writer hangs")
    same("what the writers met", failures, [])


LEDGER_MERGE_CHECKS: tuple[PersistenceCheck, ...] = (
    every_pair_of_statuses_gives_the_larger,
    rows_in_every_order_end_as_their_fold,
    rows_of_one_key_in_one_batch_are_merged,
    writers_at_once_lose_no_row,
)
OBSERVATION_MERGE_CHECKS: tuple[PersistenceCheck, ...] = (
    observations_in_every_order_end_as_their_fold,
    observations_of_one_id_in_one_batch_are_merged,
    writers_at_once_lose_no_finding,
)
