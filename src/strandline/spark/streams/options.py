"""Options of a stream or a bucket, parsed once: server, login, target, range, and sizes.

Invariants: pure. No refusal quotes an option that may hold a secret, and the parsed options show none. A bounded write
takes secrets only under names that Spark hides from its plans.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from strandline.errors import InvalidInput
from strandline.kv.keys import validate_bucket, validate_prefix
from strandline.kv.nats.layout import STREAM_PREFIX
from strandline.nats.settings import NatsSettings
from strandline.spark.errors import invalid_input
from strandline.spark.logs.options import (
    BATCH_READ_OPTIONS,
    STREAM_READ_OPTIONS,
    Given,
    ReadOptions,
    View,
    absolute,
    parse_name,
)
from strandline.wire import InvalidSubject, validate_subject

Kind = Literal["stream", "bucket"]

CONNECTING = (
    "servers",
    "credsFile",
    "credsSecret",
    "userSecret",
    "creds",
    "tlsCa",
    "tlsCert",
    "tlsKey",
)
_FILTERS = {"stream": ("subjects",), "bucket": ("prefix", "view")}
_WRITING = {"stream": ("subject",), "bucket": ()}
SINK_BUCKET = "strandline_sinks"
_FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")


class Target(NamedTuple):
    """A stream, or the bucket that a stream is."""

    kind: Kind
    name: str

    @property
    def stream(self) -> str:
        """Return the name of the stream."""
        return STREAM_PREFIX + self.name if self.kind == "bucket" else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class StreamOptions(ReadOptions):
    """Which part of a stream is read; `filters` are subjects of a stream or prefixes of keys, none are all."""

    settings: NatsSettings
    target: Target
    filters: tuple[str, ...] = ()
    is_floor_watched: bool = True
    """Whether messages that are removed before they were read count as lost; `fold_build` says no."""

    @property
    def label(self) -> str:
        """Return the kind and the name of the target."""
        return str(self.target)

    @property
    def offset_word(self) -> str:
        """Return the stream's word for an offset."""
        return "sequence"

    @property
    def offset_min(self) -> int:
        """Return the lowest sequence; users write 0 for the beginning."""
        return 1

    def subjects(self, prefix: str) -> tuple[str, ...]:
        """Return the subjects that the server filters by; `prefix` is the beginning of the bucket's subjects."""
        if self.target.kind == "stream":
            return self.filters
        return tuple(f"{prefix}{keys}>" for keys in self.filters)


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Where rows go, the name that makes a bounded write happen once, and the folder where rows wait."""

    settings: NatsSettings
    target: Target
    subject: str | None = None
    commit_id: str | None = None
    staging: str | None = None
    state_bucket: str = SINK_BUCKET


def parse_batch_options(options: Mapping[str, str], kind: Kind) -> StreamOptions:
    """Return the options of a bounded read."""
    known = (kind, *CONNECTING, *_FILTERS[kind], *BATCH_READ_OPTIONS)
    given = Given(options, known, f"a bounded read of a {kind}")
    fields = given.batch_read()
    view = _view(given, "latest" if kind == "bucket" else "changes")
    if view == "latest" and (fields["starting"], fields["ending"]) != ("earliest", "latest"):
        raise invalid_input(
            "the latest values of a bucket are those of now, and have neither start nor end",
            "use option view=changes for a range of revisions",
        )
    return _options(given, kind, {**fields, "view": view})


def parse_stream_options(options: Mapping[str, str], kind: Kind) -> StreamOptions:
    """Return the options of a streaming read."""
    known = (kind, *CONNECTING, *_FILTERS[kind], *STREAM_READ_OPTIONS)
    given = Given(options, known, f"a streaming read of a {kind}")
    fields = given.stream_read("give the number: stream_state(settings, stream).last + 1, of strandline.nats")
    if _view(given, "changes") == "latest":
        raise invalid_input(
            "a stream has no latest values, it goes on", "leave view out: a streaming read has the changes"
        )
    return _options(given, kind, fields)


def parse_publish_options(options: Mapping[str, str], kind: Kind, *, is_stream: bool) -> PublishOptions:
    """Return the options of a sink."""
    own = ("checkpointLocation",) if is_stream else ("commitId",)
    known = (kind, *CONNECTING, *_WRITING[kind], "stagingPath", "stateBucket", *own)
    given = Given(options, known, f"a {'streaming' if is_stream else 'bounded'} write to a {kind}")
    if not is_stream:
        _refuse_shown_secrets(given)
    staging = given.text("stagingPath")
    checkpoint = given.text("checkpointLocation")
    if staging is None and checkpoint is not None and "://" not in checkpoint.removeprefix("file://"):
        staging = f"{checkpoint.removeprefix('file:')}/strandline-staged"
    return PublishOptions(
        parse_settings(given),
        _target(given, kind),
        given.take("subject", _subject, default=None),
        given.take("commitId", parse_name, default=None),
        None if staging is None else absolute(staging),
        given.take("stateBucket", _bucket, default=SINK_BUCKET),
    )


def parse_settings(given: Given) -> NatsSettings:
    """Return where and as whom to connect."""
    secret = given.text("credsSecret")
    if secret and given.text("creds"):
        raise invalid_input("creds and credsSecret are the same thing", "give credsSecret")
    try:
        return NatsSettings(
            given.text("servers") or "nats://127.0.0.1:4222",
            creds=secret or given.text("creds") or "",
            creds_file=given.text("credsFile") or "",
            user_info=given.text("userSecret") or "",
            tls_ca=given.text("tlsCa") or "",
            tls_cert=given.text("tlsCert") or "",
            tls_key=given.text("tlsKey") or "",
            name="strandline-spark",
        )
    except InvalidInput as error:
        raise invalid_input(str(error), error.hint or "look at servers and the options of TLS") from None


def _options(given: Given, kind: Kind, fields: dict[str, Any]) -> StreamOptions:
    target = _target(given, kind)
    return StreamOptions(parse_settings(given), target, _filters(given, target), **fields)


def _target(given: Given, kind: Kind) -> Target:
    return Target(kind, given.take(kind, _bucket if kind == "bucket" else _stream, default=None))


def _view(given: Given, default: View) -> View:
    text = (given.text("view") or default).lower()
    if text not in ("changes", "latest"):
        raise invalid_input(f"option view cannot be {text!r}", "it is changes or latest")
    return "latest" if text == "latest" else "changes"


def _filters(given: Given, target: Target) -> tuple[str, ...]:
    nothing: tuple[str, ...] = ()
    if target.kind == "stream":
        return given.take("subjects", _subjects, default=nothing)
    prefixes = given.take("prefix", _prefixes, default=nothing)
    least = [one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)]
    return tuple(sorted(set(least))) if "" not in least else nothing


def _refuse_shown_secrets(given: Given) -> None:
    servers = given.text("servers") or ""
    for name, is_shown in (("creds", given.text("creds") is not None), ("user info in servers", "@" in servers)):
        if is_shown:
            raise invalid_input(
                f"Spark shows the options of a bounded write in its plans, and {name} would be among them",
                "use credsFile, credsSecret or userSecret (user:password, or a token): their values are hidden",
            )


def _subjects(text: str) -> tuple[str, ...]:
    return tuple(_pattern(part.strip()) for part in text.split(","))


def _prefixes(text: str) -> tuple[str, ...]:
    return tuple(validate_prefix(part.strip()) for part in text.split(","))


def _pattern(text: str) -> str:
    try:
        return validate_subject(text, wildcards=True)
    except InvalidSubject as error:
        raise ValueError(str(error)) from error


def _subject(text: str) -> str:
    try:
        return validate_subject(text)
    except InvalidSubject as error:
        raise ValueError(str(error)) from error


def _stream(text: str) -> str:
    if not text or not text.isprintable() or _FORBIDDEN & set(text):
        raise ValueError("it is the name of a stream: no blanks, dots, slashes or wildcards")
    return text


def _bucket(text: str) -> str:
    return validate_bucket(text)
