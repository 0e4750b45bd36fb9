"""The contract of `QueueStorage`, first half: messages, what of them is available, and acknowledging them."""

import threading
from contextlib import suppress
from typing import Any

from strandline.clock import ManualClock
from strandline.errors import Conflict, InvalidInput, OffsetBeyondEnd, OffsetError, StaleDelivery
from strandline.groups import Delivery
from strandline.queue import Message
from strandline.testing.contract import expect, refuses, same
from strandline.testing.queue_helpers import (
    DELIVERIES_MAX,
    FAR,
    VISIBLE_S,
    CheckedStorage,
    QueueStorageCheck,
    available,
    give,
    later,
    put,
)

_CALLERS = 4
_ROUNDS = 10
_HANGS_S = 30.0

# Messages.


def appended_messages_stand_under_contiguous_offsets(storage: CheckedStorage, _clock: ManualClock) -> None:
    """What was appended comes back under the offsets of the receipt, key and headers included."""
    first = storage.append_batch([b"a", b""])
    second = storage.append_batch([b"c", b"d"], keys=[b"k", b""], headers=[b"h", b"\x00"])
    same("the first receipt", (first.base_offset, first.count), (0, 2))
    same("the second receipt", (second.base_offset, second.count), (2, 2))
    same("offset 0", storage.fetch_by_offset(0), Message(0, b"a", None, None, 0))
    same("offset 1", storage.fetch_by_offset(1), Message(1, b"", None, None, 0))
    same("offset 2", storage.fetch_by_offset(2), Message(2, b"c", b"k", b"h", 0))
    same("offset 3", storage.fetch_by_offset(3), Message(3, b"d", b"", b"\x00", 0))


def an_empty_append_adds_nothing(storage: CheckedStorage, _clock: ManualClock) -> None:
    """A receipt for nothing, and the next message follows the last."""
    put(storage, 2)
    same("the receipt's count", storage.append_batch([]).count, 0)
    same("the next offset", storage.append_batch([b"x"]).base_offset, 2)


def a_bad_append_adds_nothing(storage: CheckedStorage, _clock: ManualClock) -> None:
    """Columns of unequal length and values that are not bytes are refused whole."""
    refuses("two values with one key", InvalidInput, storage.append_batch, [b"a", b"b"], keys=[b"k"])
    refuses("one value with no headers", InvalidInput, storage.append_batch, [b"a"], headers=[])
    text: Any = [b"a", "text"]
    refuses("text among the values", InvalidInput, storage.append_batch, text)
    one: Any = b"value"
    refuses("one value instead of a sequence", InvalidInput, storage.append_batch, one)
    same("the next offset", storage.append_batch([b"x"]).base_offset, 0)


def a_message_that_is_not_there_is_a_typed_error(storage: CheckedStorage, _clock: ManualClock) -> None:
    """`OffsetError` beyond the end; a negative offset is never one."""
    refuses("fetch of offset 0 of nothing", OffsetError, storage.fetch_by_offset, 0)
    put(storage, 2)
    refuses("fetch of the offset after the last", OffsetError, storage.fetch_by_offset, 2)
    refuses("fetch of offset -1", (OffsetError, InvalidInput), storage.fetch_by_offset, -1)


def a_message_stays_until_every_group_is_done_with_it(storage: CheckedStorage, clock: ManualClock) -> None:
    """One group's acknowledgement takes nothing from another, or from a reader that knows the offset."""
    values = put(storage, 3)
    give(storage, clock, 0, group="slow")
    available(storage, "quick")
    storage.ack("quick", [0, 1, 2])
    same("the messages", [storage.fetch_by_offset(offset).value for offset in range(3)], values)
    same("what the slow group may be given", available(storage, "slow"), [1, 2])


# Availability.


def messages_are_available_in_the_order_of_their_offsets(storage: CheckedStorage, _clock: ManualClock) -> None:
    """As many as were asked for, from the first on, and a count of no deliveries."""
    values = put(storage, 5)
    same("three of five", available(storage, messages_max=3), [0, 1, 2])
    same("all", available(storage), [0, 1, 2, 3, 4])
    same("none", available(storage, messages_max=0), [])
    messages = storage.fetch_available("workers", 9)
    same("the values", [message.value for message in messages], values)
    same("the delivery counts", [message.deliveries for message in messages], [0] * 5)


def looking_marks_nothing(storage: CheckedStorage, _clock: ManualClock) -> None:
    """`fetch_available` may be called as often as one likes."""
    put(storage, 3)
    for _ in range(DELIVERIES_MAX + 2):
        same("what is available", available(storage), [0, 1, 2])
    same("the dead letters", storage.dead_letters("workers"), [])


def what_is_in_flight_is_not_available(storage: CheckedStorage, clock: ManualClock) -> None:
    """A mark keeps others away until its deadline, and counts."""
    put(storage, 3)
    deadline_ns = later(clock)
    storage.fetch_available("workers", 1)
    given = storage.mark_inflight("workers", [2, 0], deadline_ns)
    same("the deliveries, in the order asked", given, [Delivery(2, 1, deadline_ns), Delivery(0, 1, deadline_ns)])
    same("what is available", available(storage), [1])
    clock.advance(VISIBLE_S - 1)
    same("what is available before the deadline", available(storage), [1])


