"""What is repeated, what is read back, and what is never done twice."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from strandline.errors import Closed, InvalidInput
from strandline.objects import (
    MemoryObjects,
    ObjectConflict,
    ObjectInfo,
    Retries,
    RetryingObjects,
    StoreRefused,
    StoreUnavailable,
    WriteUnknown,
)

DOWN = StoreUnavailable("memory://", "slow down")
LOST = WriteUnknown("a", "the answer was lost")


class Watched(MemoryObjects):
    """A memory store that remembers the conditional writes it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[bytes, bool, str | None]] = []

    def put(
        self,
        key: str,
        body: bytes | bytearray | memoryview,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        self.writes.append((bytes(body), if_absent, if_match))
        return super().put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)


def opened(attempts: int = 4) -> tuple[Watched, RetryingObjects, list[float]]:
    store, pauses = Watched(), list[float]()
    return store, RetryingObjects(store, Retries(attempts), sleep=pauses.append), pauses


@pytest.mark.parametrize("call", ["get", "head", "delete", "list", "put"])
def test_an_unavailable_store_is_asked_again_with_growing_pauses(call: str) -> None:
    store, retrying, pauses = opened()
    store.put("a", b"1")
    for nth in (1, 2, 3):
        store.faults.fail(call, DOWN, nth=nth)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: retrying.get("a"),
        "head": lambda: retrying.head("a"),
        "delete": lambda: retrying.delete("a"),
        "list": lambda: list(retrying.list()),
        "put": lambda: retrying.put("a", b"2", if_match=store.head("a").etag),  # type: ignore[union-attr]
    }
    calls[call]()
    assert len(pauses) == 3
    assert all(0 <= pause <= 0.1 * 2**n for n, pause in enumerate(pauses))


@pytest.mark.parametrize("error", [DOWN, LOST])
def test_patience_ends_with_the_error_itself(error: StoreUnavailable | WriteUnknown) -> None:
    store, retrying, pauses = opened(attempts=3)
    for nth in (1, 2, 3):
        store.faults.fail("put", error, nth=nth)
    with pytest.raises(type(error)) as raised:
        retrying.put("a", b"1", if_absent=True)
    assert raised.value is error
    assert len(pauses) == 2
    assert store.get("a") is None


@pytest.mark.parametrize("call", ["get", "put"])
def test_what_is_refused_for_good_is_not_repeated(call: str) -> None:
    store, retrying, pauses = opened()
    store.faults.fail(call, StoreRefused("memory://", "the credentials do not allow it"))
    with pytest.raises(StoreRefused):
        _ = retrying.get("a") if call == "get" else retrying.put("a", b"1", if_absent=True)
    assert pauses == []


def test_a_create_whose_answer_was_lost_is_known_by_its_nonce() -> None:
    store, retrying, _ = opened()
    store.faults.fail("put", LOST, after=True)
    etag = retrying.put("a", b"1", if_absent=True, metadata={"x": "1"})
    found = retrying.get("a")
    assert found is not None
    assert (found.body, found.info.etag, dict(found.info.metadata)) == (b"1", etag, {"x": "1"})


def test_a_replace_whose_answer_was_lost_is_known_by_its_nonce() -> None:
    store, retrying, _ = opened()
    first = retrying.put("a", b"1", if_absent=True)
    store.faults.fail("put", LOST, after=True)
    second = retrying.put("a", b"2", if_match=first)
    info = store.head("a")
    assert info is not None
    assert (second, info.etag != first) == (info.etag, True)
    assert len(store.writes) == 3  # the lost one, and one that met its own success


def test_a_write_that_was_lost_before_it_was_done_is_done_once() -> None:
    store, retrying, _ = opened()
    store.faults.fail("put", LOST)
    etag = retrying.put("a", b"1", if_absent=True)
    info = store.head("a")
    assert info is not None
    assert info.etag == etag


def test_a_last_attempt_of_unknown_outcome_is_read_back() -> None:
    store, retrying, _ = opened(attempts=1)
    store.faults.fail("put", LOST, after=True)
    info = store.head("a")
    assert info is None
    etag = retrying.put("a", b"1", if_absent=True)
    info = store.head("a")
    assert info is not None
    assert info.etag == etag


