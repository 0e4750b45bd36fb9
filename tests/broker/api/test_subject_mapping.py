"""Subject transforms do what nats-server's do."""

import pytest

from strandline.broker.api.subject_mapping import InvalidMapping, SubjectMapping


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("foo.*.bar", "baz.$1", "foo.x.bar", "baz.x"),
        ("foo.*.*", "{{wildcard(2)}}.{{Wildcard(1)}}", "foo.a.b", "b.a"),
        ("foo.>", "bar.>", "foo.a.b", "bar.a.b"),
        ("foo.*.>", "$1.x.>", "foo.a.b.c", "a.x.b.c"),
        ("*", "{{left(1, 2)}}", "abcde", "ab"),
        ("*", "{{right(1,2)}}", "abcde", "de"),
        ("*", "{{splitfromleft(1,2)}}", "abcde", "ab.cde"),
        ("*", "{{splitfromright(1,2)}}", "abcde", "abc.de"),
        ("*", "{{slicefromleft(1,2)}}", "abcde", "ab.cd.e"),
        ("*", "{{slicefromright(1,2)}}", "abcde", "a.bc.de"),
        ("*", "{{split(1,-)}}", "-abc-def--ghi-", "abc.def.ghi"),
        ("foo.*", "bar", "foo.a", "bar"),
        ("foo.*", "bar.*", "foo.a", "bar.a"),
    ],
)
def test_a_subject_becomes_another(source: str, destination: str, subject: str, expected: str) -> None:
    assert SubjectMapping(source, destination).apply(subject) == expected


def test_what_the_source_does_not_match_has_no_transform() -> None:
    assert SubjectMapping("foo.*", "bar.$1").apply("foo.a.b") is None


def test_a_partition_depends_on_the_chosen_words_only() -> None:
    mapping = SubjectMapping("foo.*.*", "p.{{partition(10,1)}}.$2")
    assert mapping.apply("foo.a.x") == "p.0.x"  # FNV-1a of "a" is 3826002220
    found = {mapping.apply(f"foo.{word}.x") for word in "abcdefghijklmnopqrstuvwxyz"}
    assert len(found) > 5


def test_a_random_word_is_within_its_bounds() -> None:
    mapping = SubjectMapping("foo", "r.{{random(3)}}")
    assert {mapping.apply("foo") for _ in range(100)} <= {"r.0", "r.1", "r.2"}


@pytest.mark.parametrize(
    ("source", "destination", "problem"),
    [
        ("foo.*", "bar.$2", "wildcard index out of range"),
        ("foo.*", "bar.{{nonsense(1)}}", "unknown function"),
        ("foo.*", "bar.{{wildcard(1,2)}}", "too many arguments"),
        ("foo.*", "bar.{{left(1)}}", "not enough arguments"),
        ("foo.*", "bar.{{left(x,1)}}", "function argument is invalid"),
        ("foo.*", "bar.{{wildcard()}}", "not enough arguments"),
        ("foo.>", "bar", "full wildcards"),
        ("foo..x", "bar", "invalid subject"),
    ],
)
def test_a_transform_that_cannot_be_is_refused(source: str, destination: str, problem: str) -> None:
    with pytest.raises(InvalidMapping, match=problem):
        SubjectMapping(source, destination)
