"""A queue served over a local socket, for takers and putters in other processes.

A thread for each connection reads a request, does it through the queue's own storage and reservations, and answers; so
requests of many processes share fsyncs as those of threads do, and one waiting taker does not hold up others.

Invariants: an answer is sent after what it tells is durable; the socket can be used by its owner's user alone (0600); a
session that ends, because its process was killed or closed it, gives back what it has not answered. One that cannot be
told that it ended, as after a power failure, gives it back by deadline.
"""

import os
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from strandline.clock import Clock
from strandline.errors import FormatError, InvalidInput, Locked, StorageRefused
from strandline.files import storage_errors
from strandline.queue.frames import PROTOCOL, VERSION, format_error, parse_request, receive_frame, send_frame
from strandline.queue.reservations import Reserver
from strandline.queue.session import WAIT_S_MAX, ServedStorage, Session

SCHEME = "unix://"
_PATH_BYTES_MAX = 107


def format_address(path: str | os.PathLike[str]) -> str:
    """Return the address of a queue that is served at `path`."""
    return f"{SCHEME}{Path(path).absolute()}"


def parse_address(address: str) -> Path:
    """Return the path in an address such as `unix:///var/lib/jobs/socket`."""
    if not address.startswith(SCHEME) or not address.removeprefix(SCHEME):
        raise InvalidInput(f"{address!r} is not the address of a queue", hint=f"such as {SCHEME}/var/lib/jobs/socket")
    return Path(address.removeprefix(SCHEME))


class QueueServer:
    """Serves one queue until it is closed."""

    def __init__(self, path: Path, storage: ServedStorage, reserver: Reserver, clock: Clock) -> None:
        """Use `Queue.serve`."""
        self._path = path.absolute()
        self._storage = storage
        self._reserver = reserver
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._is_closed = False
        with storage_errors(self._path):
            self._listener = _listen(self._path)
            self._inode = self._path.stat().st_ino
        self._accepting = threading.Thread(target=self._accept, name="strandline-queue-accept", daemon=True)
        self._accepting.start()

    def __repr__(self) -> str:
        """Say where it listens, and to how many."""
        return f"QueueServer({self.address!r}, connections={len(self._connections)})"

    @property
    def address(self) -> str:
        """What `Queue.connect` takes."""
        return format_address(self._path)

    def close(self) -> None:
        """End every connection and remove the socket; what was not answered is given back. Twice is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            connections = list(self._connections.items())
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection, _ in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in connections:
            thread.join()
        self._accepting.join()

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it was closed, or there are too many open files for one more
                if self._is_closed:
                    return
                threading.Event().wait(WAIT_S_MAX / 10)
                continue
            thread = threading.Thread(target=self._serve, args=[connection], name="strandline-queue", daemon=True)
            with self._lock:
                if self._is_closed:
                    connection.close()
                    return
                try:
                    thread.start()
                except RuntimeError:  # too many threads for one more
                    connection.close()
                    continue
                self._connections[connection] = thread

    def _serve(self, connection: socket.socket) -> None:
        """Answer one connection until it ends."""
        session = None
        try:
            session = self._greet(connection)
            while True:
                connection.sendall(session.answer(*parse_request(receive_frame(connection))))
        except (OSError, EOFError, FormatError):
            pass  # it ended, or it is not a client of ours: no answer is due
        finally:
            with self._lock:
                del self._connections[connection]
            connection.close()
            if session is not None:
                self._leave(session)

    def _greet(self, connection: socket.socket) -> Session:
        word, said = parse_request(receive_frame(connection))
        if (word, said.get("protocol"), said.get("version")) != ("hello", PROTOCOL, VERSION):
            problem = f"version {said.get('version')} of the queue's protocol is not known here"
            error = FormatError(self.address, problem, hint="use the same version of Strandline on both sides")
            send_frame(connection, {"error": format_error(error, "hello")})
            raise error
        with self._lock:
            name = str(said.get("session"))
            if name not in self._sessions:
                self._sessions[name] = Session(name, self._storage, self._reserver, self._clock)
            session = self._sessions[name]
            session.connections += 1
        send_frame(connection, {"ok": {"protocol": PROTOCOL, "version": VERSION}})
        return session

    def _leave(self, session: Session) -> None:
        """Give back what a session has not answered, once its last connection ended."""
        with self._lock:
            session.connections -= 1
            if session.connections:
                return
            self._sessions.pop(session.name, None)
        session.give_back()


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens at `path`; a socket file that no process listens at any more is replaced."""
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        hint = f"a socket's path has at most {_PATH_BYTES_MAX} bytes: give a shorter one"
        raise InvalidInput(f"{path} is too long for a socket", hint=hint)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)  # before it listens, so that no other user can connect meanwhile
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StorageRefused(str(path), "there is a file that is not a socket", "EEXIST", hint="give another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise Locked(str(path), hint="another process serves a queue there; give another path")
