"""The memory twin keeps the contract, and the contract catches twins that do not."""

import asyncio
import inspect
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from strandline.kv import InvalidKey, StoreConfig, memory, memory_log, memory_watch, validate_key
from strandline.kv.entries import UpdateKind
from strandline.kv.memory import MemoryWriter
from strandline.kv.memory_log import MemoryLog, Record
from strandline.kv.memory_watch import MemoryWatch
from strandline.testing import (
    KV_STORE_CHECKS,
    ContractBroken,
    KvStoreCheck,
    check_kv_store,
    kv_values,
    kv_watches,
    run_kv_store_check,
)
from tests.kv.opening import opener


@pytest.mark.parametrize("check", KV_STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_memory_twin_keeps_the_contract(check: KvStoreCheck) -> None:
    asyncio.run(run_kv_store_check(check, opener()))


def test_all_checks_can_be_run_at_once_without_a_test_runner() -> None:
    check_kv_store(opener())


def test_no_check_is_left_out_of_the_list() -> None:
    written = {
        name
        for module in (kv_values, kv_watches)
        for name, function in vars(module).items()
        if inspect.iscoroutinefunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert written == {check.__name__ for check in KV_STORE_CHECKS}


Patch = Callable[[pytest.MonkeyPatch], None]


def _any_version(_key: str, _version: bytes) -> Callable[[Record | None], None]:
    return lambda _last: None


def _without_expiry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "expire", lambda _log, _now: None)


def _without_trimming(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "_trim", lambda _log, _key, _count: None)


def _without_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_watch, "resume_window_ok", lambda _revision, _first: True)


def _window_too_wide(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_watch, "resume_window_ok", lambda revision, first: first <= revision + 2)


def _window_too_narrow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_watch, "resume_window_ok", lambda revision, first: first <= revision)


def _repeats_the_cursor(patch: pytest.MonkeyPatch) -> None:
    after = MemoryLog.after
    patch.setattr(MemoryLog, "after", lambda log, revision: after(log, revision - 1))


def _deaf_after_the_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryWatch, "tell", lambda _watch, _record: None)


def _hears_every_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "key_filter", lambda _prefixes: lambda _key: True)


def _state_by_key(patch: pytest.MonkeyPatch) -> None:
    latest = MemoryLog.latest
    patch.setattr(MemoryLog, "latest", lambda log: sorted(latest(log), key=lambda record: record.key))


def _never_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "_refuse_beyond_limits", lambda _log, _record: None)
    patch.setattr(MemoryLog, "_evict_oldest", lambda _log: None)


def _reuses_revisions(patch: pytest.MonkeyPatch) -> None:
    def expire(log: MemoryLog, now_ns: int, whole: Any = MemoryLog.expire) -> None:  # noqa: ANN401 - the real one
        whole(log, now_ns)
        log.last_revision = max((record.revision for record in log.latest()), default=0)

    patch.setattr(MemoryLog, "expire", expire)


def _ignores_versions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "_same_version", _any_version)


def _creates_over_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "_is_live", lambda record: record is not None and record.kind is UpdateKind.PUT and False)


def _takes_empty_values_for_none(patch: pytest.MonkeyPatch) -> None:
    live = memory._is_live  # noqa: SLF001 - what is broken here
    patch.setattr(memory, "_is_live", lambda record: live(record) and bool(record.value))


def _leaves_an_empty_value(patch: pytest.MonkeyPatch) -> None:
    def write(writer: MemoryWriter, call: str, kind: UpdateKind, *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - the real one's
        return whole(writer, call, UpdateKind.PUT if call == "delete_with_version" else kind, *rest, **more)

    whole = MemoryWriter._write  # noqa: SLF001 - what is broken here
    patch.setattr(MemoryWriter, "_write", write)


def _says_it_never_evicts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreConfig, "evicts_current_values", False)


def _one_more_than_asked(patch: pytest.MonkeyPatch) -> None:
    batch = MemoryWatch.batch
    patch.setattr(MemoryWatch, "batch", lambda watch, count=4096: batch(watch, count + 1))


def _takes_any_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "validate_key", lambda key: key)


def _untyped_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_log, "RecordTooLarge", lambda *_: Exception())


def _another_identity_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "identity", property(lambda _log: os.urandom(8), lambda _log, _value: None), raising=False)


def _one_identity_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(secrets, "token_bytes", bytes)


def _newest_first(patch: pytest.MonkeyPatch) -> None:
    history = MemoryLog.history_of
    patch.setattr(MemoryLog, "history_of", lambda log, key: history(log, key)[::-1])


def _any_settings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreConfig, "__eq__", lambda _one, _other: True)


def _takes_any_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "validate_bucket", lambda name: name)


def _refuses_other_letters(patch: pytest.MonkeyPatch) -> None:
    def validate(key: str) -> str:
        if not key.isascii():
            raise InvalidKey(key, "is strange")
        return validate_key(key)

    patch.setattr(memory, "validate_key", validate)


