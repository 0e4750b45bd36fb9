"""Errors on their way from a task to the driver: Spark transports only text, so an error travels as a line of JSON.

Invariants: an error of our tree leaves a task as it is, and of any other error only its class and place: messages of
foreign errors may quote scanned data, and Spark writes them to its logs. The driver parses plain data and never
unpickles, because the text can come from anywhere; it rebuilds only classes of our tree.
"""

import contextlib
import importlib
import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, TypeVar

from strandline.errors import StrandlineError

T = TypeVar("T")

_MARK = "strandline-error: "
_FRAMES_MAX = 3


class TaskCrashed(StrandlineError):
    """A task met an error that is not of our tree: `kind` is its class, `place` where it was raised."""

    def __init__(self, kind: str, place: str) -> None:
        hint = "this is a defect: please report it with this line"
        super().__init__(f"a task failed with {kind} at {place}", hint=hint)
        self.kind = kind
        self.place = place


class TaskOutOfMemory(StrandlineError):
    """A task could not get the memory it asked for."""

    def __init__(self, place: str) -> None:
        super().__init__(f"a task ran out of memory at {place}", hint="use fewer cores, such as --master 'local[1,4]'")
        self.place = place


@contextlib.contextmanager
def transport_errors() -> Iterator[None]:
    """Wrap the body of a task, so that `parse_error` finds its errors on the driver."""
    try:
        yield
    except StrandlineError as error:
        _leave(error)
        raise
    except MemoryError as error:
        raise _leave(TaskOutOfMemory(_place(error))) from None
    except Exception as error:  # noqa: BLE001 - nothing else may leave a task
        raise _leave(TaskCrashed(type(error).__qualname__, _place(error))) from None


def transported_batches(body: Callable[..., Iterator[T]], *arguments: Any) -> Iterator[T]:  # noqa: ANN401 - any task's
    """Yield the batches of a task's body under `transport_errors`: for `mapInArrow`."""
    with transport_errors():
        yield from body(*arguments)


def _leave(error: StrandlineError) -> StrandlineError:
    error.__cause__ = error.__context__ = None  # Spark would print their messages too
    error.add_note(format_error(error))
    return error


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return " < ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


def format_error(error: StrandlineError) -> str:
    """Return a line of text that stands for `error`."""
    kind = type(error)
    body = {"class": f"{kind.__module__}:{kind.__qualname__}", "args": error.args, "fields": _fields(error)}
    return _MARK + json.dumps(body, default=_plain)


def parse_error(text: str) -> StrandlineError | None:
    """Return the first error that stands in `text` as a line of `format_error`; None where there is none."""
    for start in _marks(text):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, ImportError):
            return _rebuilt(json.JSONDecoder(object_hook=_unplain).raw_decode(text, start)[0])
    return None


def _marks(text: str) -> Iterator[int]:
    at = text.find(_MARK)
    while at >= 0:
        yield at + len(_MARK)
        at = text.find(_MARK, at + 1)


def _rebuilt(body: dict[str, Any]) -> StrandlineError:
    module, _, name = body["class"].partition(":")
    if module.partition(".")[0] != "strandline":
        raise ValueError(module)
    kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, StrandlineError)):
        raise TypeError(name)
    error = kind.__new__(kind)
    error.args = tuple(body["args"])
    error.__dict__.update(body["fields"])
    return error


def _fields(error: StrandlineError) -> dict[str, Any]:
    return {name: value for name, value in error.__dict__.items() if not name.startswith("__")}


def _plain(value: object) -> object:
    return {"hex": value.hex()} if isinstance(value, bytes) else str(value)


def _unplain(value: dict[str, Any]) -> object:
    return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else value
