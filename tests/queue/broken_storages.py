"""Storages that each break one promise, as a hasty implementation might; the contract has to catch every one."""

from collections.abc import Iterable, Sequence

from strandline.clock import ManualClock
from strandline.errors import Conflict, InvalidInput, OffsetBeyondEnd
from strandline.groups import Delivery, GroupState
from strandline.journal import Appended
from strandline.queue import DeadLetter, Expired, MemoryStorage, Message, QueueConfig
from strandline.testing import DELIVERIES_MAX

WINDOW = 4096


class Broken(MemoryStorage):
    """The twin in memory, from which the others derive; whole as it is."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(QueueConfig(deliveries_max=DELIVERIES_MAX), clock=clock)


class DropsKeys(Broken):
    def append_batch(
        self, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None, headers: Sequence[bytes] | None = None
    ) -> Appended:
        super().append_batch([], keys=keys and [])
        return super().append_batch(values, headers=headers)


class AppendsSomethingForNothing(Broken):
    def append_batch(
        self, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None, headers: Sequence[bytes] | None = None
    ) -> Appended:
        appended = super().append_batch(values or [b""], keys=keys, headers=headers)
        return Appended(appended.base_offset, len(values))


class AppendsWhatFits(Broken):
    def append_batch(
        self, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None, headers: Sequence[bytes] | None = None
    ) -> Appended:
        try:
            return super().append_batch(values, keys=keys, headers=headers)
        except InvalidInput:
            super().append_batch(values[:1])
            raise


class RaisesIndexError(Broken):
    def fetch_by_offset(self, offset: int) -> Message:
        return self._messages[offset]


class RemovesWhatOneGroupAcknowledged(Broken):
    def ack(self, group: str, offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        news = super().ack(group, offsets)
        for offset in offsets:
            self._messages[offset] = Message(offset, b"", None, None, 0)
        return news


class GivesTheNewestFirst(Broken):
    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        return super().fetch_available(group, messages_max)[::-1]


class CountsLooking(Broken):
    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        messages = super().fetch_available(group, messages_max)
        for message in messages:
            self._groups[group].put_waiting(message.offset, 0, message.deliveries + 1)
        return messages


class HidesNothing(Broken):
    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        state = self._groups.setdefault(group, GroupState())
        super().fetch_available(group, messages_max)
        return [self._message(state, at) for at in range(len(self._messages)) if not state.is_acked(at)][:messages_max]


class MarksPartially(Broken):
    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        return [super(MarksPartially, self).mark_inflight(group, [offset], deadline_ns)[0] for offset in offsets]


class GivesToEverybody(Broken):
    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        try:
            return super().mark_inflight(group, offsets, deadline_ns)
        except Conflict:
            return [Delivery(offset, 1, deadline_ns) for offset in offsets]


class ForgetsAcksOfWhatIsInFlight(Broken):
    def ack(self, group: str, offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        state = self._group(group)
        news = super().ack(group, [offset for offset in offsets if not state.is_inflight(offset)])
        return news + sum(state.is_inflight(offset) for offset in offsets)


class CountsEveryAckAsNews(Broken):
    def ack(self, group: str, offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        super().ack(group, offsets)
        return len(offsets)


class DropsAcksFromFarAhead(Broken):
    def ack(self, group: str, offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        floor = self._group(group).acked_until
        super().ack(group, [offset for offset in offsets if offset < floor + WINDOW])
        return len(set(offsets))


class RefusesLateAcks(Broken):
    def ack(self, group: str, offsets: Iterable[int]) -> int:
        self._group(group).pop_expired(self._clock.now_ns())
        return super().ack(group, [offset for offset in offsets if not self._group(group).is_waiting(offset)])


class AnswersForWhatIsNotThere(Broken):
    def ack(self, group: str, offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        try:
            return super().ack(group, offsets)
        except OffsetBeyondEnd:
            return self._group(group).ack_many(offsets)


class _Forgetful(GroupState):
    def pop_expired(self, now_ns: int) -> list[int]:
        expired = super().pop_expired(now_ns)
        for offset in expired:
            self.put_waiting(offset, now_ns, 0)
        return expired


class ForgetsCounts(Broken):
    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        self._groups.setdefault(group, _Forgetful())
        return super().fetch_available(group, messages_max)


class _Lossy(GroupState):
    def pop_expired(self, now_ns: int) -> list[int]:
        expired = super().pop_expired(now_ns)
        for offset in expired:
            self._waiting.remove(offset)
        return expired


class LosesWhatExpired(Broken):
    """Takes it out of what is in flight, and puts it nowhere."""

    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        self._groups.setdefault(group, _Lossy())
        return super().fetch_available(group, messages_max)


class NoticesExpiryOnlyWhenAsked(Broken):
    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        before, self._clock = self._clock, ManualClock(0)
        try:
            return super().fetch_available(group, messages_max)
        finally:
            self._clock = before


class ListsAllThatIsInFlight(Broken):
    def list_expired(self, now_ns: int) -> list[Expired]:  # noqa: ARG002
        for state in self._groups.values():
            state.pop_expired(2**62)
        return [
            Expired(name, self._message(state, entry.offset))
            for name, state in self._groups.items()
            for entry in state.waiting()
        ]


class DoesNotExtend(Broken):
    def extend(self, group: str, offset: int, deadline_ns: int, epoch: int | None = None) -> Delivery:
        super().extend(group, offset, self._clock.now_ns() + 1, epoch)
        return Delivery(offset, 1, deadline_ns)


class DoesNotWait(Broken):
    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        super().nack(group, offset, min(ready_ns, self._clock.now_ns()), epoch)


class IgnoresEpochs(Broken):
    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:  # noqa: ARG002
        super().nack(group, offset, ready_ns)


class SharesOneGroup(Broken):
    def _share(self, group: str) -> None:
        if self._groups:
            self._groups.setdefault(group, next(iter(self._groups.values())))

    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        self._share(group)
        return super().fetch_available(group, messages_max)


class KnowsEveryGroup(Broken):
    def _group(self, name: str) -> GroupState:
        return self._groups.setdefault(name, GroupState())


class TakesBadInput(Broken):
    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        return super().fetch_available(group or "workers", abs(messages_max))


class NeverGivesUp(Broken):
    def _bury(self, group: str, state: GroupState, offsets: Iterable[int]) -> bool:  # noqa: ARG002
        return False


class WritesTheLetterTwice(Broken):
    def _bury(self, group: str, state: GroupState, offsets: Iterable[int]) -> bool:
        before = len(self._dead)
        buried = super()._bury(group, state, offsets)
        self._dead += self._dead[before:]
        return buried


class AcknowledgesWithoutALetter(Broken):
    def _bury(self, group: str, state: GroupState, offsets: Iterable[int]) -> bool:
        buried = super()._bury(group, state, offsets)
        self._dead.clear()
        return buried


class GivesUpWhenTheLastDeliveryBegins(Broken):
    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        given = super().mark_inflight(group, offsets, deadline_ns)
        self._bury(group, self._group(group), offsets)
        return given


class GivesUpOnlyWhenGivenBack(Broken):
    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        super().nack(group, offset, ready_ns, epoch)
        super()._bury(group, self._group(group), [offset])

    def _bury(self, group: str, state: GroupState, offsets: Iterable[int]) -> bool:  # noqa: ARG002
        return False


class ShowsEverybodysLetters(Broken):
    def dead_letters(self, group: str) -> list[DeadLetter]:  # noqa: ARG002
        return list(self._dead)


CAUGHT_BY: dict[type[Broken], str] = {
    DropsKeys: "appended_messages_stand_under_contiguous_offsets",
    AppendsSomethingForNothing: "an_empty_append_adds_nothing",
    AppendsWhatFits: "a_bad_append_adds_nothing",
    RaisesIndexError: "a_message_that_is_not_there_is_a_typed_error",
    RemovesWhatOneGroupAcknowledged: "a_message_stays_until_every_group_is_done_with_it",
    GivesTheNewestFirst: "messages_are_available_in_the_order_of_their_offsets",
    CountsLooking: "looking_marks_nothing",
    HidesNothing: "what_is_in_flight_is_not_available",
    MarksPartially: "marks_are_all_or_none",
    GivesToEverybody: "two_callers_are_never_given_the_same_message",
    ForgetsAcksOfWhatIsInFlight: "acknowledged_messages_never_come_back",
    CountsEveryAckAsNews: "acknowledgements_come_in_any_order_and_twice",
    DropsAcksFromFarAhead: "acknowledgements_from_far_ahead_are_kept",
    RefusesLateAcks: "a_late_acknowledgement_counts",
    AnswersForWhatIsNotThere: "messages_that_do_not_exist_cannot_be_answered",
    ForgetsCounts: "an_expired_message_is_available_again_and_keeps_its_count",
    LosesWhatExpired: "an_expired_message_is_available_again_and_keeps_its_count",
    NoticesExpiryOnlyWhenAsked: "an_expired_message_is_available_again_and_keeps_its_count",
    ListsAllThatIsInFlight: "only_what_expired_is_listed",
    DoesNotExtend: "an_extended_delivery_expires_later",
    DoesNotWait: "a_message_that_is_given_back_waits_as_long_as_asked",
    IgnoresEpochs: "answers_for_a_delivery_that_is_over_are_refused",
    SharesOneGroup: "groups_do_not_see_one_another",
    KnowsEveryGroup: "a_group_that_was_never_given_anything_is_unknown",
    TakesBadInput: "bad_input_is_refused_and_changes_nothing",
    NeverGivesUp: "a_message_delivered_too_often_becomes_one_dead_letter",
    WritesTheLetterTwice: "a_message_delivered_too_often_becomes_one_dead_letter",
    AcknowledgesWithoutALetter: "a_message_delivered_too_often_becomes_one_dead_letter",
    GivesUpWhenTheLastDeliveryBegins: "a_message_on_its_last_delivery_is_not_given_up",
    GivesUpOnlyWhenGivenBack: "an_expired_last_delivery_makes_a_dead_letter",
    ShowsEverybodysLetters: "a_group_gives_up_for_itself_alone",
}
"""Which check has to catch which storage; together they are all checks."""
