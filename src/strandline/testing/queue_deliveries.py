"""The contract of `QueueStorage`, second half: deadlines, answers, groups, and dead letters."""

from strandline.clock import ManualClock
from strandline.errors import Conflict, InvalidInput, StaleDelivery
from strandline.groups import Delivery
from strandline.testing.contract import refuses, same
from strandline.testing.queue_helpers import (
    DELIVERIES_MAX,
    VISIBLE_S,
    CheckedStorage,
    QueueStorageCheck,
    available,
    give,
    later,
    offsets_of,
    put,
    wear,
)

# Time.


def an_expired_message_is_available_again_and_keeps_its_count(storage: CheckedStorage, clock: ManualClock) -> None:
    """Whether or not `list_expired` was called."""
    put(storage, 2)
    same("the first delivery", give(storage, clock, 0)[0].deliveries, 1)
    clock.advance(VISIBLE_S)
    messages = {message.offset: message.deliveries for message in storage.fetch_available("workers", 9)}
    same("what is available, and its counts", messages, {0: 1, 1: 0})
    same("the second delivery", give(storage, clock, 0)[0].deliveries, 2)
    clock.advance(VISIBLE_S)
    same("what expired", [expired.message.deliveries for expired in storage.list_expired(clock.now_ns())], [2])
    same("the third delivery", give(storage, clock, 0)[0].deliveries, 3)


def only_what_expired_is_listed(storage: CheckedStorage, clock: ManualClock) -> None:
    """Of all groups, each delivery once, whole, and nothing else changes."""
    storage.append_batch([b"a", b"b"], keys=[b"k", b"l"])
    put(storage, 100)
    first_ns = later(clock, 5)
    for group, offset in (("workers", 0), ("others", 1)):
        storage.fetch_available(group, 0)
        storage.mark_inflight(group, [offset], first_ns)
    give(storage, clock, *range(2, 102))
    same("what expired before the deadline", storage.list_expired(first_ns - 1), [])
    clock.advance(5)
    expired = {(group, *message) for group, message in storage.list_expired(first_ns)}
    same("what expired", expired, {("workers", 0, b"a", b"k", None, 1), ("others", 1, b"b", b"l", None, 1)})
    same("what expired since", storage.list_expired(first_ns), [])
    same("what is available", sorted(available(storage)), [0, 1])
    same("what is available to the others", sorted(available(storage, "others")), list(range(102)))


def an_extended_delivery_expires_later(storage: CheckedStorage, clock: ManualClock) -> None:
    """From the new deadline on, and it is the same delivery."""
    put(storage, 1)
    give(storage, clock, 0)
    deadline_ns = later(clock, 2 * VISIBLE_S)
    same("the extended delivery", storage.extend("workers", 0, deadline_ns, 1), Delivery(0, 1, deadline_ns))
    clock.advance(VISIBLE_S + 1)
    same("what expired by the old deadline", storage.list_expired(clock.now_ns()), [])
    same("what is available after the old deadline", available(storage), [])
    clock.advance(VISIBLE_S)
    same("what is available after the new one", available(storage), [0])


def a_message_that_is_given_back_waits_as_long_as_asked(storage: CheckedStorage, clock: ManualClock) -> None:
    """It delays no other message, and keeps its count."""
    put(storage, 3)
    give(storage, clock, 0, 1)
    storage.nack("workers", 0, later(clock, 10))
    storage.nack("workers", 1, clock.now_ns())
    same("what is available at once", sorted(available(storage)), [1, 2])
    clock.advance(9)
    same("what is available too early", sorted(available(storage)), [1, 2])
    same("what expired", storage.list_expired(clock.now_ns()), [])
    clock.advance(1)
    same("what is available in time", sorted(available(storage)), [0, 1, 2])
    same("the second deliveries", [given.deliveries for given in give(storage, clock, 0, 1)], [2, 2])


def answers_for_a_delivery_that_is_over_are_refused(storage: CheckedStorage, clock: ManualClock) -> None:
    """The number of a delivery is its epoch, and only the current one may be given back or extended."""
    put(storage, 2)
    refuses("giving back what was not delivered", StaleDelivery, _nack_fresh, storage, clock)
    give(storage, clock, 0)
    clock.advance(VISIBLE_S + 1)
    storage.list_expired(clock.now_ns())
    refuses("giving back what expired", StaleDelivery, storage.nack, "workers", 0, clock.now_ns(), 1)
    refuses("extending what expired", StaleDelivery, storage.extend, "workers", 0, later(clock), 1)
    give(storage, clock, 0)
    refuses("giving back an earlier delivery", StaleDelivery, storage.nack, "workers", 0, clock.now_ns(), 1)
    refuses("extending an earlier delivery", StaleDelivery, storage.extend, "workers", 0, later(clock), 1)
    same("what is available", available(storage), [1])
    storage.nack("workers", 0, clock.now_ns(), 2)
    refuses("giving the same delivery back twice", StaleDelivery, storage.nack, "workers", 0, clock.now_ns(), 2)
    same("what is available in the end", sorted(available(storage)), [0, 1])


def _nack_fresh(storage: CheckedStorage, clock: ManualClock) -> None:
    storage.fetch_available("workers", 0)
    storage.nack("workers", 1, clock.now_ns())


# Groups.


def groups_do_not_see_one_another(storage: CheckedStorage, clock: ManualClock) -> None:
    """What one does with a message is nothing to another, whenever that one begins."""
    put(storage, 4)
    give(storage, clock, 0, 1, 2)
    storage.ack("workers", [1])
    storage.nack("workers", 2, later(clock, 99))
    others = storage.fetch_available("others", 9)
    same("what is available to the others", offsets_of(others), [0, 1, 2, 3])
    same("their counts", [message.deliveries for message in others], [0, 0, 0, 0])
    same("their first delivery", give(storage, clock, 0, group="others")[0].deliveries, 1)
    storage.ack("others", [3])
    refuses("an answer for another group's delivery", StaleDelivery, storage.extend, "others", 1, later(clock))
    same("what is available to the first", available(storage), [3])


