"""Requests about the streams of one account: the subject names the request, the payload is JSON.

Invariants: a request is answered once, as nats-server does; a request of another service gets None. An answer about a
change is sent after `barrier`, so that no answer is undone by a crash.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from strandline.broker.api import codes, responses
from strandline.broker.api.checks import check_name, check_stream, check_update
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import API_LEVEL, Storage
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.paging import page_of
from strandline.broker.api.requests import (
    DeleteMessageRequest,
    GetRequest,
    InfoRequest,
    NamesRequest,
    PurgeRequest,
    parse_config,
    parse_if_json,
    parse_required,
)
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.streams.headers import parse_number, special_headers
from strandline.broker.streams.messages import (
    BAD_REQUEST,
    EMPTY_REQUEST,
    MALFORMED_REQUEST,
    REQUIRED_API_LEVEL,
    STORAGE_FAILED,
    Message,
    Reply,
)
from strandline.broker.streams.registry import Streams
from strandline.broker.streams.stream import Stream
from strandline.errors import StrandlineError
from strandline.wire import patterns_overlap

PREFIX = "$JS.API."
REQUIRED_LEVEL = b"Nats-Required-Api-Level"
Answer = bytes | list[Reply] | None
Handler = Callable[["StreamService", str, bytes, int], bytes]
OF_ALL = ("INFO", "STREAM.NAMES", "STREAM.LIST")
"""Requests about no stream in particular."""
_CLUSTER_ONLY = {
    "STREAM.LEADER.STEPDOWN": "stream_leader_stepdown",
    "STREAM.PEER.REMOVE": "stream_remove_peer",
}


@dataclass
class StreamService(Streams):
    """The streams of one account, and the requests about them."""

    requests: int = 0
    errors: int = 0

    def request(self, subject: str, headers: bytes, payload: bytes, now_ns: int) -> Answer:
        """Answer a request below `$JS.API.`; None if it is not about streams, or about nothing known."""
        words = subject.removeprefix(PREFIX).split(".")
        if words[:2] == ["DIRECT", "GET"]:
            try:
                return self._direct(words[2:], headers, payload)
            except StrandlineError:
                return [STORAGE_FAILED]
        verb, name = _split(words)
        if verb in _CLUSTER_ONLY:
            refusal = codes.CLUSTER_REQUIRED.error()
            return to_json(responses.ClusterOnly(f"{responses.TYPE_PREFIX}{_CLUSTER_ONLY[verb]}_response", refusal))
        if verb not in _HANDLERS:
            return None
        handler, failed = _HANDLERS[verb]
        try:
            check_level(headers)
            return handler(self, name, payload, now_ns)
        except StrandlineError as error:
            self.errors += 1
            refusal = error if isinstance(error, ApiError) else _STORAGE[verb].with_text(err=for_clients(error))
            return to_json(failed(error=refusal))
        finally:
            self.requests += 1  # afterwards: a request for the count is not in it

    def _chosen(self, request: NamesRequest) -> list[Stream]:
        chosen = (self.streams[name] for name in sorted(self.streams))
        if not request.subject:
            return list(chosen)
        return [stream for stream in chosen if _listens(stream.config.subjects, request.subject)]

    # Direct get.

    def _direct(self, words: list[str], headers: bytes, payload: bytes) -> list[Reply] | None:
        stream = self.streams.get(words[0]) if words else None
        if stream is None or not (stream.config.allow_direct or stream.config.mirror_direct):
            return None
        if not has_level(headers):
            return [REQUIRED_API_LEVEL]
        if len(words) > 1:
            last = GetRequest(last_by_subj=".".join(words[1:]))
            return [BAD_REQUEST] if payload else stream.direct(last)
        if not payload:
            return [EMPTY_REQUEST]
        try:
            request = from_json(GetRequest, payload)
        except ApiError:
            return [MALFORMED_REQUEST]
        return stream.direct(request)


def _split(words: list[str]) -> tuple[str, str]:
    """Return the verb of a request and its stream; requests of many words end with a stream's name."""
    whole, verb = ".".join(words), ".".join(words[:-1])
    if whole in OF_ALL:
        return whole, ""
    return ("", "") if verb in OF_ALL else (verb, words[-1])


