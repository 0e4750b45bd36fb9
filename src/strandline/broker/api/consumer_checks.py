"""Checks and defaults of consumer configurations, in nats-server's order.

Invariants: pure; the first violation is reported; a checked configuration is complete, and checking is idempotent.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from strandline.broker.api import codes
from strandline.broker.api.checks import DESCRIPTION_MAX, METADATA_MAX, MILLIS_100, NAME_MAX
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import Retention, StreamConfig
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from strandline.broker.api.origins import (
    OVERLAP_STEPS_MAX,
    TOO_MANY_WILDCARDS,
    invalid_config,
    is_subject,
    is_valid_name,
)
from strandline.broker.api.responses import AccountLimits
from strandline.broker.api.times import format_duration
from strandline.clock import NS_PER_S
from strandline.wire import PatternIndex, TooManySteps, has_wildcard, patterns_overlap

MAX_WAITING_DEFAULT = 512
ACK_WAIT_DEFAULT = 30 * NS_PER_S
ACK_PENDING_DEFAULT = 1000
PINNED_TTL_DEFAULT = 120 * NS_PER_S
INACTIVE_DEFAULT = 5 * NS_PER_S
MILLISECOND = 1_000_000
_GROUP = re.compile(r"[a-zA-Z0-9/_=)+-]{1,16}")
_WORDS = {
    DeliverPolicy.ALL: "all",
    DeliverPolicy.LAST: "last",
    DeliverPolicy.NEW: "new",
    DeliverPolicy.LAST_PER_SUBJECT: "last per subject",
    DeliverPolicy.BY_START_SEQUENCE: "by start sequence",
    DeliverPolicy.BY_START_TIME: "by start time",
}
_WAITS = (AckPolicy.EXPLICIT, AckPolicy.ALL)


def check_consumer(
    config: ConsumerConfig, stream: StreamConfig, limits: AccountLimits, *, pedantic: bool = False
) -> ConsumerConfig:
    """Return a configuration with defaults; raise `ApiError` if it is invalid for this stream."""
    config = _with_defaults(config, stream, limits, pedantic=pedantic)
    if config.name:
        _check_name(config.name)
    for check in (_check_replicas, _check_times, _check_mode, _check_limits):
        check(config, stream)
    _check_filters(config)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and not config.idle_heartbeat:
        raise codes.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS.error()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise codes.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH.error()
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_MAX:
        raise codes.CONSUMER_METADATA_LENGTH.with_text(limit=f"{METADATA_MAX // 1024}KB")
    _check_priorities(config)
    return config


def for_origin(config: ConsumerConfig, stream: StreamConfig, suffix: str) -> ConsumerConfig:
    """Return the configuration of a consumer for a mirror or source of another server.

    On a stream with interest or work-queue retention it acknowledges explicitly and survives a broken link.
    """
    if not (config.sourcing and config.direct):
        return config
    if stream.retention is Retention.LIMITS:
        return replace(config, name=f"{config.name}-{suffix}")
    return replace(
        config,
        durable_name=config.name,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
        direct=False,
    )


def check_new_consumer(
    config: ConsumerConfig,
    stream: StreamConfig,
    limits: AccountLimits,
    others: Mapping[str, ConsumerConfig],
    *,
    count: int,
) -> ConsumerConfig:
    """Return the configuration of a new, checked consumer; raise `ApiError` if a limit is reached."""
    most = [limit for limit in (stream.max_consumers, limits.max_consumers) if limit > 0]
    if most and count >= min(most):
        raise codes.MAXIMUM_CONSUMERS_LIMIT.error()
    if stream.retention is Retention.WORK_QUEUE and not (config.direct or config.sourcing):
        if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
            raise codes.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK.error()
        if others and not config.filters:
            raise codes.CONSUMER_WQ_MULTIPLE_UNFILTERED.error()
        check_unique(config, others)
        if config.deliver_policy is not DeliverPolicy.ALL:
            raise codes.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL.error()
    if len(config.durable_name.encode()) > NAME_MAX:
        raise codes.CONSUMER_NAME_TOO_LONG.with_text(max=NAME_MAX)
    if not config.is_durable and config.inactive_threshold <= 0:
        config = replace(config, inactive_threshold=INACTIVE_DEFAULT)
    return config


def check_unique(config: ConsumerConfig, others: Mapping[str, ConsumerConfig]) -> None:
    """Refuse a consumer of a work queue whose filters overlap those of another."""
    own: PatternIndex[int] = PatternIndex(OVERLAP_STEPS_MAX)
    for number, pattern in enumerate(config.filters or (">",)):
        own.add(pattern, number)
    for name, other in others.items():
        if name == config.name or other.direct:
            continue
        if _any_overlap(own, other.filters or (">",)):
            raise codes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE.error()


def _any_overlap(index: PatternIndex[int], patterns: Iterable[str], but: int | None = None) -> bool:
    try:
        return any(index.has_overlap(pattern, but) for pattern in patterns)
    except TooManySteps:
        raise invalid_config(TOO_MANY_WILDCARDS) from None


def check_changed_consumer(old: ConsumerConfig, new: ConsumerConfig, *, is_bound: bool) -> ConsumerConfig:
    """Return the configuration of an updated, checked consumer; raise `ApiError` if the update is not allowed.

    `is_bound` tells that the old deliver subject has a subscriber.
    """
    for wrong, problem in (
        (old.deliver_policy != new.deliver_policy, "deliver policy can not be updated"),
        (old.mem_storage != new.mem_storage, "storage type can not be updated"),
        (old.opt_start_seq != new.opt_start_seq, "start sequence can not be updated"),
        (old.opt_start_time != new.opt_start_time, "start time can not be updated"),
        (old.ack_policy != new.ack_policy, "ack policy can not be updated"),
        (old.replay_policy != new.replay_policy, "replay policy can not be updated"),
        (old.idle_heartbeat != new.idle_heartbeat, "heart beats can not be updated"),
        (old.flow_control != new.flow_control, "flow control can not be updated"),
        (new.is_push and not old.is_push, "can not update pull consumer to push based"),
        (old.is_push and not new.is_push, "can not update push consumer to pull based"),
    ):
        if wrong:
            raise _not_updatable(problem)
    if old.deliver_subject != new.deliver_subject and is_bound:
        raise codes.CONSUMER_NAME_EXIST.error()
    if old.max_waiting != new.max_waiting:
        raise _not_updatable("max waiting can not be updated")
    if not (old.is_durable or new.is_durable) and new.inactive_threshold <= 0:
        new = replace(new, inactive_threshold=INACTIVE_DEFAULT)
    return new


def _not_updatable(problem: str) -> ApiError:
    return codes.CONSUMER_CREATE.with_text(err=problem)


def check_group(name: str) -> None:
    """Refuse an invalid name of a priority group."""
    if not name:
        raise codes.CONSUMER_EMPTY_GROUP_NAME.error()
    if not _GROUP.fullmatch(name):
        raise codes.CONSUMER_INVALID_GROUP_NAME.error()


def _check_name(name: str) -> None:
    if "/" in name or "\\" in name:
        raise codes.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS.error()
    if not is_valid_name(name):
        raise invalid_config("consumer name can not contain '.', '*', '>', '\\', '/'")


def violates_limits(config: ConsumerConfig, stream: StreamConfig) -> bool:
    """Tell whether an existing consumer violates a stream's new limits."""
    limits = stream.consumer_limits
    return (0 < limits.max_ack_pending < config.max_ack_pending) or (
        0 < limits.inactive_threshold < config.inactive_threshold
    )