def marks_are_all_or_none(storage: CheckedStorage, clock: ManualClock) -> None:
    """One offset that is in flight or acknowledged, and none of the others is marked or counted."""
    put(storage, 4)
    give(storage, clock, 1)
    storage.ack("workers", [3])
    refuses("a mark of one that is in flight", Conflict, give, storage, clock, 0, 1, 2)
    refuses("a mark of one that is acknowledged", Conflict, give, storage, clock, 0, 2, 3)
    refuses("a mark that names one twice", InvalidInput, give, storage, clock, 0, 0)
    same("what is available", available(storage), [0, 2])
    same("the counts of later marks", [given.deliveries for given in give(storage, clock, 0, 2)], [1, 1])
    same("the delivery that was in the way", storage.extend("workers", 1, later(clock), 1).deliveries, 1)


def two_callers_are_never_given_the_same_message(storage: CheckedStorage, clock: ManualClock) -> None:
    """All look at once and then mark at once: one of them gets what all saw, the others `Conflict`."""
    put(storage, 2 * _ROUNDS)
    storage.fetch_available("workers", 0)
    given: list[int] = []
    failures: list[BaseException] = []
    together = threading.Barrier(_CALLERS)

    def take() -> None:
        try:
            for _ in range(_ROUNDS):
                together.wait(_HANGS_S)
                seen = available(storage, messages_max=2)
                together.wait(_HANGS_S)
                with suppress(Conflict):
                    given.extend(one.offset for one in storage.mark_inflight("workers", seen, later(clock)))
        except BaseException as error:  # noqa: BLE001 - told below, in the thread of the check
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=take, daemon=True) for _ in range(_CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_ROUNDS * _HANGS_S)
    same("what the callers met", failures, [])
    same("what was given", sorted(given), list(range(2 * _ROUNDS)))


# Acknowledging.


def acknowledged_messages_never_come_back(storage: CheckedStorage, clock: ManualClock) -> None:
    """In flight or not, an acknowledgement is for good."""
    put(storage, 4)
    give(storage, clock, 0)
    same("news of [0, 2]", storage.ack("workers", [0, 2]), 2)
    clock.advance(10 * VISIBLE_S)
    same("what expired", storage.list_expired(clock.now_ns()), [])
    same("what is available", available(storage), [1, 3])
    refuses("giving an acknowledged one back", StaleDelivery, storage.nack, "workers", 0, clock.now_ns())
    refuses("extending an acknowledged one", StaleDelivery, storage.extend, "workers", 0, later(clock))


def acknowledgements_come_in_any_order_and_twice(storage: CheckedStorage, _clock: ManualClock) -> None:
    """Each is counted as news once."""
    put(storage, 6)
    storage.fetch_available("workers", 0)
    same("news of [4]", storage.ack("workers", [4]), 1)
    same("news of [5, 0, 4]", storage.ack("workers", [5, 0, 4]), 2)
    same("news of [5, 0, 4] again", storage.ack("workers", iter([5, 0, 4])), 0)
    same("news of [1, 1]", storage.ack("workers", [1, 1]), 1)
    same("news of nothing", storage.ack("workers", []), 0)
    same("what is available", available(storage), [2, 3])


def acknowledgements_from_far_ahead_are_kept(storage: CheckedStorage, _clock: ManualClock) -> None:
    """There is no window that they could fall out of."""
    put(storage, FAR)
    storage.fetch_available("workers", 0)
    ahead = [FAR - 1, FAR // 2, *range(1, FAR, 1000)]
    same("news from far ahead", storage.ack("workers", ahead), len(set(ahead)))
    wanted = sorted(set(range(FAR)) - set(ahead))
    expect(available(storage) == wanted, "what is available should be all but the acknowledged ones")
    same("news of the rest", storage.ack("workers", wanted), len(wanted))
    same("what is available in the end", available(storage), [])


def a_late_acknowledgement_counts(storage: CheckedStorage, clock: ManualClock) -> None:
    """Done is done, also when the deadline has passed or another taker has it now."""
    put(storage, 2)
    give(storage, clock, 0, 1)
    clock.advance(VISIBLE_S + 1)
    same("news of an expired one", storage.ack("workers", [0]), 1)
    same("what is available", available(storage), [1])
    give(storage, clock, 1)
    same("news of one that another taker has", storage.ack("workers", [1]), 1)
    same("what is available in the end", available(storage), [])


def messages_that_do_not_exist_cannot_be_answered(storage: CheckedStorage, clock: ManualClock) -> None:
    """Beyond the end is refused, and nothing of that call is done."""
    put(storage, 2)
    storage.fetch_available("workers", 0)
    refuses("an acknowledgement beyond the end", OffsetBeyondEnd, storage.ack, "workers", [0, 2])
    refuses("a mark beyond the end", OffsetBeyondEnd, give, storage, clock, 1, 2)
    same("what is available", available(storage), [0, 1])
    storage.append_batch([b"later"])
    same("what is available after one more", available(storage), [0, 1, 2])


MESSAGE_CHECKS: tuple[QueueStorageCheck, ...] = (
    appended_messages_stand_under_contiguous_offsets,
    an_empty_append_adds_nothing,
    a_bad_append_adds_nothing,
    a_message_that_is_not_there_is_a_typed_error,
    a_message_stays_until_every_group_is_done_with_it,
    messages_are_available_in_the_order_of_their_offsets,
    looking_marks_nothing,
    what_is_in_flight_is_not_available,
    marks_are_all_or_none,
    two_callers_are_never_given_the_same_message,
    acknowledged_messages_never_come_back,
    acknowledgements_come_in_any_order_and_twice,
    acknowledgements_from_far_ahead_are_kept,
    a_late_acknowledgement_counts,
    messages_that_do_not_exist_cannot_be_answered,
)
