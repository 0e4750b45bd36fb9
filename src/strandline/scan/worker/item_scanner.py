"""The outcome of one item: carried over, scanned, failed or skipped.

Invariants: one failure of an item is a failure of that item alone; only an error of a store, or one that says that the
shard is lost, goes further. An outcome does not depend on what was scanned before.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from strandline.detect import Engine, RuleSet
from strandline.errors import StrandlineError
from strandline.pipeline.pages import Failed, Outcome, Skipped
from strandline.scan.errors import EngineUnusable
from strandline.scan.plan.rule_deltas import Base, added_rules, shares_work
from strandline.scan.request import ScanRequest
from strandline.scan.sources import Content, ItemProblem, ItemSkipped
from strandline.scan.worker.content_scan import finds_any, scan_content
from strandline.scan.worker.engine_cache import engine_for
from strandline.scan.worker.fetcher import Entry, Fetcher
from strandline.scan.worker.shared_results import PathClasses, SharedResults

SCAN_ERROR = "SCAN_ERROR"


class ItemOutcome(NamedTuple):
    """The outcome of an item, how many findings comments allowed in it, and whether it was carried over."""

    outcome: Outcome
    allowed: int = 0
    is_carried: bool = False


class ItemScanner:
    """Scans items with the engines of a scan, which are compiled at first use."""

    def __init__(self, request: ScanRequest, bases: Sequence[Base | None], fetcher: Fetcher) -> None:
        self._request = request
        self._bases = bases
        self._fetcher = fetcher
        self._small: dict[int, Engine | None] = {}
        self._shared = SharedResults(PathClasses(request.rules, request.limits))

    def prescan(self, entries: Sequence[Entry]) -> None:
        """Mark those of many items that hold no secret, so that they need no scan of their own.

        An error of the whole group is ignored here: the item that causes it fails again on its own.
        """
        whole = [entry for entry in entries if entry.carried is None and _is_whole(entry.content)]
        parts = [entry.content.parts[0] for entry in whole]  # type: ignore[union-attr, index]
        if len(parts) < 2:  # noqa: PLR2004 - a single item is scanned directly
            return
        engine = self._engine
        try:
            cleared = self._shared.clear(engine, parts)
        except Exception:  # noqa: BLE001 - each is then scanned alone, which shows the one that fails
            return
        for entry, is_clear in zip(whole, cleared, strict=True):
            entry.is_clear = is_clear

    def prescan_carried(self, entries: Sequence[Entry]) -> None:
        """Mark those of many items that may be carried over in which the added rules find nothing.

        An error of the whole group is ignored as in `prescan`.
        """
        by_base: dict[int, list[Entry]] = {}
        for entry in entries:
            if entry.carried is not None and _is_whole(entry.content):
                by_base.setdefault(entry.row.base, []).append(entry)
        for number, some in by_base.items():
            engine = self._small_engine(number)
            parts = [entry.content.parts[0] for entry in some]  # type: ignore[union-attr, index]
            if engine is None or len(parts) < 2:  # noqa: PLR2004 - a single item is looked at directly
                continue
            try:
                named = engine.suspects([part.data for part in parts], [part.path for part in parts])
            except Exception:  # noqa: BLE001, S112 - each is then looked at alone, which shows the one that fails
                continue
            for at, entry in enumerate(some):
                entry.may_add = at in named

    def scan(self, entry: Entry, beat: Callable[[], None]) -> ItemOutcome:
        """Return the outcome of an item."""
        if entry.problem is None:
            try:
                return self._scan(entry, beat)
            except ItemProblem as problem:
                entry.problem = problem
            except StrandlineError:
                raise
            except Exception as error:  # noqa: BLE001 - any error is a failure of this item; its text may hold scanned bytes
                return ItemOutcome(Failed(f"{SCAN_ERROR}:{type(error).__name__}", retryable=True))
        return ItemOutcome(_problem_outcome(entry.problem))

    def _scan(self, entry: Entry, beat: Callable[[], None]) -> ItemOutcome:
        content = entry.content
        if entry.carried is not None:
            if content is None or not self._adds(entry, content, beat):
                return ItemOutcome(entry.carried, is_carried=True)
            content = content if isinstance(content.parts, list) else self._fetcher.read_again(entry)
        if content is None:
            raise AssertionError("an item that is neither known nor carried was read")
        seen = scan_content(self._engine, self._request.sources[entry.row.source], content, beat, self._shared)
        return ItemOutcome(seen.scanned, seen.allowed)

    @cached_property
    def _engine(self) -> Engine:
        return self._made(self._request.rules)

    def _made(self, rules: RuleSet) -> Engine:
        """Return an engine; a failure to compile it is not a failure of the item."""
        try:
            return engine_for(rules, self._request.limits, self._request.key)
        except StrandlineError:
            raise
        except Exception as error:
            raise EngineUnusable(type(error).__name__) from error

    def _adds(self, entry: Entry, content: Content, beat: Callable[[], None]) -> bool:
        """Return whether the added rules may find anything in an item that an older policy saw."""
        if entry.may_add is False:
            return False
        number = entry.row.base
        base, engine = self._bases[number], self._small_engine(number)
        return (
            base is None
            or engine is None
            or finds_any(engine, content, base.added, beat, is_named=entry.may_add is True)
        )

    def _small_engine(self, number: int) -> Engine | None:
        """Return the engine of the rules that a base lacks; None if they need a full scan."""
        if number not in self._small:
            base = self._bases[number]
            self._small[number] = None if base is None else self._added_engine(base)
        return self._small[number]

    def _added_engine(self, base: Base) -> Engine | None:
        rules = added_rules(self._request.rules, self._request.policy, base)
        engine = None if rules is None else self._made(rules)
        return None if engine is None or shares_work(engine) else engine


def _is_whole(content: Content | None) -> bool:
    """Return whether an item was read, as one part of which nothing is lost."""
    return (
        content is not None
        and isinstance(content.parts, list)
        and len(content.parts) == 1
        and not content.parts[0].lost
    )


def _problem_outcome(problem: ItemProblem) -> Outcome:
    if isinstance(problem, ItemSkipped):
        return Skipped(problem.code)
    return Failed(problem.code, problem.retryable)
