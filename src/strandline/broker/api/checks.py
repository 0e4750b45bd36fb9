"""Checks and defaults of stream configurations, in nats-server's order.

Invariants: pure; the first violation is reported; a checked configuration is complete, and checking is idempotent.
"""

from dataclasses import replace

from strandline.broker.api import codes
from strandline.broker.api.config import Discard, PersistMode, Retention, Storage, StreamConfig
from strandline.broker.api.origins import (
    OVERLAP_STEPS_MAX,
    TOO_MANY_WILDCARDS,
    Neighbours,
    check_cycles,
    check_external,
    check_mirror,
    check_sources,
    invalid_config,
    is_subject,
    is_valid_name,
)
from strandline.broker.api.subject_mapping import checked
from strandline.clock import NS_PER_S
from strandline.wire import TooManySteps, first_overlap, pattern_covers, patterns_overlap

NAME_MAX = 255
DESCRIPTION_MAX = 4 * 1024
METADATA_MAX = 128 * 1024
REPLICAS_MAX = 5
MILLIS_100 = 100_000_000
DUPLICATE_WINDOW_DEFAULT = 120 * NS_PER_S
_RESERVED = ("$JS.>", "$JSC.>", "$NRG.>")
_RESERVED_FIRST = frozenset(("$JS", "$JSC", "$NRG", "$SYS", "*", ">"))
"""First tokens of subjects that can overlap a reserved one."""
_NAME_RULE = "stream name is required and can not contain '.', '*', '>', '\\', '/'"


def check_name(name: str) -> None:
    """Refuse an invalid stream name in the subject of a request."""
    if "/" in name or "\\" in name:
        raise codes.STREAM_NAME_CONTAINS_PATH_SEPARATORS.error()


def check_create(config: StreamConfig, neighbours: Neighbours, *, pedantic: bool = False) -> StreamConfig:
    """Return the complete configuration of a new stream; raise `ApiError` if it is invalid."""
    check_name(config.name)
    config = check_stream(config, neighbours, pedantic=pedantic)
    if config.num_replicas > 1:
        raise codes.STREAM_REPLICAS_NOT_SUPPORTED.error()
    existing = neighbours.configs.get(config.name)
    if existing is not None:
        if existing != config.with_level():
            raise codes.STREAM_NAME_EXIST.error()
        return existing
    if config.sealed:
        raise invalid_config("stream configuration for create can not be sealed")
    if neighbours.overlaps(config.subjects, config.name):
        raise codes.STREAM_SUBJECT_OVERLAP.error()
    return config.with_level()


def check_update(
    old: StreamConfig, config: StreamConfig, neighbours: Neighbours, *, pedantic: bool = False
) -> StreamConfig:
    """Return the complete configuration of an updated stream; raise `ApiError` if the update is not allowed."""
    config = check_stream(config, neighbours, pedantic=pedantic)
    for wrong, problem in (
        (config.storage != old.storage, "stream configuration update can not change storage type"),
        (
            _changes_work_queue(old, config),
            "stream configuration update can not change retention policy to/from workqueue",
        ),
        (old.sealed and not config.sealed, "stream configuration update can not unseal a sealed stream"),
        (
            old.deny_delete and not config.deny_delete,
            "stream configuration update can not cancel deny message deletes",
        ),
        (old.deny_purge and not config.deny_purge, "stream configuration update can not cancel deny purge"),
    ):
        if wrong:
            raise invalid_config(problem)
    if config.mirror is not None and config.mirror != old.mirror:
        raise codes.STREAM_MIRROR_NOT_UPDATABLE.error()
    for wrong, problem in (
        (
            config.allow_msg_counter != old.allow_msg_counter,
            "stream configuration update can not change message counter setting",
        ),
        (old.allow_msg_ttl and not config.allow_msg_ttl, "message TTL status can not be disabled"),
        (old.allow_msg_schedules and not config.allow_msg_schedules, "message schedules can not be disabled"),
        (_persist(old) != _persist(config), "stream configuration update can not change persist mode"),
    ):
        if wrong:
            raise invalid_config(problem)
    if config.sealed:
        config = replace(
            config, max_age=0, discard=Discard.NEW, deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
        )
    if neighbours.overlaps(config.subjects, config.name):
        raise codes.STREAM_SUBJECT_OVERLAP.error()
    return config.with_level()


