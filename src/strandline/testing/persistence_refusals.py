"""The contract of `FindingsSink`, continued: valid rows, and refusals that show no secret."""

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from strandline.errors import InvalidInput, StrandlineError
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.findings import LOCATION_BYTES_MAX, FindingsBatch
from strandline.pipeline.triage import TriageState
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    I64_MAX,
    TENANT,
    WRITER,
    CheckedPersistence,
    Found,
    Location,
    PersistenceCheck,
    batch_of,
    decision,
    digest,
    found,
    observed,
    same_rows,
    scope_of,
    write,
)


def ids_of_another_length_are_refused(stores: CheckedPersistence) -> None:
    """Every id of every layer has 32 bytes, and an observation's is that of what it names."""
    row, fine = found(), found("fine")
    for layer, count in (("finding", 5), ("occurrence", 4), ("observation", 5)):
        for name in getattr(row, layer)._fields[:count]:
            for value in (b"", b"x" * 31, b"x" * 33, "x" * 32, None):
                wrong = row._replace(**{layer: getattr(row, layer)._replace(**{name: value})})
                layers: Any = zip(fine, wrong, strict=True)
                batch = FindingsBatch(scope_of(WRITER), *layers)
                refuses(f"a {layer}'s {name} of another length", InvalidInput, stores.findings.upsert_batch, batch)
    underived = row._replace(observation=row.observation._replace(observation_id=digest("mine")))
    refuses("an observation's id of another thing", InvalidInput, write, stores, fine, underived)
    _expect_nothing(stores)


def spans_have_limits(stores: CheckedPersistence) -> None:
    """They hold at least a byte and end where a file can end; each is judged by itself."""
    fine = found("fine")
    for offset, length in ((-1, 1), (0, 0), (0, -1), (5, 0), (I64_MAX, 1), (0, I64_MAX + 1), (1, I64_MAX), (0.5, 1)):
        row = found()
        change: Any = {"byte_offset": offset, "byte_length": length}
        wrong = row._replace(occurrence=row.occurrence._replace(**change))
        refuses(f"a span at {offset} of {length}", InvalidInput, write, stores, fine, wrong)
    _expect_nothing(stores)
    rows = [found(offset=0), found(offset=I64_MAX - 20)]
    write(stores, *rows)
    same_rows("the rows at the limits", sorted(observed(stores, rows[0])), sorted(row.observation for row in rows))
    large = found("large")
    large = large._replace(occurrence=large.occurrence._replace(byte_length=I64_MAX))
    far = found("far", offset=I64_MAX - 20)
    write(stores, large, far)
    same("how many findings there are", len(stores.reads.needing_triage(TENANT)), 3)


def times_have_limits(stores: CheckedPersistence) -> None:
    """Whole numbers from 0 on, in 63 bits: when it was seen, and when its location was."""
    fine = found("fine")
    wrong: list[Any] = [-1, I64_MAX + 1, 0.5, "1", None]
    for time in wrong:
        refuses(f"seen_at {time!r}", InvalidInput, write, stores, fine, found(seen_at=time))
    for time in wrong:
        row = found(location=Location(time, "file"))
        refuses(f"location_seen_at {time!r}", InvalidInput, write, stores, fine, row)
    _expect_nothing(stores)
    for time in (0, I64_MAX):
        row = found(str(time), seen_at=time, location=Location(time, "file"))
        write(stores, row)
        same_rows(f"the row of time {time}", observed(stores, row), [row.observation])


