"""Options: validated, matched without regard to case, and refused where they mean nothing."""

import pytest

from strandline.errors import InvalidInput
from strandline.spark.journals.options import (
    JournalOptions,
    WriteOptions,
    parse_batch_options,
    parse_stream_options,
    parse_write_options,
)
from strandline.spark.logs.options import At


def test_names_are_matched_without_regard_to_case() -> None:
    given = {"PATH": "/j", "startingoffset": "5", "ENDINGOFFSET": "9", "failOnDataLoss": "False", "partitions": "3"}
    assert parse_batch_options(given) == JournalOptions("/j", starting=5, ending=9, is_loss_refused=False, partitions=3)


def test_what_is_left_out_has_a_default() -> None:
    assert parse_batch_options({"path": "/j"}) == JournalOptions("/j")
    assert parse_stream_options({"path": "/j"}).records_per_trigger == 50_000


def test_a_path_is_absolute_afterwards() -> None:
    assert parse_batch_options({"path": "j"}).path.startswith("/")
    assert parse_batch_options({"path": "file:///data/j"}).path == "/data/j"


@pytest.mark.parametrize("name", ["startingOffsets", "maxRecordsPerTrigger", "commitId", "checkpointLocation"])
def test_a_bounded_read_refuses_options_it_does_not_know(name: str) -> None:
    with pytest.raises(InvalidInput, match=name.lower()) as refusal:
        parse_batch_options({"path": "/j", name: "1"})
    assert "startingOffset" in (refusal.value.hint or "")


@pytest.mark.parametrize("name", ["endingOffset", "endingTimestamp", "maxOffsetsPerTrigger"])
def test_a_stream_refuses_options_it_does_not_know(name: str) -> None:
    with pytest.raises(InvalidInput, match=name.lower()):
        parse_stream_options({"path": "/j", name: "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffset", "-1"),
        ("startingOffset", "newest"),
        ("startingOffset", "1_000"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "2026-01-01T00:00:00"),
        ("failOnDataLoss", "no"),
        ("rowsPerBatch", "0"),
        ("partitions", "two"),
        ("maxRecordsPerTrigger", "0"),
        ("path", ""),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_its_name(name: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        parse_stream_options({"path": "/j", name: text})


def test_a_start_has_one_name() -> None:
    both = {"path": "/j", "startingOffset": "1", "startingTimestamp": "2026-01-01T00:00:00Z"}
    with pytest.raises(InvalidInput, match="two places"):
        parse_batch_options(both)


def test_a_time_is_read_to_the_microsecond_in_any_zone() -> None:
    options = parse_batch_options({"path": "/j", "startingTimestamp": "1970-01-01T01:00:00.000001+01:00"})
    assert options.starting == At(1000)


def test_a_bounded_read_from_the_latest_offset_is_refused() -> None:
    with pytest.raises(InvalidInput, match="reads nothing"):
        parse_batch_options({"path": "/j", "startingOffset": "latest"})


def test_a_bounded_write_may_have_a_name_and_a_stream_has_its_checkpoint() -> None:
    assert parse_write_options({"path": "/j", "commitid": "day 1"}, is_stream=False) == WriteOptions("/j", "day 1")
    assert parse_write_options({"path": "/j", "checkpointlocation": "/c"}, is_stream=True) == WriteOptions("/j")
    with pytest.raises(InvalidInput, match="commitid"):
        parse_write_options({"path": "/j", "commitId": "x"}, is_stream=True)