@pytest.mark.parametrize("later", [DOWN, StoreRefused("memory://", "the token expired")])
@pytest.mark.parametrize("conditional", [True, False])
def test_an_outcome_that_was_unknown_once_stays_so_when_later_attempts_fail(
    conditional: bool, later: StoreUnavailable | StoreRefused
) -> None:
    store, retrying, _ = opened(attempts=3)
    store.faults.fail("put", LOST, after=True)
    for nth in (2, 3):
        store.faults.fail("put", later, nth=nth)
    for nth in (1, 2, 3):
        store.faults.fail("head", DOWN, nth=nth)
    with pytest.raises(WriteUnknown):
        retrying.put("a", b"1", if_absent=conditional)
    found = store.get("a")
    assert found is not None, "the first attempt was done"


def test_a_write_that_cannot_be_read_back_has_an_unknown_outcome() -> None:
    """The second attempt meets the success of the first, and the store goes away before that is known."""
    store, retrying, _ = opened(attempts=2)
    store.faults.fail("put", LOST, after=True)
    for nth in (1, 2):
        store.faults.fail("head", DOWN, nth=nth)
    with pytest.raises(WriteUnknown, match="cannot be read back"):
        retrying.put("a", b"1", if_absent=True)


def test_without_an_attempt_there_is_no_retrying() -> None:
    with pytest.raises(InvalidInput, match="at least one attempt"):
        Retries(0)


def test_equal_bytes_of_another_writer_are_not_taken_for_ours() -> None:
    store, retrying, _ = opened()

    def steal(_: float) -> None:
        store.delete("a")
        MemoryObjects.put(store, "a", b"1", if_absent=True)

    retrying = RetryingObjects(store, Retries(4), sleep=steal)
    store.faults.fail("put", LOST, after=True)
    with pytest.raises(WriteUnknown, match="another has written since"):
        retrying.put("a", b"1", if_absent=True)


def test_a_lost_race_is_a_conflict() -> None:
    store, retrying, pauses = opened()
    store.put("a", b"theirs")
    with pytest.raises(ObjectConflict):
        retrying.put("a", b"ours", if_absent=True)
    assert pauses == []


class Failing(MemoryObjects):
    """A memory store whose listings fail twice, each after three objects."""

    fails = 2

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for told, info in enumerate(super().list(prefix, start_after=start_after)):
            if told == 3 and self.fails:
                self.fails -= 1
                raise DOWN
            yield info


def test_a_listing_that_fails_goes_on_behind_what_it_told() -> None:
    store = Failing()
    keys = [f"f/{n:02d}" for n in range(10)]
    for key in keys:
        store.put(key, b"")
    retrying = RetryingObjects(store, sleep=lambda _: None)
    assert [info.key for info in retrying.list("f/")] == keys


class FailingSorted(MemoryObjects):
    """A memory store whose listings behind a key fail twice, each after three objects."""

    fails = 2

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        for told, info in enumerate(super().list_sorted(prefix, start_after)):
            if told == 3 and self.fails:
                self.fails -= 1
                raise DOWN
            yield info


def test_a_sorted_listing_that_fails_goes_on_behind_what_it_told_through_folders_too() -> None:
    store = FailingSorted()
    keys = sorted(f"f{number % 3}/{number:02}" for number in range(12))
    for key in keys:
        store.put(key, b"")
    retrying = RetryingObjects(store, sleep=lambda _: None)
    assert [info.key for info in retrying.list_sorted("", "f0/03")] == [key for key in keys if key > "f0/03"]
    assert store.fails == 0
    assert retrying.list_folder("").folders == ["f0/", "f1/", "f2/"]
    store.fails = 100
    with pytest.raises(StoreUnavailable):
        list(RetryingObjects(store, Retries(attempts=1), sleep=lambda _: None).list_sorted("", ""))


def test_a_listing_through_folders_that_fails_says_that_the_store_failed() -> None:
    store = Failing()
    for key in ("f/1", "f/2", "f/3", "f/4/5", "f/6"):
        store.put(key, b"")
    with pytest.raises(StoreUnavailable):
        list(RetryingObjects(store, sleep=lambda _: None).list("f/"))


def test_closing_closes_the_store_behind() -> None:
    store, retrying, _ = opened()
    retrying.close()
    with pytest.raises(Closed):
        store.get("a")
