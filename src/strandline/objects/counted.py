"""A store that counts what is asked of it: requests by operation and outcome, and bytes.

Invariants: it stands below retries, so that each attempt counts, and changes no answer. A listing counts once for each
page of a thousand objects, as S3 makes them.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from strandline.errors import Conflict, StrandlineError, Unavailable, UnknownOutcome
from strandline.metrics import Metric, Sample
from strandline.objects.contracts import Buffer, Folder, Object, ObjectInfo, ObjectStore, browsable

LIST_PAGE_KEYS = 1000
Result = TypeVar("Result")


class RequestCounts:
    """Counts of one or several stores; any number of threads count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, operation: str, outcome: str, *, sent: int = 0, received: int = 0) -> None:
        """Count a request."""
        with self._lock:
            self._requests[operation, outcome] += 1
            self._bytes["sent"] += sent
            self._bytes["received"] += received

    @property
    def sent_bytes(self) -> int:
        """Return how many bytes of objects were sent."""
        return self._bytes["sent"]

    @property
    def received_bytes(self) -> int:
        """Return how many bytes of objects were received."""
        return self._bytes["received"]

    def metrics(self) -> list[Metric]:
        """Return the counts."""
        with self._lock:
            requests = [
                Sample(count, {"operation": operation, "outcome": outcome})
                for (operation, outcome), count in sorted(self._requests.items())
            ]
            sizes = [Sample(self._bytes[way], {"direction": way}) for way in ("sent", "received")]
        return [
            Metric("strandline_object_requests_total", "counter", "Requests to the object store.", requests),
            Metric("strandline_object_bytes_total", "counter", "Bytes of objects sent and received.", sizes),
        ]


class CountedObjects:
    """Another store, whose requests are counted."""

    def __init__(self, store: ObjectStore, counts: RequestCounts) -> None:
        self._store = store
        self._counts = counts

    @property
    def address(self) -> str:
        """Where the objects are."""
        return self._store.address

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        return self._counted(
            "get",
            lambda: self._store.get(key, start=start, stop=stop),
            received=lambda found: len(found.body) if found else 0,
        )

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        return self._counted("head", lambda: self._store.head(key))

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only where there is none, or only over the one with this ETag."""
        return self._counted(
            "put",
            lambda: self._store.put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata),
            sent=lambda: len(body),
        )

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come, in bounded memory; return its ETag."""
        sent = 0

        def counted() -> Iterator[Buffer]:
            nonlocal sent
            for part in parts:
                sent += len(part)
                yield part

        write = self._store.put_stream
        return self._counted("put_stream", lambda: write(key, counted(), metadata=metadata), sent=lambda: sent)

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        self._counted("delete", lambda: self._store.delete(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix."""
        pages = self._counted("list", lambda: self._store.list(prefix, start_after=start_after))
        return self._listed(pages)

    @property
    def sorts_bytes(self) -> bool:
        """Whether the store sorts whole keys by their bytes."""
        return browsable(self._store).sorts_bytes

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects behind a key."""
        return self._listed(self._counted("list", lambda: browsable(self._store).list_sorted(prefix, start_after)))

    def list_folder(self, prefix: str) -> Folder:
        """Return what is directly below a prefix; it counts once, however many pages it has."""
        return self._counted("list", lambda: browsable(self._store).list_folder(prefix))

    def _listed(self, pages: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        seen = 0
        while True:
            try:
                info = next(pages, None)
            except StrandlineError as error:
                self._counts.add("list", _outcome(error))
                raise
            if info is None:
                return
            seen += 1
            if seen > LIST_PAGE_KEYS:
                self._counts.add("list", "ok")
                seen = 1
            yield info

    def close(self) -> None:
        """Let go of connections and files."""
        self._store.close()

    def _counted(
        self,
        operation: str,
        call: Callable[[], Result],
        *,
        sent: Callable[[], int] = lambda: 0,
        received: Callable[[Result], int] = lambda _: 0,
    ) -> Result:
        try:
            result = call()
        except StrandlineError as error:
            self._counts.add(operation, _outcome(error), sent=sent())
            raise
        self._counts.add(operation, "ok", sent=sent(), received=received(result))
        return result


def _outcome(error: StrandlineError) -> str:
    match error:
        case Conflict():
            return "conflict"
        case UnknownOutcome():
            return "unknown"
        case Unavailable():
            return "unavailable" if error.retryable else "refused"
        case _:
            return "error"
