"""Errors of findings, the ledger and a page's commit; part of the tree of `strandline.errors`.

    InvalidInput
    ├── BatchTooLarge       more rows than one transaction takes
    ├── MissingParent       a row points at one that is neither in the batch nor stored
    └── ReceiptMismatch     a receipt, or the rows beside it, belong to another page
    Conflict
    ├── ShardReleased       the worker released its shard itself
    ├── CommitUsed          this state of a commit was passed already
    ├── KeyMismatch         two rows that were to be merged are not about the same thing
    └── ContentConflict     an id is stored with other content
    StorageRefused
    └── AccessRefused       the server refused the login; retries do not help

Invariants: the call that raises one of these wrote nothing; no message holds an id or a hash that touches a secret.
"""

from strandline.errors import Conflict, InvalidInput, StorageRefused

BATCH_ROWS_MAX = 10_000


class BatchTooLarge(InvalidInput):
    """A batch has more rows than one transaction takes."""

    def __init__(self, rows: int, limit: int = BATCH_ROWS_MAX, what: str = "rows") -> None:
        super().__init__(
            f"a batch of {rows:,} {what} is over the limit of {limit:,}", hint="write it in several batches"
        )
        self.rows = rows
        self.limit = limit
        self.what = what


class MissingParent(InvalidInput):
    """A row points at one that is neither in its batch nor stored."""

    def __init__(self, layer: str, parent: str) -> None:
        super().__init__(
            f"{layer} in the batch name {parent} that are neither in the batch nor stored",
            hint=f"write the {parent} in the same batch or before",
        )
        self.layer = layer
        self.parent = parent


class ReceiptMismatch(InvalidInput):
    """A receipt, or the rows that are to be written after it, belong to another page."""

    def __init__(self, stage: str, field: str) -> None:
        super().__init__(
            f"{stage}: the {field} is that of another page",
            hint="begin this page's commit again; what it wrote already is merged",
        )
        self.stage = stage
        self.field = field


class ShardReleased(Conflict):
    """The worker completed, parked or split its shard, and no longer holds it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the shard is no longer held: it was {what}", hint="claim another one")
        self.what = what


class CommitUsed(Conflict):
    """A state of a page's commit was used a second time."""

    def __init__(self, state: str) -> None:
        super().__init__(
            f"this {state} was used already", hint="begin the page's commit again: every write is idempotent"
        )
        self.state = state


class KeyMismatch(Conflict):
    """Two rows that were to be merged are not about the same thing."""

    def __init__(self, what: str, field: str) -> None:
        super().__init__(f"two {what} with different {field} cannot be merged")
        self.what = what
        self.field = field


class ContentConflict(Conflict):
    """An id is known with other content: the ids were not derived from what they name."""

    def __init__(self, layer: str) -> None:
        super().__init__(
            f"one of the {layer} has an id that is known with other content",
            hint="derive ids with strandline.pipeline.identity; two different things must not share one",
        )
        self.layer = layer


class AccessRefused(StorageRefused):
    """The server refused the login, TLS, the database or rights; retries do not help, so there are none."""

    retryable = False
