"""Tests of which subjects of a stream some patterns match, for few subjects and for many."""

import time
from itertools import product

import pytest

from strandline.broker.streams.patterns import BLOCK_NAMES
from strandline.broker.streams.subjects import FILTERS_BYTES_MAX, Filter, Subjects
from strandline.wire import matcher

TOKENS = ("a", "b", "ab", "*a", "long-token-of-many-letters", "ünder", "\udcff")
PATTERNS = (
    ("*",),
    ("a.>",),
    ("*.>",),
    ("*.*",),
    ("a.*.b",),
    ("*.b.>",),
    ("*.long-token-of-many-letters.*",),
    ("long-token-of-many-letters.ab.>",),
    ("long-token-of-many-letters.ab.*",),
    ("*.ünder",),
    ("*.\udcff.*",),
    ("a.b", "b.*.a", "ab"),
    ("*a.*",),
    ("a.*.>",),
    ("nothing.*",),
)


def subjects_of(names: list[bytes]) -> Subjects:
    subjects = Subjects()
    subjects.all_numbers(names)
    return subjects


@pytest.fixture(scope="module")
def names() -> list[bytes]:
    some = [".".join(each) for length in (1, 2, 3, 4) for each in product(TOKENS, repeat=length)]
    more = [f"{name}.{number}" for number in range(8) for name in some]
    encoded = [name.encode(errors="surrogateescape") for name in some + more]
    assert len(encoded) > BLOCK_NAMES  # more than one block, and the last one not full
    return encoded


@pytest.mark.parametrize("patterns", PATTERNS, ids=" ".join)
def test_many_subjects_match_as_single_ones_do(names: list[bytes], patterns: tuple[str, ...]) -> None:
    test = matcher(patterns)
    expected = [test(name.decode(errors="surrogateescape")) for name in names]
    subjects = subjects_of(names[:-3])
    matching = Filter(subjects, patterns)
    assert matching.mask().tolist() == expected[:-3]
    subjects.all_numbers(names[-3:])  # then some more, and few
    assert matching.mask().tolist() == expected
    assert [matching.matches_subject(name) for name in names[:200]] == expected[:200]


def test_a_filter_goes_on_where_it_was_when_many_subjects_are_added(names: list[bytes]) -> None:
    subjects = subjects_of(names[:1000])
    matching = Filter(subjects, ("*.b.>",))
    matching.mask()
    subjects.all_numbers(names)
    assert matching.mask().tolist() == Filter(subjects_of(names), ("*.b.>",)).mask().tolist()


def test_a_filter_follows_when_subjects_get_other_numbers(names: list[bytes]) -> None:
    subjects = subjects_of(names)
    matching = subjects.filter(("*.b.>",))
    matching.mask()
    subjects.count[1 : len(names)] = 1  # the first one has no messages
    subjects.renumber()
    assert matching.mask().tolist() == Filter(subjects_of(names[1:]), ("*.b.>",)).mask().tolist()


@pytest.mark.parametrize("pattern", ["t.*.7", "t.key.*", "*.*.12345", "other.*.7"])
def test_a_new_pattern_takes_little_time_however_many_subjects_there_are(pattern: str) -> None:
    count = 50_000
    names = [b"t.key.%d" % number for number in range(count)]
    subjects = subjects_of(names)
    subjects.filter(("*.x",)).mask()
    matches, texts = matcher((pattern,)), [name.decode() for name in names]
    together, one_by_one = [], []
    for _ in range(3):
        start = time.thread_time()
        Filter(subjects, (pattern,)).mask()
        together.append(time.thread_time() - start)
        start = time.thread_time()
        for text in texts:
            matches(text)
        one_by_one.append(time.thread_time() - start)
    assert min(together) < min(one_by_one) / 3


def test_what_is_remembered_of_filters_is_bounded_by_its_bytes() -> None:
    subjects = subjects_of([b"t.%d" % number for number in range(100_000)])
    kept = subjects.filter(("t.*",))
    for number in range(100):
        subjects.filter((f"*.{number}",)).mask()
        assert subjects.filter(("t.*",)) is kept  # what is in use stays
    assert subjects.filter_bytes <= FILTERS_BYTES_MAX
