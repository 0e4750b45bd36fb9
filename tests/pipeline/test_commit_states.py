"""A page's commit: one way on from each state, once, and with this page's receipts alone."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.pipeline.commit import AwaitingFindings, FindingsDurable, ItemsDurable
from strandline.pipeline.errors import CommitUsed, ReceiptMismatch
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind, CommitScope, Units
from strandline.protocol.shards import Cursor
from tests.pipeline.rows import CONTEXT, digest, ovid, scope_of

SCOPE = scope_of([ovid(1), ovid(2), ovid(1)])
FINDINGS = FindingsReceipt(SCOPE)
ITEMS = LedgerReceipt(FINDINGS, 2, 2, 0)
CHECKPOINT = CheckpointReceipt(ITEMS, 5)
OTHERS = {
    "tenant": replace(SCOPE, context=CONTEXT._replace(tenant=digest(9))),  # type: ignore[arg-type]
    "policy": replace(SCOPE, context=CONTEXT._replace(policy=digest(9))),  # type: ignore[arg-type]
    "run": replace(SCOPE, context=CONTEXT._replace(run_id=9)),
    "shard": replace(SCOPE, context=CONTEXT._replace(shard_id=9)),
    "fence": replace(SCOPE, context=CONTEXT._replace(fence=9)),
    "units": replace(SCOPE, units=Units.of([ovid(1), ovid(3)])),
    "cursor": replace(SCOPE, boundary=Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"other"))),
    "family": replace(SCOPE, boundary=Boundary(BoundaryKind.REPO_FRONTIER, SCOPE.boundary.cursor)),
}


def test_a_commit_goes_from_findings_to_ledger_to_checkpoint() -> None:
    findings = AwaitingFindings(SCOPE).record_findings(FINDINGS)
    items = findings.record_done_ledger(ITEMS)
    assert items.record_checkpoint(CHECKPOINT).receipt.items.findings.scope == SCOPE


def test_no_state_has_the_way_on_of_another() -> None:
    ways = [
        {name for name in dir(state) if name.startswith("record_")}
        for state in (AwaitingFindings, FindingsDurable, ItemsDurable)
    ]
    assert ways == [
        {"record_findings"},
        {"record_done_ledger"},
        {"record_checkpoint"},
    ]


@pytest.mark.parametrize("what", OTHERS)
def test_a_receipt_of_another_page_is_refused_at_each_step(what: str) -> None:
    other = FindingsReceipt(OTHERS[what])
    with pytest.raises(ReceiptMismatch, match="findings"):
        AwaitingFindings(SCOPE).record_findings(other)
    with pytest.raises(ReceiptMismatch, match="ledger"):
        AwaitingFindings(SCOPE).record_findings(FINDINGS).record_done_ledger(replace(ITEMS, findings=other))
    with pytest.raises(ReceiptMismatch, match="checkpoint"):
        ItemsDurable(SCOPE, ITEMS).record_checkpoint(CheckpointReceipt(replace(ITEMS, findings=other), 5))


@pytest.mark.parametrize("count", [1, 3])
def test_fewer_or_more_than_the_distinct_keys_are_refused(count: int) -> None:
    with pytest.raises(ReceiptMismatch, match="distinct keys"):
        FindingsDurable(SCOPE, FINDINGS).record_done_ledger(replace(ITEMS, record_count=count))


def test_two_items_of_one_object_version_are_one_unit() -> None:
    assert SCOPE.units == Units.of([ovid(2), ovid(1)])
    assert SCOPE.units.count == 2


def test_a_state_is_used_once_whether_the_step_succeeds_or_not() -> None:
    state = AwaitingFindings(SCOPE)
    with pytest.raises(ReceiptMismatch):
        state.record_findings(FindingsReceipt(OTHERS["run"]))
    with pytest.raises(CommitUsed, match="AwaitingFindings"):
        state.record_findings(FINDINGS)
    durable = AwaitingFindings(SCOPE).record_findings(FINDINGS)
    durable.record_done_ledger(ITEMS)
    with pytest.raises(CommitUsed, match="FindingsDurable"):
        durable.record_done_ledger(ITEMS)


def test_of_many_threads_one_goes_on() -> None:
    state = AwaitingFindings(SCOPE)

    def step(_: int) -> bool:
        try:
            state.record_findings(FINDINGS)
        except CommitUsed:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(step, range(64))) == 1


def test_states_and_receipts_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        FINDINGS.finding_count = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        AwaitingFindings(SCOPE).scope = SCOPE  # type: ignore[misc]


def test_a_page_without_units_is_refused() -> None:
    with pytest.raises(InvalidInput, match="without units"):
        CommitScope(CONTEXT, Units.of([]), SCOPE.boundary)


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": b"x"},
        {"policy": None},
        {"run_id": 2**63},
        {"shard_id": -(2**63) - 1},
        {"fence": -1},
        {"fence": 2**63},
    ],
)
def test_a_writer_that_no_store_could_keep_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="writer"):
        replace(SCOPE, context=CONTEXT._replace(**fields))  # type: ignore[arg-type]


IMPORTS = """
from strandline.pipeline.commit import Checkpoints, Page
from strandline.pipeline.findings import FindingsSink
from strandline.pipeline.ledger import DoneLedger
from strandline.pipeline.commit import AwaitingFindings
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
"""
ORDER = """
def order_{number}(page: Page, sink: FindingsSink, ledger: DoneLedger, shard: Checkpoints) -> None:
    findings = sink.upsert_batch(page.findings)
    items = ledger.batch_upsert(page.items, after=findings)
    {line}