def _listens(subjects: Iterable[str], pattern: str) -> bool:
    return any(patterns_overlap(subject, pattern) for subject in subjects)


def has_level(headers: bytes) -> bool:
    """Tell whether the API level of the server is high enough for a request."""
    asked = special_headers(headers).get(REQUIRED_LEVEL) if headers else None
    level = 0 if asked is None else parse_number(asked)
    return level is not None and level <= API_LEVEL


def check_level(headers: bytes) -> None:
    """Refuse a request that needs a higher API level."""
    if not has_level(headers):
        raise codes.REQUIRED_API_LEVEL.error()


def _create(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    check_name(name)
    config, pedantic = parse_config(payload)
    if config.name != name:
        raise codes.STREAM_MISMATCH.error()
    stream = service.create(config, pedantic=pedantic)
    info = replace(service.info(stream, now_ns, request=InfoRequest()), domain="")  # nats-server does not name it here
    return to_json(responses.StreamCreated(info=info, did_create=True))


def _update(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    config, pedantic = parse_config(payload)
    neighbours = service.neighbours
    checked = check_stream(config, neighbours, pedantic=pedantic)
    if config.name != name:
        raise codes.STREAM_MISMATCH.error()
    if checked.num_replicas > 1:
        raise codes.STREAM_REPLICAS_NOT_SUPPORTED.error()
    stream = service.find(name)
    service.update(stream, check_update(stream.config, config, neighbours, pedantic=pedantic), now_ns)
    return to_json(responses.StreamUpdated(info=service.info(stream, now_ns, request=InfoRequest())))


def _delete(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    if payload:
        raise codes.NOT_EMPTY_REQUEST.error()
    service.delete(name)
    return to_json(responses.StreamDeleted(success=True))


def _info(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    request = parse_if_json(InfoRequest, payload)
    stream = service.find(name)
    limit = responses.SUBJECTS_LIMIT
    total = 0
    subjects: dict[str, int] = {}
    if request.subjects_filter:
        total, subjects = stream.subject_counts(request.subjects_filter, request.offset, limit)
    info = service.info(stream, now_ns, request=request, leader=True, subjects=subjects or None)
    offset, limit = (request.offset, limit) if total else (0, 0)
    return to_json(responses.StreamShown(total=total, offset=offset, limit=limit, info=info))


def _names(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del name, now_ns
    request = parse_if_json(NamesRequest, payload)
    found = [stream.config.name for stream in service._chosen(request)]  # noqa: SLF001 - its own module
    page, names = page_of(found, request.offset, responses.NAMES_LIMIT)
    return to_json(responses.StreamNames(**page._asdict(), streams=list(names) or None))


def _list(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del name
    request = parse_if_json(NamesRequest, payload)
    chosen = service._chosen(request)  # noqa: SLF001 - its own module
    failed = {stream.config.name: for_clients(stream.failure) for stream in chosen if stream.failure is not None}
    found = [stream for stream in chosen if stream.config.name not in failed]
    page, streams = page_of(found, request.offset, responses.LIST_LIMIT)
    shown = tuple(service.info(stream, now_ns) for stream in streams)
    return to_json(responses.StreamList(**page._asdict(), streams=shown, offline=failed or None))


def _purge(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    request = parse_if_json(PurgeRequest, payload)
    if request.seq and request.keep:
        raise codes.BAD_REQUEST.error()
    stream = service.find(name)
    if stream.config.sealed:
        raise codes.STREAM_SEALED.error()
    if stream.config.deny_purge:
        raise codes.STREAM_PURGE_FAILED.with_text(err="stream purge not permitted")
    purged = stream.purge(request)
    if service.consumers is not None:
        service.consumers.purged(name)
    return to_json(responses.StreamPurged(success=True, purged=purged))


def _get_message(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    request = parse_required(GetRequest, payload)
    stream = service.find(name)
    message = _requested_message(stream, request)
    if message is None:
        raise codes.NO_MESSAGE_FOUND.error()
    stored = responses.StoredMessage(
        subject=message.subject.decode(errors="replace"),
        seq=message.sequence,
        hdrs=b"" if request.no_hdr else message.headers,
        data=message.payload,
        time=message.time_ns,
    )
    return responses.format_got(stored)


def _delete_message(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    request = parse_required(DeleteMessageRequest, payload)
    if payload.strip() == b"{}":
        raise codes.BAD_REQUEST.error()
    stream = service.find(name)
    if stream.config.sealed:
        raise codes.STREAM_SEALED.error()
    if stream.config.deny_delete:
        raise codes.STREAM_MSG_DELETE_FAILED.with_text(err="message delete not permitted")
    if not stream.delete(request.seq):
        is_memory = stream.config.storage is Storage.MEMORY
        if is_memory or stream.first_seq < request.seq <= stream.last_seq:  # in the words of nats-server's stores
            raise codes.SEQUENCE_NOT_FOUND.with_text(seq=request.seq)
        problem = "stream store EOF" if request.seq > stream.last_seq else "no message found"
        raise codes.STREAM_MSG_DELETE_FAILED.with_text(err=problem)
    return to_json(responses.MessageDeleted(success=True))


def _accept_lost(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    if payload:
        raise codes.NOT_EMPTY_REQUEST.error()
    stream = service.find(name)
    return to_json(responses.LossAccepted(success=True, accepted=stream.accept_losses(stream.losses.sequences)))


def _account(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del name, payload, now_ns
    used = service.used()
    return to_json(
        responses.AccountInfo(
            memory=used.bytes[Storage.MEMORY],
            storage=used.bytes[Storage.FILE],
            reserved_memory=used.reserved[Storage.MEMORY],
            reserved_storage=used.reserved[Storage.FILE],
            streams=used.streams,
            consumers=sum(map(service.consumer_count, service.streams)),
            limits=service.limits,
            domain=service.domain,
            api=responses.ApiUse(total=service.requests, errors=service.errors),
        )
    )


_HANDLERS: dict[str, tuple[Handler, Callable[..., object]]] = {
    "INFO": (_account, partial(responses.ClusterOnly, responses.TYPE_PREFIX + "account_info_response")),
    "STREAM.CREATE": (_create, responses.StreamCreated),
    "STREAM.UPDATE": (_update, responses.StreamUpdated),
    "STREAM.DELETE": (_delete, responses.StreamDeleted),
    "STREAM.INFO": (_info, responses.StreamShown),
    "STREAM.NAMES": (_names, responses.StreamNames),
    "STREAM.LIST": (_list, responses.StreamList),
    "STREAM.PURGE": (_purge, responses.StreamPurged),
    "STREAM.MSG.GET": (_get_message, responses.MessageGot),
    "STREAM.MSG.DELETE": (_delete_message, responses.MessageDeleted),
    "STREAM.LOST.ACCEPT": (_accept_lost, responses.LossAccepted),
}
_STORAGE = dict.fromkeys(_HANDLERS, codes.STREAM_GENERAL_ERROR) | {
    "STREAM.CREATE": codes.STREAM_CREATE,
    "STREAM.UPDATE": codes.STREAM_UPDATE,
    "STREAM.DELETE": codes.STREAM_DELETE,
    "STREAM.PURGE": codes.STREAM_PURGE_FAILED,
    "STREAM.MSG.DELETE": codes.STREAM_MSG_DELETE_FAILED,
}
"""The error codes for failed storage."""


def _requested_message(stream: Stream, request: GetRequest) -> Message | None:
    """Return the requested message, None if there is none; `ApiError` if the request is ambiguous."""
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
