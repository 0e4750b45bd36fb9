"""Conversations with a real nats-server, kept in fixtures, and the same requests put to ours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strandline.broker.api.responses import PubAck
from strandline.broker.api.schema import to_json
from strandline.broker.streams import PublishBatch, Reply
from strandline.broker.streams.service import StreamService
from strandline.wire import format_headers, parse_headers, patterns_overlap
from tests.waiting import PATIENCE_S

FIXTURES = Path(__file__).parent.parent / "fixtures" / "broker"
NO_RESPONDERS = "<NoRespondersError: nats: no responders available for request>"
TIMEOUT = "!TimeoutError"
SERVER = "server"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_RUN = re.compile(r"@(.)\*(\d+)")


def read_fixture(name: str) -> Iterator[Any]:
    """Yield the lines of a fixture."""
    with (FIXTURES / name).open() as lines:
        yield from map(json.loads, lines)


def expanded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Write out runs of one character, which fixtures keep short."""
    match value:
        case str():
            return _RUN.sub(lambda found: found[1] * int(found[2]), value)
        case dict():
            return {key: expanded(part) for key, part in value.items()}
        case list():
            return [expanded(part) for part in value]
        case _:
            return value


def without_times(text: str) -> str:
    """Put a word in the place of every time that depends on when the test runs."""
    return _TIME.sub(lambda found: found[0] if found[0].startswith(("0001", "2006", "2024")) else "<time>", text)


class Talk:
    """A client of one account, as simple as can be."""

    def __init__(self, service: StreamService) -> None:
        self.service = service

    def ask(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> str | list[Reply]:
        """Send a request, or publish a message, and return the answer."""
        pairs = [(key, value.strip()) for key, value in (headers or {}).items()]  # as nats-py sends them
        block = format_headers(pairs) if pairs else b""
        now_ns = self.service.clock.now_ns()
        if subject.startswith("$JS.API."):
            answer = self.service.request(subject, block, payload, now_ns)
            if answer is None:
                return NO_RESPONDERS if ".DIRECT." in subject else TIMEOUT
            return without_times(answer.decode()) if isinstance(answer, bytes) else answer
        stream = next(
            stream
            for stream in self.service.streams.values()
            if any(patterns_overlap(pattern, subject) for pattern in stream.config.subjects)
        )
        published = stream.publish(PublishBatch([subject.encode()], [payload], [block] if block else None), now_ns)
        published.ticket.result(PATIENCE_S)
        plain = to_json(PubAck(stream=stream.config.name, seq=int(published.sequences[0])))
        return published.answers.get(0, plain).decode()


def shown(reply: Reply) -> tuple[dict[str, str], bytes]:
    """Return an answer to a direct get as a client sees it, status first."""
    headers = parse_headers(reply.headers)
    status = {"Status": str(headers.status), "Description": headers.description} if headers.status else {}
    return {**status, **{key: without_times(value) for key, value in headers.pairs}}, reply.payload