def _with_defaults(
    config: ConsumerConfig, stream: StreamConfig, account: AccountLimits, *, pedantic: bool
) -> ConsumerConfig:
    if pedantic:
        _refuse_negatives(config)
    else:
        config = _with_flow_control(config)
    wait = config.ack_wait or (ACK_WAIT_DEFAULT if config.ack_policy in _WAITS else 0)
    if config.backoff:
        if pedantic and wait != config.backoff[0]:
            raise _pedantic("first backoff value has to equal batch AckWait")
        wait = config.backoff[0]
    limits = stream.consumer_limits
    if pedantic and not config.max_ack_pending and limits.max_ack_pending > 0:
        raise _pedantic("max_ack_pending must be set if it's configured in stream limits")
    if pedantic and not config.inactive_threshold and limits.inactive_threshold > 0:
        raise _pedantic("inactive_threshold must be set if it's configured in stream limits")
    pending = max(-1, config.max_ack_pending) or limits.max_ack_pending
    if not pending and config.ack_policy is not AckPolicy.NONE:
        most = account.max_ack_pending if account.max_ack_pending > 0 else ACK_PENDING_DEFAULT
        pending = min(most, ACK_PENDING_DEFAULT)
    if 0 < account.max_ack_pending < pending:
        raise codes.CONSUMER_MAX_PENDING_ACK_EXCESS.with_text(limit=account.max_ack_pending)
    pinned = config.priority_policy is PriorityPolicy.PINNED_CLIENT and config.priority_timeout <= 0
    return replace(
        config,
        max_waiting=max(0, config.max_waiting) or (0 if config.is_push else MAX_WAITING_DEFAULT),
        ack_wait=wait,
        max_deliver=config.max_deliver if config.max_deliver > 0 else -1,
        max_ack_pending=pending,
        inactive_threshold=max(0, config.inactive_threshold) or limits.inactive_threshold,
        max_batch=max(0, config.max_batch),
        max_expires=max(0, config.max_expires),
        max_bytes=max(0, config.max_bytes),
        idle_heartbeat=max(0, config.idle_heartbeat),
        priority_timeout=PINNED_TTL_DEFAULT if pinned else max(0, config.priority_timeout),
    )


