"""Who may connect, to which account, and what changes when the settings do."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace

import bcrypt
import pytest

from strandline.broker.core import auth
from strandline.broker.core.auth import Passwords, signature_is_valid
from strandline.broker.core.permissions import PublishPermissions, ResponsePermissions, SubscribePermissions
from strandline.broker.settings import (
    AccountSettings,
    Permissions,
    ResponseRule,
    Rule,
    ServerSettings,
    UserSettings,
    WebsocketSettings,
)
from tests.broker.core.world import CLOSED, Client, InMemoryServer
from tests.identities_nats import make_nkey

REFUSED = b"-ERR 'Authorization Violation'\r\n" + CLOSED
HASH = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
USER = make_nkey()


def connect(**options: object) -> bytes:
    return b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, **options}).encode() + b"\r\n"


def users(*given: UserSettings, **more: object) -> ServerSettings:
    return replace(ServerSettings(), accounts=(AccountSettings(), AccountSettings("A", given)), **more)  # type: ignore[arg-type]


def answer(settings: ServerSettings, **options: object) -> bytes:
    return InMemoryServer(settings).client(b"").say(connect(**options), b"PING\r\n")


@pytest.mark.parametrize("secret", ["s3cret", HASH], ids=["plain", "hashed"])
def test_a_token_is_plain_or_hashed(secret: str) -> None:
    settings = ServerSettings(token=secret)
    assert answer(settings, auth_token="s3cret") == b"PONG\r\n"  # noqa: S106 - of a server without sockets
    for wrong in (
        {"auth_token": "other"},
        {},
        {"user": "s3cret"},
        {"user": "a", "pass": "s3cret"},
        {"auth_token": HASH},
    ):
        assert answer(settings, **wrong) == REFUSED


@pytest.mark.parametrize("secret", ["s3cret", HASH], ids=["plain", "hashed"])
def test_a_password_is_plain_or_hashed(secret: str) -> None:
    settings = users(UserSettings(user="ann", password=secret))
    assert answer(settings, user="ann", **{"pass": "s3cret"}) == b"PONG\r\n"
    for wrong in (
        {"user": "ann"},
        {"user": "ann", "pass": "x"},
        {"user": "bob", "pass": "s3cret"},
        {"pass": "s3cret"},
        {},
    ):
        assert answer(settings, **wrong) == REFUSED


def test_a_hash_is_looked_at_once_for_each_password(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def check(given: bytes, expected: bytes) -> bool:
        looked.append(given)
        return check_password(given, expected)

    check_password = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", check)
    passwords = Passwords()
    assert [passwords.match(HASH, given) for given in ("s3cret", "no", "s3cret", "no")] == [True, False, True, False]
    assert looked == [b"s3cret", b"no"]
    assert not passwords.match("$2a$nonsense", "x")


def test_nobody_waits_while_a_hash_is_looked_at() -> None:
    started: list[tuple[Callable[[], None], Callable[[], None]]] = []
    settings = users(UserSettings(user="ann", password=HASH), UserSettings(user="bob", password="p"))  # noqa: S106
    world = InMemoryServer(settings, lambda work, done: started.append((work, done)))
    ann, eve = world.client(b""), world.client(b"")
    assert ann.say(connect(user="ann", **{"pass": "s3cret"}) + b"SUB a 1\r\nPING\r\n", b"PUB a 1\r\nx") == b""
    assert eve.say(connect(user="ann", **{"pass": "no"}) + b"PING\r\nNONSENSE", b"PING\r\n") == b""
    bob = world.client(connect(user="bob", **{"pass": "p"}))
    assert bob.say(b"PUB a 1\r\ny\r\nPING\r\n") == b"PONG\r\n"
    ann.session.feed(b"\r\nPING\r\n")
    for work, done in started:
        work()
        done()
    assert ann.heard() == b"PONG\r\nMSG a 1 1\r\nx\r\nPONG\r\n"
    assert eve.heard() == REFUSED
    again = world.client(connect(user="ann", **{"pass": "s3cret"}))
    assert again.say(b"PING\r\n") == b"PONG\r\n"
    assert len(started) == 2
    flood = world.client(connect(user="ann", **{"pass": "other"}))
    assert flood.say(b"PUB a 1\r\nx\r\n" * 100_000) == CLOSED
    started[-1][1]()
    assert flood.heard() == CLOSED


def test_a_hash_is_looked_at_for_all_who_wait_and_for_nobody_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Callable[[], None], Callable[[], None]]] = []
    looked: list[bytes] = []

    def check(given: bytes, expected: bytes) -> bool:
        looked.append(given)
        return bool(expected)

    monkeypatch.setattr(bcrypt, "checkpw", check)
    settings = users(UserSettings(user="ann", password=HASH))
    world = InMemoryServer(settings, lambda work, done: started.append((work, done)))
    anns = [world.client(connect(user="ann", **{"pass": "s3cret"}) + b"PING\r\n") for _ in range(3)]
    eve = world.client(connect(user="ann", **{"pass": "no"}))
    eve.session.close()
    assert len(started) == 2
    for work, done in started:
        work()
        done()
    assert [ann.heard() for ann in anns] == [b"PONG\r\n"] * 3
    assert looked == [b"s3cret"]


def test_only_so_many_passwords_wait_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "PENDING_CHECKS_MAX", 2)
    world = InMemoryServer(users(UserSettings(user="ann", password=HASH)), lambda work, done: None)  # noqa: ARG005 - none is done
    said = [world.client(b"").say(connect(user="ann", **{"pass": secret})) for secret in ("1", "2", "1", "3")]
    assert said == [b"", b"", b"", REFUSED]


def signed_connect(client: Client, **changes: str) -> bytes:
    nonce = json.loads(client.session.greeting()[5:])["nonce"]
    signature = base64.urlsafe_b64encode(USER.sign(nonce.encode())).decode().rstrip("=")
    return connect(**{"nkey": USER.public, "sig": signature, **changes})


def test_an_nkey_signs_the_nonce_of_its_own_connection() -> None:
    world = InMemoryServer(users(UserSettings(nkey=USER.public)))
    client, other = world.client(b""), world.client(b"")
    assert client.say(signed_connect(client), b"PING\r\n") == b"PONG\r\n"
    assert client.session.origin.user == USER.public
    assert other.say(signed_connect(client)) == REFUSED
    assert world.client(b"").say(signed_connect(client, nkey=make_nkey().public)) == REFUSED
    for wrong in ("", "AAAA", "not base64!"):
        fresh = world.client(b"")
        assert fresh.say(signed_connect(fresh, sig=wrong)) == REFUSED
    assert not signature_is_valid("nonsense", "AAAA", "nonce")


def test_nothing_is_done_before_somebody_has_logged_in() -> None:
    settings = users(UserSettings(user="ann", password="p"))  # noqa: S106
    for first in (b"PING\r\n", b"SUB a 1\r\n", b"PUB a 0\r\n\r\n", b"NONSENSE\r\n", b"\x16\x03\x01\r\n"):
        world = InMemoryServer(settings)
        assert world.client(b"").say(first) == REFUSED
        assert not any(account.router.in_msgs for account in world.accounts.by_name.values())
    world = InMemoryServer(settings)
    client = world.client(b"")
    assert b'"auth_required":true' in client.session.greeting()
    world.clock.advance(2.1)
    client.session.tick(world.clock.now_ns())
    assert client.heard() == b"-ERR 'Authentication Timeout'\r\n" + CLOSED


def test_no_auth_user_is_who_says_nothing() -> None:
    ann, eve = UserSettings(user="ann", password="p"), UserSettings(user="eve", password="p")  # noqa: S106
    world = InMemoryServer(users(ann, eve, no_auth_user="ann", websocket=WebsocketSettings(no_auth_user="eve")))
    client = world.client(b"")
    assert b"auth_required" not in client.session.greeting()
    client.say(connect())
    assert (client.session.origin.user, client.session.origin.account) == ("ann", "A")
    assert world.client(b"", kind="WEBSOCKET").session.origin.user == "eve"
    assert world.client(b"").say(connect(user="ann", **{"pass": "x"})) == REFUSED


def test_a_user_may_be_bound_to_a_kind_of_connection() -> None:
    user = UserSettings(user="ann", password="p", connection_types=frozenset({"WEBSOCKET"}))  # noqa: S106
    world = InMemoryServer(users(user))
    assert world.client(b"").say(connect(user="ann", **{"pass": "p"})) == REFUSED
    assert world.client(b"", kind="WEBSOCKET").say(connect(user="ann", **{"pass": "p"})) == b""


def test_accounts_hear_nothing_of_each_other() -> None:
    ann, bob = UserSettings(user="ann", password="p"), UserSettings(user="bob", password="p")  # noqa: S106
    accounts = (AccountSettings(), AccountSettings("A", (ann,)), AccountSettings("B", (bob,)))
    world = InMemoryServer(ServerSettings(accounts=accounts))
    one, two = (world.client(connect(user=name, **{"pass": "p"})) for name in ("ann", "bob"))
    one.say(b"SUB > 1\r\nSUB a q 2\r\n")
    two.say(b"PUB a 1\r\nx\r\n")
    assert one.heard() == b""
    assert not world.accounts.by_name["B"].router.has_interest(b"a")


def test_an_account_has_limits_of_its_own() -> None:
    ann, eve = UserSettings(user="ann", password="p"), UserSettings(user="eve", password="p")  # noqa: S106
    limited = AccountSettings("L", (ann,), max_connections=1, max_subscriptions=2, max_payload=10)
    world = InMemoryServer(ServerSettings(accounts=(AccountSettings(users=(eve,)), limited)))
    one, free = (world.client(connect(user=name, **{"pass": "p"})) for name in ("ann", "eve"))
    assert one.say(connect(user="ann", **{"pass": "p"})) == b""
    said = world.client(b"").say(connect(user="ann", **{"pass": "p"}))
    assert said == b"-ERR 'maximum account active connections exceeded'\r\n" + CLOSED
    assert one.say(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    said = one.say(b"PUB a 10\r\n0123456789\r\nPUB a 11\r\n01234567890\r\nPUB a 0\r\n\r\n")
    assert said == b"MSG a 1 10\r\n0123456789\r\n-ERR 'Maximum Payload Violation'\r\n" + CLOSED
    assert free.say(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB z 11\r\n01234567890\r\n") == b""
    assert world.client(connect(user="ann", **{"pass": "p"})).say(b"PING\r\n") == b"PONG\r\n"


def test_other_settings_take_effect_on_those_who_are_connected() -> None:
    ann, eve = UserSettings(user="ann", password="p"), UserSettings(user="eve", password="p")  # noqa: S106
    world = InMemoryServer(users(ann, eve))
    one, two = (world.client(connect(user=name, **{"pass": "p"})) for name in ("ann", "eve"))
    one.say(b"SUB a.b 1\r\nSUB b 2\r\nSUB c.* 3\r\n")
    router = world.accounts.by_name["A"].router
    rights = Permissions(subscribe=Rule(deny=("b", "c.no")), publish=Rule(allow=("a.>",)))
    world.accounts.reload(users(replace(ann, permissions=rights)))
    assert world.accounts.by_name["A"].router is router
    assert two.heard() == REFUSED
    assert one.heard() == b"-ERR 'Permissions Violation for Subscription to \"b\"'\r\n"
    assert one.say(b"PUB b 0\r\n\r\n") == b"-ERR 'Permissions Violation for Publish to \"b\"'\r\n"
    router.send(b"c.no", b"x")
    router.send(b"c.yes", b"x")
    assert one.heard() == b"MSG c.yes 3 1\r\nx\r\n"
    assert world.client(connect(user="eve", **{"pass": "p"})).heard() == CLOSED


ALLOWED = {"allow": ("a.*", "b.>", "q.* g", "w.x g.*"), "deny": ("b.no", "b.never.>", "q.z g")}


@pytest.mark.parametrize(
    ("pattern", "queue", "allowed", "filtered"),
    [
        ("a.x", "", True, False),
        ("a.*", "", True, False),
        ("a.>", "", False, False),
        ("a.x.y", "", False, False),
        ("a", "", False, False),
        (">", "", False, False),
        ("*.x", "", False, False),
        ("b.x", "", True, False),
        ("b.no", "", False, False),
        ("b.no", "g", False, False),
        ("b.*", "", True, True),
        ("b.>", "", True, True),
        ("b.never.x", "", False, False),
        ("b.never.*", "", False, False),
        ("b.*.x", "", True, True),
        ("b.x.*", "", True, False),
        ("q.x", "", False, False),
        ("q.x", "g", True, False),
        ("q.x", "h", False, False),
        ("q.z", "g", False, False),
        ("q.*", "g", True, True),
        ("w.x", "g.1", True, False),
        ("w.x", "g", False, False),
        ("a.x", "any", True, False),
    ],
)
def test_what_may_be_subscribed_to(pattern: str, queue: str, allowed: bool, filtered: bool) -> None:
    rights = SubscribePermissions(Rule(**ALLOWED))
    assert rights.allows(pattern, queue) is allowed
    if allowed:
        assert rights.needs_filter(pattern, queue) is filtered


@pytest.mark.parametrize(
    ("rule", "allowed", "denied"),
    [
        (Rule(), ["a", "a.b"], []),
        (Rule(allow=("a.>", "b")), ["a.b", "a.b.c", "b"], ["a", "c", "b.c"]),
        (Rule(deny=("a.*",)), ["a", "a.b.c"], ["a.b"]),
        (Rule(allow=("a.>",), deny=("a.b.>",)), ["a.b", "a.c.d"], ["a.b.c", "z"]),
        (Rule(allow=()), [], ["a"]),
    ],
)
def test_what_may_be_published(rule: Rule, allowed: list[str], denied: list[str]) -> None:
    rights = PublishPermissions(rule, None)
    assert [subject for subject in allowed + denied if rights.allows(subject.encode())] == allowed
    for subjects in (allowed, denied, allowed + denied):
        plain = rights.allows_all([subject.encode() for subject in subjects]) if subjects else False
        assert not plain or subjects == allowed


def test_who_may_answer_may_publish_nothing_else() -> None:
    rights = PublishPermissions(Rule(), ResponseRule())
    assert not rights.allows(b"a")
    assert not rights.allows_all([b"a", b"b"])
    assert PublishPermissions(Rule(allow=("a",)), ResponseRule()).allows(b"a")


def test_answers_are_counted_and_have_their_time() -> None:
    responses = ResponsePermissions(ResponseRule(max_messages=2, expires_s=1))
    responses.expect([b"r", b""], 0)
    assert [responses.use(b"r", 1), responses.use(b"r", 2), responses.use(b"r", 3)] == [True, True, False]
    responses.expect([b"r"], 0)
    assert not responses.use(b"r", 1_000_000_001)
    assert not responses.use(b"", 0)
    endless = ResponsePermissions(ResponseRule(max_messages=-1, expires_s=-1))
    endless.expect([b"r"], 0)
    assert all(endless.use(b"r", 10**15) for _ in range(5))
