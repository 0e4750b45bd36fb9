"""Workers that commit pages, and stop or stall anywhere: findings, then the ledger, then the checkpoint.

A worker may crash at any step; its lease may end while it goes on; an answer may be lost after the write was done, so
that the commit begins again; a request may be on its way when its worker crashes, and arrive later, or twice. A store
may write a part and say so. A confused worker shows the receipt of the page before. Whoever comes next begins behind
the durable cursor, with pages cut as it likes.

Steps are those of production: `AwaitingFindings` and its followers, `HeldShard`, the memory stores with
`ledger.merge`, and the decisions of `strandline.protocol`. What must hold, in every state:

- a row that says "scanned" has its findings;
- the cursor is behind no item without its row and its findings;
- what a worker was told is durable is durable;
- once the shard is done, everything is there that a run without crashes leaves.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.protocol.shards import ShardRecord, ShardStatus
from strandline.sim.explore import Step
from tests.models.page_stores import Contents, Item, PageOf, PageStores

ITEMS = (Item(0, findings=1, flaky=True), Item(1, findings=1), Item(1, findings=1))
AWAITING, FINDINGS_DURABLE, ITEMS_DURABLE = range(3)


class PageBounds(NamedTuple):
    """How large the world is; the last two items are the same object version."""

    items: tuple[Item, ...] = ITEMS
    page_items_max: int = 2
    workers: int = 2
    fence_max: int = 3
    fenced: bool = True
    """Whether findings and ledger know the shard's fence."""


class Worker(NamedTuple):
    """A worker with a lease: its page, how far the page's commit is, and the page before, whose receipts it has."""

    fence: int
    first: int
    last: int = 0
    stage: int = AWAITING
    written: int = 0
    sequence: int = 0
    old: PageOf | None = None

    def __str__(self) -> str:
        stage = ("awaits findings", "has findings", "has rows")[self.stage]
        return f"{self.page} {stage}" if self.last else f"at {self.first} under {self.fence}"

    @property
    def page(self) -> PageOf:
        """Return the page it commits."""
        return PageOf(self.fence, self.first, self.last)

    def again(self) -> "Worker":
        """The commit begins again, with the same page."""
        return self._replace(stage=AWAITING, written=0)

    def further(self) -> "Worker":
        """The page is committed."""
        return Worker(self.fence, self.last + 1, sequence=self.sequence + 1, old=self.page)


class Late(NamedTuple):
    """A request that was sent, and may arrive again at any time; without a sequence it is for the ledger."""

    page: PageOf
    sequence: int | None = None

    def __str__(self) -> str:
        what = "ledger" if self.sequence is None else "checkpoint"
        return f"{what} of {self.page}"


class PageState(NamedTuple):
    """What is durable, whether the lease has ended, who works, and what may still arrive."""

    contents: Contents
    expired: bool
    workers: tuple[Worker | None, ...]
    late: frozenset[Late]


class _Turn(NamedTuple):
    """A worker whose turn it is."""

    state: PageState
    place: int
    worker: Worker

    def to(self, worker: Worker | None, contents: Contents | None = None, sent: Late | None = None) -> PageState:
        """Return the state after the turn; `sent` was sent in it."""
        workers = (*self.state.workers[: self.place], worker, *self.state.workers[self.place + 1 :])
        late = self.state.late if sent is None else self.state.late | {sent}
        return self.state._replace(contents=contents or self.state.contents, workers=workers, late=late)


