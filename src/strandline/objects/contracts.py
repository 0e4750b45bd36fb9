"""What an object store is: seven methods, and what each says of a missing object.

Invariants of every implementation:

- an object is there whole or not at all, whatever happens while it is put;
- a write that returned is durable, and every later read sees it or something newer;
- of several conditional writes that expect the same object, at most one succeeds;
- an ETag names one write: after another write, even of equal bytes, a condition on the old ETag may only hold where
  the difference cannot be told, so bodies that are compared and swapped carry a counter or a nonce;
- errors are those of `strandline.objects.errors`; a write that raises anything but `WriteUnknown` did nothing.

A store does not promise that `a` and `a/b` may both exist, and there is no conditional delete: S3 has none.

A store whose listing can be cut into ranges is `BrowsableObjects` besides: it lists one folder, and says whether it
sorts whole keys by their bytes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from strandline.errors import InvalidInput

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of an object. `modified` is by the store's clock, the only one that all clients share."""

    key: str
    size: int
    etag: str
    modified: datetime
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The writer's own names and values; empty in a listing, which does not tell them."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object's bytes, or the range of them that was asked for, and what the store says of the whole."""

    info: ObjectInfo
    body: bytes


class ObjectStore(Protocol):
    """Objects by key. Calls block; any number of threads may use one store."""

    @property
    def address(self) -> str:
        """Where the objects are, without credentials; for messages."""
        ...

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object.

        A range that ends behind the object is cut there; one that begins behind it has no bytes.
        """
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        ...

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only where there is none, or only over the one with this ETag.

        It returns the new ETag. `ObjectConflict` says that the condition does not hold; with `if_match` a missing
        object is a conflict too.
        """
        ...

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come, in bounded memory; return its ETag.

        It appears when the last part is there; an error that `parts` raises leaves the object as it was. There is no
        condition: name such objects by their content.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        ...

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below a prefix once, as pages come.

        Where no folder is below the prefix, they come in the order of their keys, and `start_after` begins behind a
        key, which need not exist. Elsewhere the order is the store's own (S3 sorts bytes, SeaweedFS folder by folder),
        and `start_after` is refused as soon as a folder is met.
        """
        ...

    def close(self) -> None:
        """Let go of connections and files; later calls raise `Closed`."""
        ...


class Folder(NamedTuple):
    """What is directly below a prefix: objects, and the prefixes (with "/" at their ends) of more."""

    objects: list[ObjectInfo]
    folders: list[str]


@runtime_checkable
class BrowsableObjects(ObjectStore, Protocol):
    """A store whose listing can be cut into ranges, which several processes list."""

    @property
    def sorts_bytes(self) -> bool:
        """Whether `list` has the order of the keys' bytes, through all folders; False where that is not known."""
        ...

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys behind one, which need not exist, in the order of bytes.

        A key whose "/" at the end the client does not tell comes where it stands. Only where `sorts_bytes`.
        """
        ...

    def list_folder(self, prefix: str) -> Folder:
        """Return what is directly below a prefix, all of it in memory, in any order."""
        ...


METADATA_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


def check_write(if_absent: bool, if_match: str | None, metadata: Mapping[str, str] | None) -> None:  # noqa: FBT001
    """Refuse two conditions that exclude each other, and metadata that some store would change or drop."""
    if if_absent and if_match is not None:
        raise InvalidInput("a write is conditional on absence or on an ETag, not on both")
    for name, value in (metadata or {}).items():
        if not METADATA_NAME.fullmatch(name):
            raise InvalidInput(f"metadata name {name!r} is not lower-case letters, digits and '-'")
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise InvalidInput(f"metadata {name}: {value!r} is not printable ASCII without outer spaces")


def check_range(start: int, stop: int | None) -> None:
    """Refuse what is no range of bytes."""
    if start < 0 or (stop is not None and stop < start):
        raise InvalidInput(f"bytes [{start}, {stop}) are no range")


def browsable(store: ObjectStore) -> BrowsableObjects:
    """Return a store as one whose listing can be cut; those of `open_objects` are."""
    if not isinstance(store, BrowsableObjects):
        raise TypeError(f"{store.address}: its listing cannot be cut")
    return store


def folder_of(objects: Iterable[ObjectInfo], prefix: str) -> Folder:
    """Return what is directly below a prefix, from a listing of all that is below it."""
    folders: dict[str, None] = {}
    direct: list[ObjectInfo] = []
    for info in objects:
        name, slash, _ = info.key[len(prefix) :].partition("/")
        if slash:
            folders[f"{prefix}{name}/"] = None
        else:
            direct.append(info)
    return Folder(direct, list(folders))


def in_one_folder(objects: Iterator[ObjectInfo], prefix: str, start_after: str) -> Iterator[ObjectInfo]:
    """Yield objects behind a key; refuse those in a folder below the prefix, whose order stores do not agree about."""
    for info in objects:
        if start_after and "/" in info.key[len(prefix) :]:
            problem = f"a listing that starts behind a key goes through one folder, and {info.key} is in another"
            raise InvalidInput(problem, hint=f"list {info.key.rsplit('/', 1)[0]}/ by itself")
        if info.key > start_after:
            yield info
