"""A page's commit as states, each with its one way on: findings, then the ledger, then the checkpoint.

    AwaitingFindings ─ record_findings ─► FindingsDurable ─ record_done_ledger ─► ItemsDurable
                                                  ─ record_checkpoint ─► CheckpointDurable

A state is used once, whether the step succeeds or not: after a failure the commit begins again at `AwaitingFindings`,
which is safe because every write is idempotent. `wait_…` is `record_…` for a write that runs in another thread. The
type checker refuses the wrong order, since no state has the other's method; a receipt of another page is refused when
it is shown.
"""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from strandline.pipeline.errors import CommitUsed, ReceiptMismatch
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import CommitScope


class _Turn:
    """Lets one caller through, ever."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self, state: str) -> None:
        if not self._lock.acquire(blocking=False):
            raise CommitUsed(state)


@dataclass(frozen=True, slots=True)
class _State:
    scope: CommitScope
    _turn: _Turn = field(default_factory=_Turn, init=False, repr=False, compare=False)

    def _use(self) -> None:
        self._turn.take(type(self).__name__)


@dataclass(frozen=True, slots=True)
class CheckpointDurable(_State):
    """All three stages are durable; `receipt` proves it."""

    receipt: CheckpointReceipt


@dataclass(frozen=True, slots=True)
class ItemsDurable(_State):
    """Findings and ledger are durable; the cursor may follow."""

    receipt: LedgerReceipt

    def record_checkpoint(self, receipt: CheckpointReceipt) -> CheckpointDurable:
        """Go on with the proof that the cursor is durable."""
        self._use()
        check_checkpoint(self.scope, receipt)
        return CheckpointDurable(self.scope, receipt)

    def wait_checkpoint(self, handle: "Future[CheckpointReceipt]") -> CheckpointDurable:
        """Wait for the cursor to be durable, then go on."""
        self._use()
        receipt = handle.result()
        check_checkpoint(self.scope, receipt)
        return CheckpointDurable(self.scope, receipt)


@dataclass(frozen=True, slots=True)
class FindingsDurable(_State):
    """Findings are durable; the ledger is next."""

    receipt: FindingsReceipt

    def record_done_ledger(self, receipt: LedgerReceipt) -> ItemsDurable:
        """Go on with the proof that the items are durably done."""
        self._use()
        check_done_ledger(self.scope, receipt)
        return ItemsDurable(self.scope, receipt)

    def wait_done_ledger(self, handle: "Future[LedgerReceipt]") -> ItemsDurable:
        """Wait for the items to be durably done, then go on."""
        self._use()
        receipt = handle.result()
        check_done_ledger(self.scope, receipt)
        return ItemsDurable(self.scope, receipt)


@dataclass(frozen=True, slots=True)
class AwaitingFindings(_State):
    """Nothing is durable yet."""

    def record_findings(self, receipt: FindingsReceipt) -> FindingsDurable:
        """Go on with the proof that the findings are durable."""
        self._use()
        check_findings(self.scope, receipt)
        return FindingsDurable(self.scope, receipt)

    def wait_findings(self, handle: "Future[FindingsReceipt]") -> FindingsDurable:
        """Wait for the findings to be durable, then go on."""
        self._use()
        receipt = handle.result()
        check_findings(self.scope, receipt)
        return FindingsDurable(self.scope, receipt)


def check_findings(scope: CommitScope, receipt: FindingsReceipt) -> None:
    """Refuse a receipt for the findings of another page."""
    if receipt.scope != scope:
        raise ReceiptMismatch("findings", "receipt's scope")


def check_done_ledger(scope: CommitScope, receipt: LedgerReceipt) -> None:
    """Refuse a receipt for the items of another page, or for fewer or more than its distinct keys."""
    if receipt.scope != scope:
        raise ReceiptMismatch("ledger", "receipt's scope")
    if receipt.record_count != scope.units.count:
        raise ReceiptMismatch("ledger", "number of distinct keys")


def check_checkpoint(scope: CommitScope, receipt: CheckpointReceipt) -> None:
    """Refuse a receipt for the cursor of another page."""
    if receipt.scope != scope:
        raise ReceiptMismatch("checkpoint", "receipt's scope")
