"""An object store with seeded faults of requests: lost, late, repeated, undecided.

Invariants: the faults follow from the seed and the calls alone. A request takes effect whole or not at all; reads see
the newest state, as in S3. The faults of a write:

    refused       no effect, and the caller gets `StoreUnavailable` (503, or 409 for an undecided condition)
    unanswered    takes effect, and the caller gets `WriteUnknown`
    lost          no effect, and the caller gets `WriteUnknown`
    late          takes effect later, between two other calls, and the caller gets `WriteUnknown`
    repeated      takes effect, and once more later; the caller gets the first answer
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import TypeVar

from strandline.errors import StrandlineError
from strandline.objects import MemoryObjects, Object, ObjectInfo, StoreUnavailable, WriteUnknown
from strandline.objects.contracts import Buffer

Result = TypeVar("Result")
_FATES = ("refused", "unanswered", "lost", "late", "repeated")


class SimObjects:
    """A memory store behind a network with faults, at `fault_rate` of the calls."""

    def __init__(self, seed: int, *, fault_rate: float = 0.3, store: MemoryObjects | None = None) -> None:
        self.store = store or MemoryObjects(f"sim-{seed}")
        self.fates: list[str] = []
        self._random = Random(seed)
        self._fault_rate = fault_rate
        self._late: list[Callable[[], object]] = []

    @property
    def address(self) -> str:
        """The store behind the network."""
        return self.store.address

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None if it is missing."""
        self._reading()
        return self.store.get(key, start=start, stop=stop)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of an object; None if it is missing."""
        self._reading()
        return self.store.head(key)

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only if it is missing, or only over the one with this ETag."""
        return self._writing(
            key, lambda: self.store.put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)
        )

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write an object from parts; a crash between two of them leaves nothing."""
        whole = list(parts)
        return self._writing(key, lambda: self.store.put_stream(key, whole, metadata=metadata))

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        self._writing(key, lambda: self.store.delete(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix; it may fail between any two."""
        self._reading()
        for info in self.store.list(prefix, start_after=start_after):
            self._reading()
            yield info

    def close(self) -> None:
        """Deliver all late requests, then close."""
        while self._late:
            self._arrive()
        self.store.close()

    def _reading(self) -> None:
        self._let_arrive()
        if self._random.random() < self._fault_rate:
            self.fates.append("refused")
            raise StoreUnavailable(self.address, "slow down")

    def _writing(self, key: str, write: Callable[[], Result]) -> Result:
        self._let_arrive()
        fate = self._random.choice(_FATES) if self._random.random() < self._fault_rate else "done"
        self.fates.append(fate)
        if fate == "refused":
            raise StoreUnavailable(self.address, "slow down")
        if fate in ("late", "repeated"):
            self._late.append(write)
        if fate in ("lost", "late"):
            raise WriteUnknown(key, "no answer came")
        result = write()
        if fate == "unanswered":
            raise WriteUnknown(key, "no answer came")
        return result

    def _let_arrive(self) -> None:
        while self._late and self._random.random() < self._fault_rate:
            self._arrive()

    def _arrive(self) -> None:
        write = self._late.pop(self._random.randrange(len(self._late)))
        with suppress(StrandlineError):  # its answer is not awaited
            write()
