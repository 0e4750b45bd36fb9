"""Waiting until files change: inotify where the system has it, otherwise by looking.

Invariants: a change after the last `wait` is never missed; several count as one; nothing is written to a descriptor
after it was closed, when another file may have its number.
"""

import contextlib
import ctypes
import os
import select
import threading
from pathlib import Path

_IN_MODIFY = 0x2
_LOOK_EVERY_S = 0.02
_EVENTS_BYTES = 64 << 10


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