def _cuts_values(patch: pytest.MonkeyPatch) -> None:
    entry = memory._entry  # noqa: SLF001 - what is broken
    patch.setattr(memory, "_entry", lambda record: replace(entry(record), value=record.value[:200_000]))


def _without_markers(patch: pytest.MonkeyPatch) -> None:
    def expire(log: MemoryLog, now_ns: int, whole: Any = MemoryLog.expire) -> None:  # noqa: ANN401 - the real one
        log.config = replace(log.config, marker_ttl_s=0.0)
        whole(log, now_ns)

    patch.setattr(MemoryLog, "expire", expire)


def _counts_revisions(patch: pytest.MonkeyPatch) -> None:
    retention = MemoryLog.retention
    patch.setattr(MemoryLog, "retention", lambda log: replace(retention(log), updates=log.last_revision))


def _frontier_runs_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryWatch, "frontier", property(lambda watch: watch.position))


def _frontier_falls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryWatch, "frontier", property(lambda _watch: 0))


def _silent_shutdown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryWatch, "fail", lambda _watch, _failure: None)


BROKEN: dict[str, tuple[Patch, str]] = {
    "nothing expires": (_without_expiry, "values_expire_with_the_bucket_s_age"),
    "history is never trimmed": (_without_trimming, "retention_says_what_is_kept_and_whether_listing_is_truth"),
    "the resume window is not looked at": (_without_window, "a_cursor_before_what_is_kept_has_expired"),
    "the resume window is one too wide": (_window_too_wide, "a_cursor_before_what_is_kept_has_expired"),
    "the resume window is one too narrow": (_window_too_narrow, "a_cursor_before_what_is_kept_has_expired"),
    "the update of the cursor is repeated": (_repeats_the_cursor, "a_watch_from_a_cursor_tells_only_what_follows"),
    "nothing is told after the state": (_deaf_after_the_state, "a_watch_tells_the_state_and_then_what_is_written"),
    "prefixes are not looked at": (_hears_every_key, "a_watch_of_prefixes_tells_their_keys_only"),
    "the state is told by key": (_state_by_key, "a_watch_tells_the_state_and_then_what_is_written"),
    "limits are not looked at": (_never_full, "a_full_bucket_refuses_new_keys_or_drops_the_oldest"),
    "revisions come back": (_reuses_revisions, "values_expire_with_the_bucket_s_age"),
    "versions are not compared": (_ignores_versions, "update_wants_the_version_of_the_last_write"),
    "create overwrites": (_creates_over_values, "create_wants_a_key_without_a_value"),
    "empty values are none": (_takes_empty_values_for_none, "an_empty_value_is_a_value"),
    "a delete leaves a value": (_leaves_an_empty_value, "deleting_with_a_version_is_a_delete_of_that_version_only"),
    "eviction is denied": (_says_it_never_evicts, "a_cursor_before_what_is_kept_has_expired"),
    "batches are too large": (_one_more_than_asked, "batches_are_no_larger_than_asked_for"),
    "any key is taken": (_takes_any_key, "keys_that_no_server_takes_are_refused"),
    "an identity changes": (_another_identity_each_time, "a_bucket_has_an_identity_of_its_own"),
    "all buckets are the same": (_one_identity_for_all, "a_bucket_has_an_identity_of_its_own"),
    "history is told backwards": (_newest_first, "history_is_what_is_kept_of_a_key_oldest_first"),
    "settings are not compared": (_any_settings, "a_bucket_that_exists_keeps_its_settings"),
    "any name is taken": (_takes_any_name, "names_that_no_server_takes_are_refused"),
    "letters beyond ASCII are refused": (_refuses_other_letters, "unusual_keys_come_back_as_they_are"),
    "values are cut": (_cuts_values, "large_values_come_back_whole"),
    "no marker is left": (_without_markers, "an_expired_value_leaves_a_marker_where_the_bucket_says_so"),
    "removed updates are counted": (_counts_revisions, "retention_counts_the_updates_that_are_kept"),
    "the frontier runs ahead": (_frontier_runs_ahead, "the_frontier_follows_what_was_handed_out"),
    "the frontier stands still": (_frontier_falls, "the_frontier_follows_what_was_handed_out"),
    "a shutdown is silent": (_silent_shutdown, "a_shutdown_ends_every_watch"),
    "a large value is refused without a type": (_untyped_size, "values_beyond_the_limit_are_refused"),
}


@contextmanager
def broken(name: str) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.testing.kv_helpers.PATIENCE_S", 0.1)
        BROKEN[name][0](patch)
        yield BROKEN[name][1]


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_breaks_a_promise_is_caught(name: str) -> None:
    with broken(name) as catcher:
        check = next(check for check in KV_STORE_CHECKS if check.__name__ == catcher)
        with pytest.raises(ContractBroken) as caught:
            asyncio.run(run_kv_store_check(check, opener()))
    assert caught.value.check == catcher