class PageCommitModel:
    """The model."""

    def __init__(self, bounds: PageBounds | None = None) -> None:
        self.bounds = bounds or PageBounds()
        self._stores = PageStores(self.bounds.items, fenced=self.bounds.fenced)

    def initial(self) -> list[PageState]:
        """Return empty stores and idle workers."""
        return [PageState(self._stores.start(), False, (None,) * self.bounds.workers, frozenset())]

    def place(self, state: PageState) -> ShardRecord:
        """Return the shard, which most steps leave alone: what follows a state mostly stays on its core."""
        return state.contents.shard

    def steps(self, state: PageState) -> Iterator[Step[PageState]]:
        """Yield what workers, the clock and the network can do."""
        shard = state.contents.shard
        if shard.deadline is not None and not state.expired and shard.fence < self.bounds.fence_max:
            yield "the lease ends", state._replace(expired=True), None
        for index, worker in enumerate(state.workers):
            if worker is None:
                yield from self._claim(state, index)
            else:
                for action, after in self._work(_Turn(state, index, worker)):
                    yield f"w{index + 1}: {action}", after, self._broken_write(state, after, worker.fence)
        for late in state.late:
            if (contents := self._arrive(state, late)) is not None:
                after = state._replace(contents=contents)
                yield f"again: {late}", after, self._broken_write(state, after, late.page.fence)

    def broken(self, state: PageState) -> str | None:
        """Return which promise a state breaks, or None."""
        problems = (self._broken_worker(state.contents, worker) for worker in state.workers if worker is not None)
        return self._broken_contents(state.contents) or next(filter(None, problems), None)

    def show(self, state: PageState) -> str:
        """Return what is durable and where the workers are."""
        findings, ledger, shard = state.contents
        rows = " ".join("-" if row is None else f"{row.status.name.lower()}/{row.fence}" for row in ledger)
        lease = "free" if shard.owner is None else "ended" if state.expired else "leased"
        workers = ", ".join("idle" if worker is None else str(worker) for worker in state.workers)
        return (
            f"findings {sorted(findings)}, ledger {rows}, cursor {state.contents.cursor}, "
            f"{shard.status.name.lower()} under {shard.fence} {lease}; {workers}"
        )

    def is_done(self, state: PageState) -> bool:
        """Return whether the shard is done: what every state must be able to come to."""
        return state.contents.shard.status == ShardStatus.DONE

    # What can happen

    def _claim(self, state: PageState, index: int) -> Iterator[Step[PageState]]:
        shard = state.contents.shard
        if shard.fence == self.bounds.fence_max:
            return
        free = shard.deadline is None or state.expired
        contents = self._stores.acquire(state.contents, _now(shard.fence + 1) if free else _now(shard.fence))
        if contents is not None:
            worker = Worker(contents.shard.fence, contents.cursor + 1)
            after = _Turn(state, index, worker).to(worker, contents)._replace(expired=False)
            yield f"w{index + 1}: claims", after, None

    def _work(self, turn: _Turn) -> Iterator[tuple[str, PageState]]:
        worker = turn.worker
        if self._may_crash(turn):
            yield "crashes", turn.to(None)
        if worker.first > len(self.bounds.items):
            yield from self._complete(turn)
        elif not worker.last:
            for last in range(worker.first, min(worker.first + self.bounds.page_items_max, len(self.bounds.items) + 1)):
                yield f"takes items {worker.first} to {last}", turn.to(worker._replace(last=last))
        else:
            yield from (self._write_findings, self._write_ledger, self._checkpoint)[worker.stage](turn)
            if worker.old is not None:
                yield from self._confuse(turn, worker.old)

    def _may_crash(self, turn: _Turn) -> bool:
        """Return whether somebody can still take over."""
        return turn.worker.fence < self.bounds.fence_max

    def _complete(self, turn: _Turn) -> Iterator[tuple[str, PageState]]:
        state = turn.state
        contents = self._stores.complete(state.contents, turn.worker.fence, self._now(state))
        yield "completes" if contents else "cannot complete, and stops", turn.to(None, contents)
        if contents:
            yield "completes, the answer is lost", turn.to(turn.worker, contents)

    def _write_findings(self, turn: _Turn) -> Iterator[tuple[str, PageState]]:
        worker, page, number = turn.worker, turn.worker.page, turn.worker.first + turn.worker.written
        contents = self._stores.write_findings(turn.state.contents, page, number)
        if contents is None:
            yield "cannot write findings, and stops", turn.to(None)
            return
        name = f"writes the findings of item {number}"
        yield f"{name}, the answer is lost", turn.to(worker.again(), contents)
        if number < worker.last:
            yield name, turn.to(worker._replace(written=worker.written + 1), contents)
        elif self._stores.proves_findings(page, page):
            yield name, turn.to(worker._replace(stage=FINDINGS_DURABLE, written=0), contents)

    def _write_ledger(self, turn: _Turn) -> Iterator[tuple[str, PageState]]:
        worker, page = turn.worker, turn.worker.page
        contents = self._stores.write_ledger(turn.state.contents, page, page)
        if self._may_crash(turn):
            yield "crashes while the ledger is written", turn.to(None, sent=Late(page))
        if contents is None:
            yield "cannot write the ledger, and stops", turn.to(None)
            return
        yield "writes the ledger, the answer is lost", turn.to(worker.again(), contents, Late(page))
        if self._stores.proves_items(page, page):
            yield "writes the ledger", turn.to(worker._replace(stage=ITEMS_DURABLE), contents, Late(page))
        if self._stores.proves_items(page, page, missing=1):
            yield "is told that a row is missing, and goes on", turn.to(worker._replace(stage=ITEMS_DURABLE))

    def _checkpoint(self, turn: _Turn) -> Iterator[tuple[str, PageState]]:
        worker, page = turn.worker, turn.worker.page
        sent = Late(page, worker.sequence)
        contents = self._stores.checkpoint(turn.state.contents, page, worker.sequence, self._now(turn.state), page)
        if self._may_crash(turn):
            yield "crashes while the cursor is moved", turn.to(None, sent=sent)
        if contents is None:
            yield "cannot move the cursor, and stops", turn.to(None)
            return
        yield "moves the cursor, the answer is lost", turn.to(worker.again(), contents, sent)
        if self._stores.proves_cursor(page, page):
            yield "moves the cursor", turn.to(worker.further(), contents, sent)

    def _confuse(self, turn: _Turn, old: PageOf) -> Iterator[tuple[str, PageState]]:
        """Show the receipts of the page before, at every stage; each is refused, or it is a step."""
        worker, page, stores = turn.worker, turn.worker.page, self._stores
        if worker.stage == AWAITING and stores.proves_findings(page, old):
            yield "shows old findings", turn.to(worker._replace(stage=FINDINGS_DURABLE, written=0))
        if worker.stage == FINDINGS_DURABLE and stores.proves_items(page, old):
            yield "shows old rows", turn.to(worker._replace(stage=ITEMS_DURABLE))
        if worker.stage == ITEMS_DURABLE and stores.proves_cursor(page, old):
            yield "shows an old cursor", turn.to(worker.further())
        if contents := stores.write_ledger(turn.state.contents, page, old):
            yield "writes the ledger after old findings", turn.to(worker, contents)
        if contents := stores.checkpoint(turn.state.contents, page, worker.sequence, self._now(turn.state), old):
            yield "moves the cursor after old rows", turn.to(worker, contents)

    def _arrive(self, state: PageState, late: Late) -> Contents | None:
        contents, (page, sequence) = state.contents, late
        if sequence is None:
            after = self._stores.write_ledger(contents, page, page)
        else:
            after = self._stores.checkpoint(contents, page, sequence, self._now(state), page)
        return None if after == contents else after

    def _now(self, state: PageState) -> int:
        return _now(state.contents.shard.fence) + state.expired

    # What must hold

    def _broken_write(self, before: PageState, after: PageState, fence: int) -> str | None:
        old, new = before.contents, after.contents
        if old is new:
            return None
        if self.bounds.fenced and fence < old.shard.fence and old[:2] != new[:2]:
            return "a store took a write under an old fence"
        if not old.findings <= new.findings:
            return "findings were lost"
        for was, row in zip(old.ledger, new.ledger, strict=True):
            if was is not None and (row is None or row.status < was.status):
                return "a row of the ledger fell back"
        return "the cursor went back" if new.cursor < old.cursor else None

    def _broken_contents(self, contents: Contents) -> str | None:
        items = list(enumerate(self.bounds.items, 1))
        for number, item in items[: contents.cursor]:
            row = contents.ledger[item.ovid]
            if row is None:
                return "the cursor passed an item without a row"
            if row.status.is_scanned and item.findings and number not in contents.findings:
                return "the cursor passed an item without its findings"
        for index, row in enumerate(contents.ledger):
            durable = sum(item.findings for number, item in items if item.ovid == index and number in contents.findings)
            if row is not None and row.status.is_scanned and row.findings_count > durable:
                return "a row says scanned, and its findings are absent"
        if contents.shard.status != ShardStatus.DONE:
            return None
        return None if self._is_whole(contents) else "the shard is done, and something is missing"

    def _is_whole(self, contents: Contents) -> bool:
        """Return whether everything is there that a run without crashes leaves, but for who wrote it."""
        last = PageOf(contents.shard.fence, 1, len(self.bounds.items))
        wanted = self._stores.rows(last._replace(fence=2))
        rows = [contents.ledger[item.ovid] for item in self.bounds.items]
        return contents.cursor == last.last and all(
            row is not None
            and (_said(row) == _said(want) or (item.flaky and row.status == DoneStatus.FAILED_RETRYABLE))
            for row, want, item in zip(rows, wanted, self.bounds.items, strict=True)
        )

    def _broken_worker(self, contents: Contents, worker: Worker) -> str | None:
        """What a worker was told is durable is durable."""
        page = range(worker.first, worker.last + 1)
        if worker.first - 1 > contents.cursor:
            return "a worker believes in a cursor that is not there"
        if worker.stage >= FINDINGS_DURABLE and any(
            number not in contents.findings and self._stores.has_findings(number, worker.fence) for number in page
        ):
            return "a worker believes in findings that are not there"
        if worker.stage == ITEMS_DURABLE and any(
            contents.ledger[self.bounds.items[number - 1].ovid] is None for number in page
        ):
            return "a worker believes in rows that are not there"
        return None


def _now(fence: int) -> int:
    """Return the time while a fence's lease lasts; it ends one tick later."""
    return 2 * fence


def _said(row: LedgerRecord) -> tuple[object, ...]:
    """Return what a row says of its object version, without who said it."""
    return row.status, row.bytes_seen, row.findings_count, row.gaps, row.error_code
