"""Headers and positions: what is checked, removed, added and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.replica.routing.headers import (
    HOPS_MAX,
    Peer,
    check_framing,
    check_hops,
    check_length,
    end_to_end,
    forwarded_headers,
    origin_form,
)
from strandline.replica.routing.positions import (
    POSITION_HEADER,
    ReadPosition,
    format_cookie,
    format_position,
    parse_cookies,
    parse_position,
    wanted_position,
)
from strandline.replica.routing.rules import RoutingRules

PEER = Peer("10.0.0.1", "https")


def test_two_framings_are_refused() -> None:
    both = [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")]
    with pytest.raises(InvalidInput, match="both Content-Length and Transfer-Encoding"):
        check_framing(both, b"1.1")
    with pytest.raises(InvalidInput, match=r"HTTP/1\.0"):
        check_framing(both[1:], b"1.0")
    check_framing(both[1:], b"1.1")
    check_framing(both[:1], b"1.0")


def test_headers_of_the_connection_go_no_further() -> None:
    headers = [
        (b"host", b"a"),
        (b"connection", b"close, X-Secret, Host, Content-Length, Strandline-Position"),
        (b"x-secret", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"proxy-connection", b"keep-alive"),
        (b"content-length", b"4"),
        (b"strandline-position", b"4"),
        (b"accept", b"*/*"),
    ]
    kept = [b"host", b"content-length", b"strandline-position", b"accept"]
    assert [name for name, _ in end_to_end(headers)] == kept, "a client cannot have those removed that servers rely on"


def test_a_forwarded_request_names_its_client_and_its_way() -> None:
    given_headers = [(b"host", b"shop"), (b"x-forwarded-for", b"1.2.3.4"), (b"strandline-via", b"aa")]
    found = dict(forwarded_headers(given_headers, PEER, "bb", to_leader=True))
    assert found[b"x-forwarded-for"] == b"1.2.3.4, 10.0.0.1"
    assert (found[b"x-forwarded-proto"], found[b"x-forwarded-host"]) == (b"https", b"shop")
    assert (found[b"strandline-via"], found[b"strandline-expect-leader"]) == (b"aa, bb", b"1")


def test_a_peer_that_is_not_trusted_says_nothing_of_where_a_request_came_from() -> None:
    spoofed = [
        (b"host", b"shop"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-forwarded-host", b"evil"),
        (b"forwarded", b"for=1.2.3.4"),
        (b"strandline-expect-leader", b"1"),
        (b"strandline_expect_leader", b"1"),
        (b"x_forwarded_for", b"1.2.3.4"),
    ]
    found = dict(forwarded_headers(spoofed, PEER, "bb", to_leader=False, trusts_peer=False))
    assert found == {
        b"host": b"shop",
        b"strandline-via": b"bb",
        b"x-forwarded-for": b"10.0.0.1",
        b"x-forwarded-proto": b"https",
        b"x-forwarded-host": b"shop",
    }


def test_a_request_in_a_circle_is_refused() -> None:
    check_hops([(b"strandline-via", b"aa, cc")], "bb")
    with pytest.raises(InvalidInput, match="circle"):
        check_hops([(b"strandline-via", b"aa, bb")], "bb")
    with pytest.raises(InvalidInput, match="circle"):
        check_hops([(b"strandline-via", b"x") for _ in range(HOPS_MAX)], "bb")


@pytest.mark.parametrize(
    ("method", "target", "found"),
    [
        (b"GET", b"/a?b=c", b"/a?b=c"),
        (b"OPTIONS", b"*", b"*"),
        (b"GET", b"http://shop/a?b", b"/a?b"),
        (b"GET", b"HTTP://shop", b"/"),
    ],
)
def test_targets_become_paths(method: bytes, target: bytes, found: bytes) -> None:
    assert origin_form(method, target, b"Shop") == found


@pytest.mark.parametrize(
    "target",
    [b"*", b"shop:443", b"ftp://shop/", b"http://", b"http:///a", b"http://shop?x=/", b"http://u@shop/", b"http://x/"],
)
def test_other_targets_are_refused(target: bytes) -> None:
    with pytest.raises(InvalidInput, match="target"):
        origin_form(b"GET", target, b"shop")


@given(st.integers(0, 2**63 - 1))
def test_any_position_is_read_back(txid: int) -> None:
    assert parse_position(format_position(txid).decode()) == txid
    assert parse_cookies(format_cookie(txid).decode()) == ReadPosition(txid)
    assert parse_cookies(format_cookie(txid, "orders").decode(), "orders") == ReadPosition(txid)


@pytest.mark.parametrize("value", ["", "-1", "1.0", "x", "9" * 19, "1" * 20, "٣", "1 2"])
def test_what_is_no_position_is_refused_as_a_header_and_ignored_as_a_cookie(value: str) -> None:
    with pytest.raises(InvalidInput, match="not a position"):
        parse_position(value)
    assert parse_cookies(f"strandline-position={value}") == ReadPosition()


def test_a_request_wants_the_latest_of_what_it_names() -> None:
    cookie = (b"cookie", b"a=b; strandline-position=9; strandline-position=3")
    assert wanted_position([(POSITION_HEADER, b"7"), cookie]) == ReadPosition(9)
    assert wanted_position([(POSITION_HEADER, b"11"), cookie]) == ReadPosition(11)
    assert wanted_position([(b"cookie", format_cookie(None).split(b";")[0])]) == ReadPosition(0, at_leader=True)
    assert wanted_position([]) == ReadPosition()


def test_a_cookie_of_another_name_asks_for_nothing() -> None:
    cookies = [(b"cookie", b"strandline-position=leader; orders-position=9; my-orders-position=11")]
    assert wanted_position(cookies, "orders-position") == ReadPosition(9)
    assert wanted_position(cookies, "stock-position") == ReadPosition()


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a;b", "ä", "a\n", "a" * 65, "__Host-a", "__secure-a"])
def test_a_cookie_that_browsers_would_not_send_back_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cookie"):
        RoutingRules(cookie=name)


@pytest.mark.parametrize(
    "value", [b"", b"-1", b"+5", b" 5", b"5 ", b"1_0", b"abc", b"5, 5", b"\xb2", b"5\n", b"1" * 20]
)
def test_a_content_length_that_is_no_number_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidInput, match="Content-Length"):
        check_length([(b"host", b"a"), (b"content-length", value)])
