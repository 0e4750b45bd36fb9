"""The contract of `PipelineReads.observed`: the observations under a policy, in pages, with their findings."""

from functools import partial

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BatchTooLarge
from strandline.pipeline.identity import ObservationId, OvidHash
from strandline.pipeline.reads import Observed
from strandline.pipeline.triage import TriageState
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    OTHER_POLICY,
    OTHER_TENANT,
    POLICY,
    TENANT,
    WRITER,
    CheckedPersistence,
    Found,
    Location,
    PersistenceCheck,
    as_tenant,
    decision,
    digest,
    found,
    same_row,
    write,
)


def what_was_seen_comes_whole(stores: CheckedPersistence) -> None:
    """With its finding and occurrence, the time of the finding's first commit, and the decision that holds."""
    first_ns = stores.clock.now_ns()
    old, new = found(version="v1"), found(version="v2", seen_at=3, location=Location(3, "a.py:1:1", "file:a.py#line=1"))
    write(stores, old)
    write(stores, found(version="v2", writer=WRITER._replace(policy=OTHER_POLICY)))
    stores.clock.advance(1)
    write(stores, new)
    decided = decision(new, TriageState.REVOKED, 2)
    stores.triage.record_triage([decision(new, TriageState.OPEN, 1), decided])
    seen = {row.observation.observation_id: row for row in stores.reads.observed(TENANT, POLICY)}
    same("how many were seen", len(seen), 2)
    for row in (old, new):
        one = seen[row.observation.observation_id]
        same_row("the finding", one.finding, row.finding)
        same_row("the occurrence", one.occurrence, row.occurrence)
        same_row("the observation", one.observation, row.observation)
        same_row("the decision", one.decision, decided)
        same("the finding's first commit", one.first_ns, first_ns)


def what_was_seen_comes_in_pages_by_id(stores: CheckedPersistence) -> None:
    """Page after page, every observation of the policy once; a limit is at least one."""
    rows = [found(item=f"item {number}") for number in range(23)]
    write(stores, *rows)
    write(stores, *(found(item=f"item {number}", writer=WRITER._replace(policy=OTHER_POLICY)) for number in range(5)))
    wanted = sorted(map(_id, rows))
    pages, after = list[list[ObservationId]](), None
    while page := stores.reads.observed(TENANT, POLICY, after=after, limit=7):
        pages.append([row.observation.observation_id for row in page])
        after = pages[-1][-1]
    same("the sizes of the pages", list(map(len, pages)), [7, 7, 7, 2])
    expect([one for page in pages for one in page] == wanted, "every observation should come once, by id")
    same("how many come with a large limit", len(stores.reads.observed(TENANT, POLICY, limit=2**70)), 23)
    for limit in (0, -1):
        refuses(f"a limit of {limit}", InvalidInput, partial(stores.reads.observed, TENANT, POLICY, limit=limit))


def only_the_objects_asked_for_are_told_of(stores: CheckedPersistence) -> None:
    """Any number of observations of each; none of no objects; other policies and tenants are not looked at."""
    rows = {item: [found(name, item=item) for name in "kl"] for item in "abc"}
    write(stores, *(row for pair in rows.values() for row in pair))
    write(stores, found("k", item="a", writer=WRITER._replace(policy=OTHER_POLICY)))
    write(stores, as_tenant(found("k", item="a", writer=ELSEWHERE._replace(tenant=TENANT)), OTHER_TENANT))
    wanted = [*rows["a"], *rows["c"]]
    ovids = [row.observation.ovid for row in wanted]
    unknown = OvidHash(digest("unknown"))
    seen = stores.reads.observed(TENANT, POLICY, [unknown, *ovids])
    expect(_ids(seen) == sorted(map(_id, wanted)), "the observations of two objects should come, by id")
    rest = stores.reads.observed(TENANT, POLICY, ovids, after=_ids(seen)[0], limit=2)
    expect(_ids(rest) == _ids(seen)[1:3], "a page of them should begin after the last")
    same("the observations of no objects", stores.reads.observed(TENANT, POLICY, []), [])
    same("those of an unknown one", stores.reads.observed(TENANT, POLICY, [unknown]), [])
    (theirs,) = stores.reads.observed(OTHER_TENANT, POLICY, ovids)
    same("whose the other tenant's is", theirs.observation.tenant, OTHER_TENANT)
    many = [unknown] * 10_001
    same("the observations in ten thousand", stores.reads.observed(TENANT, POLICY, many[1:]), [])
    refuses("one object more", BatchTooLarge, stores.reads.observed, TENANT, POLICY, many)


def _id(row: Found) -> ObservationId:
    return row.observation.observation_id


def _ids(rows: list[Observed]) -> list[ObservationId]:
    return [row.observation.observation_id for row in rows]


OBSERVED_CHECKS: tuple[PersistenceCheck, ...] = (
    what_was_seen_comes_whole,
    what_was_seen_comes_in_pages_by_id,
    only_the_objects_asked_for_are_told_of,
)
