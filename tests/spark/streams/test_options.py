"""Options of a stream and a bucket: what is taken, what is refused with which hint, and that no secret is shown."""

import pytest

from strandline.errors import InvalidInput
from strandline.spark.logs.options import At
from strandline.spark.source import kind_of
from strandline.spark.streams.options import (
    SINK_BUCKET,
    Kind,
    Target,
    parse_batch_options,
    parse_publish_options,
    parse_stream_options,
)

SECRET = "Zebra-Crossing"  # noqa: S105 - of nobody


def test_a_bounded_read_has_its_defaults() -> None:
    options = parse_batch_options({"stream": "ORDERS"}, "stream")
    assert options.target == Target("stream", "ORDERS")
    assert options.settings.urls == ("nats://127.0.0.1:4222",)
    assert (options.starting, options.ending, options.view, options.filters) == ("earliest", "latest", "changes", ())
    assert options.is_loss_refused
    assert parse_batch_options({"bucket": "b"}, "bucket").view == "latest"
    assert parse_stream_options({"bucket": "b"}, "bucket").view == "changes"


def test_every_option_is_parsed() -> None:
    given = {
        "STREAM": "S",
        "servers": "nats://a:1,nats://b:2",
        "subjects": "a.*, b.>",
        "startingoffset": "7",
        "endingTimestamp": "2026-11-15T12:00:00Z",
        "failOnDataLoss": "FALSE",
        "rowsPerBatch": "5",
        "partitions": "3",
    }
    options = parse_batch_options(given, "stream")
    assert options.settings.urls == ("nats://a:1", "nats://b:2")
    assert options.filters == ("a.*", "b.>")
    assert (options.starting, options.ending) == (7, At(1_794_744_000 * 10**9))
    assert (options.is_loss_refused, options.rows_per_batch, options.partitions) == (False, 5, 3)
    assert parse_stream_options({"bucket": "b", "maxRecordsPerTrigger": "9"}, "bucket").records_per_trigger == 9


def test_prefixes_become_subjects_of_the_server_and_those_below_others_are_left_out() -> None:
    options = parse_batch_options({"bucket": "b", "prefix": "x., a.b., a."}, "bucket")
    assert options.filters == ("a.", "x.")
    assert options.subjects("$KV.b.") == ("$KV.b.a.>", "$KV.b.x.>")
    assert parse_batch_options({"bucket": "b"}, "bucket").filters == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stream": "S", "startingRevision": "1"}, "no option startingrevision"),
        ({"stream": "a.b"}, "option stream cannot be 'a.b'"),
        ({"stream": "S", "subjects": "a..b"}, "option subjects cannot be"),
        ({"stream": "S", "startingOffset": "latest"}, "reads nothing"),
        ({"stream": "S", "startingOffset": "-1"}, "option startingOffset cannot be '-1'"),
        ({"stream": "S", "prefix": "a."}, "no option prefix"),
        ({"stream": "S", "view": "latest"}, "no option view"),
        ({"stream": "S", "path": "/x"}, "no option path"),
        ({"stream": "S", "servers": "http://a"}, "cannot be reached by http"),
        ({"stream": "S", "creds": "x", "credsSecret": "y"}, "the same thing"),
    ],
)
def test_what_cannot_work_is_refused_with_a_hint(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refusal:
        parse_batch_options(given, "stream")
    assert refusal.value.hint
    assert refusal.value.hint in refusal.value.__notes__


def test_views_and_starts_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match="neither start nor end"):
        parse_batch_options({"bucket": "b", "startingOffset": "4"}, "bucket")
    assert parse_batch_options({"bucket": "b", "startingOffset": "4", "view": "changes"}, "bucket").starting == 4
    with pytest.raises(InvalidInput, match="option view cannot be"):
        parse_batch_options({"bucket": "b", "view": "all"}, "bucket")
    with pytest.raises(InvalidInput, match="latest is another offset each time"):
        parse_stream_options({"stream": "S", "startingOffset": "latest"}, "stream")
    with pytest.raises(InvalidInput, match="it goes on"):
        parse_stream_options({"bucket": "b", "view": "latest"}, "bucket")


@pytest.mark.parametrize("kind", ["stream", "bucket"])
def test_no_refusal_and_no_repr_shows_a_secret(kind: Kind) -> None:
    given = {kind: "S", "servers": f"nats://me:{SECRET}@host:4222", "credsSecret": SECRET, "userSecret": ""}
    assert SECRET not in repr(parse_batch_options(given, kind))
    for bad in ({"unknown": "1"}, {"servers": f"nats://me:{SECRET}@:bad:"}, {"userSecret": f"you:{SECRET}"}):
        with pytest.raises(InvalidInput) as refusal:
            parse_batch_options({**given, **bad}, kind)
        assert SECRET not in str(refusal.value) + "".join(refusal.value.__notes__)
    with pytest.raises(InvalidInput, match="unknown") as refusal:
        parse_publish_options({**given, "unknown": SECRET}, kind, is_stream=True)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("given", [{"creds": SECRET}, {"servers": f"nats://me:{SECRET}@host"}])
def test_a_bounded_write_refuses_secrets_that_spark_would_show(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="Spark shows the options of a bounded write") as refusal:
        parse_publish_options({"stream": "S", **given}, "stream", is_stream=False)
    assert SECRET not in str(refusal.value)
    parse_publish_options({"stream": "S", "checkpointLocation": "/c", **given}, "stream", is_stream=True)
    hidden = {"stream": "S", "credsSecret": SECRET}
    assert parse_publish_options(hidden, "stream", is_stream=False).settings.creds == SECRET


def test_rows_wait_in_the_checkpoint_unless_another_folder_is_named() -> None:
    def staging(**given: str) -> str | None:
        return parse_publish_options({"stream": "S", **given}, "stream", is_stream=True).staging

    assert staging(checkpointLocation="/c") == "/c/strandline-staged"
    assert staging(checkpointLocation="file:///c") == "/c/strandline-staged"
    assert staging(checkpointLocation="file:/c") == "/c/strandline-staged"
    assert staging(checkpointLocation="s3a://bucket/c") is None
    assert staging(checkpointLocation="s3a://bucket/c", stagingPath="/shared") == "/shared"
    assert parse_publish_options({"bucket": "b"}, "bucket", is_stream=False).state_bucket == SINK_BUCKET


def test_exactly_one_thing_is_named() -> None:
    assert kind_of({"Stream": "S"}) == "stream"
    assert kind_of({"bucket": "b", "stream": ""}) == "bucket"
    assert kind_of({"fold": "f"}) == "fold"
    assert kind_of({"path": "p"}) == "path"
    assert kind_of({}) == "path"
    with pytest.raises(InvalidInput, match="path, stream name more than one"):
        kind_of({"path": "p", "stream": "S"})
