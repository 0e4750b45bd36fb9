"""The hooks of `watch_applied`: code between receiving and storing, and listeners.

Invariant: a hook is called for one batch at a time, in their order, in the event loop's thread.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from strandline.events import Events
from strandline.fold.cursor import FoldCursor
from strandline.kv import KvUpdate, UpdateBatch

T = TypeVar("T")


class Applied(NamedTuple):
    """An applied batch: its updates, the cursor after it, and whether the store holds it.

    If `durable`, the store holds everything up to `cursor`. If not, storing failed for now and is tried again with the
    next batch or, without one, by itself: then a last call without updates says so. Build nothing on a cursor that is
    not durable, and resume from the store's cursor only.
    """

    updates: UpdateBatch
    cursor: FoldCursor
    durable: bool


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions called for each batch, in this order: `parse`, `apply`, the store, `on_applied`.

    `parse` turns a batch's columns into the argument of `apply`; the cursor also covers rows that it leaves out.
    `apply` may be a coroutine; until it returned, nothing is stored and no cursor moves. An error of either ends the
    watch. Without them the fold stores the bucket's values as they are. A batch whose storing failed is not applied a
    second time.
    """

    parse: Callable[[UpdateBatch], Any] | None = None
    apply: Callable[[Any], Awaitable[None] | None] | None = None
    on_applied: Callable[[Applied], object] | None = None
    events: Events = field(default_factory=Events)


def parse_each(parse_one: Callable[[KvUpdate], T | None]) -> Callable[[UpdateBatch], list[T]]:
    """Return a `parse` that makes an object of each update and leaves out the None ones; it costs Python per update."""

    def parse(batch: UpdateBatch) -> list[T]:
        return [parsed for parsed in map(parse_one, batch.to_updates()) if parsed is not None]

    return parse
