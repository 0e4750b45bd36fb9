"""A fold without asyncio: follow a bucket in the background, and read it like a dictionary.

    with strandline.follow("nats://127.0.0.1:4222/prices", "prices.fold") as fold:
        fold.wait_current()
        print(fold["EURUSD"], fold.lag)

**Promise.** What is read was stored, with a cursor that names it; after a crash or a restart the same path goes on
where it was, and only what changed is told. `wait_for(revision)` returns when a write with that revision can be read.

**Invariants.** Reads are answered from the local store, also while the server is away; each sees one moment, and none
can write. What ends the background for good is raised by the next call. A fold belongs to its process: it is not
pickled, and a fork that uses it is refused.

**Trade-offs.** A key is text and a value bytes, as in the bucket. A change is there after the batching window (2 ms)
and the store's sync. `len` and iteration go through the whole fold. That nothing is removed from the middle of the
bucket's log before the fold has read it is the bucket owner's promise: see `strandline.fold.repair`.
"""

import os
import weakref
from collections.abc import Callable, ItemsView, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from strandline.errors import Closed
from strandline.events import Events
from strandline.fold.addresses import connect_bucket, parse_address
from strandline.fold.backends import Backend, backend_of, open_fold
from strandline.fold.background_watch import BackgroundWatch, Companion, Connect
from strandline.fold.cursor import FoldCursor, parse_fold_cursor
from strandline.fold.errors import NotYet
from strandline.fold.last_repair import RepairRecorder
from strandline.fold.progress import FoldStatus
from strandline.fold.records import FoldEntry
from strandline.fold.repair.policy import RepairPolicy
from strandline.fold.scopes import ALL, Scope
from strandline.fold.shared_store import SharedStore
from strandline.fold.store import SnapshotStore
from strandline.fold.watch import Batching
from strandline.kv import KvStore, NotSupported, UpdateBatch
from strandline.protocol.fold_modes import FoldMode

if TYPE_CHECKING:
    from strandline.nats.settings import NatsSettings

T = TypeVar("T")
WAKE_S = 0.5


def follow(  # noqa: PLR0913 - each is a choice with a default
    bucket: str | Connect,
    path: Path | str,
    *,
    scope: Scope = ALL,
    backend: Backend | None = None,
    mode: FoldMode | None = None,
    policy: RepairPolicy | None = None,
    batching: Batching | None = None,
    on_change: Callable[[UpdateBatch], object] | None = None,
    settings: "NatsSettings | None" = None,
    open_store: Callable[[], SnapshotStore] | None = None,
    companion: Companion | None = None,
) -> "FollowedFold":
    """Keep a fold of a bucket up to date in the background; use it in a `with` block, or close it.

    `bucket` is an address (`nats://host:port/bucket`, `tls://user:password@host/bucket`), with `settings` for creds and
    certificates; or a callable that connects, for other sources. `path` is where the fold is kept, and its name or
    `backend` says by what (`strandline.fold.backends`). `mode` is what a new fold is to its bucket: a mirror drops what
    the bucket drops, an archive keeps it (`FoldMode`). `on_change` is called with every stored batch, in the
    background's thread; what it raises ends the fold. Returns when the watch has begun, not when it is current.
    `open_store` opens the store in another way, and `companion` runs beside each watch; `strandline.follow` uses both.
    """
    if isinstance(bucket, str):
        address = bucket
        parse_address(address, settings)

        def connect() -> AbstractAsyncContextManager[KvStore]:
            return connect_bucket(address, settings)
    else:
        connect = bucket
    if open_store is None:
        chosen = backend_of(path, backend)

        def open_store() -> SnapshotStore:
            return open_fold(path, chosen)

    policy = policy or RepairPolicy()
    policy = policy if mode is None else replace(policy, fold_mode=mode)
    lender, events = SharedStore(open_store, str(path)), Events(RepairRecorder(Path(path)))
    background = BackgroundWatch(connect, scope, lender, policy, batching or Batching(), on_change, events, companion)
    return FollowedFold(background, lender, str(path))


