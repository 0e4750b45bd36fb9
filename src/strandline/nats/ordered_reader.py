"""A reader of a stream in order, which goes on by itself after whatever happens to its connection.

One ephemeral push consumer delivers without acknowledgements, under flow control and with heartbeats, over a connection
of its own; questions to the API go over a second one, so that an answer never waits behind data.

Invariants: revisions only grow; none is handed out twice, and none is skipped that the stream held when its turn came.
A gap in the consumer's numbers, missing heartbeats, a lost connection or a lost consumer lead to a new consumer after
the frontier; before and after it is made, the stream must reach back there and be the same stream, else it is
`PositionExpired` (`StreamReplaced`, `StreamPurged`). What came before an error is handed out before it is raised. Every
wait has a limit: that of `read`, that of the settings for each question, and `outage_s` for all attempts to go on.

The members of a replicated stream apply a write at different times. A consumer delivers from one member and the leader
tells the state, so the leader may be behind what was delivered, and the consumer behind what the leader tells. The
first is waited for. The second is proved by two looks, at both of which the leader delivers itself, or says that the
member has its whole log; then `backstop_s` lies between them, or `SILENCE_S` for being current. Of a member that stays
out of step nothing is proved: the frontier is its last message. The limits: a server does not tell what a member has
applied of its log, so one that takes longer for that than lies between the looks is taken for up to date; and before a
skipped revision the leader is only waited for up to what is known of the member, which leaves out others' subjects
unless a sentinel reads them.
"""

import os
import random
import time
from types import TracebackType
from typing import Self

from strandline.errors import Closed, StrandlineError
from strandline.nats.cancellation import CancelToken
from strandline.nats.deadline import Deadline
from strandline.nats.deliveries import Delivered
from strandline.nats.errors import (
    ConnectionDropped,
    DeliveryBroken,
    JetStreamDisabled,
    NoAnswer,
    PositionExpired,
    ServerRefused,
    StreamNotFound,
    StreamPurged,
    StreamReplaced,
    Unreachable,
)
from strandline.nats.floor_guard import FloorGuard
from strandline.nats.jetstream import JetStreamApi, Standing
from strandline.nats.push_consumer import PushConsumer
from strandline.nats.read_plan import Overrun, ReadPlan
from strandline.nats.sentinel import Sentinel
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket, wait_for_any
from strandline.nats.streams import StreamState
from strandline.wire import pattern_covers

PAUSE_S = 0.02
PAUSE_S_MAX = 2.0
SILENCE_S = 1.0
"""How long a reader that is not current waits for what was announced, before it asks whether it still comes."""

NOT_FOUND_S = 2.0
"""How long a stream that was there may seem to be gone, while servers elect their leaders."""

LAG_S = 10.0
"""How long the leader of a replicated stream may be behind what another member has delivered, while reads wait."""

LAG_PAUSE_S_MAX = 0.5

_PASSING = (ConnectionDropped, Unreachable, NoAnswer, ServerRefused, JetStreamDisabled, DeliveryBroken)
"""What may be different in a moment, where it worked before."""


