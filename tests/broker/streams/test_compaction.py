"""A stream that is overwritten for ever stays small, and loses nothing by it."""

import contextlib
from collections.abc import Iterator
from random import Random

import pytest

from strandline.broker.api.config import Storage
from strandline.broker.streams.storage import JournalLog
from strandline.journal import WRITTEN
from tests.broker.streams.helpers import FOLDER, Kept
from tests.broker.streams.world import everything_small


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with everything_small():
        yield


def _compact(kept: Kept) -> None:
    while kept.stream.compact_step():
        pass


def _stored(kept: Kept) -> int:
    return kept.stream._log.stored_bytes  # noqa: SLF001 - no client can see it


@pytest.mark.parametrize("storage", list(Storage))
def test_a_bucket_that_is_overwritten_for_ever_stays_small(storage: Storage) -> None:
    kept = Kept(max_msgs_per_subject=1, storage=storage)
    kept.publish(("s.never", "changes"))
    sizes = []
    for number in range(300):
        kept.publish(*[(f"s.{key}", f"{number}:{key}") for key in range(10)])
        _compact(kept)
        sizes.append(_stored(kept))
    assert max(sizes[50:]) < 10_000
    expected = {("s.never", "changes"), *((f"s.{key}", f"299:{key}") for key in range(10))}
    assert {(subject, payload) for _, subject, payload in kept.held()} == expected
    if storage is Storage.FILE:
        for proper in (False, True):
            kept.reopen(proper=proper)
            assert {(subject, payload) for _, subject, payload in kept.held()} == expected


def test_a_stream_bounded_by_its_number_lets_old_parts_go_without_moving_anything() -> None:
    kept = Kept(max_msgs=60)
    for number in range(400):
        kept.publish(("s.a", f"{number}" * 10))
        _compact(kept)
    assert not kept.stream._state.index.rows.moved.any()  # noqa: SLF001 - no client can see it
    assert kept.stream._log.first_place > 0  # noqa: SLF001 - the same
    kept.reopen(proper=False)
    assert kept.sequences() == list(range(341, 401))


@pytest.mark.parametrize("seed", range(8))
def test_what_was_durable_once_is_not_lost_by_being_moved(seed: int) -> None:
    kept = Kept(durability=WRITTEN, max_msgs_per_subject=1)
    kept.publish(("s.old", "and durable"))
    kept.reopen()
    for number in range(60 + seed):
        kept.publish(("s.busy", f"{number}" * 40))
        _compact(kept)
    assert kept.stream._log.first_place > 0  # noqa: SLF001 - no client can see it
    kept.disk.crash(Random(seed))
    kept.reopen(proper=False)
    assert ("s.old", "and durable") in [(subject, payload) for _, subject, payload in kept.held()]


def test_a_part_that_is_all_alive_is_left_alone() -> None:
    kept = Kept()
    for number in range(100):
        kept.publish(("s.a", f"{number}" * 30))
        _compact(kept)
    assert kept.stream._log.first_place == 0  # noqa: SLF001 - no client can see it


def test_identifiers_of_messages_that_are_gone_are_still_known_after_a_compaction() -> None:
    kept = Kept(max_msgs_per_subject=1)
    kept.publish(("s.a", "1", {"Nats-Msg-Id": "early"}))
    for number in range(100):
        kept.publish(("s.a", f"{number}" * 30))
        _compact(kept)
    kept.reopen(proper=False)
    assert kept.publish(("s.b", "again", {"Nats-Msg-Id": "early"})).answers[0].endswith(b'"seq":1,"duplicate": true}')


def test_a_moved_message_that_is_overwritten_does_not_come_back() -> None:
    kept = Kept(max_msgs_per_subject=1)
    kept.publish(*[(f"s.{key}", "first") for key in range(10)])
    for number in range(60):
        kept.publish(("s.busy", f"{number}" * 40))
        _compact(kept)
    moved = kept.stream._state.index  # noqa: SLF001 - no client can see it
    assert moved.rows.moved[: moved.used].any()
    kept.publish(*[(f"s.{key}", "second") for key in range(10)])
    for number in range(60):
        kept.publish(("s.busy", f"{number}" * 40))
        _compact(kept)
    held = kept.held()
    with contextlib.suppress(FileNotFoundError):
        kept.disk.remove(FOLDER / "index")
    kept.reopen(proper=False)
    assert kept.held() == held
    assert all(payload != "first" for _, _, payload in held)


def test_nothing_is_lost_by_a_step_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(max_msgs_per_subject=1)
    kept.publish(*[(f"s.{number}", "never changes") for number in range(5)])
    for _ in range(300):
        kept.publish(("s.over", "x" * 100))
    before = kept.held()
    with monkeypatch.context() as patched:
        patched.setattr(JournalLog, "read", _fail)
        with pytest.raises(ZeroDivisionError):
            _compact(kept)
    _compact(kept)
    assert kept.held() == before
    kept.reopen(proper=False)
    assert kept.held() == before


def _fail(*_: object) -> None:
    raise ZeroDivisionError