def _refuse_negatives(config: ConsumerConfig) -> None:
    for wrong, problem in (
        (config.max_deliver < -1, "max_deliver must be set to -1"),
        (config.max_waiting < 0, "max_waiting must not be negative"),
        (config.max_ack_pending < -1, "max_ack_pending must be set to -1"),
        (config.max_batch < 0, "max_batch must not be negative"),
        (config.max_expires < 0, "max_expires must not be negative"),
        (config.max_bytes < 0, "max_bytes must not be negative"),
        (config.idle_heartbeat < 0, "idle_heartbeat must not be negative"),
        (config.inactive_threshold < 0, "inactive_threshold must not be negative"),
        (config.priority_timeout < 0, "priority_timeout must not be negative"),
    ):
        if wrong:
            raise _pedantic(problem)


def _with_flow_control(config: ConsumerConfig) -> ConsumerConfig:
    if config.ack_policy is not AckPolicy.FLOW_CONTROL or not config.is_push:
        return config
    return replace(config, flow_control=True, idle_heartbeat=max(0, config.idle_heartbeat) or NS_PER_S)


def _pedantic(problem: str) -> ApiError:
    return codes.PEDANTIC.with_text(err=problem)


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > stream.num_replicas:
        raise codes.CONSUMER_REPLICAS_EXCEEDS_STREAM.error()
    if config.num_replicas < 0:
        raise codes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE.error()


def _check_times(config: ConsumerConfig, stream: StreamConfig) -> None:
    del stream
    if config.ack_wait < 0 and not config.backoff:
        raise codes.CONSUMER_ACK_WAIT_NEGATIVE.error()
    if any(wait < 0 for wait in config.backoff):
        raise codes.CONSUMER_BACK_OFF_NEGATIVE.error()
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        _check_acked_by_flow(config)
    if config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise codes.CONSUMER_MAX_DELIVER_BACKOFF.error()
    if len(config.description.encode()) > DESCRIPTION_MAX:
        raise codes.CONSUMER_DESCRIPTION_TOO_LONG.with_text(max=DESCRIPTION_MAX)


