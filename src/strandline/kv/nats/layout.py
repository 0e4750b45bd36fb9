"""How a bucket lies in a JetStream stream: names, subjects, settings and retention; no I/O.

Invariants: a bucket's stream, subjects and settings are those of every NATS client, so that all of them can share it.
A mirror holds the subjects of its origin and is written through it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from strandline.kv.config import Discard, Retention, StoreConfig, format_differences
from strandline.nats.streams import StreamState

NS = 1_000_000_000
STREAM_PREFIX = "KV_"
SUBJECT_PREFIX = "$KV."
UNLIMITED = -1


def stream_name(bucket: str) -> str:
    """Return the stream of a bucket."""
    return f"{STREAM_PREFIX}{bucket}"


def bucket_name(stream: str) -> str:
    """Return the bucket of a stream; a stream that holds none keeps its name."""
    return stream.removeprefix(STREAM_PREFIX)


def subject_prefix(bucket: str) -> str:
    """Return what the subjects of a bucket's keys begin with."""
    return f"{SUBJECT_PREFIX}{bucket}."


def read_prefix(state: StreamState) -> str:
    """Return what the subjects of a bucket's keys begin with in its stream; a mirror has those of its origin."""
    if state.mirror is None:
        return next(_key_prefixes(state.subjects), subject_prefix(bucket_name(state.name)))
    return next(_key_prefixes(state.mirror.destinations), subject_prefix(bucket_name(state.mirror.name)))


def write_prefix(state: StreamState) -> str:
    """Return what the subjects begin with to which a bucket's keys are written: for a mirror, those of its origin."""
    if state.mirror is None:
        return read_prefix(state)
    origin = subject_prefix(bucket_name(state.mirror.name))
    return f"{state.mirror.api_prefix}.{origin}" if state.mirror.api_prefix else origin


def _key_prefixes(subjects: Sequence[str]) -> Iterator[str]:
    return (subject[:-1] for subject in subjects if subject.startswith(SUBJECT_PREFIX) and subject.endswith(".>"))


def retention_of(state: StreamState) -> Retention:
    """Return the retention of a bucket, by its stream."""
    return Retention(
        evicts_current_values=state.evicts_current_values,
        first_revision=state.first,
        last_revision=state.last,
        age_only=state.is_age_only,
        age_max_ns=state.age_max_ns,
        identity=state.identity,
        updates=state.messages,
        in_order=not state.allows_ttl,
        ttl_only=state.allows_ttl and not state.drops_current_values,
        history=state.per_subject_max,
        now_ns=state.now_ns,
    )


def stream_config(bucket: str, config: StoreConfig) -> dict[str, Any]:
    """Return the stream's settings for a bucket's, as the API takes them."""
    return {
        "name": stream_name(bucket),
        "subjects": [f"{subject_prefix(bucket)}>"],
        "retention": "limits",
        "storage": "file",
        "max_msgs_per_subject": config.history,
        "max_msgs": config.updates_max or UNLIMITED,
        "max_bytes": config.bytes_max or UNLIMITED,
        "max_msg_size": config.value_bytes_max or UNLIMITED,
        "max_age": int(config.age_max_s * NS),
        "discard": config.discard.value,
        "num_replicas": config.replicas,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        **({"allow_msg_ttl": True} if config.ttl or config.marker_ttl_s else {}),
        **({"subject_delete_marker_ttl": int(config.marker_ttl_s * NS)} if config.marker_ttl_s else {}),
    }


def format_stream_differences(config: StoreConfig, state: StreamState) -> str:
    """Return which of a bucket's settings are not as wanted, empty if all are."""
    has = {
        "history": state.per_subject_max,
        "updates_max": state.messages_max,
        "bytes_max": state.bytes_max,
        "value_bytes_max": state.message_bytes_max,
        "age_max_s": state.age_max_ns / NS,
        "discard": Discard.OLD if state.discards_old else Discard.NEW,
        "ttl": state.allows_ttl,
        "marker_ttl_s": state.marker_ttl_ns / NS,
        "replicas": state.replicas,
    }
    wanted = asdict(config) | {"ttl": config.ttl or config.marker_ttl_s > 0}
    return format_differences(wanted, has)
