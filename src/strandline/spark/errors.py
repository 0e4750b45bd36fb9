"""Errors of the package: those of the format `strandline`, and Spark's own errors in our tree.

    StrandlineError
    ├── InvalidInput             an option or a column that cannot work
    ├── RecordsMissing           records of the query's range were removed, or belong to another log
    ├── JavaMissing              there is no Java that Spark can use (`strandline.spark.java`)
    ├── TaskCrashed              a task raised an error that is not of our tree (`strandline.spark.error_transport`)
    ├── TaskOutOfMemory
    ├── SparkFailed              Spark gave up on a job
    │   ├── SparkOutOfMemory     Java's memory is too small
    │   ├── WorkerLost           the Python process of a task died, again and again
    │   ├── ExecutorLost         a machine of the cluster went away, again and again
    │   └── WorkersDiffer        the workers have no Strandline, or another Python
    ├── UnknownOutcome
    │   └── SinkUnsure           whether a commit happened can no longer be told
    └── Unavailable
        ├── SparkNotStarted
        └── SparkEnded           Java went away under a running session

Invariants: the hint of an error of the format is also a note, because Spark shows only a worker's traceback. An error
of ours that was raised in a task comes back as itself (`transport_errors`). A message consists of our own words and
Spark's error classes, never of a task's output.
"""

import contextlib
import re
from collections.abc import Callable, Iterator

from strandline.errors import InvalidInput, StorageRefused, StrandlineError, Unavailable, UnknownOutcome
from strandline.spark.error_transport import parse_error

_GO_ON = "restore it, start a new query where it begins now, or set failOnDataLoss to false to go on"
_LOG_HINT = "set STRANDLINE_SPARK_LOG to the path of a file to keep Spark's own log, and run it again"


def invalid_input(message: str, hint: str) -> InvalidInput:
    """Return the error for an option or a column that cannot work."""
    error = InvalidInput(message, hint=hint)
    error.add_note(hint)
    return error


@contextlib.contextmanager
def hints_as_notes() -> Iterator[None]:
    """Add the hint of an error of our tree as a note, which Spark shows."""
    try:
        yield
    except StrandlineError as error:
        if error.hint and error.hint not in getattr(error, "__notes__", ()):
            error.add_note(error.hint)
        raise


class RecordsMissing(StrandlineError):
    """Records of a query's range were removed before it read them, or its log was made again."""

    def __init__(self, path: str, problem: str, hint: str = _GO_ON) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.add_note(hint)
        self.path = path
        self.problem = problem


class SinkUnsure(UnknownOutcome):
    """A commit was cut short, and its outcome cannot be told."""

    def __init__(self, path: str, problem: str, hint: str) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.add_note(hint)
        self.path = path
        self.problem = problem


class SparkFailed(StrandlineError):
    """Spark gave up on a job; `reason` is Spark's name for it."""

    def __init__(self, reason: str, *, hint: str = _LOG_HINT) -> None:
        super().__init__(f"Spark gave up: {reason}", hint=hint)
        self.reason = reason


class SparkOutOfMemory(SparkFailed):
    """Java's memory is too small for the job."""

    def __init__(self) -> None:
        hint = "raise spark.driver.memory, and on a cluster spark.executor.memory (default 1g)"
        super().__init__("Java ran out of memory", hint=hint)


class WorkerLost(SparkFailed):
    """The Python process of a task died, and so did those that tried again."""

    def __init__(self) -> None:
        hint = (
            "the system kills the largest process when memory is short: use fewer cores, such as --master 'local[1,4]'"
        )
        super().__init__("the Python process of a task died, and so did those that tried again", hint=hint)


class ExecutorLost(SparkFailed):
    """Executors of the cluster went away, more often than a task is tried again."""

    retryable = True

    def __init__(self) -> None:
        hint = "look at the cluster's workers, then run it again"
        super().__init__("executors went away while they worked", hint=hint)


class WorkersDiffer(SparkFailed):
    """The workers cannot run our code: no Strandline there, or another Python."""

    def __init__(self) -> None:
        hint = "install the same Strandline on each, and set PYSPARK_PYTHON to the path of its Python there"
        super().__init__("the workers lack Strandline, or run another version of Python", hint=hint)


class SparkEnded(Unavailable):
    """Spark's Java process went away under a running session."""

    def __init__(self) -> None:
        super().__init__("Spark's Java process has ended", hint=f"run it again; if it ends again, {_LOG_HINT}")


def _no_space() -> StrandlineError:
    hint = "free some space, or point TMPDIR to a larger disk, then run it again; nothing committed is lost"
    return StorageRefused("Spark's temporary folder", "no space left on device", "ENOSPC", hint=hint)


# The first match wins: a lost worker is often the consequence of an error above it in this list.
_SIGNS: tuple[tuple[str, Callable[[], StrandlineError]], ...] = (
    (r"No space left on device|Disk quota exceeded", _no_space),
    (r"java\.lang\.OutOfMemoryError|SparkOutOfMemoryError", SparkOutOfMemory),
    (r"No module named '(strandline|pyspark)|PYTHON_VERSION_MISMATCH", WorkersDiffer),
    (r"ExecutorLostFailure|ExecutorDeadException|Master removed our application", ExecutorLost),
    (r"Python worker exited unexpectedly", WorkerLost),
)
_LIBRARIES = ("pyspark", "py4j", "grpc")


def translate(error: BaseException) -> StrandlineError | None:
    """Return the error of our tree that an error of Spark's, Py4J's or Connect's stands for; None if it is neither."""
    if type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return SparkEnded() if isinstance(error, ConnectionError) else None
    text = _text(error)
    if text is None or "Py4JNetworkError" in type(error).__name__:
        return SparkEnded()
    carried = parse_error(text)
    if carried is not None:
        return carried
    for sign, made in _SIGNS:
        if re.search(sign, text):
            return made()
    return SparkFailed(_condition(text) or type(error).__name__)


def _text(error: BaseException) -> str | None:
    """Return all that the error has to say; None where it would have to ask a Java that is gone."""
    try:
        return f"{error}\n{getattr(error, '_stackTrace', '')}"
    except Exception:  # noqa: BLE001 - Py4J's own, when the JVM does not answer
        return None


def _condition(text: str) -> str | None:
    """Return the error class that Spark prints in brackets, such as TABLE_OR_VIEW_NOT_FOUND."""
    found = re.search(r"\[([A-Z][A-Z0-9_.]{3,})\]", text)
    return found[1] if found else None


def first_cause(error: BaseException) -> str:
    """Return Java's class and message of an error in one line; only for errors that no task can have written."""
    text = (_text(error) or "").strip() or type(error).__name__
    found = re.search(r"^:? ?([\w.$]+(?:Exception|Error): .+)$", text, re.MULTILINE)
    return found[1] if found else text.splitlines()[0]


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Wrap calls of Spark: its errors become errors of our tree."""
    try:
        yield
    except StrandlineError:
        raise
    except Exception as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from None  # Spark's message may quote a task's output
