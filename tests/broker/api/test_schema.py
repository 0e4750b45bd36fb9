"""Types of the API and their JSON."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.api.checks import check_create, check_stream
from strandline.broker.api.codes import ERROR_CODES, ApiError
from strandline.broker.api.config import Discard, Retention, Storage, StreamConfig, StreamSource, SubjectTransform
from strandline.broker.api.json_text import read_json, write_json
from strandline.broker.api.origins import Neighbours
from strandline.broker.api.schema import from_json, to_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)
CONFIGS = st.builds(
    StreamConfig,
    name=st.sampled_from(["A", "B-1"]),
    subjects=st.sampled_from([(), ("a.>",), ("a", "b.*")]),
    retention=st.sampled_from(Retention),
    max_msgs=st.integers(-1, 10),
    max_age=st.sampled_from([0, 10**9]),
    discard=st.sampled_from(Discard),
    storage=st.sampled_from(Storage),
    placement=st.none(),
    mirror=st.none() | st.just(StreamSource("O", subject_transforms=(SubjectTransform("a", "b"),))),
    sources=st.just(()),
    consumer_limits=st.builds(type(StreamConfig().consumer_limits)),
    persist_mode=st.none(),
    subject_transform=st.none(),
    republish=st.none(),
    metadata=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    **dict.fromkeys(("max_consumers", "max_bytes", "max_msgs_per_subject", "max_msg_size", "num_replicas"), st.just(0)),
)


def _refusal(call: Callable[[], object]) -> ApiError | None:
    try:
        call()
    except ApiError as error:
        return error
    return None


@given(JSON)
def test_what_is_written_is_read_back(value: object) -> None:
    assert read_json(write_json(value)) == value


@given(st.binary(max_size=30))
def test_any_bytes_are_json_or_refused_with_a_reason(data: bytes) -> None:
    error = _refusal(lambda: read_json(data))
    assert error is None or (error.err_code == 10025 and error.description.startswith("invalid JSON: "))


@given(CONFIGS)
def test_a_configuration_is_read_back(config: StreamConfig) -> None:
    assert from_json(StreamConfig, to_json(config)) == config


@given(CONFIGS)
def test_checking_a_checked_configuration_changes_nothing(config: StreamConfig) -> None:
    error = _refusal(lambda: check_stream(config, Neighbours()))
    assert error is None or error.err_code in ERROR_CODES
    if error is None:
        checked = check_stream(config, Neighbours())
        assert check_stream(checked, Neighbours()) == checked


def test_the_table_of_codes_is_whole() -> None:
    assert len(ERROR_CODES) == 226
    assert all(400 <= code.code <= 503 for code in ERROR_CODES.values())


def test_the_same_configuration_again_is_no_conflict() -> None:
    first = check_create(StreamConfig(name="A", subjects=("a",)), Neighbours())
    assert check_create(StreamConfig(name="A", subjects=("a",)), Neighbours({"A": first})) == first
    with pytest.raises(ApiError, match="different configuration"):
        check_create(StreamConfig(name="A", subjects=("b",)), Neighbours({"A": first}))


def test_field_names_count_without_their_case_as_in_go() -> None:
    assert from_json(StreamConfig, b'{"Name":"A"}').name == "A"
