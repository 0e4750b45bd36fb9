"""Every check of the contract catches something: a store broken in one way fails the check that speaks of it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from strandline.objects import MemoryObjects, Object, ObjectConflict, ObjectInfo, ObjectStore
from strandline.testing import OBJECT_STORE_CHECKS, ContractBroken, ObjectStoreCheck, run_object_store_check

Buffer = bytes | bytearray | memoryview


class DropsMetadata(MemoryObjects):
    def head(self, key: str) -> ObjectInfo | None:
        info = super().head(key)
        return replace(info, metadata={}) if info else None


class InventsObjects(MemoryObjects):
    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        return super().get(key, start=start, stop=stop) or super().get("a/b")


class WrongRanges(MemoryObjects):
    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        return super().get(key, start=start, stop=None if stop is None else stop + 1)


class KeepsMetadata(MemoryObjects):
    def put(self, key: str, body: Buffer, *, metadata: Mapping[str, str] | None = None, **conditions: Any) -> str:  # noqa: ANN401 - those of a write
        info = self.head(key)
        return super().put(key, body, metadata=metadata or (info.metadata if info else None), **conditions)


class CreatesAgain(MemoryObjects):
    def put(self, key: str, body: Buffer, *, if_absent: bool = False, **others: Any) -> str:  # noqa: ANN401, ARG002 - what is broken here
        return super().put(key, body, if_absent=False, **others)


class ReplacesAnything(MemoryObjects):
    def put(self, key: str, body: Buffer, *, if_match: str | None = None, **others: Any) -> str:  # noqa: ANN401, ARG002
        return super().put(key, body, if_match=None, **others)


class ChecksTooEarly(MemoryObjects):
    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        **others: Any,  # noqa: ANN401
    ) -> str:
        info = self.head(key)
        if (if_absent and info) or (if_match is not None and (not info or info.etag != if_match)):
            raise ObjectConflict(key, "it was written by another")
        self.faults.delay_s = 0.02
        return super().put(key, body, **others)


class ShowsParts(MemoryObjects):
    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        written, etag = b"", ""
        for part in parts:
            written += part
            etag = self.put(key, written, metadata=metadata)
        return etag or self.put(key, b"")


class Unsorted(MemoryObjects):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return iter(sorted(super().list(prefix, start_after=start_after), key=lambda info: info.key[::-1]))


class OneFolderOnly(MemoryObjects):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        found = super().list(prefix, start_after=start_after)
        return (info for info in found if "/" not in info.key[len(prefix) :])


class OnePageOnly(MemoryObjects):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        found = super().list(prefix, start_after=start_after)
        return (info for _, info in zip(range(1000), found, strict=False))


class TakesAnyKey(MemoryObjects):
    def delete(self, key: str) -> None:
        if self.head("a") and key:
            super().delete(key)


class NeverCloses(MemoryObjects):
    def close(self) -> None:
        pass


BROKEN: dict[str, type[MemoryObjects]] = {
    "what_was_put_is_got": DropsMetadata,
    "a_missing_object_is_none": InventsObjects,
    "ranges_are_cut_where_the_object_ends": WrongRanges,
    "a_put_replaces_the_whole_object": KeepsMetadata,
    "create_wants_no_object": CreatesAgain,
    "replace_wants_the_etag_of_the_last_write": ReplacesAnything,
    "of_many_who_create_one_wins": ChecksTooEarly,
    "of_many_who_replace_one_wins": ChecksTooEarly,
    "a_stream_appears_with_its_last_part": ShowsParts,
    "a_listing_of_one_folder_is_sorted_and_starts_where_it_is_told": Unsorted,
    "a_listing_tells_every_object_below_a_prefix_once": OneFolderOnly,
    "a_long_listing_is_whole": OnePageOnly,
    "what_is_no_key_is_refused": TakesAnyKey,
    "a_closed_store_says_so": NeverCloses,
}


def test_every_check_has_a_store_that_fails_it() -> None:
    assert set(BROKEN) == {check.__name__ for check in OBJECT_STORE_CHECKS}


@pytest.mark.parametrize("check", OBJECT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_every_check_catches_something(check: ObjectStoreCheck) -> None:
    @contextmanager
    def broken() -> Iterator[ObjectStore]:
        yield BROKEN[check.__name__]()

    with pytest.raises(ContractBroken) as caught:
        run_object_store_check(check, broken)
    assert caught.value.check == check.__name__
