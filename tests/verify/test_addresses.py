"""Addresses of providers that are given."""

import pytest

from strandline.errors import InvalidInput
from strandline.verify import PROVIDERS, parse_addresses

BY_NAME = {one.name: one for one in PROVIDERS}


def test_given_addresses_replace_public_ones() -> None:
    texts = ["github=https://github.example.com/api/v3/", "gitlab=http://127.0.0.1:80", "npm=http://[::1]:4873"]
    given = parse_addresses([*texts, "slack=http://localhost:1"])
    assert given.base(BY_NAME["github"]) == "https://github.example.com/api/v3"
    assert given.host(BY_NAME["github"]) == "github.example.com"
    assert given.host(BY_NAME["gitlab"]) == "127.0.0.1:80"
    assert given.host(BY_NAME["stripe"]) == "api.stripe.com"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("https://gitlab.example.com", "there is no ="),
        ("gitlub=https://gitlab.example.com", "there is no provider 'gitlub'"),
        ("gitlab=http://gitlab.example.com", "is not https"),
        ("gitlab=http://127.0.0.1.example.com", "is not https"),
        ("gitlab=http://localhost.example.com", "is not https"),
        ("gitlab=ftp://127.0.0.1", "is not https"),
        ("gitlab=https://ada:hidden@gitlab.example.com", "has a login, a query or no host"),
        ("gitlab=https://gitlab.example.com?token=hidden", "has a login, a query or no host"),
        ("gitlab=https://gitlab.example.com/a b", "has a login, a query or no host"),
        ("gitlab=https://", "has a login, a query or no host"),
        ("gitlab=", "has a login, a query or no host"),
        ("gitlab=https://gitlab.example.com:hidden", "cannot be read"),
        ("gitlab=https://[::1", "cannot be read"),
    ],
)
def test_other_addresses_are_refused_without_repeating_them(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        parse_addresses([text])
    assert "hidden" not in f"{caught.value} {caught.value.hint}"
    assert caught.value.hint
