"""Every request about the streams of one account, answered: the subject names what is asked, the payload is JSON.

Invariants: a request is answered once, as nats-server would; what is not ours to answer gets None. Answers that tell of
a change are to be sent after `barrier`: nothing is told that a crash could undo.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from strandline.broker.api import answers, codes
from strandline.broker.api.answers import ClusterInfo, SourceInfo, StreamInfo
from strandline.broker.api.checks import check_create, check_name, check_stream, check_update
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import API_LEVEL, Storage, StreamConfig, StreamSource
from strandline.broker.api.origins import Neighbours
from strandline.broker.api.requests import (
    DeleteMessageRequest,
    GetRequest,
    InfoRequest,
    NamesRequest,
    PurgeRequest,
    parse_config,
    parse_optional,
    parse_required,
)
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.streams.files import remove_stream, stream_exists
from strandline.broker.streams.headers import special_headers
from strandline.broker.streams.log import Ticket
from strandline.broker.streams.reading import BAD_REQUEST, EMPTY_REQUEST, MALFORMED_REQUEST, Message, Reply
from strandline.broker.streams.stream import Stream
from strandline.clock import Clock, SystemClock
from strandline.files import Disk, OsDisk
from strandline.journal import SYNCED, Durability
from strandline.wire import patterns_overlap

PREFIX = "$JS.API."
REQUIRED_LEVEL = b"Nats-Required-Api-Level"
Answer = bytes | list[Reply] | None
Handler = Callable[["StreamService", str, bytes, int], bytes]
_OF_ALL = ("INFO", "STREAM.NAMES", "STREAM.LIST")
"""What is asked of no stream in particular."""
_CLUSTER_ONLY = {
    "STREAM.LEADER.STEPDOWN": "stream_leader_stepdown",
    "STREAM.PEER.REMOVE": "stream_remove_peer",
}


def _no_consumers(name: str) -> int:
    del name
    return 0


def source_info(source: StreamSource) -> SourceInfo:
    """Return what is shown of an origin that was not heard of yet."""
    return SourceInfo(
        name=source.name,
        external=source.external,
        filter_subject=source.filter_subject,
        subject_transforms=source.subject_transforms,
    )


def _origins(config: StreamConfig) -> tuple[SourceInfo | None, tuple[SourceInfo, ...]]:
    mirror = None if config.mirror is None else source_info(config.mirror)
    return mirror, tuple(map(source_info, config.sources))


@dataclass
class StreamService:
    """The streams of one account, by name, and who else knows something about them."""

    folder: Path | None = None
    disk: Disk = field(default_factory=OsDisk)
    clock: Clock = field(default_factory=SystemClock)
    durability: Durability = SYNCED
    executor: Executor | None = None
    server_name: str = ""
    domain: str = ""
    consumer_count: Callable[[str], int] = _no_consumers
    origins: Callable[[StreamConfig], tuple[SourceInfo | None, tuple[SourceInfo, ...]]] = _origins
    on_delete: Callable[[str], None] = lambda _name: None
    streams: dict[str, Stream] = field(default_factory=dict)
    requests: int = 0
    errors: int = 0

    def open_all(self) -> None:
        """Open every stream of the folder."""
        if self.folder is None:
            return
        self.disk.make_folder(self.folder)
        for name in self.disk.names(self.folder):
            if stream_exists(self.disk, self.folder / name):
                self.streams[name] = Stream.open(
                    self.folder / name,
                    disk=self.disk,
                    clock=self.clock,
                    durability=self.durability,
                    executor=self.executor,
                )

    def close(self) -> None:
        """Close every stream."""
        for stream in self.streams.values():
            stream.close()

    def barrier(self) -> list[Ticket]:
        """Return the tickets that are not done yet; when they are, everything answered so far is durable."""
        return [ticket for stream in self.streams.values() if not (ticket := stream.barrier()).done()]

    def request(self, subject: str, headers: bytes, payload: bytes, now_ns: int) -> Answer:
        """Answer a request below `$JS.API.`; None if it is not about streams, or about nothing known."""
        words = subject.removeprefix(PREFIX).split(".")
        if words[:2] == ["DIRECT", "GET"]:
            return self._direct(words[2:], payload)
        verb, name = _split(words)
        if verb in _CLUSTER_ONLY:
            refusal = codes.CLUSTER_REQUIRED.error()
            return to_json(answers.ClusterOnly(f"{answers.TYPE_PREFIX}{_CLUSTER_ONLY[verb]}_response", refusal))
        if verb not in _HANDLERS:
            return None
        handler, failed = _HANDLERS[verb]
        try:
            _check_level(headers)
            return handler(self, name, payload, now_ns)
        except ApiError as error:
            self.errors += 1
            return to_json(failed(error=error))
        finally:
            self.requests += 1  # afterwards: what asks how often is not counted

    def find(self, name: str) -> Stream:
        """Return a stream; `ApiError` if there is none of that name."""
        try:
            return self.streams[name]
        except KeyError:
            raise codes.STREAM_NOT_FOUND.error() from None

    @property
    def neighbours(self) -> Neighbours:
        """The configurations of all streams."""
        return Neighbours({name: stream.config for name, stream in self.streams.items()})

    # Streams.

    def create(self, config: StreamConfig, *, pedantic: bool = False) -> Stream:
        """Make a stream, or return the one that is there with the same configuration."""
        config = check_create(config, self.neighbours, pedantic=pedantic)
        if config.name not in self.streams:
            folder = self.folder / config.name if self.folder is not None else None
            self.streams[config.name] = Stream.create(
                folder,
                config,
                disk=self.disk,
                clock=self.clock,
                durability=self.durability,
                executor=self.executor,
            )
        return self.streams[config.name]

    def delete(self, name: str) -> None:
        """Remove a stream with everything in it."""
        stream = self.find(name)
        del self.streams[name]
        self.on_delete(name)
        stream.close(keep_index=False)
        if self.folder is not None and stream.config.storage is Storage.FILE:
            remove_stream(self.disk, self.folder / name)

    def info(
        self, stream: Stream, now_ns: int, *, request: InfoRequest | None = None, leader: bool = False
    ) -> StreamInfo:
        """Return a stream as it is shown; without a request, as in a list."""
        subjects = None
        if request is not None and request.subjects_filter:
            counts = stream.subject_counts(request.subjects_filter)
            subjects = dict(counts[request.offset : request.offset + answers.SUBJECTS_LIMIT]) or None
        mirror, sources = self.origins(stream.config)
        return StreamInfo(
            config=stream.config.with_server() if request is not None else stream.config,
            created=stream.created_ns,
            state=stream.state(
                consumers=self.consumer_count(stream.config.name),
                subjects=subjects,
                deleted=request is not None and request.deleted_details,
            ),
            domain=self.domain,
            cluster=ClusterInfo(leader=self.server_name) if leader and self.server_name else None,
            mirror=mirror,
            sources=sources,
            ts=now_ns,
        )

    def _chosen(self, request: NamesRequest) -> list[Stream]:
        chosen = (self.streams[name] for name in sorted(self.streams))
        if not request.subject:
            return list(chosen)
        return [stream for stream in chosen if _listens(stream.config.subjects, request.subject)]

    # Direct get.

    def _direct(self, words: list[str], payload: bytes) -> list[Reply] | None:
        stream = self.streams.get(words[0]) if words else None
        if stream is None or not (stream.config.allow_direct or stream.config.mirror_direct):
            return None
        if len(words) > 1:
            if payload:
                return [BAD_REQUEST]
            return stream.direct(GetRequest(last_by_subj=".".join(words[1:])))
        if not payload:
            return [EMPTY_REQUEST]
        try:
            request = from_json(GetRequest, payload)
        except ApiError:
            return [MALFORMED_REQUEST]
        return stream.direct(request)


def _split(words: list[str]) -> tuple[str, str]:
    """Return what is asked and of whom; requests of many words end with a stream's name."""
    whole, verb = ".".join(words), ".".join(words[:-1])
    if whole in _OF_ALL:
        return whole, ""
    return ("", "") if verb in _OF_ALL else (verb, words[-1])