def _check_mode(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.is_push:
        _check_push(config, stream)
    else:
        _check_pull(config, stream)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject
    for wrong, refusal in (
        (has_wildcard(subject), codes.CONSUMER_DELIVER_TO_WILDCARDS),
        (not is_subject(subject), codes.CONSUMER_INVALID_DELIVER_SUBJECT),
        (any(patterns_overlap(subject, own) for own in stream.subjects), codes.CONSUMER_DELIVER_CYCLE),
        (config.max_waiting != 0, codes.CONSUMER_PUSH_MAX_WAITING),
        (
            config.max_ack_pending > 0 and config.ack_policy is AckPolicy.NONE,
            codes.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED,
        ),
        (0 < config.idle_heartbeat < MILLIS_100, codes.CONSUMER_SMALL_HEARTBEAT),
    ):
        if wrong:
            raise refusal.error()


def _check_acked_by_flow(config: ConsumerConfig) -> None:
    for wrong, refusal in (
        (not config.is_push, codes.CONSUMER_ACK_FC_REQUIRES_PUSH),
        (not config.flow_control, codes.CONSUMER_ACK_FC_REQUIRES_FC),
        (config.max_ack_pending <= 0, codes.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING),
        (config.ack_wait != 0, codes.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT),
        (config.max_deliver != -1, codes.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER),
    ):
        if wrong:
            raise refusal.error()


def _check_pull(config: ConsumerConfig, stream: StreamConfig) -> None:
    is_queue = stream.retention is Retention.WORK_QUEUE
    for wrong, refusal in (
        (is_queue and config.ack_policy is AckPolicy.NONE, codes.CONSUMER_PULL_REQUIRES_ACK),
        (config.rate_limit_bps > 0, codes.CONSUMER_PULL_WITH_RATE_LIMIT),
        (config.idle_heartbeat > 0, codes.CONSUMER_HB_REQUIRES_PUSH),
        (config.flow_control, codes.CONSUMER_FC_REQUIRES_PUSH),
        (0 < config.max_expires < MILLISECOND, codes.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL),
    ):
        if wrong:
            raise refusal.error()


def _check_limits(config: ConsumerConfig, stream: StreamConfig) -> None:
    limits = stream.consumer_limits
    if 0 < limits.max_ack_pending < config.max_ack_pending:
        raise codes.CONSUMER_MAX_PENDING_ACK_EXCESS.with_text(limit=limits.max_ack_pending)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        raise codes.CONSUMER_INACTIVE_THRESHOLD_EXCESS.with_text(limit=format_duration(limits.inactive_threshold))
    if config.direct:
        if not config.is_push:
            raise codes.CONSUMER_DIRECT_REQUIRES_PUSH.error()
        if config.is_durable:
            raise codes.CONSUMER_DIRECT_REQUIRES_EPHEMERAL.error()


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise codes.CONSUMER_DUPLICATE_FILTER_SUBJECTS.error()
    if "" in config.filter_subjects:
        raise codes.CONSUMER_EMPTY_FILTER.error()
    index: PatternIndex[int] = PatternIndex(OVERLAP_STEPS_MAX)
    for number, subject in enumerate(config.filters):
        index.add(subject, number)
    for number, subject in enumerate(config.filters):
        if not is_subject(subject):
            raise invalid_config("invalid subject")
        if _any_overlap(index, [subject], number):
            raise codes.CONSUMER_OVERLAPPING_SUBJECT_FILTERS.error()


def _check_start(config: ConsumerConfig) -> None:
    policy, has_seq, has_time = config.deliver_policy, config.opt_start_seq > 0, config.opt_start_time is not None
    by_seq, by_time = policy is DeliverPolicy.BY_START_SEQUENCE, policy is DeliverPolicy.BY_START_TIME
    problem = ""
    if by_seq and not has_seq:
        problem = "start sequence is not set"
    elif by_time and not has_time:
        problem = "start time is not set"
    elif has_seq and not by_seq:
        problem = f"start {'start ' if by_time else ''}sequence is also set"
    elif has_time and not by_time:
        problem = "start time is also set"
    elif policy is DeliverPolicy.LAST_PER_SUBJECT and not config.filters:
        problem = "filter subject is not set"
    if problem:
        text = f"consumer delivery policy is deliver {_WORDS[policy]}, but optional {problem}"
        raise codes.CONSUMER_INVALID_POLICY.with_text(err=text)


def _check_sampling(config: ConsumerConfig) -> None:
    if not config.sample_freq:
        return
    text = config.sample_freq.removesuffix("%")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise codes.CONSUMER_INVALID_SAMPLING.with_text(err=f'strconv.Atoi: parsing "{text}": invalid syntax')
    if int(text) < 0:
        raise codes.CONSUMER_INVALID_SAMPLING.with_text(err="<nil>")


def _check_priorities(config: ConsumerConfig) -> None:
    if not config.priority_policy:
        if config.priority_groups:
            raise codes.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE.error()
        if config.priority_timeout:
            raise codes.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE.error()
        return
    if config.is_push:
        raise codes.CONSUMER_PUSH_WITH_PRIORITY_GROUP.error()
    if not config.priority_groups:
        raise codes.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP.error()
    for group in config.priority_groups:
        check_group(group)
