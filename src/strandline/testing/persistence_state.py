"""The contract of `ScannerState`: opaque keys and values, whole batches, and isolated tenants."""

import random
import threading
from typing import Any

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.identity import TenantId
from strandline.pipeline.state import STATE_KEY_BYTES_MAX, STATE_VALUE_BYTES_MAX, Delete, Put
from strandline.protocol.errors import StaleFence
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import OTHER_TENANT, TENANT, WRITER, CheckedPersistence, PersistenceCheck

_HANGS_S = 60.0


def values_come_in_the_order_of_their_keys(stores: CheckedPersistence) -> None:
    """None where there is none, and twice where asked twice; an empty value is a value."""
    stores.state.apply_batch(TENANT, [Put(b"a", b"1"), Put(b"b", b""), Put(b"c", b"\x00\xff")])
    keys = [b"c", b"missing", b"b", b"a", b"c", b"A", b"a\x00"]
    same("the values", stores.state.multi_get(TENANT, keys), [b"\x00\xff", None, b"", b"1", b"\x00\xff", None, None])
    same("no values", stores.state.multi_get(TENANT, []), [])
    stores.state.apply_batch(TENANT, [])


def a_range_of_keys_comes_in_order(stores: CheckedPersistence) -> None:
    """From the first key on, without the last, byte by byte, no more than asked for, and nothing of another tenant."""
    state = stores.state
    keys = [b"a", b"a\x00", b"a\x7f", b"a\x80", b"a\xff", b"b"]
    state.apply_batch(TENANT, [Put(key, b"of " + key) for key in reversed(keys)])
    state.apply_batch(OTHER_TENANT, [Put(b"a\x01", b"theirs")])
    pairs = [(key, b"of " + key) for key in keys]
    same("the range", state.list_range(TENANT, b"a", b"b"), pairs[:5])
    same("its first keys", state.list_range(TENANT, b"a\x00", b"b", 2), pairs[1:3])
    same("a range without keys", state.list_range(TENANT, b"c", b"d"), [])


def the_last_operation_on_a_key_holds(stores: CheckedPersistence) -> None:
    """Inside a batch and from batch to batch; forgetting what is not there is fine."""
    state = stores.state
    state.apply_batch(TENANT, [Put(b"a", b"1"), Put(b"b", b"1"), Delete(b"a"), Put(b"b", b"2"), Delete(b"none")])
    same("the values", state.multi_get(TENANT, [b"a", b"b"]), [None, b"2"])
    state.apply_batch(TENANT, [Delete(b"b"), Put(b"a", b"3"), Put(b"b", b"3"), Delete(b"c"), Put(b"c", b"3")])
    same("the values then", state.multi_get(TENANT, [b"a", b"b", b"c"]), [b"3", b"3", b"3"])
    state.apply_batch(TENANT, [Delete(b"a"), Delete(b"a"), Put(b"c", b"4")])
    same("the values in the end", state.multi_get(TENANT, [b"a", b"b", b"c"]), [None, b"3", b"4"])


def keys_are_bytes_and_nothing_else(stores: CheckedPersistence) -> None:
    """Bytes that look like other things, begin alike or differ in their last bit are different keys."""
    keys = [b"\x00", b"\x00\x00", b"'", b"%", b"\xff", b"\xff\xff", b"1", b"0x31", b"k" * 2047, b"k" * 2048, b"\\x31"]
    stores.state.apply_batch(TENANT, [Put(key, b"of " + key) for key in keys])
    expect(stores.state.multi_get(TENANT, keys) == [b"of " + key for key in keys], "each key should have its value")
    stores.state.apply_batch(TENANT, [Delete(key) for key in keys[::2]])
    wanted = [None if number % 2 == 0 else b"of " + key for number, key in enumerate(keys)]
    expect(stores.state.multi_get(TENANT, keys) == wanted, "what was not forgotten should stay")


def keys_are_their_tenants_alone(stores: CheckedPersistence) -> None:
    """The same key elsewhere is another one, to read, to set and to forget."""
    state = stores.state
    state.apply_batch(TENANT, [Put(b"a", b"mine"), Put(b"b", b"mine")])
    same("what the other sees", state.multi_get(OTHER_TENANT, [b"a"]), [None])
    state.apply_batch(OTHER_TENANT, [Put(b"a", b"theirs"), Delete(b"b")])
    same("what I see", state.multi_get(TENANT, [b"a", b"b"]), [b"mine", b"mine"])
    same("what they see", state.multi_get(OTHER_TENANT, [b"a", b"b"]), [b"theirs", None])


