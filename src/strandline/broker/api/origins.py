"""Checks of mirrors and sources, in nats-server's order.

Invariants: pure; no cycle of sources within an account is accepted. Origins are not read with durable consumers here: a
source that names a `consumer` is refused as nats-server refuses an unusable one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from strandline.broker.api import codes
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import StreamConfig, StreamSource
from strandline.broker.api.subject_mapping import checked
from strandline.wire import (
    InvalidSubject,
    PatternIndex,
    TooManySteps,
    has_wildcard,
    patterns_overlap,
    validate_subject,
)

API_PREFIX = "$JS.API"


OVERLAP_STEPS_MAX = 250_000
"""The number of steps that wildcards of one request may take: about a tenth of a second."""
TOO_MANY_WILDCARDS = "too many subjects with wildcards to compare"


class StreamSubjects:
    """An index of the subjects of an account's streams."""

    def __init__(self) -> None:
        self._index: PatternIndex[str] = PatternIndex()
        self._known: dict[str, tuple[str, ...]] = {}

    def overlap(self, configs: Mapping[str, StreamConfig], subjects: Iterable[str], but: str) -> bool:
        """Tell whether a stream other than `but` has an overlapping subject."""
        self._follow(configs)
        self._index.steps = OVERLAP_STEPS_MAX
        return any(self._index.has_overlap(subject, but) for subject in subjects)

    def _follow(self, configs: Mapping[str, StreamConfig]) -> None:
        known = self._known
        gone = [
            name for name, subjects in known.items() if name not in configs or configs[name].subjects is not subjects
        ]
        for name in gone:
            for subject in known.pop(name):
                self._index.remove(subject, name)
        for name in configs.keys() - known.keys():
            known[name] = configs[name].subjects
            for subject in configs[name].subjects:
                self._index.add(subject, name)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The other streams of an account, for checks."""

    configs: Mapping[str, StreamConfig] = field(default_factory=dict)
    subjects: StreamSubjects = field(default_factory=StreamSubjects)

    def overlaps(self, subjects: Iterable[str], but: str) -> bool:
        """Tell whether a stream other than `but` has an overlapping subject."""
        try:
            return self.subjects.overlap(self.configs, subjects, but)
        except TooManySteps:
            raise invalid_config(TOO_MANY_WILDCARDS) from None


def invalid_config(problem: str) -> ApiError:
    """Return the error for an invalid configuration."""
    return codes.STREAM_INVALID_CONFIG.with_text(err=problem)


def is_valid_name(name: str) -> bool:
    """Tell whether a name is valid for a stream or consumer: it is a token of subjects and a file name."""
    return bool(name) and not any(char in ".*>\\/\0" or char.isspace() or _is_half(char) for char in name)


def _is_half(char: str) -> bool:
    """Tell whether a character is a surrogate: an undecodable byte or half a character."""
    return "\ud800" <= char <= "\udfff"


def is_subject(subject: str) -> bool:
    """Tell whether a text is a valid subject or pattern."""
    try:
        validate_subject(subject, wildcards=True)
    except InvalidSubject:
        return False
    return True


def check_mirror(config: StreamConfig, mirror: StreamSource, neighbours: Neighbours, *, pedantic: bool) -> StreamConfig:
    """Check a mirror; return the configuration with the values it inherits from its origin."""
    for wrong, refusal in (
        (config.first_seq > 0, codes.MIRROR_WITH_FIRST_SEQ),
        (bool(config.subjects), codes.MIRROR_WITH_SUBJECTS),
        (bool(config.sources), codes.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, codes.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, codes.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, codes.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, codes.MIRROR_WITH_MSG_SCHEDULES),
        (mirror.consumer is not None, codes.MIRROR_DURABLE_CONSUMER_CFG_INVALID),
        (bool(mirror.filter_subject and mirror.subject_transforms), codes.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED),
    ):
        if wrong:
            raise refusal.error()
    if config.subject_delete_marker_ttl:
        raise invalid_config("subject delete markers forbidden on mirrors")
    _check_transforms(
        mirror,
        codes.MIRROR_INVALID_SUBJECT_FILTER,
        codes.MIRROR_INVALID_TRANSFORM_DESTINATION,
        codes.MIRROR_OVERLAPPING_SUBJECT_FILTERS,
    )
    if mirror.external is not None:
        return config
    if not is_valid_name(mirror.name):
        raise codes.MIRROR_INVALID_STREAM_NAME.error()
    origin = neighbours.configs.get(mirror.name)
    if origin is None:
        return config
    if 0 < config.max_msg_size < origin.max_msg_size:
        raise codes.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG.error()
    if pedantic and config.mirror_direct != origin.allow_direct:
        raise codes.PEDANTIC.with_text(err="origin stream has direct get set, mirror has it disabled")
    return replace(config, mirror_direct=origin.allow_direct)


def _check_transforms(
    source: StreamSource, bad_source: codes.ErrorCode, bad_destination: codes.ErrorCode, overlap: codes.ErrorCode
) -> None:
    before: PatternIndex[None] = PatternIndex(OVERLAP_STEPS_MAX)
    for transform in source.subject_transforms:
        if transform.src and not is_subject(transform.src):
            raise bad_source.with_text(err=f"invalid subject {transform.src}")
        refusal = checked(transform.src, transform.dest, bad_destination)
        if refusal is not None:
            raise refusal
        try:
            is_double = any(True for _ in before.overlapping(transform.src or ">"))
        except TooManySteps:
            raise invalid_config(TOO_MANY_WILDCARDS) from None
        if is_double:
            raise overlap.error()
        before.add(transform.src or ">", None)


def check_sources(config: StreamConfig, neighbours: Neighbours) -> None:
    """Check the sources."""
    seen: set[StreamSource] = set()
    for source in config.sources:
        if not is_valid_name(source.name):
            raise codes.SOURCE_INVALID_STREAM_NAME.error()
        if config.allow_msg_schedules:
            raise codes.SOURCE_WITH_MSG_SCHEDULES.error()
        if source.consumer is not None:
            _check_filters(source)
            raise codes.SOURCE_DURABLE_CONSUMER_CFG_INVALID.error()
        if source.filter_subject and not is_subject(source.filter_subject):
            problem = f"subject filter '{source.filter_subject}' for the source: invalid subject"
            raise codes.STREAM_CREATE.with_text(err=problem)
        identity = replace(source, opt_start_seq=0, opt_start_time=None)
        if identity in seen:
            raise codes.SOURCE_DUPLICATE_DETECTED.error()
        seen.add(identity)
        if source.external is not None:
            continue
        origin = neighbours.configs.get(source.name)
        if origin is not None and 0 < config.max_msg_size < origin.max_msg_size:
            raise codes.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG.error()
        _check_filters(source)


def _check_filters(source: StreamSource) -> None:
    if source.filter_subject and source.subject_transforms:
        raise codes.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED.error()
    _check_transforms(
        source,
        codes.SOURCE_INVALID_SUBJECT_FILTER,
        codes.SOURCE_INVALID_TRANSFORM_DESTINATION,
        codes.SOURCE_OVERLAPPING_SUBJECT_FILTERS,
    )


def check_external(config: StreamConfig, neighbours: Neighbours) -> None:
    """Check the prefixes of external streams."""
    origins = [neighbours.configs.get(origin.name) for origin in config.origins if origin.external is None]
    subjects = [subject for origin in origins if origin is not None for subject in origin.subjects]
    external = [origin.external for origin in config.origins if origin.external is not None]
    for prefix in (part.deliver for part in external if part.deliver):
        if not is_subject(prefix) or has_wildcard(prefix):
            raise codes.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ.with_text(prefix=prefix)
        for subject in subjects:
            if patterns_overlap(subject, f"{prefix}.{subject}"):
                raise codes.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS.with_text(prefix=prefix, subject=subject)
    for prefix in (part.api for part in external if part.api):
        if not is_subject(prefix) or has_wildcard(prefix):
            raise invalid_config(f'stream external api prefix "{prefix}" must be a valid subject without wildcards')
        if patterns_overlap(prefix, API_PREFIX):
            raise codes.STREAM_EXTERNAL_API_OVERLAP.with_text(prefix=prefix, subject=API_PREFIX)


def check_cycles(config: StreamConfig, neighbours: Neighbours) -> None:
    """Refuse a cycle of sources."""
    visited: set[str] = set()
    waiting = [config]
    while waiting:
        current = waiting.pop(0)
        visited.add(current.name)
        for origin in current.origins:
            if origin.external is not None:
                continue
            feeds = origin is current.mirror or _feeds(current.subjects, origin.filter_subject)
            if origin.name in visited and feeds:
                raise invalid_config("detected cycle")
            known = neighbours.configs.get(origin.name)
            if known is not None and origin.name not in visited:
                waiting.append(known)


def _feeds(subjects: Iterable[str], pattern: str) -> bool:
    return not pattern or any(patterns_overlap(subject, pattern) for subject in subjects)