def _persist(config: StreamConfig) -> PersistMode:
    return config.persist_mode or PersistMode.DEFAULT


def _changes_work_queue(old: StreamConfig, new: StreamConfig) -> bool:
    return old.retention != new.retention and Retention.WORK_QUEUE in (old.retention, new.retention)


def check_stream(config: StreamConfig, neighbours: Neighbours, *, pedantic: bool = False) -> StreamConfig:
    """Return a configuration with defaults; raise `ApiError` if it is invalid for every stream."""
    _check_words(config)
    config = _with_defaults(config, pedantic=pedantic)
    _check_durations(config)
    if config.deny_purge and config.allow_rollup_hdrs:
        raise invalid_config("roll-ups require the purge permission")
    _check_discard(config)
    config = _with_markers(config, pedantic=pedantic)
    _check_features(config)
    config = _with_schedules(config)
    if config.mirror is not None:
        config = check_mirror(config, config.mirror, neighbours, pedantic=pedantic)
    elif config.mirror_direct:
        raise invalid_config("stream has no mirror but does have mirror direct")
    check_sources(config, neighbours)
    check_external(config, neighbours)
    check_cycles(config, neighbours)
    if not config.subjects and not config.origins:
        config = replace(config, subjects=(config.name,))
    _check_subjects(config)
    config = _check_republish(config, pedantic=pedantic)
    _check_transform(config)
    if config.placement is not None and config.placement.preferred:
        raise invalid_config("preferred server not permitted in placement")
    return config


def _check_words(config: StreamConfig) -> None:
    if not is_valid_name(config.name):
        raise invalid_config(_NAME_RULE)
    if len(config.name) > NAME_MAX:
        raise invalid_config(f"stream name is too long, maximum allowed is {NAME_MAX}")
    if len(config.description.encode()) > DESCRIPTION_MAX:
        raise invalid_config(f"stream description is too long, maximum allowed is {DESCRIPTION_MAX}")
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_MAX:
        raise invalid_config(f"stream metadata exceeds maximum size of {METADATA_MAX} bytes")


def _unlimited(value: int) -> int:
    return value if value > 0 else -1


