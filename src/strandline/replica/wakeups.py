"""Waiting until files change: inotify where the system has it, otherwise by looking.

Invariants: a change after the last `wait` is never missed; several count as one.
"""

import ctypes
import os
import select
from pathlib import Path

_IN_MODIFY = 0x2
_LOOK_EVERY_S = 0.02
_EVENTS_BYTES = 64 << 10


class FileChanges:
    """Tells when one file has changed, or `wake` was called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watch = _watch(path)
        self._seen = self._looks()

    def wait(self, timeout_s: float) -> bool:
        """Return whether there was a change or a wake since the last call; wait for one."""
        watched = [self._woken, *([] if self._watch is None else [self._watch])]
        step_s = timeout_s if self._watch is not None else min(timeout_s, _LOOK_EVERY_S)
        waited_s = 0.0
        while True:
            ready, _, _ = select.select(watched, [], [], step_s)
            for descriptor in ready:
                os.read(descriptor, _EVENTS_BYTES)
            looks, seen = self._looks(), self._seen
            self._seen = looks
            waited_s += step_s
            if ready or looks != seen:
                return True
            if waited_s >= timeout_s:
                return False

    def wake(self) -> None:
        """End a `wait`, from any thread."""
        try:
            os.write(self._wakes, b"\0")
        except BlockingIOError:
            return  # it is full of wakes already

    def close(self) -> None:
        """Stop watching."""
        for descriptor in (self._woken, self._wakes, self._watch):
            if descriptor is not None:
                os.close(descriptor)

    def _looks(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_size, found.st_mtime_ns


def _watch(path: Path) -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor < 0:
            return None
        if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            os.close(descriptor)
            return None
    except (AttributeError, OSError):
        return None
    return descriptor
