"""Callbacks for changes of interest in a subject, and for room in clients' output queues.

Invariants: callbacks never run within a change, only from `soon`; several changes before that are one call. A callback
for room runs once however often it was registered, and also when the client disconnects.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from strandline.broker.core.sublist import ANY, REST
from strandline.broker.routes import Cancel

if TYPE_CHECKING:
    from strandline.broker.core.session import Session


class InterestWatchers:
    """The callbacks of one account."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._watchers: dict[bytes, list[Callable[[], None]]] = {}
        self._due: dict[int, Callable[[], None]] = {}

    def watch(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Call `changed`, soon, whenever a subscription that matches a subject is added or removed."""
        self._watchers.setdefault(subject, []).append(changed)

        def cancel() -> None:
            watchers = self._watchers.get(subject, [])
            if changed in watchers:
                watchers.remove(changed)
            if not watchers:
                self._watchers.pop(subject, None)

        return cancel

    def changed(self, pattern: bytes) -> None:
        """Note that a subscription to a pattern was added or removed."""
        if not self._watchers:
            return
        tokens = pattern.split(b".")
        if ANY not in tokens and tokens[-1] != REST:
            self._call_soon(self._watchers.get(pattern, ()))
            return
        for subject, watchers in self._watchers.items():
            if _matches(tokens, subject.split(b".")):
                self._call_soon(watchers)

    def wait_for_room(self, sessions: list["Session"], go_on: Callable[[], None]) -> None:
        """Call `go_on` once when one of some sessions has room or closes; soon if there is none."""
        if not sessions:
            self._soon(go_on)
            return

        def once() -> None:
            for session in sessions:
                session.when_room.pop(go_on, None)
            self._soon(go_on)

        for session in sessions:
            session.when_room[go_on] = once

    def disconnected(self, session: "Session") -> None:
        """Call the waiters of a client that has disconnected."""
        session.call_for_room()

    def _call_soon(self, watchers: Sequence[Callable[[], None]]) -> None:
        if watchers and not self._due:
            self._soon(self._call)
        self._due.update((id(watcher), watcher) for watcher in watchers)

    def _call(self) -> None:
        due, self._due = self._due, {}
        for watcher in due.values():
            watcher()


def _matches(pattern: list[bytes], subject: list[bytes]) -> bool:
    if pattern[-1] == REST:
        head = pattern[:-1]
        return len(subject) >= len(pattern) and all(a in (ANY, b) for a, b in zip(head, subject, strict=False))
    return len(subject) == len(pattern) and all(a in (ANY, b) for a, b in zip(pattern, subject, strict=True))
