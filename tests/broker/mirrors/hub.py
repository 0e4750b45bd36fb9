"""A client of a server that streams are copied from, or to."""

import base64
import time
from typing import Any

from strandline.broker.api.times import parse_time
from strandline.broker.streams import Message
from strandline.nats import JetStreamApi, NatsSettings, NatsSocket
from strandline.nats.errors import ServerRefused
from strandline.wire import format_pubs
from tests.waiting import PATIENCE_S

API = "$JS.hub.API"
EXTERNAL = {"api": API, "deliver": ""}
NO_MESSAGE = 10037


class Hub:
    """Makes, fills and reads streams of a server."""

    def __init__(self, url: str) -> None:
        self.settings = NatsSettings(url, timeout_s=PATIENCE_S)
        self._socket: NatsSocket | None = None

    @property
    def remotes(self) -> dict[str, NatsSettings]:
        """What our settings say of it."""
        return {API: self.settings}

    @property
    def socket(self) -> NatsSocket:
        """A connection, made anew after `close`."""
        if self._socket is None or self._socket.is_closed:
            self._socket = NatsSocket.connect(self.settings)
        return self._socket

    def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._socket.close()

    def api(self, subject: str, request: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - an answer's JSON
        """Ask the server's JetStream."""
        return JetStreamApi(self.socket, "$JS.API").call(subject, request, "")

    def create(self, name: str, **fields: object) -> None:
        """Make a stream."""
        self.api(f"STREAM.CREATE.{name}", {"name": name, **fields})

    def publish(self, *subjects: str, headers: bytes = b"", first: int = 0) -> None:
        """Publish numbered messages; they are stored when this returns."""
        rows = [(subject.encode(), b"", headers, b"%d" % (first + at)) for at, subject in enumerate(subjects)]
        self.socket.send(format_pubs(rows[:-1]))
        self.socket.request(subjects[-1], rows[-1][3])

    def last_seq(self, name: str) -> int:
        """Return a stream's last sequence."""
        return int(self.api(f"STREAM.INFO.{name}")["state"]["last_seq"])

    def take(self, stream: str, consumer: str) -> bytes:
        """Pull one message and acknowledge it."""
        self.socket.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b"1")
        while True:
            for frame in self.socket.receive(PATIENCE_S):
                if frame.reply.startswith(b"$JS.ACK."):
                    self.socket.request(frame.reply.decode(), b"+ACK")
                    return bytes(frame.payload)

    def until(self, name: str, sequence: int) -> None:
        """Wait until a stream has come to a sequence."""
        stop = time.monotonic() + PATIENCE_S
        while self.last_seq(name) < sequence:
            assert time.monotonic() < stop, "it did not come to be"
            time.sleep(0.01)

    def messages(self, name: str) -> list[Message]:
        """Return everything that a stream holds."""
        state = self.api(f"STREAM.INFO.{name}")["state"]
        found = []
        for sequence in range(max(1, state["first_seq"]), state["last_seq"] + 1):
            try:
                told = self.api(f"STREAM.MSG.GET.{name}", {"seq": sequence})["message"]
            except ServerRefused as refused:
                if refused.code == NO_MESSAGE:
                    continue
                raise
            headers, payload = (base64.b64decode(told.get(part, "")) for part in ("hdrs", "data"))
            found.append(Message(told["seq"], told["subject"].encode(), headers, payload, parse_time(told["time"])))
        return found