class FollowedFold(Mapping[str, bytes]):
    """A fold that is kept up to date in the background: keys to values, read-only; made by `follow`."""

    def __init__(self, background: BackgroundWatch, lender: SharedStore, name: str) -> None:
        self._background = background
        self._lender = lender
        self._name = name
        self._process = os.getpid()
        try:
            background.start()
        except BaseException:
            background.stop(wait=False)
            raise
        self._finalizer = weakref.finalize(self, _end, background, self._process)

    # Reading

    def __getitem__(self, key: str) -> bytes:
        """Return the value of a key; `KeyError` if there is none."""
        entry = self.entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __iter__(self) -> Iterator[str]:
        """Return the keys of one moment, in their order."""
        return iter([_text(entry.key) for entry in self._ask(lambda store: store.range())])

    def __len__(self) -> int:
        """Return how many keys there are; all of them are looked at."""
        return self._ask(lambda store: store.for_each_in_range(b"", _nothing))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.entry(key) is not None

    def entry(self, key: str) -> FoldEntry | None:
        """Return value and version of a key, None if there is none."""
        return self._ask(lambda store: store.get(_bytes(key)))

    def items(self, prefix: str = "") -> ItemsView[str, bytes]:
        """Return the keys and values below a prefix, as they are at one moment, in the order of keys."""
        entries = self._ask(lambda store: store.range(_bytes(prefix)))
        return {_text(entry.key): entry.value for entry in entries}.items()

    def __repr__(self) -> str:
        return f"<followed fold {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise NotSupported("pickling a followed fold", hint="follow it in one process; others use open_read_only")

    # Where it stands

    @property
    def fold_cursor(self) -> FoldCursor:
        """Return the cursor that is stored, with the bucket and scope it belongs to."""
        return parse_fold_cursor(self._ask(lambda store: store.cursor()))

    @property
    def cursor(self) -> int:
        """Return the revision up to which everything is stored."""
        return self.fold_cursor.revision

    @property
    def lag(self) -> int | None:
        """Return how many revisions the bucket was ahead at the last look, None before the first."""
        return self.status().lag

    def status(self) -> FoldStatus:
        """Return how far it is, how fast, and what it struggles with; never raises."""
        return self._background.progress.status()

    def wait_current(self, timeout_s: float = 60.0) -> Self:
        """Wait until it holds what the bucket held when the present watch began; `NotYet` if that takes too long."""
        self._wait(lambda: self.status().is_current, "current", timeout_s)
        return self

    def wait_for(self, revision: int, timeout_s: float = 60.0) -> Self:
        """Wait until everything up to a revision is stored: what was written there can be read; `NotYet` if not."""
        self._wait(lambda: self.cursor >= revision, f"at revision {revision}", timeout_s)
        return self

    # Ending

    def close(self) -> None:
        """Store what was received, and end; twice is harmless. What ended the background before is raised, once."""
        if self._finalizer.alive and self._process == os.getpid():
            self._finalizer()
            failure, self._background.failure = self._background.failure, None
            if failure is not None:
                raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._finalizer()

    def _wait(self, condition: Callable[[], bool], waited_for: str, timeout_s: float) -> None:
        deadline = monotonic() + timeout_s
        while True:
            self._check()
            if condition():
                return
            left_s = deadline - monotonic()
            if left_s <= 0:
                status = self.status()
                raise NotYet(waited_for, timeout_s, status.revision, status.trouble)
            self._background.progress.wait(min(left_s, WAKE_S))

    def _check(self) -> None:
        if self._process != os.getpid():
            raise NotSupported("using a followed fold in a forked process", hint="follow it after the fork")
        if not self._finalizer.alive:
            raise Closed(self._name)
        if self._background.failure is not None:
            raise self._background.failure

    def _reader(self) -> SnapshotStore:
        self._check()
        return self._lender.reader()

    def _ask(self, question: Callable[[SnapshotStore], T]) -> T:
        """Ask the store; once more if it was closed to be opened again."""
        try:
            return question(self._reader())
        except Closed:
            return question(self._reader())


def _end(background: BackgroundWatch, process: int) -> None:
    if process == os.getpid():
        background.stop()


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def _text(key: bytes) -> str:
    return key.decode(errors="surrogateescape")


def _nothing(_: object) -> None:
    return