"""
STATES = """
def states_{number}(start: AwaitingFindings, f: FindingsReceipt, i: LedgerReceipt, c: CheckpointReceipt) -> None:
    {line}
"""
RIGHT = (
    (ORDER, "shard.checkpoint(page.scope.boundary, after=items)"),
    (STATES, "start.record_findings(f).record_done_ledger(i).record_checkpoint(c).receipt"),
)
WRONG = {
    (ORDER, "shard.checkpoint(page.scope.boundary, after=findings)"): "arg-type",
    (ORDER, "shard.checkpoint(page.scope.boundary)"): "call-arg",
    (ORDER, "ledger.batch_upsert(page.items, after=items)"): "arg-type",
    (ORDER, "ledger.batch_upsert(page.items)"): "call-arg",
    (STATES, "start.record_done_ledger(i)"): "attr-defined",
    (STATES, "start.record_checkpoint(c)"): "attr-defined",
    (STATES, "start.record_findings(f).record_checkpoint(c)"): "attr-defined",
    (STATES, "start.record_findings(i)"): "arg-type",
    (STATES, "start.record_findings(f).record_done_ledger(c)"): "arg-type",
}


def mypy(program: Path) -> str:
    """Return what mypy says of a program."""
    arguments = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the errors that mypy has in a program with every order, right and wrong, by their lines."""
    program = tmp_path_factory.mktemp("program") / "program.py"
    functions = [form.format(number=number, line=line) for number, (form, line) in enumerate((*RIGHT, *WRONG))]
    program.write_text(IMPORTS + "".join(functions))
    lines = program.read_text().splitlines()
    errors: dict[str, set[str]] = {}
    for place, error in re.findall(r"^\S+?:(\d+): error: .*\[([a-z-]+)\]$", mypy(program), re.MULTILINE):
        errors.setdefault(lines[int(place) - 1].strip(), set()).add(error)
    return errors


def test_mypy_accepts_the_right_order(refused: dict[str, set[str]]) -> None:
    assert refused.keys() == {line for _, line in WRONG}


@pytest.mark.parametrize(("line", "error"), [(line, error) for (_, line), error in WRONG.items()])
def test_mypy_refuses_the_wrong_order(refused: dict[str, set[str]], line: str, error: str) -> None:
    assert error in refused[line]