def _listens(subjects: Iterable[str], pattern: str) -> bool:
    return any(patterns_overlap(subject, pattern) for subject in subjects)


def _check_level(headers: bytes) -> None:
    asked = special_headers(headers).get(REQUIRED_LEVEL) if headers else None
    if asked is not None and not (asked.isdigit() and int(asked) <= API_LEVEL):
        raise codes.REQUIRED_API_LEVEL.error()


def _create(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    check_name(name)
    config, pedantic = parse_config(payload)
    if config.name != name:
        raise codes.STREAM_MISMATCH.error()
    stream = service.create(config, pedantic=pedantic)
    return to_json(answers.StreamCreated(info=service.info(stream, now_ns, request=InfoRequest()), did_create=True))


def _update(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    config, pedantic = parse_config(payload)
    neighbours = service.neighbours
    checked = check_stream(config, neighbours, pedantic=pedantic)
    if config.name != name:
        raise codes.STREAM_MISMATCH.error()
    if checked.num_replicas > 1:
        raise codes.STREAM_REPLICAS_NOT_SUPPORTED.error()
    stream = service.find(name)
    stream.update(check_update(stream.config, config, neighbours, pedantic=pedantic), now_ns)
    return to_json(answers.StreamUpdated(info=service.info(stream, now_ns, request=InfoRequest())))


def _delete(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    if payload:
        raise codes.NOT_EMPTY_REQUEST.error()
    service.delete(name)
    return to_json(answers.StreamDeleted(success=True))


def _info(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    request = parse_optional(InfoRequest, payload)
    stream = service.find(name)
    info = service.info(stream, now_ns, request=request, leader=True)
    total = len(stream.subject_counts(request.subjects_filter)) if request.subjects_filter else 0
    offset, limit = (request.offset, answers.SUBJECTS_LIMIT) if total else (0, 0)
    return to_json(answers.StreamShown(total=total, offset=offset, limit=limit, info=info))


def _names(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del name, now_ns
    request = parse_optional(NamesRequest, payload)
    found = [stream.config.name for stream in service._chosen(request)]  # noqa: SLF001 - its own module
    offset = min(max(0, request.offset), len(found))
    part = found[offset : offset + answers.NAMES_LIMIT] or None
    return to_json(answers.StreamNames(total=len(found), offset=offset, limit=answers.NAMES_LIMIT, streams=part))


def _list(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del name
    request = NamesRequest() if not payload.startswith(b"{") else parse_optional(NamesRequest, payload)
    found = service._chosen(request)  # noqa: SLF001 - its own module
    offset = min(max(0, request.offset), len(found))
    part = tuple(service.info(stream, now_ns) for stream in found[offset : offset + answers.LIST_LIMIT])
    return to_json(answers.StreamList(total=len(found), offset=offset, limit=answers.LIST_LIMIT, streams=part))


def _purge(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    request = parse_optional(PurgeRequest, payload)
    if request.seq and request.keep:
        raise codes.BAD_REQUEST.error()
    stream = service.find(name)
    if stream.config.sealed:
        raise codes.STREAM_SEALED.error()
    if stream.config.deny_purge:
        raise codes.STREAM_PURGE_FAILED.with_text(err="stream purge not permitted")
    return to_json(answers.StreamPurged(success=True, purged=stream.purge(request)))


def _get_message(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del now_ns
    request = parse_required(GetRequest, payload)
    stream = service.find(name)
    message = _wanted(stream, request)
    if message is None:
        raise codes.NO_MESSAGE_FOUND.error()
    stored = answers.StoredMessage(
        subject=message.subject.decode(errors="replace"),
        seq=message.sequence,
        hdrs=b"" if request.no_hdr else message.headers,
        data=message.payload,
        time=message.time_ns,
    )
    return to_json(answers.MessageGot(message=stored))


def _wanted(stream: Stream, request: GetRequest) -> Message | None:
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
        problem = "stream store EOF" if request.seq > stream.last_seq else "no message found"
        raise codes.STREAM_MSG_DELETE_FAILED.with_text(err=problem)
    return to_json(answers.MessageDeleted(success=True))


def _account(service: StreamService, name: str, payload: bytes, now_ns: int) -> bytes:
    del name, payload, now_ns
    used = {Storage.FILE: 0, Storage.MEMORY: 0}
    reserved = {Storage.FILE: 0, Storage.MEMORY: 0}
    for stream in service.streams.values():
        used[stream.config.storage] += stream.state().bytes
        reserved[stream.config.storage] += max(0, stream.config.max_bytes)
    return to_json(
        answers.AccountInfo(
            memory=used[Storage.MEMORY],
            storage=used[Storage.FILE],
            reserved_memory=reserved[Storage.MEMORY],
            reserved_storage=reserved[Storage.FILE],
            streams=len(service.streams),
            consumers=sum(map(service.consumer_count, service.streams)),
            domain=service.domain,
            api=answers.ApiUse(total=service.requests, errors=service.errors),
        )
    )


_HANDLERS: dict[str, tuple[Handler, Callable[..., object]]] = {
    "INFO": (_account, answers.AccountInfo),
    "STREAM.CREATE": (_create, answers.StreamCreated),
    "STREAM.UPDATE": (_update, answers.StreamUpdated),
    "STREAM.DELETE": (_delete, answers.StreamDeleted),
    "STREAM.INFO": (_info, answers.StreamShown),
    "STREAM.NAMES": (_names, answers.StreamNames),
    "STREAM.LIST": (_list, answers.StreamList),
    "STREAM.PURGE": (_purge, answers.StreamPurged),
    "STREAM.MSG.GET": (_get_message, answers.MessageGot),
    "STREAM.MSG.DELETE": (_delete_message, answers.MessageDeleted),
}