class OrderedReader:
    """Reads messages as columns; one thread reads, any thread may close."""

    def __init__(
        self,
        settings: NatsSettings,
        plan: ReadPlan,
        api: JetStreamApi,
        state: StreamState,
        cancel: CancelToken | None = None,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._api = api
        self.state = state
        """The stream as it was when the reader was opened."""
        self._guard = FloorGuard(state.last if plan.after is None else plan.after)
        self._doubted = state.last if plan.after is None and self._is_replicated else 0
        self._attachment: PushConsumer | None = None
        self._sentinel: Sentinel | None = None
        self._position = plan.after or 0
        self._is_current = False
        self._goal = 0
        self._pending = 0
        self._failure: StrandlineError | None = None
        self._has_seen_messages = False
        self._deadline = Deadline(LAG_S)
        self._behind_s = 0.0
        """How long the leader has been waited for."""
        self._probed_last = 0
        self._probed_member: str | None = None
        """The member that was in step at the look before, "" if it was not, None if this consumer had no look."""
        self._closing = cancel or CancelToken()
        self._pid = os.getpid()
        self._checked_at = 0.0
        self._came_at = 0.0
        self._lost_at = 0.0
        self._pause_s = PAUSE_S
        self.recoveries = 0
        """How often delivery had to begin anew."""

    @staticmethod
    def open(settings: NatsSettings, plan: ReadPlan, cancel: CancelToken | None = None) -> "OrderedReader":
        """Return a reader that is attached; `cancel` closes it, and ends the wait for it, from any thread.

        `StreamNotFound` if there is no stream, `PositionExpired` if the plan's sequence lies before its first or after
        its last one; what a connection may raise.
        """
        cancel = cancel or CancelToken()
        api = JetStreamApi(NatsSocket.connect(settings, cancel=cancel), settings.api_prefix)
        try:
            reader = OrderedReader(settings, plan, api, api.stream(plan.stream), cancel)
        except BaseException:
            api.connection.close()
            raise
        try:
            reader._attach()
        except BaseException:
            reader.close()
            raise
        return reader

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a reader cannot be pickled; pickle its settings and plan, and open it there")

    @property
    def position(self) -> int:
        """Return the last revision that was handed out, or the one that the reader began after."""
        return self._position

    @property
    def frontier(self) -> int:
        """Return the revision up to which everything in scope was handed out; a cursor may be moved there."""
        if self._is_within_state or self._position < self._doubted:
            return self._position
        return max(self._guard.frontier, self._position)

    @property
    def pending(self) -> int:
        """Return how many messages waited behind the last one, when it was sent."""
        return self._pending

    @property
    def is_current(self) -> bool:
        """Tell whether everything that was there when the reader was opened was handed out."""
        return self._is_current

    def close(self) -> None:
        """Detach; a second time does nothing. A read under way in another thread ends with `Closed`."""
        self._closing.set()
        self._detach()

    def read(self, timeout_s: float) -> Delivered | None:
        """Return messages as soon as there are any, None if none come within a time or the reader is current without.

        It is so when what was still to come was removed before it was sent.
        """
        self._check_usable()
        deadline = self._deadline = Deadline(timeout_s)
        was_current = self._is_current
        try:
            while True:
                delivered = self._attempt(deadline)
                if delivered is not None:
                    return delivered
                if not deadline.left_s() or self._is_current is not was_current:
                    return None
        except StrandlineError as failure:
            self._failure = failure
            self._detach()
            raise

    def _attempt(self, deadline: Deadline) -> Delivered | None:
        try:
            return self._receive(self._attachment or self._attach(), deadline)
        except _PASSING as lost:
            self._lose(lost, deadline)
        except StreamNotFound as gone:
            if self._closing.is_set() or self._lost_for_s() > NOT_FOUND_S:
                raise
            self._lose(gone, deadline)
        return None

    def _receive(self, attachment: PushConsumer, deadline: Deadline) -> Delivered | None:
        """Wait for messages, the sentinel's news or the next look at the stream, whatever is first."""
        until_check = max(self._next_look_at() - time.monotonic(), 0.0)
        wait_s = min(deadline.left_s(), until_check)
        if self._sentinel is not None:
            delivered = attachment.receive(0.0)
            if delivered is None and not self._sentinel.look(self._check_applied):
                self._wait_for_either(wait_s)
        else:
            delivered = attachment.receive(wait_s)
        if delivered is not None:
            self._came_at = time.monotonic()
            delivered = self._checked(delivered)
        elif not until_check:
            self._look_after(attachment)
        return delivered

    def _next_look_at(self) -> float:
        """Return when to look at the stream if nothing comes: soon while more was announced, for it may be gone."""
        backstop_at = self._checked_at + self._plan.backstop_s
        if self._is_current:
            return backstop_at
        if self._is_replicated and not self._pending and self._probed_member is None:
            return self._checked_at
        return min(backstop_at, max(self._checked_at, self._came_at) + SILENCE_S)

    def _checked(self, delivered: Delivered) -> Delivered | None:
        """Return what may be handed out; the failure that follows it, if one does, is kept for the next read."""
        known = int((delivered.sequences <= self._position).sum())  # sent again within the state of each subject
        if known == len(delivered):
            self._advance(delivered)
            return None
        delivered = delivered.slice(known, len(delivered)) if known else delivered
        gap = self._guard.gap(delivered.sequences) if self._is_watched else None
        if gap is not None:
            # Nothing is noted before the answer is there: if it is not, all of this will come again.
            applied = int(delivered.sequences[-1]) + delivered.pending  # the member that sent it had at least so many
            try:
                self._check_floor(int(delivered.sequences[gap - 1]) if gap else 0, applied)
            except PositionExpired as expired:
                if not gap:
                    raise
                self._failure = expired
                delivered = delivered.slice(0, gap)
        self._advance(delivered)
        return delivered

    def _advance(self, delivered: Delivered) -> None:
        self._position = max(self._position, int(delivered.sequences[-1]))
        self._pending = delivered.pending
        self._has_seen_messages = True
        self._guard.deliver(self._position)
        self._note_current()

    def _note_current(self) -> None:
        """Note whether the reader is current, as far as the consumer tells: a member that lags has nothing to send."""
        is_sent = not self._pending and not self._is_replicated
        self._is_current = self._is_current or is_sent or self._position >= self._goal

    def _attach(self) -> PushConsumer:
        """Make a consumer after the frontier; the stream is looked at before and after."""
        api = self._connected_api()
        before = self._stream_state(api)
        self._check_stream(before)
        attachment = self._attachment = PushConsumer.begin(
            self._settings, api, self._plan, self._start(), self._closing
        )
        if self._plan.overrun is Overrun.SENTINEL and not self._reads_all:
            self._guard.begin_anew()
            self._sentinel = Sentinel.begin(self._settings, api, self._plan, self._guard, self._closing)
        state = self._stream_state(api)
        self._check_stream(state)
        if not attachment.pending and not self._is_within_state and not self._is_replicated:
            self._guard.prove(before.last)  # a consumer that was made later has nothing to send up to there
        self._goal = self._goal or state.last
        self._pending = attachment.pending
        self._probed_member = None
        self._note_current()
        self._checked_at = time.monotonic()
        self._lost_at, self._pause_s = 0.0, PAUSE_S
        return attachment

    def _start(self) -> int | None:
        """Return where delivery begins; None for the last message of each subject.

        A state that was handed out in part goes on after its last revision. If older values are kept they are told as
        well; for an exact state all of it is sent again, and what is known is left out.
        """
        keeps_more = self._plan.exact_state and self.state.per_subject_max != 1
        if self._is_within_state and (not self._position or keeps_more):
            return None
        return self.frontier + 1

    def _connected_api(self) -> JetStreamApi:
        if self._api.connection.is_closed:
            self._check_usable()
            connection = NatsSocket.connect(self._settings, cancel=self._closing)
            self._api = JetStreamApi(connection, self._settings.api_prefix)
        return self._api

    def _check_stream(self, state: StreamState, reached: int = 0) -> None:
        """Raise unless it is the stream that was opened, and it reaches from the frontier to beyond it.

        `reached` is a revision up to which all was received, though not yet handed out.
        """
        frontier = max(self.frontier, reached)
        told = (state.name, frontier, state.first, state.last)
        if not self._is_same(state):
            raise StreamReplaced(*told)
        if not state.messages and self._has_seen_messages and not state.evicts_current_values:
            raise StreamPurged(*told)
        if not self._guard.is_open(state.first, reached) or frontier > state.last:
            raise PositionExpired(*told)
        self._has_seen_messages = self._has_seen_messages or bool(state.messages)

    def _check_floor(self, reached: int = 0, applied: int = 0) -> None:
        self._check_stream(self._stream_state(self._connected_api(), applied), reached)

    def _check_applied(self, applied: int) -> None:
        self._check_floor(applied=applied)

    def _stream_state(self, api: JetStreamApi, applied: int = 0) -> StreamState:
        """Return the stream's state; a leader that is behind what was delivered is given time to apply it.

        `applied` is a revision that the member which delivers has applied. If the time of a read ends before the leader
        has it, the next one begins after the frontier and waits on.
        """
        pause_s = PAUSE_S
        while True:
            state = api.stream(self._plan.stream)
            is_behind = state.replicas > 1 and state.last < max(self.frontier, applied)
            if not is_behind or not self._is_same(state) or self._behind_s >= LAG_S:
                self._behind_s = 0.0
                return state
            left_s = self._deadline.left_s()
            if pause_s > PAUSE_S and not left_s:
                raise DeliveryBroken("the stream's leader has yet to apply what was delivered")
            wait_s = min(pause_s, max(left_s, PAUSE_S))
            self._closing.wait(wait_s)
            self._check_usable()
            self._behind_s += wait_s
            pause_s = min(pause_s * 2, LAG_PAUSE_S_MAX)

    def _is_same(self, state: StreamState) -> bool:
        """Tell whether it is the stream that was opened, or that the plan names."""
        return state.identity == (self._plan.identity or self.state.identity)

    def _look_after(self, attachment: PushConsumer) -> None:
        """Look at the stream, because time has passed; a probe then proves what was its end the time before.

        A reader to which nothing is to be sent any more is current: the rest of what was there has been removed.
        """
        self._checked_at = time.monotonic()
        api = self._connected_api()
        state = self._stream_state(api)
        if self._is_watched:
            self._check_stream(state)
        elif state.identity != self.state.identity:
            raise StreamReplaced(state.name, self.frontier, state.first, state.last)
        probes = self._needs_proof(state.last)
        if probes or not self._is_current or self._position < self._doubted:
            told = api.consumer_standing(self._plan.stream, attachment.name)
            if told is None:
                raise DeliveryBroken("its consumer is gone")
            # What waits is asked after where the stream ended, and the window after both.
            leads, keeps_up = self._judge_member(told, state)
            if (told.pending, told.number) == (0, attachment.number):
                if leads or (keeps_up and self._is_current):  # until then `backstop_s` was not waited
                    proven = min(self._probed_last, state.last)
                    if probes:
                        self._check_stream(self._stream_state(api))
                        self._guard.prove(proven)
                    self._doubted = 0 if proven >= self._doubted else self._doubted
                self._is_current, self._pending = self._is_current or keeps_up, 0
            self._probed_last = state.last
            self._checked_at = time.monotonic()  # an answer that was long in coming leaves the same time to the next

    def _judge_member(self, told: Standing, state: StreamState) -> tuple[bool, bool]:
        """Tell whether the member that delivers is the one that tells the state, and whether it keeps up with it."""
        if not self._is_replicated:
            return True, True
        leads = bool(told.member) and told.member == state.leader
        in_step = told.member in state.in_step
        keeps_up = leads or (in_step and self._probed_member == told.member)
        self._probed_member = told.member if leads or in_step else ""
        return leads, keeps_up

    def _needs_proof(self, last: int) -> bool:
        """Tell whether a probe can move the frontier: over others' subjects, or over an end that was removed."""
        if self._reads_all:
            return self._is_current and self.frontier < last
        return self._plan.overrun is Overrun.PROBE

    @property
    def _reads_all(self) -> bool:
        return all(any(pattern_covers(own, one) for own in self._plan.filters) for one in self.state.subjects)

    @property
    def _is_replicated(self) -> bool:
        return self.state.replicas > 1

    @property
    def _is_watched(self) -> bool:
        return self._reads_all or self._plan.overrun is not Overrun.UNWATCHED

    @property
    def _is_within_state(self) -> bool:
        return self._plan.after is None and not self._is_current

    def _wait_for_either(self, timeout_s: float) -> None:
        """Wait until the reader's or the sentinel's connection has something."""
        attachments = self._attachments()
        began = time.monotonic()
        if not wait_for_any([attachment.connection for attachment in attachments], timeout_s):
            for attachment in attachments:
                attachment.have_waited(time.monotonic() - began)

    def _attachments(self) -> list[PushConsumer]:
        sentinel = None if self._sentinel is None else self._sentinel.attachment
        return [found for found in (self._attachment, sentinel) if found is not None]

    def _detach(self) -> None:
        for attachment in self._attachments():
            attachment.close()
        self._api.connection.close()

    def _lost_for_s(self) -> float:
        return time.monotonic() - self._lost_at if self._lost_at else 0.0

    def _lose(self, lost: StrandlineError, deadline: Deadline) -> None:
        """Let go of what is left of a delivery, and pause before the next; raise if it has been lost for too long."""
        self._check_usable()
        if not self._lost_at:
            self._lost_at = time.monotonic()
            self.recoveries += 1
        if self._lost_for_s() > self._plan.outage_s:
            raise lost
        attachments = self._attachments()
        self._attachment = self._sentinel = None
        for attachment in attachments:
            attachment.dismiss(self._api if isinstance(lost, DeliveryBroken) else None)
        if not isinstance(lost, DeliveryBroken):
            self._api.connection.close()
        self._closing.wait(min(self._pause_s * random.uniform(0.5, 1.0), deadline.left_s()))  # noqa: S311 - no secret
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise Closed("a reader of another process")
        if self._closing.is_set():
            raise Closed("the reader")
        if self._failure is not None:
            raise self._failure
