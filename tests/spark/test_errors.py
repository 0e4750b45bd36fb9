"""Spark's errors in our tree, and errors of ours on their way out of a task."""

import json
import pickle
import sys
import traceback
from collections.abc import Iterable, Iterator

import py4j.protocol
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkRuntimeError

from strandline.errors import Damaged, InvalidInput, RecordTooLarge, StorageRefused, StrandlineError
from strandline.spark.error_transport import (
    TaskCrashed,
    TaskOutOfMemory,
    format_error,
    parse_error,
    transport_errors,
    transported_batches,
)
from strandline.spark.errors import (
    ExecutorLost,
    SparkEnded,
    SparkFailed,
    SparkOutOfMemory,
    WorkerLost,
    WorkersDiffer,
    first_cause,
    spark_errors,
    translate,
)

ERRORS = [
    RecordTooLarge(10, 5),
    Damaged("/a/b", "torn", safe="repair it"),
    StorageRefused("/a", "full", "ENOSPC", hint=None),
    InvalidInput('two\nlines, "quotes", {braces} and ümlauts', hint="do this"),
]


def left(error: Exception) -> str:
    """Return what Spark would see of an error that leaves a task."""
    try:
        with transport_errors():
            raise error
    except StrandlineError as out:
        return "".join(traceback.format_exception(out))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_ours_comes_back_as_itself(error: StrandlineError) -> None:
    text = f"org.apache.spark.SparkException: Job aborted\n{left(error)}\n\tat org.apache.spark.Task.run(Task.scala:1)"
    back = parse_error(text)
    assert type(back) is type(error)
    assert back is not None
    assert str(back) == str(error)
    assert {name: value for name, value in back.__dict__.items() if name != "__notes__"} == {
        name: value for name, value in error.__dict__.items() if name != "__notes__"
    }
    assert pickle.loads(pickle.dumps(back)).args == error.args  # noqa: S301 - our own


@given(st.text(), st.integers(), st.binary(max_size=20))
def test_any_fields_survive(message: str, number: int, data: bytes) -> None:
    error = StrandlineError(message, hint=message)
    error.number, error.data = number, data  # type: ignore[attr-defined]
    back = parse_error("x " + format_error(error) + " y")
    assert back is not None
    assert (back.args, back.__dict__) == (error.args, error.__dict__)


def test_nothing_of_a_foreign_error_leaves_a_task_but_its_name_and_place() -> None:
    text = left(ValueError("the secret is hunter2"))
    assert "hunter2" not in text
    back = parse_error(text)
    assert isinstance(back, TaskCrashed)
    assert back.kind == "ValueError"
    assert back.place.startswith("test_errors.py:")


def test_nor_does_the_cause_of_an_error_of_ours() -> None:
    try:
        with transport_errors():
            try:
                int("hunter2")
            except ValueError as error:
                raise InvalidInput("it is wrong") from error
    except InvalidInput as out:
        text = "".join(traceback.format_exception(out))
    assert "hunter2" not in text
    assert isinstance(parse_error(text), InvalidInput)


def test_the_same_holds_for_tasks_that_yield() -> None:
    def body(values: Iterable[str]) -> Iterator[int]:
        return map(int, values)

    batches = transported_batches(body, ["1", "hunter2"])
    assert next(batches) == 1
    with pytest.raises(TaskCrashed) as crashed:
        next(batches)
    assert "hunter2" not in "".join(traceback.format_exception(crashed.value))


def test_a_task_without_memory_says_so() -> None:
    assert isinstance(parse_error(left(MemoryError())), TaskOutOfMemory)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"class": "os:system", "args": ["true"], "fields": {}}',
        '{"class": "strandline.errors:Any", "args": [], "fields": {}}',
        '{"class": "strandline.absent:Error", "args": [], "fields": {}}',
        '{"class": "strandline.errors:Damaged", "args": 5, "fields": {}}',
        '{"class": "strandline.errors:Damaged", "args": [], "fields": 5}',
        '{"class": 7, "args": [], "fields": {}}',
        '{"class": "strandlineevil:Error", "args": [], "fields": {}}',
    ],
)
def test_what_only_looks_like_a_carried_error_is_no_error_of_ours(body: str) -> None:
    assert parse_error(f"strandline-error: {body}") is None


def test_text_from_anywhere_imports_nothing_of_others() -> None:
    assert parse_error('strandline-error: {"class": "antigravity:Error", "args": [], "fields": {}}') is None
    assert "antigravity" not in sys.modules


def test_a_broken_one_does_not_hide_a_whole_one() -> None:
    text = "strandline-error: {broken\n" + format_error(RecordTooLarge(2, 1))
    assert isinstance(parse_error(text), RecordTooLarge)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", SparkOutOfMemory),
        ("java.io.IOException: No space left on device", StorageRefused),
        ("ExecutorLostFailure (executor 1 exited) Python worker exited unexpectedly (crashed)", ExecutorLost),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", WorkerLost),
        ("ModuleNotFoundError: No module named 'strandline'", WorkersDiffer),
        ("ModuleNotFoundError: No module named 'strandline.spark'", WorkersDiffer),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12", WorkersDiffer),
        ("[INTERNAL_ERROR] who knows", SparkFailed),
        (left(Damaged("/a", "torn", safe="repair")), Damaged),
    ],
)
def test_sparks_errors_are_told_in_our_words(text: str, kind: type[StrandlineError]) -> None:
    error = translate(py4j.protocol.Py4JError(text))
    assert type(error) is kind
    assert error is not None
    assert error.hint
    assert pickle.loads(pickle.dumps(error)).args == error.args  # noqa: S301 - our own


def test_an_unknown_error_is_named_by_its_class_and_never_quoted() -> None:
    error = translate(py4j.protocol.Py4JError("[UNRESOLVED_COLUMN.WITH_SUGGESTION] hunter2"))
    assert str(error) == "Spark gave up: UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert str(translate(py4j.protocol.Py4JError("hunter2"))) == "Spark gave up: Py4JError"


@pytest.mark.parametrize(
    "error", [py4j.protocol.Py4JNetworkError("gone"), ConnectionRefusedError(111, "refused"), BrokenPipeError()]
)
def test_a_java_that_is_gone_is_told(error: Exception) -> None:
    ended = translate(error)
    assert isinstance(ended, SparkEnded)
    assert ended.retryable


def test_what_is_not_sparks_passes_unchanged() -> None:
    for error in (ValueError("x"), InvalidInput("x")):
        with pytest.raises(type(error)) as caught, spark_errors():
            raise error
        assert caught.value is error


def test_the_block_raises_our_error_in_place_of_sparks() -> None:
    with pytest.raises(SparkFailed) as caught, spark_errors():
        raise PySparkRuntimeError("hunter2")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "hunter2" not in json.dumps([str(caught.value), caught.value.hint])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "An error occurred while calling X.\n: java.lang.IllegalArgumentException: too small\n\tat a.b(C.scala:1)",
            "java.lang.IllegalArgumentException: too small",
        ),
        ("one line", "one line"),
        ("", "Py4JError"),
    ],
)
def test_what_java_said_is_found_among_its_frames(text: str, line: str) -> None:
    assert first_cause(py4j.protocol.Py4JError(text)) == line
