"""Calls repeated while a store is unavailable, and writes of unknown outcome read back before anything is repeated.

Invariants: every conditional write carries a nonce of its own in its metadata, and all attempts at it carry the same
one. So an attempt that was answered "the condition does not hold" because an earlier attempt had succeeded is told from
a lost race, and a late first attempt is harmless: it meets the condition that the second one has used up. Where the
object was written by another meanwhile, it cannot be told whether ours came before it; `WriteUnknown` says so.

What the store refuses for good is never repeated. Once the outcome of one attempt is unknown, the write ends as done or
as `WriteUnknown`, whatever the later attempts and the reading back meet.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from strandline.errors import InvalidInput, StrandlineError
from strandline.objects.contracts import Buffer, Folder, Object, ObjectInfo, ObjectStore, browsable, check_write
from strandline.objects.errors import ObjectConflict, StoreUnavailable, WriteUnknown

NONCE = "strandlinewrite"
"""The name in the metadata; without "-" or "_", which one store or another does not take."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently: pauses double from `pause_s` to `pause_s_max`, each cut at random (full jitter)."""

    attempts: int = 6
    pause_s: float = 0.1
    pause_s_max: float = 5.0

    def __post_init__(self) -> None:
        """Refuse not to try at all."""
        if self.attempts < 1:
            raise InvalidInput(f"there must be at least one attempt, not {self.attempts}")

    def pause(self, attempt: int) -> float:
        """Return how long to wait after an attempt, counted from 0."""
        return random.uniform(0, min(self.pause_s_max, self.pause_s * 2**attempt))  # noqa: S311 - jitter


DEFAULT_RETRIES = Retries()


class RetryingObjects:
    """Another store, with its calls repeated as far as that is safe."""

    def __init__(
        self, store: ObjectStore, retries: Retries = DEFAULT_RETRIES, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._store = store
        self._retries = retries
        self._sleep = sleep

    @property
    def address(self) -> str:
        """Where the objects are."""
        return self._store.address

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        found = self._repeated(lambda: self._store.get(key, start=start, stop=stop))
        return Object(_without_nonce(found.info), found.body) if found else None

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        found = self._repeated(lambda: self._store.head(key))
        return _without_nonce(found) if found else None

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
        check_write(if_absent, if_match, metadata)
        if not if_absent and if_match is None:
            return self._repeated(lambda: self._store.put(key, body, metadata=metadata))
        nonce = uuid.uuid4().hex
        marked = {**(metadata or {}), NONCE: nonce}
        return self._conditional(
            key, nonce, lambda: self._store.put(key, body, if_absent=if_absent, if_match=if_match, metadata=marked)
        )

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come. Parts come once, so a failure is the caller's to repeat."""
        return self._store.put_stream(key, parts, metadata=metadata)

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        self._repeated(lambda: self._store.delete(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix; in one folder, a failed listing goes on behind the last key it told."""
        return self._listed(
            prefix, start_after, self._repeated(lambda: self._store.list(prefix, start_after=start_after))
        )

    def _listed(self, prefix: str, start_after: str, pages: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        attempt = 0
        failure: StoreUnavailable | None = None
        wanted_order = bool(start_after)
        while True:
            try:
                info = next(pages, None)
            except StoreUnavailable as error:
                failure = error
                attempt += 1
                if attempt == self._retries.attempts or "/" in start_after[len(prefix) :]:
                    raise
                self._sleep(self._retries.pause(attempt - 1))
                pages = self._store.list(prefix, start_after=start_after)
                continue
            except InvalidInput:
                if wanted_order or failure is None:
                    raise
                raise failure from None  # a listing through folders cannot go on behind a key
            if info is None:
                return
            attempt, start_after = 0, info.key
            yield info

    @property
    def sorts_bytes(self) -> bool:
        """Whether the store sorts whole keys by their bytes."""
        return browsable(self._store).sorts_bytes

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects behind a key; a failed listing goes on behind the last key it told."""
        attempt = 0
        pages = self._repeated(lambda: browsable(self._store).list_sorted(prefix, start_after))
        while True:
            try:
                info = next(pages, None)
            except StoreUnavailable:
                attempt += 1
                if attempt == self._retries.attempts:
                    raise
                self._sleep(self._retries.pause(attempt - 1))
                pages = browsable(self._store).list_sorted(prefix, start_after)
                continue
            if info is None:
                return
            attempt, start_after = 0, max(start_after, info.key)
            yield info

    def list_folder(self, prefix: str) -> Folder:
        """Return what is directly below a prefix."""
        return self._repeated(lambda: browsable(self._store).list_folder(prefix))

    def close(self) -> None:
        """Let go of connections and files."""
        self._store.close()

    def _conditional(self, key: str, nonce: str, write: Callable[[], str]) -> str:
        """Repeat a conditional write until its outcome is known."""
        unknown: WriteUnknown | None = None
        for attempt in range(self._retries.attempts):
            if attempt:
                self._sleep(self._retries.pause(attempt - 1))
            try:
                return write()
            except StoreUnavailable as error:
                failure: StoreUnavailable | WriteUnknown = error
            except WriteUnknown as error:
                failure = unknown = error
            except ObjectConflict as conflict:
                if unknown is None:
                    raise
                return self._own_write(key, nonce, conflict)
            except StrandlineError as error:
                if unknown is None:
                    raise
                raise unknown from error  # an earlier attempt may have been done
        if unknown is None:
            raise failure
        return self._own_write(key, nonce, unknown)

    def _own_write(self, key: str, nonce: str, error: ObjectConflict | WriteUnknown) -> str:
        """Return the object's ETag if it is the one that was written under this nonce."""
        try:
            found = self._repeated(lambda: self._store.head(key))
        except StrandlineError as failure:
            raise WriteUnknown(key, f"an answer was lost, and the object cannot be read back: {failure}") from failure
        if found is not None and found.metadata.get(NONCE) == nonce:
            return found.etag
        if isinstance(error, WriteUnknown):
            raise error
        reason = "an answer was lost, and another has written since; whether this write came before is not known"
        raise WriteUnknown(key, reason) from error

    def _repeated(self, call: Callable[[], Result]) -> Result:
        """Repeat a call that may be made twice: a read, a removal, or a write without a condition."""
        unknown: WriteUnknown | None = None
        for attempt in range(self._retries.attempts):
            if attempt:
                self._sleep(self._retries.pause(attempt - 1))
            try:
                return call()
            except StoreUnavailable as error:
                failure: StoreUnavailable | WriteUnknown = error
            except WriteUnknown as error:
                failure = unknown = error
            except StrandlineError as error:
                if unknown is None:
                    raise
                raise unknown from error  # an earlier attempt may have been done
        raise unknown or failure


def _without_nonce(info: ObjectInfo) -> ObjectInfo:
    if NONCE not in info.metadata:
        return info
    return replace(info, metadata={name: value for name, value in info.metadata.items() if name != NONCE})