def a_group_that_was_never_given_anything_is_unknown(storage: CheckedStorage, clock: ManualClock) -> None:
    """Answers for it are a mistake of the caller."""
    put(storage, 1)
    refuses("an acknowledgement", InvalidInput, storage.ack, "unknown", [0])
    refuses("a mark", InvalidInput, storage.mark_inflight, "unknown", [0], later(clock))
    refuses("giving back", InvalidInput, storage.nack, "unknown", 0, clock.now_ns())
    refuses("extending", InvalidInput, storage.extend, "unknown", 0, later(clock))
    same("the dead letters", storage.dead_letters("unknown"), [])


def bad_input_is_refused_and_changes_nothing(storage: CheckedStorage, clock: ManualClock) -> None:
    """A negative offset, count or time, and a name that no group can have."""
    put(storage, 2)
    refuses("a group without a name", InvalidInput, storage.fetch_available, "", 1)
    refuses("fewer than no messages", InvalidInput, storage.fetch_available, "workers", -1)
    give(storage, clock, 1)
    refuses("an acknowledgement of offset -1", InvalidInput, storage.ack, "workers", [0, -1])
    refuses("a mark of offset -1", InvalidInput, give, storage, clock, 0, -1)
    refuses("a deadline before 1970", InvalidInput, storage.mark_inflight, "workers", [0], -1)
    refuses("a deadline beyond 63 bits", InvalidInput, storage.mark_inflight, "workers", [0], 2**63)
    refuses("giving back for a time before 1970", InvalidInput, storage.nack, "workers", 1, -1)
    refuses("extending beyond 63 bits", InvalidInput, storage.extend, "workers", 1, 2**63)
    same("what is available", available(storage), [0])
    same("the delivery", storage.extend("workers", 1, later(clock), 1).deliveries, 1)


# Dead letters.


def a_message_delivered_too_often_becomes_one_dead_letter(storage: CheckedStorage, clock: ManualClock) -> None:
    """Whole, once, and acknowledged: it is never delivered again, however often one looks."""
    storage.append_batch([b"poison", b"fine"], keys=[b"k", b"l"], headers=[b"h", b""])
    wear(storage, clock, 0, DELIVERIES_MAX)
    for _ in range(3):
        same("what is available", available(storage), [1])
        storage.list_expired(clock.now_ns())
    letters = storage.dead_letters("workers")
    same("how many dead letters there are", len(letters), 1)
    same("the dead letter", letters[0], ("workers", 0, b"poison", b"k", b"h", DELIVERIES_MAX, clock.now_ns()))
    same("news of its acknowledgement", storage.ack("workers", [0]), 0)
    refuses("delivering it", Conflict, give, storage, clock, 0)


def a_message_on_its_last_delivery_is_not_given_up(storage: CheckedStorage, clock: ManualClock) -> None:
    """It becomes a dead letter when that delivery fails, not when it begins."""
    put(storage, 2)
    wear(storage, clock, 0, DELIVERIES_MAX - 1)
    same("the last delivery", give(storage, clock, 0)[0].deliveries, DELIVERIES_MAX)
    same("what is available", available(storage), [1])
    same("what expired", storage.list_expired(clock.now_ns()), [])
    same("the dead letters", storage.dead_letters("workers"), [])
    same("news of its acknowledgement", storage.ack("workers", [0]), 1)
    clock.advance(VISIBLE_S + 1)
    same("what is available in the end", available(storage), [1])
    same("the dead letters in the end", storage.dead_letters("workers"), [])


def an_expired_last_delivery_makes_a_dead_letter(storage: CheckedStorage, clock: ManualClock) -> None:
    """Whichever notices first, `list_expired` or `fetch_available`; what died is not listed as expired."""
    put(storage, 2)
    wear(storage, clock, 0, DELIVERIES_MAX - 1)
    wear(storage, clock, 1, DELIVERIES_MAX - 1)
    give(storage, clock, 0)
    clock.advance(VISIBLE_S)
    same("what expired", storage.list_expired(clock.now_ns()), [])
    same("the dead letters", [letter.offset for letter in storage.dead_letters("workers")], [0])
    give(storage, clock, 1)
    clock.advance(VISIBLE_S)
    same("what is available", available(storage), [])
    same("the dead letters, oldest first", [letter.offset for letter in storage.dead_letters("workers")], [0, 1])


def a_group_gives_up_for_itself_alone(storage: CheckedStorage, clock: ManualClock) -> None:
    """Another group still gets the message, and has no dead letter of it."""
    put(storage, 1)
    wear(storage, clock, 0, DELIVERIES_MAX)
    same("what is available", available(storage), [])
    same("what is available to the others", available(storage, "others"), [0])
    same("their dead letters", storage.dead_letters("others"), [])


DELIVERY_CHECKS: tuple[QueueStorageCheck, ...] = (
    an_expired_message_is_available_again_and_keeps_its_count,
    only_what_expired_is_listed,
    an_extended_delivery_expires_later,
    a_message_that_is_given_back_waits_as_long_as_asked,
    answers_for_a_delivery_that_is_over_are_refused,
    groups_do_not_see_one_another,
    a_group_that_was_never_given_anything_is_unknown,
    bad_input_is_refused_and_changes_nothing,
    a_message_delivered_too_often_becomes_one_dead_letter,
    a_message_on_its_last_delivery_is_not_given_up,
    an_expired_last_delivery_makes_a_dead_letter,
    a_group_gives_up_for_itself_alone,
)
