"""Subject transforms: subjects of a source pattern mapped to a destination.

A destination may name the wildcards of its source (`$1`, `{{wildcard(1)}}`) and functions of them: partition, split,
splitFromLeft, splitFromRight, sliceFromLeft, sliceFromRight, left, right, random.

Invariants: a transform is checked when it is made and pure afterwards (but for `random`); a subject that the source
does not match has no transform.
"""

import random
import re
from collections.abc import Callable, Sequence

from strandline.broker.api.codes import ApiError, ErrorCode
from strandline.wire import InvalidSubject, subject_matches, validate_subject

_CALL = re.compile(r"\{\{\s*([a-zA-Z]+)\s*\((.*)\)\s*\}\}")
_NUMBERED = re.compile(r"\$(\d{1,9})", re.ASCII)
_ARGUMENT = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_FNV_START, _FNV_PRIME = 2166136261, 16777619

Piece = Callable[[Sequence[str], str], str]


class InvalidMapping(ValueError):
    """An invalid destination; the text is nats-server's."""


class SubjectMapping:
    """A checked transform from one pattern to another."""

    def __init__(self, source: str, destination: str) -> None:
        self.source = source or ">"
        self.destination = destination
        if not _is_valid(self.source):
            raise InvalidMapping("invalid subject")
        if not _is_valid(destination):
            raise InvalidMapping(f"invalid mapping destination: invalid subject in {destination}")
        words = self.source.split(".")
        self._wildcards = [number for number, word in enumerate(words) if word == "*"]
        self._rest_at = len(words) - 1 if words[-1] == ">" else -1
        targets = _destination_tokens(destination)
        if (targets[-1] == ">") != (self._rest_at >= 0):
            raise InvalidMapping("invalid mapping destination: full wildcards must be in both or neither")
        self._pieces = [self._piece(word, number) for number, word in enumerate(targets)]

    def apply(self, subject: str) -> str | None:
        """Return the transformed subject, None if the source does not match."""
        if not subject_matches(self.source, subject):
            return None
        words = subject.split(".")
        values = [words[number] for number in self._wildcards]
        rest = ".".join(words[self._rest_at :]) if self._rest_at >= 0 else ""
        return ".".join(piece(values, rest) for piece in self._pieces)

    def _piece(self, word: str, number: int) -> Piece:
        if word == ">":
            return lambda _values, rest: rest
        if word == "*":
            nth = number  # an asterisk stands for the next wildcard
            return self._wildcard(word, 1 + sum(1 for other in self.destination.split(".")[:nth] if other == "*"))
        numbered = _NUMBERED.fullmatch(word)
        if numbered is not None:
            return self._wildcard(word, int(numbered[1]))
        call = _CALL.fullmatch(word)
        if call is None:
            if word.startswith("{{") and word.endswith("}}"):
                raise InvalidMapping(f"invalid mapping destination: unknown function in {word}")
            return lambda _values, _rest: word
        return self._call(word, call[1].lower(), [part.strip() for part in call[2].split(",")])

    def _wildcard(self, word: str, number: int) -> Piece:
        self._check(word, number)
        return lambda values, _rest: values[number - 1]

    def _check(self, word: str, number: int) -> None:
        if not 1 <= number <= len(self._wildcards):
            raise InvalidMapping(f"invalid mapping destination: wildcard index out of range in {word}: [{number}]")

    def _call(self, word: str, name: str, arguments: list[str]) -> Piece:
        if name not in _FUNCTIONS and name not in ("wildcard", "partition", "random", "split"):
            raise InvalidMapping(f"invalid mapping destination: unknown function in {word}")
        if arguments == [""]:
            raise InvalidMapping(f"invalid mapping destination: not enough arguments passed to the function in {word}")
        if name == "split":
            return self._split(word, arguments)
        numbers = [_integer(word, part) for part in arguments]
        if name == "wildcard":
            _expect(word, numbers, 1)
            return self._wildcard(word, numbers[0])
        if name == "partition":
            return self._partition(word, numbers)
        if name == "random":
            _expect(word, numbers, 1)
            return lambda _values, _rest: str(random.randrange(max(1, numbers[0])))  # noqa: S311 - nothing secret
        _expect(word, numbers, 2)
        self._check(word, numbers[0])
        function = _FUNCTIONS[name]
        return lambda values, _rest: function(values[numbers[0] - 1], numbers[1])

    def _partition(self, word: str, numbers: list[int]) -> Piece:
        count, chosen = numbers[0], numbers[1:]
        for number in chosen:
            self._check(word, number)

        def piece(values: Sequence[str], rest: str) -> str:
            text = "".join(values[number - 1] for number in chosen) if chosen else ".".join([*values, rest])
            return str(_fnv(text) % count if count > 0 else 0)

        return piece

    def _split(self, word: str, arguments: list[str]) -> Piece:
        _expect(word, arguments, 2)
        number, separator = _integer(word, arguments[0]), arguments[1]
        self._check(word, number)
        if not separator or " " in separator or "." in separator:
            raise InvalidMapping(f"invalid mapping destination: function argument is invalid in {word}")
        return lambda values, _rest: ".".join(part for part in values[number - 1].split(separator) if part)


def _expect(word: str, arguments: Sequence[object], count: int) -> None:
    if len(arguments) != count:
        few = "not enough" if len(arguments) < count else "too many"
        raise InvalidMapping(f"invalid mapping destination: {few} arguments passed to the function in {word}")


def _integer(word: str, text: str) -> int:
    if _ARGUMENT.fullmatch(text.strip()) is None:
        raise InvalidMapping(
            f"invalid mapping destination: function argument is invalid or in the wrong format in {word}"
        )
    return int(text)


def _left(value: str, count: int) -> str:
    return value[:count] if 0 < count < len(value) else value


def _right(value: str, count: int) -> str:
    return value[-count:] if 0 < count < len(value) else value


def _split_from_left(value: str, at: int) -> str:
    return f"{value[:at]}.{value[at:]}" if 0 < at < len(value) else value


def _split_from_right(value: str, at: int) -> str:
    return f"{value[:-at]}.{value[-at:]}" if 0 < at < len(value) else value


def _slice_from_left(value: str, size: int) -> str:
    if not 0 < size < len(value):
        return value
    return ".".join(value[at : at + size] for at in range(0, len(value), size))


def _slice_from_right(value: str, size: int) -> str:
    if not 0 < size < len(value):
        return value
    first = len(value) % size
    parts = [value[:first]] if first else []
    return ".".join(parts + [value[at : at + size] for at in range(first, len(value), size)])


_FUNCTIONS: dict[str, Callable[[str, int], str]] = {
    "left": _left,
    "right": _right,
    "splitfromleft": _split_from_left,
    "splitfromright": _split_from_right,
    "slicefromleft": _slice_from_left,
    "slicefromright": _slice_from_right,
}


def _fnv(text: str) -> int:
    value = _FNV_START
    for byte in text.encode(errors="surrogateescape"):
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


def _destination_tokens(destination: str) -> list[str]:
    """Split at dots, but not inside a function's braces."""
    return re.findall(r"(?:\{\{.*?\}\}|[^.])+", destination)


def _is_valid(pattern: str) -> bool:
    try:
        validate_subject(re.sub(r"\{\{.*?\}\}", "f", pattern), wildcards=True)
    except InvalidSubject:
        return False
    return True


def checked(source: str, destination: str, refusal: ErrorCode) -> ApiError | None:
    """Return the given error if a transform is invalid, else None."""
    if not destination:
        return None
    try:
        SubjectMapping(source, destination)
    except InvalidMapping as error:
        return refusal.with_text(err=error)
    return None
