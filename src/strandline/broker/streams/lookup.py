"""Which message somebody means who asks for one.

Invariants: a request means one message or none; what contradicts itself is refused, as nats-server does.
"""

from strandline.broker.api import codes
from strandline.broker.api.requests import GetRequest
from strandline.broker.streams.messages import Message
from strandline.broker.streams.stream import Stream


def wanted(stream: Stream, request: GetRequest) -> Message | None:
    """Return the message, None if there is none; `ApiError` if the request does not say which, or says too much."""
    has_time = request.start_time is not None
    asks = request.seq or request.last_by_subj or request.next_by_subj or has_time
    conflicts = (
        (request.seq and request.last_by_subj)
        or (request.last_by_subj and request.next_by_subj)
        or (request.seq and has_time)
        or (has_time and request.last_by_subj)
        or request.batch
        or request.multi_last
    )
    if not asks or conflicts:
        raise codes.BAD_REQUEST.error()
    if request.last_by_subj:
        return stream.last(request.last_by_subj)
    start = request.seq if request.start_time is None else stream.sequence_at(request.start_time)
    return stream.next(request.next_by_subj, start) if request.next_by_subj else stream.get(start)