def _with_defaults(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    if config.num_replicas > REPLICAS_MAX:
        raise invalid_config(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise codes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE.error()
    window = config.duplicate_window
    if not window and config.mirror is None and not config.sources:
        window = DUPLICATE_WINDOW_DEFAULT
        if config.max_age and config.max_age < window:
            if pedantic:
                raise codes.PEDANTIC.with_text(err="duplicate window cannot be bigger than max age")
            window = max(0, config.max_age)
    return replace(
        config,
        num_replicas=config.num_replicas or 1,
        max_msgs=_unlimited(config.max_msgs),
        max_msgs_per_subject=_unlimited(config.max_msgs_per_subject),
        max_bytes=_unlimited(config.max_bytes),
        max_msg_size=_unlimited(config.max_msg_size),
        max_consumers=_unlimited(config.max_consumers),
        duplicate_window=window,
        persist_mode=PersistMode.ASYNC if config.persist_mode is PersistMode.ASYNC else None,
    )


def _check_durations(config: StreamConfig) -> None:
    if config.max_age < 0:
        raise invalid_config("max age can not be negative")
    if 0 < config.max_age < MILLIS_100:
        raise invalid_config("max age needs to be >= 100ms")
    if config.duplicate_window < 0:
        raise invalid_config("duplicates window can not be negative")
    if config.max_age and config.duplicate_window > config.max_age:
        raise invalid_config("duplicates window can not be larger then max age")
    if 0 < config.duplicate_window < MILLIS_100:
        raise invalid_config("duplicates window needs to be >= 100ms")


def _check_discard(config: StreamConfig) -> None:
    if not config.discard_new_per_subject:
        return
    if config.discard is not Discard.NEW:
        raise invalid_config("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0:
        raise invalid_config("discard new per subject requires max msgs per subject > 0")


def _with_markers(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    ttl = config.subject_delete_marker_ttl
    if ttl < 0:
        raise invalid_config("subject delete marker TTL must not be negative")
    if not ttl:
        return config
    if ttl < NS_PER_S:
        raise invalid_config("subject delete marker TTL must be at least 1 second")
    if config.allow_msg_counter and config.allow_msg_ttl:
        raise invalid_config("counter stream cannot use message TTLs")
    if pedantic and not config.allow_msg_ttl:
        raise invalid_config("subject delete marker cannot be set if message TTLs are disabled")
    if pedantic and not config.allow_rollup_hdrs:
        raise invalid_config("subject delete marker cannot be set if roll-ups are disabled")
    return replace(config, allow_msg_ttl=True, allow_rollup_hdrs=True, deny_purge=False)


def _with_schedules(config: StreamConfig) -> StreamConfig:
    if not config.allow_msg_schedules or config.origins:
        return config
    if config.discard is Discard.NEW:
        raise invalid_config("message scheduling cannot use discard new")
    return replace(config, allow_rollup_hdrs=True, deny_purge=False)


def _check_features(config: StreamConfig) -> None:
    if config.allow_msg_counter:
        for wrong, problem in (
            (config.discard is Discard.NEW, "counter stream cannot use discard new"),
            (
                config.allow_msg_ttl and not config.subject_delete_marker_ttl,
                "counter stream cannot use message TTLs",
            ),
            (config.retention is not Retention.LIMITS, "counter stream can only use limits retention"),
            (config.allow_msg_schedules, "counter stream cannot use message schedules"),
        ):
            if wrong:
                raise invalid_config(problem)
    if config.persist_mode is PersistMode.ASYNC:
        if config.storage is not Storage.FILE:
            raise invalid_config("async persist mode is only supported on file storage")
        if config.allow_atomic:
            raise invalid_config("async persist mode is not supported with atomic batch publish")


def _check_subjects(config: StreamConfig) -> None:
    for subject in config.subjects:
        if not is_subject(subject):
            raise invalid_config("invalid subject")
        if subject == ">" and not config.no_ack:
            raise invalid_config("capturing all subjects requires no-ack to be true")
        if subject == ">" and config.num_replicas != 1:
            raise invalid_config("capturing all subjects requires replicas of 1")
        if not config.no_ack:
            _check_reserved(subject)
    try:
        pair = first_overlap(config.subjects, OVERLAP_STEPS_MAX)
    except TooManySteps:
        raise invalid_config(TOO_MANY_WILDCARDS) from None
    if pair is not None:
        subject, other = (config.subjects[number] for number in pair)
        raise invalid_config(f'subject "{subject}" overlaps with "{other}"')


def _check_reserved(subject: str) -> None:
    if subject.partition(".")[0] not in _RESERVED_FIRST:
        return
    if any(patterns_overlap(subject, space) for space in _RESERVED) and not pattern_covers("$JS.EVENT.>", subject):
        raise invalid_config("subjects that overlap with jetstream api require no-ack to be true")
    if patterns_overlap(subject, "$SYS.>") and not pattern_covers("$SYS.ACCOUNT.>", subject):
        raise invalid_config("subjects that overlap with system api require no-ack to be true")


def _check_republish(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    republish = config.republish
    if republish is None:
        return config
    if not republish.src:
        if pedantic:
            raise codes.PEDANTIC.with_text(err="pedantic mode: republish source can not be empty")
        republish = replace(republish, src=">")
    if republish.dest and any(patterns_overlap(republish.dest, subject) for subject in config.subjects):
        raise invalid_config("stream configuration for republish destination forms a cycle")
    if checked(republish.src, republish.dest, codes.STREAM_INVALID_CONFIG) is not None:
        raise invalid_config(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        )
    return replace(config, republish=republish)


def _check_transform(config: StreamConfig) -> None:
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_subject(transform.src):
        raise codes.STREAM_TRANSFORM_INVALID_SOURCE.with_text(err=f"invalid subject {transform.src}")
    refusal = checked(transform.src, transform.dest, codes.STREAM_TRANSFORM_INVALID_DESTINATION)
    if refusal is not None:
        raise refusal
