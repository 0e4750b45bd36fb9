"""Waiting until files change: inotify where the system has it, otherwise by looking.

Invariants: a change after the last `wait` is never missed; several count as one; nothing is written to a descriptor
after it was closed, when another file may have its number.
"""

import contextlib
import ctypes
import os
import select
import struct
import threading
from pathlib import Path
from typing import Generic, Protocol, TypeVar

_IN_MODIFY = 0x2
_LOOK_EVERY_S = 0.02
_EVENTS_BYTES = 64 << 10
_EVENT = struct.Struct("iIII")


class Wakeups(Protocol):
    """What tells the steps of a replicator that a log has changed."""

    def watch(self, path: Path) -> None:
        """Look at a file from now on."""
        ...

    def wake(self) -> None:
        """Have the next step done at once, from any thread."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class FileChanges:
    """Tells when one file has changed, or `wake` was called."""

    def __init__(self, path: Path) -> None:
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_open, self._closing = True, threading.Lock()
        self._watch: int | None = None
        self.watch(path)

    def watch(self, path: Path) -> None:
        """Look at a file from now on, by the thread that waits."""
        if self._watch is not None:
            os.close(self._watch)
        self._path, self._watch = path, _watch(path)
        self._seen = _looks(self._path)

    def wait(self, timeout_s: float, *, only_wakes: bool = False) -> bool:
        """Return whether there was a change or a wake since the last call; wait for one, or for a wake alone."""
        if only_wakes:
            ready, _, _ = select.select([self._woken], [], [], timeout_s)
            if ready:
                os.read(self._woken, _EVENTS_BYTES)
            return bool(ready)
        watched = [self._woken, *([] if self._watch is None else [self._watch])]
        step_s = timeout_s if self._watch is not None else min(timeout_s, _LOOK_EVERY_S)
        waited_s = 0.0
        while True:
            ready, _, _ = select.select(watched, [], [], step_s)
            for descriptor in ready:
                os.read(descriptor, _EVENTS_BYTES)
            looks, seen = _looks(self._path), self._seen
            self._seen = looks
            waited_s += step_s
            if ready or looks != seen:
                return True
            if waited_s >= timeout_s:
                return False

    def wake(self) -> None:
        """End a `wait`, from any thread."""
        with self._closing, contextlib.suppress(BlockingIOError):  # a full pipe has wakes enough
            if self._is_open:
                os.write(self._wakes, b"\0")

    def close(self) -> None:
        """Stop watching."""
        with self._closing:
            self._is_open = False
            for descriptor in (self._woken, self._wakes, self._watch):
                if descriptor is not None:
                    os.close(descriptor)


Member = TypeVar("Member")


class ManyChanges(Generic[Member]):
    """Tells which of many files have changed, by one descriptor; any thread may watch and forget."""

    def __init__(self) -> None:
        self.descriptor = _inotify()
        self._lock = threading.Lock()
        self._watches: dict[int, Member] = {}
        self._looks: dict[Path, tuple[Member, tuple[int, int, int]]] = {}

    def watch(self, path: Path, member: Member) -> None:
        """Look at the file of a member from now on, and at no other of it."""
        self.forget(member)
        with self._lock:
            watch = -1 if self.descriptor is None else _add_watch(self.descriptor, path)
            if watch >= 0:
                self._watches[watch] = member
            else:
                self._looks[path] = member, _looks(path)

    def forget(self, member: Member) -> None:
        """Look at the file of a member no longer."""
        with self._lock:
            for watch in [watch for watch, one in self._watches.items() if one is member]:
                del self._watches[watch]
                if self.descriptor is not None:
                    _libc().inotify_rm_watch(self.descriptor, watch)
            self._looks = {path: held for path, held in self._looks.items() if held[0] is not member}

    def changed(self) -> list[Member]:
        """Return the members whose files have changed since the last call, without waiting."""
        found = list[Member]()
        with self._lock:
            if self.descriptor is not None:
                with contextlib.suppress(BlockingIOError):
                    events = os.read(self.descriptor, _EVENTS_BYTES)
                    while events:
                        watch, _, _, length = _EVENT.unpack_from(events)
                        events = events[_EVENT.size + length :]
                        if watch in self._watches:
                            found.append(self._watches[watch])
            for path, (member, seen) in self._looks.items():
                if (now := _looks(path)) != seen:
                    self._looks[path] = member, now
                    found.append(member)
        return found

    def close(self) -> None:
        """Stop watching."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _looks(path: Path) -> tuple[int, int, int]:
    """Return what changes with a file."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _inotify() -> int | None:
    try:
        descriptor = int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (AttributeError, OSError):
        return None
    return descriptor if descriptor >= 0 else None


def _add_watch(descriptor: int, path: Path) -> int:
    return int(_libc().inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY))


def _watch(path: Path) -> int | None:
    """Return a descriptor that is readable when a file has changed; None where the system has none to give."""
    descriptor = _inotify()
    if descriptor is not None and _add_watch(descriptor, path) < 0:
        os.close(descriptor)
        return None
    return descriptor
