"""Placeholders become fake secrets, the same on every machine."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.tokens.examples import CHARSETS, FORMS, Stream, expand, make
from strandline.errors import InvalidInput

ARGUMENTS = {
    "github-crc32": "ghp_",
    "gitlab-crc32": "glpat-",
    "grafana-crc32": "glsa_",
    "aws-key-id": "AKIA",
    "pypi-macaroon": "pypi.org",
    "jwt": "HS256",
    "sentry-org": "acme",
    "pem": "PRIVATE KEY",
    "pem-escaped": "PRIVATE KEY",
    "base58check": "xprv",
    "basic": "jo",
    "bytes64": "32",
    "bytes64url": "32",
    "password": "16",
}


def test_an_expansion_is_the_same_for_ever() -> None:
    assert expand("k={{hex:8}};{{base62:10}}", "golden") == GOLDEN


GOLDEN = "k=22505ff2;J0zqHCiF46"


@given(seed=st.text(max_size=20), other=st.text(max_size=20))
def test_another_seed_gives_another_expansion(seed: str, other: str) -> None:
    same = expand("{{base62:32}}", seed) == expand("{{base62:32}}", other)
    assert same == (seed == other)


def test_two_placeholders_of_one_text_differ() -> None:
    first, second = expand("{{base62:20}} {{base62:20}}", "x").split()
    assert first != second


@pytest.mark.parametrize("name", CHARSETS)
def test_a_class_gives_its_own_characters_and_all_of_them_in_time(name: str) -> None:
    text = make(name, "4000", Stream("x"))
    assert len(text) == 4_000
    assert set(text) == set(CHARSETS[name])


@pytest.mark.parametrize("name", sorted(FORMS.keys() - {"run"}))
def test_a_form_is_made_again_the_same_and_differs_by_seed(name: str) -> None:
    argument = ARGUMENTS.get(name, "")
    assert make(name, argument, Stream("a")) == make(name, argument, Stream("a"))
    assert make(name, argument, Stream("a")) != make(name, argument, Stream("b"))


@pytest.mark.parametrize(
    "text", ["{{ token }}", "{{token}}", "{{ .Values.key }}", "${{ secrets.X }}", "{ {hex:4} }", "{{{a}}}"]
)
def test_braces_that_are_no_placeholder_stay(text: str) -> None:
    assert expand(text, "x") == text


def test_an_unknown_placeholder_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'base99'"):
        expand("{{base99:4}}", "x")


@pytest.mark.parametrize("text", ["{{hex:}}", "{{hex:x}}", "{{hex:-1}}", "{{hex:99999999}}", "{{hex:٣}}"])
def test_a_count_is_a_number_within_reason(text: str) -> None:
    with pytest.raises(InvalidInput, match="count"):
        expand(text, "x")


def test_a_run_is_a_text_many_times() -> None:
    assert expand("{{run:3x}}-{{run:12ab}}-{{run:400}}", "x") == "xxx-" + "ab" * 12 + "-" + "0" * 40
    with pytest.raises(InvalidInput, match="run"):
        expand("{{run:x}}", "x")


def test_a_base58_form_is_one_of_those_known() -> None:
    with pytest.raises(InvalidInput, match="wif"):
        expand("{{base58check:zzz}}", "x")


def test_a_password_ends_with_a_letter_and_has_every_kind_of_character() -> None:
    for seed in range(100):
        password = expand("{{password:12}}", str(seed))
        assert len(password) == 12
        assert password[-1].islower()
        assert all(re.search(kind, password) for kind in ("[a-z]", "[A-Z]", "[0-9]", "[^a-zA-Z0-9]"))
