"""One push consumer and the connection that it delivers to, until something is wrong with either.

Invariants: what is returned carries on the consumer's numbers without a gap, from 1 on; anything else is
`DeliveryBroken`, and nothing more comes of this consumer. Flow control is answered when what came before it was taken.
Silence is a fault too: three heartbeats that did not come during a wait.
"""

import contextlib
import secrets
import time

from strandline.errors import StrandlineError
from strandline.nats.cancellation import CancelToken
from strandline.nats.deliveries import Control, Delivered, control_of, receive_deliveries
from strandline.nats.errors import DeliveryBroken
from strandline.nats.jetstream import ConsumerSpec, JetStreamApi
from strandline.nats.read_plan import ReadPlan
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket, new_inbox
from strandline.wire import format_pub

HEARTBEATS_MISSED = 3
LINGER_S = 0.002
MANY = 4096
"""So many that wait make it worth to wait for a larger piece of them."""

FAREWELL_S = 2.0


class PushConsumer:
    """A consumer that delivers; `pending` is what waits behind the last message that was taken."""

    def __init__(self, connection: NatsSocket, plan: ReadPlan, spec: ConsumerSpec, pending: int) -> None:
        self.connection = connection
        self.pending = pending
        self.number = 0
        """The number that the consumer gave to the last message that was taken."""
        self.name = spec.name
        self._plan = plan
        self._patience_s = HEARTBEATS_MISSED * plan.heartbeat_s
        self._silent_s = 0.0
        self._prefix = plan.subject_prefix.encode(errors="surrogateescape")

    @staticmethod
    def begin(
        settings: NatsSettings, api: JetStreamApi, plan: ReadPlan, start: int | None, cancel: CancelToken
    ) -> "PushConsumer":
        """Connect, and have a consumer deliver from a sequence on, or the last of each subject if it is None."""
        connection = NatsSocket.connect(settings, cancel=cancel)
        try:
            inbox = new_inbox(settings.inbox_prefix)
            connection.subscribe(inbox)
            connection.flush()
            name = secrets.token_hex(5)  # short, for it is in every message
            spec = ConsumerSpec(name, inbox, plan.filters, start, plan.headers_only, plan.heartbeat_s)
            pending = api.create_consumer(plan.stream, spec)
        except BaseException:
            connection.close()
            raise
        return PushConsumer(connection, plan, spec, pending)

    def receive(self, timeout_s: float) -> Delivered | None:
        """Return the messages that come within a time, None if none do."""
        began = time.monotonic()
        taken = receive_deliveries(
            self.connection,
            self._prefix,
            times=self._plan.times,
            timeout_s=min(timeout_s, self._patience_s),
            linger_s=LINGER_S if self.pending > MANY else 0.0,
        )
        if taken is None:
            self.have_waited(time.monotonic() - began)
            return None
        self._silent_s = 0.0
        if taken.delivered is not None:
            if not taken.follows(self.number):
                raise DeliveryBroken(f"message {self.number + 1} is missing")
            self.number = taken.last_number
            self.pending = taken.delivered.pending
        if taken.others is not None:
            self._heed(control_of(taken.others))
        return taken.delivered

    def have_waited(self, seconds: float) -> None:
        """Note that nothing came, and raise if that has been so for too long or has another reason.

        Only time spent waiting counts: messages that came in between are still to be read.
        """
        self.connection.raise_refusal()
        self._silent_s += seconds
        if self._silent_s > self._patience_s:
            raise DeliveryBroken("its heartbeats stopped")

    def _heed(self, control: Control) -> None:
        if control.problem:
            raise DeliveryBroken(f"{control.problem} came")
        if control.last_consumer > self.number:
            raise DeliveryBroken(f"messages up to {control.last_consumer} are missing")
        if control.answer_to:
            self.connection.send(b"".join(format_pub(subject, b"") for subject in control.answer_to))

    def close(self) -> None:
        """Disconnect; the server removes the consumer by itself after a while."""
        self.connection.close()

    def dismiss(self, api: JetStreamApi | None) -> None:
        """Disconnect, and remove the consumer now if that is possible."""
        self.close()
        if api is not None and not api.connection.is_closed:
            with contextlib.suppress(StrandlineError):
                api.delete_consumer(self._plan.stream, self.name, timeout_s=FAREWELL_S)
