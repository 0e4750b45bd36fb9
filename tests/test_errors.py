"""Errors: one tree, drawn as it is, whose members say what to do next and survive a pickle."""

import copy
import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from strandline import errors
from strandline.errors import (
    Closed,
    CommitFailed,
    Conflict,
    Damaged,
    FormatError,
    InvalidInput,
    Locked,
    MissingExtra,
    OffsetBelowRetained,
    OffsetBeyondEnd,
    OffsetsLost,
    Poisoned,
    RecordTooLarge,
    StaleDelivery,
    StorageRefused,
    StrandlineError,
    Unavailable,
    UnknownOutcome,
    WrongType,
)

EXAMPLES: list[StrandlineError] = [
    StrandlineError("it happened", hint="do this"),
    InvalidInput("no", hint="yes"),
    WrongType("no", hint="yes"),
    RecordTooLarge(5_000, 1_000, "append"),
    errors.OffsetError("no such offset", 5, 1, 3, hint="another"),
    OffsetBelowRetained(5, 10, 20),
    OffsetBeyondEnd(25, 10, 20),
    OffsetsLost(12, 15, 10, 20),
    FormatError("folder/file", "not ours", hint="move it"),
    Damaged("folder", "a byte is gone", safe="copy it"),
    Unavailable("not now"),
    Locked("folder"),
    StorageRefused("folder", "No space left on device", "ENOSPC", hint="free some"),
    Poisoned("folder", "OSError: no"),
    Closed("folder"),
    MissingExtra("rocksdict", "rocksdb"),
    Conflict("somebody else", hint="look again"),
    StaleDelivery(7, 2),
    UnknownOutcome("perhaps"),
    CommitFailed("folder", "OSError: no"),
]


def tree() -> Iterator[tuple[int, type[StrandlineError]]]:
    """Yield every class with its depth, in the order of their definition."""

    def below(cls: type[StrandlineError], depth: int) -> Iterator[tuple[int, type[StrandlineError]]]:
        yield depth, cls
        mine = [found for found in cls.__subclasses__() if found.__module__ == errors.__name__]
        for child in sorted(mine, key=lambda found: inspect.getsourcelines(found)[1]):
            yield from below(child, depth + 1)

    yield from below(StrandlineError, 0)


def drawn() -> Iterator[tuple[int, str]]:
    """Yield every name of the drawing with its depth."""
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+).*", line)
        if match:
            yield len(match[1]) // 4, match[2]


def test_the_drawing_is_the_tree() -> None:
    assert list(drawn()) == [(depth, cls.__name__) for depth, cls in tree()]


def test_there_is_an_example_of_every_class() -> None:
    assert {type(example) for example in EXAMPLES} == {cls for _, cls in tree()}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_survives_a_pickle_with_its_fields_and_message(error: StrandlineError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)
        assert again.retryable == error.retryable
    assert vars(copy.copy(error)) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_argument_of_an_error_is_a_field(error: StrandlineError) -> None:
    names = set(inspect.signature(type(error).__init__).parameters) - {"self", "message", "next_"}
    assert names <= set(vars(error)), "the message must be derived from fields that can be asked for"


@pytest.mark.parametrize("cls", [cls for _, cls in tree()], ids=lambda cls: cls.__name__)
def test_every_class_is_documented(cls: type[StrandlineError]) -> None:
    assert cls.__doc__


def test_an_error_can_be_caught_as_what_python_calls_it() -> None:
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(WrongType, TypeError)
    assert issubclass(errors.OffsetError, LookupError)
    assert issubclass(MissingExtra, ModuleNotFoundError)


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    error = MissingExtra("rocksdict", "rocksdb")
    assert str(error) == "the package rocksdict is not installed; the extra 'rocksdb' brings it"
    assert error.hint == 'pip install "strandline[rocksdb]"'
    assert pickle.loads(pickle.dumps(error)).name == error.name == "rocksdict"  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (OffsetBeyondEnd(1, 0, 1), True),
        (OffsetBelowRetained(1, 2, 3), False),
        (Locked("x"), True),
        (StorageRefused("x", "y", "EIO"), True),
        (Poisoned("x", "y"), False),
        (Closed("x"), False),
        (CommitFailed("x", "y"), False),
        (Damaged("x", "y", safe="z"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_may_succeed_later_by_itself_is_retryable(error: StrandlineError, retryable: bool) -> None:
    assert error.retryable is retryable


def test_errors_about_offsets_name_what_can_be_read() -> None:
    error = OffsetBelowRetained(5, 10, 20)
    assert (error.offset, error.first, error.next) == (5, 10, 20)
    assert "5" in str(error)
    assert "[10, 20)" in str(error)
    assert "10" in (error.hint or "")
    lost = OffsetsLost(12, 15, 10, 20)
    assert lost.resume_at == 15
    assert "15" in (lost.hint or "")


def test_notes_and_unknown_fields_travel_too() -> None:
    error = Locked("folder")
    error.add_note("seen on a Tuesday")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert again.__notes__ == ["seen on a Tuesday"]