def a_bad_operation_undoes_its_batch(stores: CheckedPersistence) -> None:
    """Keys of 1 to 2,048 bytes, values of at most 16 MiB, and nothing but bytes."""
    state = stores.state
    state.apply_batch(TENANT, [Put(b"a", b"1")])
    long, text, number = b"k" * (STATE_KEY_BYTES_MAX + 1), "text", 5
    bad: list[Any] = [
        Put(b"", b""),
        Put(long, b""),
        Put(text, b""),  # type: ignore[arg-type]
        Put(b"b", text),  # type: ignore[arg-type]
        Put(b"b", number),  # type: ignore[arg-type]
        Put(b"b", b"\x00" * (STATE_VALUE_BYTES_MAX + 1)),
        Delete(b""),
        Delete(long),
    ]
    for operation in bad:
        batch = [Put(b"a", b"2"), Put(b"c", b"2"), operation]
        refuses("a bad operation", InvalidInput, state.apply_batch, TENANT, batch)
    for key in (b"", long, text):
        wrong: Any = key
        refuses("a bad key", InvalidInput, state.multi_get, TENANT, [b"a", wrong])
    short = TenantId(b"short")
    refuses("a tenant of another length", InvalidInput, state.apply_batch, short, [Put(b"a", b"")])
    same("the values", state.multi_get(TENANT, [b"a", b"b", b"c"]), [b"1", None, None])
    state.apply_batch(TENANT, [Put(b"large", b"\x01" * STATE_VALUE_BYTES_MAX)])
    expect(state.multi_get(TENANT, [b"large"]) == [b"\x01" * STATE_VALUE_BYTES_MAX], "16 MiB should come back")


def no_error_shows_a_key_or_a_value(stores: CheckedPersistence) -> None:
    """A key may name a file, and a value belongs to the scanner: no error shows either."""
    key, value = b"private-key-" * 200, b"private-value-" * 1_250_000
    for batch in ([Put(key, b"")], [Delete(key)], [Put(b"a", value)]):
        try:
            stores.state.apply_batch(TENANT, batch)
        except InvalidInput as error:
            shown = f"{error} {error!r} {error.args!r} {vars(error)!r} {batch!r}"
            expect("private" not in shown, "an error shows a key or a value")
        else:
            expect(condition=False, problem="a key or a value over the limit was taken")


def ten_thousand_keys_are_a_batch_and_one_more_is_not(stores: CheckedPersistence) -> None:
    """For writing and for reading; duplicates count."""
    keys = [b"%d" % number for number in range(BATCH_ROWS_MAX + 1)]
    puts = [Put(key, key) for key in keys]
    refuses("10,001 operations", BatchTooLarge, stores.state.apply_batch, TENANT, puts)
    refuses("10,001 on one key", BatchTooLarge, stores.state.apply_batch, TENANT, [puts[0]] * len(puts))
    refuses("10,001 keys", BatchTooLarge, stores.state.multi_get, TENANT, keys)
    same("what was written", stores.state.multi_get(TENANT, keys[:1]), [None])
    stores.state.apply_batch(TENANT, puts[:-1])
    seen = stores.state.multi_get(TENANT, keys[1:])
    expect(seen == [*keys[1:-1], None], "10,000 values should come back in the order of their keys")


def batches_at_once_are_whole(stores: CheckedPersistence) -> None:
    """Several writers of the same keys, in other orders: the end is one writer's batch, and so is all one sees."""
    keys = [b"%d" % number for number in range(20)]
    stores.state.apply_batch(TENANT, [Put(key, b"0") for key in keys])
    torn: list[object] = []

    def work(mine: int) -> None:
        source = random.Random(mine)  # noqa: S311 - the same order every time
        try:
            for _ in range(10):
                stores.state.apply_batch(TENANT, [Put(key, b"%d" % mine) for key in source.sample(keys, 20)])
                seen = set(stores.state.multi_get(TENANT, keys))
                torn.extend([seen] if len(seen) != 1 else [])
        except BaseException as error:  # noqa: BLE001 - told below, in the thread of the check
            torn.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_HANGS_S)
    expect(not any(thread.is_alive() for thread in threads), "a writer hangs")
    same("parts of batches", torn, [])
    same("how many batches remain", len(set(stores.state.multi_get(TENANT, keys))), 1)


