"""Who wants to know when clients begin or end to listen, and when there is room for them again.

Invariants: nobody is called from within a change, only soon; several changes before that are one call. Whoever waits
for room is called once, however often he asked, and also when the client is gone.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from strandline.broker.core.sublist import ANY, REST
from strandline.broker.routes import Cancel

if TYPE_CHECKING:
    from strandline.broker.core.session import Session


class Interest:
    """The watchers of one account."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._watchers: dict[bytes, list[Callable[[], None]]] = {}
        self._due: dict[int, Callable[[], None]] = {}

    def watch(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Have somebody called, soon, when patterns that match a subject come or go."""
        self._watchers.setdefault(subject, []).append(changed)

        def cancel() -> None:
            watchers = self._watchers.get(subject, [])
            if changed in watchers:
                watchers.remove(changed)
            if not watchers:
                self._watchers.pop(subject, None)

        return cancel

    def changed(self, pattern: bytes) -> None:
        """Note that a client's pattern has come or gone."""
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
        """Have somebody called once when one of some sessions has room again, or is gone; at once if there is none."""
        if not sessions:
            self._soon(go_on)
            return

        def once() -> None:
            for session in sessions:
                session.when_room.pop(go_on, None)
            self._soon(go_on)

        for session in sessions:
            session.when_room[go_on] = once

    def left(self, session: "Session") -> None:
        """Note that a client is gone."""
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