def locations_have_limits(stores: CheckedPersistence) -> None:
    """1 to 4,096 bytes of text that every store can hold, and an address only beside something to show."""
    fine = found("fine")
    long = "x" * (LOCATION_BYTES_MAX + 1)
    wide = "é" * (LOCATION_BYTES_MAX // 2)
    wrong: list[Any] = [
        ("an empty text", (1, "", None)),
        ("an empty address", (1, "file", "")),
        ("a long text", (1, long, None)),
        ("a long address", (1, "file", long)),
        ("a wide text", (1, wide + "x", None)),
        ("an address alone", (None, None, "https://host")),
        ("a time alone", (1, None, None)),
        ("a text without a time", (None, "file", None)),
        ("a text with a zero", (1, "a\x00b", None)),
        ("an address with a zero", (1, "file", "a\x00b")),
        ("a text that is none", (1, "\ud800", None)),
        ("an address that is none", (1, "file", "\udfff")),
        ("bytes", (1, b"file", None)),
    ]
    for what, location in wrong:
        refuses(what, InvalidInput, write, stores, fine, found(location=location))
    _expect_nothing(stores)
    row = found(location=Location(1, wide, long[1:]))
    write(stores, row)
    same_rows("the row with the longest texts", observed(stores, row), [row.observation])


def ten_thousand_rows_of_a_layer_are_a_batch_and_one_more_is_not(stores: CheckedPersistence) -> None:
    """Of each of the three layers; duplicates count."""
    rows = [found(str(number)) for number in range(BATCH_ROWS_MAX + 1)]
    layers = batch_of(*rows)
    everything = {name: getattr(layers, name) for name in ("findings", "occurrences", "observations")}
    for name, layer in everything.items():
        for what, some in (("10,001", layer), ("10,001 equal", [layer[0]] * len(rows))):
            batch = FindingsBatch(layers.scope, **{name: some})
            refuses(f"{what} {name}", BatchTooLarge, stores.findings.upsert_batch, batch)
    same("what was written", stores.reads.needing_triage(TENANT), [])
    receipt = write(stores, *rows[:-1])
    counts = receipt.finding_count, receipt.occurrence_count, receipt.observation_count
    same("the receipt", counts, (BATCH_ROWS_MAX,) * 3)
    same("the counts", [counts[1:] for counts in stores.reads.counts_by_policy(TENANT)], [(BATCH_ROWS_MAX,) * 3])


# Secrets.


def no_error_shows_a_secret(stores: CheckedPersistence) -> None:
    """Neither in its words nor in its parts or causes: no hash of a secret, nor an id made of one."""
    row, fine = found(), found("fine")
    hidden = [value for each in (row, fine, found(writer=ELSEWHERE)) for value in _touching(each)]
    write(stores, row)
    count = 0
    for what, provoke in _refusals(stores, row, fine):
        try:
            provoke()
        except StrandlineError as error:
            count += 1
            expect(not _shows(error, hidden), f"the error for {what} shows a secret's hash, or an id made of one")
    same("how many calls were refused", count, 9)


def _touching(row: Found) -> Iterator[bytes]:
    yield bytes(row.finding.secret)
    yield row.finding.finding_id
    yield row.occurrence.occurrence_id
    yield row.observation.observation_id


def _refusals(stores: CheckedPersistence, row: Found, fine: Found) -> Iterator[tuple[str, Callable[[], object]]]:
    other = digest("something else")
    changed: list[tuple[str, Any]] = [
        ("a finding with other content", row._replace(finding=row.finding._replace(item=other))),
        ("an occurrence with other content", row._replace(occurrence=row.occurrence._replace(byte_length=1))),
        ("an observation of another object", row._replace(observation=row.observation._replace(ovid=other))),
        ("an underived id", row._replace(observation=row.observation._replace(observation_id=other))),
        ("another tenant's rows", row._replace(finding=found(writer=ELSEWHERE).finding)),
        ("a span of nothing", row._replace(occurrence=row.occurrence._replace(byte_length=0))),
    ]
    for what, wrong in changed:
        yield what, lambda wrong=wrong: write(stores, fine, wrong)  # type: ignore[misc]
    orphans = FindingsBatch(scope_of(WRITER), occurrences=[fine.occurrence])
    yield "an occurrence without its finding", lambda: stores.findings.upsert_batch(orphans)
    alone = FindingsBatch(scope_of(WRITER), observations=[fine.observation])
    yield "an observation without its occurrence", lambda: stores.findings.upsert_batch(alone)
    yield "an unknown finding", lambda: stores.triage.record_triage([decision(fine, TriageState.REVOKED)])


def _shows(error: BaseException, hidden: Iterable[bytes]) -> bool:
    shown = b"".join(_parts(error))
    folded = shown.lower()
    forms = [(value, value.hex().encode(), repr(value)[2:-1].lower().encode()) for value in hidden]
    return any(raw in shown or digits in folded or escaped in folded for raw, digits, escaped in forms)


def _parts(error: BaseException) -> Iterator[bytes]:
    """Yield all that a log, a debugger or a pickle could show of an error and of those that led to it."""
    yield "".join(traceback.format_exception(error)).encode()
    cause: BaseException | None = error
    while cause is not None:
        for value in (str(cause), *cause.args, *vars(cause).values()):
            yield value if isinstance(value, bytes) else f"{value}{value!r}".encode()
        if isinstance(cause, StrandlineError):
            yield pickle.dumps(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _expect_nothing(stores: CheckedPersistence) -> None:
    same("how many findings were written", len(stores.reads.needing_triage(TENANT)), 0)
    same("what was counted", stores.reads.counts_by_policy(TENANT), [])


REFUSAL_CHECKS: tuple[PersistenceCheck, ...] = (
    ids_of_another_length_are_refused,
    spans_have_limits,
    times_have_limits,
    locations_have_limits,
    ten_thousand_rows_of_a_layer_are_a_batch_and_one_more_is_not,
    no_error_shows_a_secret,
)