def the_first_writer_sets_a_key_for_all(stores: CheckedPersistence) -> None:
    """Of several that set a missing key at once, one does, and all are told its value; an empty value is one too."""
    told: list[bytes] = []
    ready = threading.Barrier(4)

    def work(mine: int) -> None:
        for key in (b"a", b"b", b"c"):
            ready.wait(_HANGS_S)
            told.append(key + stores.state.put_first(TENANT, key, b"%d" % mine))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_HANGS_S)
    same("how many were told", len(told), 12)
    kept = [
        key + (value or b"")
        for key, value in zip((b"a", b"b", b"c"), stores.state.multi_get(TENANT, [b"a", b"b", b"c"]), strict=True)
    ]
    same("what all were told", set(told), set(kept))
    stores.state.apply_batch(TENANT, [Put(b"d", b"")])
    same("the value that was there", stores.state.put_first(TENANT, b"d", b"1"), b"")
    same("another tenant's", stores.state.put_first(OTHER_TENANT, b"d", b"2"), b"2")
    refuses("a key without a byte", InvalidInput, stores.state.put_first, TENANT, b"", b"1")


def a_stale_writer_sets_nothing(stores: CheckedPersistence) -> None:
    """Values are replaced, so a writer whose shard has a newer fence is refused where the store knows it."""
    state = stores.state
    state.apply_batch(TENANT, [Put(b"a", b"1")], writer=WRITER)
    refuses(
        "a writer of another tenant", InvalidInput, state.apply_batch, OTHER_TENANT, [Put(b"a", b"2")], writer=WRITER
    )
    if stores.set_fence is not None:
        stores.set_fence(TENANT, WRITER.run_id, WRITER.shard_id, WRITER.fence + 1)
        for operation in (Put(b"a", b"2"), Delete(b"a")):
            refuses("a stale writer", StaleFence, state.apply_batch, TENANT, [operation], writer=WRITER)
    same("the value", state.multi_get(TENANT, [b"a"]), [b"1"])
    state.apply_batch(TENANT, [Put(b"a", b"3")], writer=WRITER._replace(fence=WRITER.fence + 1))
    state.apply_batch(TENANT, [Put(b"b", b"4")])
    same("the values then", state.multi_get(TENANT, [b"a", b"b"]), [b"3", b"4"])


def a_zombie_does_not_set_back_what_its_successor_set(stores: CheckedPersistence) -> None:
    """Also where the store knows nothing of the shard, whose run is kept elsewhere: fences that wrote before count."""
    state = stores.state
    elsewhere = WRITER._replace(shard_id=WRITER.shard_id + 1, fence=7)
    state.apply_batch(TENANT, [Put(b"a", b"old")], writer=elsewhere)
    state.apply_batch(TENANT, [Put(b"a", b"new")], writer=elsewhere._replace(fence=8))
    for operation in (Put(b"a", b"old"), Delete(b"a"), Put(b"b", b"old")):
        refuses("a zombie", StaleFence, state.apply_batch, TENANT, [operation], writer=elsewhere)
    same("the values", state.multi_get(TENANT, [b"a", b"b"]), [b"new", None])
    state.apply_batch(TENANT, [Put(b"a", b"newer")], writer=elsewhere._replace(fence=8))
    other_shard = elsewhere._replace(shard_id=elsewhere.shard_id + 1, fence=1)
    state.apply_batch(TENANT, [Put(b"b", b"theirs")], writer=other_shard)
    same("the values then", state.multi_get(TENANT, [b"a", b"b"]), [b"newer", b"theirs"])
    same("what is listed", [key for key, _ in state.list_range(TENANT, b"a", b"z")], [b"a", b"b"])


STATE_CHECKS: tuple[PersistenceCheck, ...] = (
    values_come_in_the_order_of_their_keys,
    the_last_operation_on_a_key_holds,
    keys_are_bytes_and_nothing_else,
    keys_are_their_tenants_alone,
    a_range_of_keys_comes_in_order,
    a_bad_operation_undoes_its_batch,
    no_error_shows_a_key_or_a_value,
    ten_thousand_keys_are_a_batch_and_one_more_is_not,
    batches_at_once_are_whole,
    the_first_writer_sets_a_key_for_all,
    a_stale_writer_sets_nothing,
    a_zombie_does_not_set_back_what_its_successor_set,
)
"""Every promise of `ScannerState`, as a function whose name says what must hold."""
