"""The few questions of the JetStream API that reading in bulk needs, with typed answers.

Invariants: what decides is an error's code, never its text. A stream's identity is of its name and the moment it was
made, so that one which was deleted and made again has another.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.errors import FormatError
from strandline.nats.deadline import Deadline
from strandline.nats.errors import (
    ELECTING_CODES,
    JetStreamDisabled,
    NoAnswer,
    ServerRefused,
    StreamNotFound,
    stream_error,
)
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NO_RESPONDERS, NatsSocket
from strandline.nats.streams import StreamState, parse_stream_info

CONSUMER_NOT_FOUND = 10014
ASK_AGAIN_S = 2.0
PAUSE_S = 0.1
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """An ephemeral push consumer for one ordered reader; `start` None is the last message of each subject."""

    name: str
    deliver: str
    filters: tuple[str, ...]
    start: int | None
    headers_only: bool = False
    heartbeat_s: float = 5.0
    inactive_s: float = 5.0

    def to_config(self) -> dict[str, Any]:
        """Return the config as the API takes it."""
        config: dict[str, Any] = {
            "name": self.name,
            "description": "strandline",
            "deliver_subject": self.deliver,
            "deliver_policy": "last_per_subject" if self.start is None else "by_start_sequence",
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "filter_subjects": list(self.filters),
            "flow_control": True,
            "idle_heartbeat": round(self.heartbeat_s * NS),
            "inactive_threshold": round(self.inactive_s * NS),
            "headers_only": self.headers_only,
            "num_replicas": 1,
            "mem_storage": True,
        }
        return config if self.start is None else config | {"opt_start_seq": self.start}


@dataclass(frozen=True, slots=True)
class Standing:
    """How much a consumer has still to send, the number of its last message, and the member of a cluster that sends."""

    pending: int
    number: int
    member: str = ""


class JetStreamApi:
    """The API of one account, over one connection."""

    def __init__(self, connection: NatsSocket, prefix: str) -> None:
        self.connection = connection
        self._prefix = prefix

    def stream(self, name: str, *, timeout_s: float | None = None) -> StreamState:
        """Return the state of a stream now; `StreamNotFound` if there is none."""
        return parse_stream_info(self._ask(f"STREAM.INFO.{name}", None, name, timeout_s))

    def create_consumer(self, stream: str, spec: ConsumerSpec, *, timeout_s: float | None = None) -> int:
        """Create a consumer and return how many messages wait for it; `StreamNotFound` if there is no stream."""
        request = {"stream_name": stream, "config": spec.to_config(), "action": "create"}
        answer = self._ask(f"CONSUMER.CREATE.{stream}.{spec.name}", request, stream, timeout_s)
        return int(answer.get("num_pending", 0))

    def consumer_standing(self, stream: str, consumer: str, *, timeout_s: float | None = None) -> Standing | None:
        """Return how far a consumer is; None if it is gone."""
        try:
            answer = self._ask(f"CONSUMER.INFO.{stream}.{consumer}", None, stream, timeout_s)
        except ServerRefused as refused:
            if refused.code == CONSUMER_NOT_FOUND:
                return None
            raise
        return Standing(
            int(answer.get("num_pending", 0)),
            int((answer.get("delivered") or {}).get("consumer_seq", 0)),
            str((answer.get("cluster") or {}).get("leader", "")),
        )

    def _ask(
        self, subject: str, request: Mapping[str, Any] | None, stream: str, timeout_s: float | None
    ) -> Mapping[str, Any]:
        """As `call`, of what may be asked twice: a stream without a leader never answers, but its next one does."""
        limit_s = self.connection.timeout_s if timeout_s is None else timeout_s
        deadline = Deadline(limit_s)
        while True:
            left_s = deadline.left_s()
            try:
                return self.call(subject, request, stream, min(left_s, ASK_AGAIN_S))
            except NoAnswer as silence:
                if left_s <= ASK_AGAIN_S:
                    raise NoAnswer(silence.what, limit_s) from None
            except ServerRefused as refused:
                if refused.code not in ELECTING_CODES or left_s <= PAUSE_S:
                    raise
                time.sleep(PAUSE_S)

    def delete_consumer(self, stream: str, consumer: str, *, timeout_s: float | None = None) -> None:
        """Delete a consumer; one that is gone is no error."""
        try:
            self.call(f"CONSUMER.DELETE.{stream}.{consumer}", None, stream, timeout_s)
        except ServerRefused as refused:
            if refused.code != CONSUMER_NOT_FOUND:
                raise
        except StreamNotFound:
            pass

    def call(
        self, subject: str, request: Mapping[str, Any] | None, stream: str, timeout_s: float | None = None
    ) -> Mapping[str, Any]:
        """Return the answer of a subject of the API; errors are those of their codes, about a stream."""
        payload = b"" if request is None else json.dumps(request).encode(errors="surrogateescape")
        try:
            reply = self.connection.request(f"{self._prefix}.{subject}", payload, timeout_s=timeout_s)
        except ServerRefused as refused:
            raise (JetStreamDisabled() if refused.code == NO_RESPONDERS else refused) from None
        try:
            answer: dict[str, Any] = json.loads(reply.payload)
            error = answer.get("error")
        except (ValueError, AttributeError):
            raise FormatError("JetStream", "an answer is not the JSON of an object") from None
        if error:
            code = int(error.get("err_code", error.get("code", 0)))
            raise stream_error(code, str(error.get("description", "")), stream)
        return answer


def stream_state(settings: NatsSettings, stream: str) -> StreamState:
    """Return the state of a stream now, over a connection of its own; `StreamNotFound` if there is none."""
    with NatsSocket.connect(settings) as connection:
        return JetStreamApi(connection, settings.api_prefix).stream(stream)
