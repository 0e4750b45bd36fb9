"""What is published below the prefix of a domain: where it goes, and who may publish it."""

import pytest

from strandline.broker.settings import JetStreamSettings, Permissions, Rule, ServerSettings, UserSettings
from strandline.broker.settings.model import AccountSettings
from tests.broker.core.world import CONNECT, Basket, InMemoryServer

DENIED = Permissions(Rule(("$JS.API.>", "$JS.hub.API.>"), ("$KV.>", "$JS.API.STREAM.PURGE.>")))


def world(permissions: Permissions | None = None, domain: str = "hub") -> InMemoryServer:
    users = (UserSettings(user="ann", password="a", permissions=permissions),)  # noqa: S106 - of no real server
    settings = ServerSettings(jetstream=JetStreamSettings(domain=domain), accounts=(AccountSettings(users=users),))
    return InMemoryServer(settings)


def connect(*, verbose: bool = False) -> bytes:
    line = CONNECT.replace(b"{", b'{"user":"ann","pass":"a",')
    return line.replace(b'"verbose":false', b'"verbose":true') if verbose else line


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        ("$JS.hub.API.STREAM.INFO.S", "$JS.API.STREAM.INFO.S"),
        ("$JS.hub.API.CONSUMER.MSG.NEXT.S.c", "$JS.API.CONSUMER.MSG.NEXT.S.c"),
        ("$JS.hub.API.DIRECT.GET.S.a.b", "$JS.API.DIRECT.GET.S.a.b"),
        ("$JS.hub.API.INFO", "$JS.API.INFO"),
        ("$JS.hub.API.$KV.B.key", "$KV.B.key"),
        ("$JS.hub.API.$OBJ.B.x", "$OBJ.B.x"),
        ("$JS.hub.API.$O.B.x", "$JS.hub.API.$O.B.x"),
        ("$JS.hub.API.INFO.x", "$JS.hub.API.INFO.x"),
        ("$JS.other.API.INFO", "$JS.other.API.INFO"),
        ("$JS.API.$KV.B.key", "$JS.API.$KV.B.key"),
    ],
)
def test_what_is_meant_for_the_domain_goes_where_it_would_go_without_its_prefix(sent: str, heard: str) -> None:
    server, basket = world(), Basket()
    server.router.subscribe(b">", basket)
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    message = b"HPUB %b r %d %d\r\n%bxy\r\n" % (sent.encode(), len(block), len(block) + 2, block)
    server.client(connect()).say(b"PUB a 1\r\n1\r\n" + message + b"PUB b 0\r\n\r\n")
    subjects = [subject for messages in basket.taken for subject in messages.subjects]
    assert subjects == [b"a", heard.encode(), b"b"]
    assert basket.payloads == [b"1", b"xy", b""]
    frames = [frame for messages in basket.taken for frame in messages.frames]
    assert [(frame.subject, frame.reply, bytes(frame.headers)) for frame in frames[1:2]] == [
        (heard.encode(), b"r", block)
    ]


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize(
    ("sent", "refused"),
    [
        ("$JS.hub.API.$KV.B.key", "$KV.B.key"),
        ("$JS.hub.API.STREAM.PURGE.S", "$JS.API.STREAM.PURGE.S"),
        ("$KV.B.key", "$KV.B.key"),
    ],
)
def test_who_may_not_publish_something_may_not_do_so_below_the_prefix(
    sent: str, refused: str, *, verbose: bool
) -> None:
    server, basket = world(DENIED), Basket()
    server.router.subscribe(b">", basket)
    client = server.client(connect(verbose=verbose))
    said = client.say(b"PUB %b r 0\r\n\r\n" % sent.encode())
    assert said == b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % refused.encode()
    assert basket.taken == []


def test_a_right_to_the_prefix_alone_is_a_right_to_nothing() -> None:
    server = world(Permissions(Rule(("$JS.hub.API.>",))))
    said = server.client(connect()).say(b"PUB $JS.hub.API.INFO r 0\r\n\r\n")
    assert said == b"-ERR 'Permissions Violation for Publish to \"$JS.API.INFO\"'\r\n"
