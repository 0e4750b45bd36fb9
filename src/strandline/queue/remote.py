"""A queue that another process owns, over its socket: the storage contract and reservations, one request at a time.

Each thread that calls has a connection while it waits for its answer; connections are kept for the next call. A forked
child has a session and connections of its own, and what the parent has taken stays with the parent.

Invariants: what returns is durable, as with the owner. A call that may be repeated (`ack`, `extend`, `reserve`, and all
that only look) is repeated while the owner is away, for `timeout_s` at most; one that may not (`put`, `nack`) and whose
answer did not come raises `UnknownOutcome`. `Unavailable` means that nothing was done that may not be done again.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from strandline.errors import Closed, InvalidInput, Unavailable, UnknownOutcome, WrongType
from strandline.groups import Delivery
from strandline.journal import Appended
from strandline.queue.frames import PROTOCOL, VERSION, format_frame, parse_error, receive_frame, send_frame
from strandline.queue.reservations import Reserved
from strandline.queue.server import format_address
from strandline.queue.session import WAIT_S_MAX
from strandline.queue.storage import DeadLetter, Expired, GroupStatus, Message

PAUSE_MIN_S, PAUSE_MAX_S = 0.01, 0.5


class RemoteStorage:
    """The storage of a queue that another process serves. Safe to use from many threads."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        """Connect at once; `Unavailable` where no queue is served at `path`."""
        if not timeout_s > 0:
            raise InvalidInput(f"timeout_s must be above 0, as {timeout_s} is not")
        self._path = path
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._session = uuid.uuid4().hex
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._idle.append(self._connect())

    def __repr__(self) -> str:
        """Say where the queue is served."""
        return f"RemoteStorage({format_address(self._path)!r})"

    # The contract.

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes] | None = None,
        headers: Sequence[bytes] | None = None,
    ) -> Appended:
        """Append messages, all or none, and return when they are durable; `UnknownOutcome` if no answer came."""
        columns = {"values": values, "keys": keys, "headers": headers}
        arguments = {name: None if column is None else _column(name, column) for name, column in columns.items()}
        return Appended(*self._call("put", repeat=False, **arguments))

    def fetch_by_offset(self, offset: int) -> Message:
        """Return one message, with a delivery count of 0."""
        return Message(*self._call("fetch", offset=offset))

    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        """Return messages that the group may be given now; nothing is marked."""
        return [Message(*row) for row in self._call("available", group=group, messages_max=messages_max)]

    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        """Give messages to this process until a deadline: all, or none and `Conflict`."""
        rows = self._call("mark", repeat=False, group=group, offsets=list(offsets), deadline_ns=deadline_ns)
        return [Delivery(*row) for row in rows]

    def ack(self, group: str, offsets: Iterable[int]) -> int:
        """Record that messages are done, and return how many of them is news once that is durable."""
        return int(self._call("ack", group=group, offsets=list(offsets)))

    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        """Give a message back, available from `ready_ns` on; `StaleDelivery` unless that delivery is in flight."""
        self._call("nack", repeat=False, group=group, offset=offset, ready_ns=ready_ns, epoch=epoch)

    def extend(self, group: str, offset: int, deadline_ns: int, epoch: int | None = None) -> Delivery:
        """Move the deadline of a delivery; `StaleDelivery` unless it is in flight."""
        return Delivery(*self._call("extend", group=group, offset=offset, deadline_ns=deadline_ns, epoch=epoch))

    def list_expired(self, now_ns: int) -> list[Expired]:
        """Return the deliveries of all groups that expired by now, and make them available."""
        return [Expired(group, Message(*row)) for group, row in self._call("expired", now_ns=now_ns)]

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the group's dead letters, oldest first."""
        return [DeadLetter(*row) for row in self._call("dead_letters", group=group)]

    # Groups.

    def status(self) -> list[GroupStatus]:
        """Return how far each group is, by name."""
        return [GroupStatus(*row) for row in self._call("status")]

    def add_group(self, name: str, *, at_end: bool = False) -> None:
        """Create a group at the first message, or, with `at_end`, after the last; an existing one is left alone."""
        self._call("add_group", name=name, at_end=at_end)

    def remove_group(self, name: str) -> None:
        """Forget a group and what it answered."""
        self._call("remove_group", repeat=False, name=name)

    # Reservations.

    def reserve(self, group: str, visibility_s: float, wait_s: float | None, count: int) -> Reserved:
        """Return messages for this taker alone; none where none came in `wait_s` seconds, or it was closed."""
        until = None if wait_s is None else time.monotonic() + wait_s
        while not self._is_stopped:
            left_s = WAIT_S_MAX if until is None else max(0.0, until - time.monotonic())
            wait_now_s = min(left_s, WAIT_S_MAX)
            try:
                rows = self._call("reserve", group=group, visibility_s=visibility_s, wait_s=wait_now_s, count=count)
            except Closed:
                break
            if rows:
                return [(Message(*message), Delivery(*delivery)) for message, delivery in rows]
            if until is not None and time.monotonic() >= until:
                break
        return []

    def wake(self) -> None:
        """Do nothing: the owner wakes takers by itself."""

    def stop(self) -> None:
        """End the session: every call that waits ends, and what was not answered is given back by the owner."""
        self._leave_parent()
        with self._lock:
            self._is_stopped = True
            connections = [*self._idle, *self._busy]
            idle, self._idle = self._idle, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for connection in idle:
            connection.close()

    # Requests.

    def _call(self, operation: str, *, repeat: bool = True, **arguments: object) -> Any:  # noqa: ANN401 - as sent
        request = format_frame([operation, arguments])
        until = time.monotonic() + self._timeout_s
        while True:
            connection = self._connection(until)
            try:
                connection.settimeout(max(until - time.monotonic(), 0.001) + WAIT_S_MAX)
                connection.sendall(request)
                answer = receive_frame(connection)
            except (OSError, EOFError) as error:
                self._drop(connection)
                self._refuse_if_stopped()
                if not repeat:
                    raise self._lost(operation) from error
                if time.monotonic() >= until:
                    raise self._unreachable(error) from error
                continue
            except BaseException:
                self._drop(connection)
                raise
            self._keep(connection)
            if "error" in answer:
                raise parse_error(answer["error"])
            return answer["ok"]

    def _connection(self, until: float) -> socket.socket:
        """Return a live connection; wait for the owner to come back, if it is away."""
        self._leave_parent()
        pause_s = PAUSE_MIN_S
        while True:
            with self._lock:
                self._refuse_if_stopped()
                connection = self._idle.pop() if self._idle else None
                if connection is not None:
                    self._busy.add(connection)
            if connection is None:
                try:
                    connection = self._connect()
                except Unavailable:
                    if time.monotonic() + pause_s >= until:
                        raise
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
                    continue
                with self._lock:
                    self._busy.add(connection)
            if not _has_ended(connection):
                return connection
            self._drop(connection)

    def _leave_parent(self) -> None:
        """In a forked child, begin a session of its own: the parent reads and writes on the other connections."""
        if self._pid == os.getpid():
            return
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._pid, self._session = os.getpid(), uuid.uuid4().hex
        self._idle, self._busy, self._lock = [], set(), threading.Lock()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._timeout_s)
            self._join_line(connection)
            send_frame(connection, ["hello", {"protocol": PROTOCOL, "version": VERSION, "session": self._session}])
            answer = receive_frame(connection)
        except (OSError, EOFError) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        if "error" in answer:
            connection.close()
            raise parse_error(answer["error"])
        return connection

    def _join_line(self, connection: socket.socket) -> None:
        """Connect; try again while the socket's backlog is full."""
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                return connection.connect(str(self._path))
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise
                time.sleep(PAUSE_MIN_S)

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self._is_stopped:
                self._idle.append(connection)
                return
        connection.close()

    def _drop(self, connection: socket.socket) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def _refuse_if_stopped(self) -> None:
        if self._is_stopped:
            raise Closed("the queue")

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"no queue answers at {format_address(self._path)}: {error}",
            hint="let the process that owns the queue serve it: `strandline queue serve DIR`, or Queue.serve",
        )

    def _lost(self, operation: str) -> UnknownOutcome:
        return UnknownOutcome(
            f"the connection to {format_address(self._path)} ended before the answer to {operation}",
            hint="it may or may not have been done: look at the queue, or do it again where twice does no harm",
        )


def _column(name: str, values: object) -> list[bytes]:
    """Return a column that can be sent; the owner checks the rest."""
    if not isinstance(values, Sequence) or isinstance(values, bytes | bytearray | memoryview | str):
        raise WrongType(f"{name} must be a sequence of messages, not one", hint="put it in a list")
    column = list(values)
    for value in column:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise WrongType(f"{name} must be a sequence of bytes", hint="encode text with .encode()")
    return column


def _has_ended(connection: socket.socket) -> bool:
    """Whether the owner closed a connection while it was idle."""
    try:
        connection.settimeout(0)
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
