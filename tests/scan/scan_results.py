"""What a scan leaves and says, so that two scans of the same can be compared."""

from typing import Any

from strandline.scan.inventory import find_inventory
from strandline.scan.request import ScanRequest
from strandline.scan.settle.outcome import Outcome
from tests.scan.threaded_workers import TENANT
from tests.spark.rows import Rows, rows_of


def everything(request: ScanRequest) -> tuple[Rows, list[dict[str, Any]]]:
    """Return all rows of a state, and the rows of its inventory in their order."""
    with request.open_stores() as stores:
        head = find_inventory(stores.state, TENANT, request.inputs_digest)
        assert head is not None
        items = [row for table in head.items(stores.state, TENANT) for row in table.to_pylist()]
        assert len(items) == head.rows
        return rows_of(stores, TENANT), items


def summary(outcome: Outcome) -> tuple[object, ...]:
    """Return what a scan says, but for the ids of its run."""
    said = (outcome.items, dict(outcome.statuses), dict(outcome.codes), outcome.unseen, outcome.incomplete)
    more = (outcome.bytes_seen, outcome.gaps, dict(outcome.left_out), outcome.new_items, outcome.new_bytes)
    reasons = {reason: count for reason, count in outcome.reasons.items() if count}
    return (
        *said,
        *more,
        reasons,
        list(outcome.notes),
        sorted(one.observation.observation_id for one in outcome.findings),
    )
