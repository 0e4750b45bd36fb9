"""Who may connect, by nats-py: tokens, passwords, nkeys, accounts, permissions, and TLS in all its forms."""

import ssl
from pathlib import Path

import pytest
from nats.js.errors import ServiceUnavailableError

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, eventually, is_refused, settled
from tests.identities_nats import TOKEN, TOKEN_TEXT, USER, Certificates, make_certificates, make_nkey

BCRYPT = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
"""Of the password U*U; a published test vector."""

ACCOUNTS = """
accounts {
  A { jetstream: enabled, users: [
    { user: ann, password: a }
    { user: bob, password: b, permissions: { publish: "ok.>", subscribe: ["ok.>", "_INBOX.>"] } }
  ] }
  B { jetstream: enabled, users: [ { user: ben, password: b } ] }
  C { users: [ { user: cid, password: c } ] }
}
no_auth_user: ann
"""


async def test_a_token(start: StartServer) -> None:
    url = start(TOKEN).url
    async with connected(url, token=TOKEN_TEXT) as client:
        await settled(client)
    assert await is_refused(url)
    assert await is_refused(url, token="wrong")  # noqa: S106


@pytest.mark.parametrize(
    ("settings", "password"), [(USER, "s3cret pass"), (f'authorization {{ user: ann, password: "{BCRYPT}" }}', "U*U")]
)
async def test_a_user_with_a_password(start: StartServer, settings: str, password: str) -> None:
    url = start(settings).url
    async with connected(url, user="ann", password=password) as client:
        await settled(client)
    for user, wrong in (("ann", "wrong"), ("bob", password), ("ann", BCRYPT)):
        assert await is_refused(url, user=user, password=wrong)
    assert await is_refused(url)


async def test_an_nkey(start: StartServer) -> None:
    right, wrong = make_nkey(), make_nkey()
    url = start(f"authorization {{ users: [ {{ nkey: {right.public} }} ] }}").url
    async with connected(url, nkeys_seed_str=right.seed.decode()) as client:
        await settled(client)
    assert await is_refused(url, nkeys_seed_str=wrong.seed.decode())
    assert await is_refused(url)


async def test_accounts_neither_hear_nor_see_each_other(start: StartServer, name: str) -> None:
    url = start(ACCOUNTS).url
    async with connected(url) as ann, connected(url, user="ben", password="b") as ben:  # noqa: S106
        own, others = await ann.subscribe(name), await ben.subscribe(name)
        await settled(ben)
        await ann.publish(name, b"x")
        assert (await own.next_msg(WITHIN_S)).data == b"x"
        await settled(ann)
        await settled(ben)
        assert others.pending_msgs == 0
        for client in (ann, ben):
            await client.jetstream(timeout=WITHIN_S).add_stream(name=name, subjects=[f"s.{name}"])
        await ann.jetstream(timeout=WITHIN_S).publish(f"s.{name}", b"x")
        states = [(await client.jetstream(timeout=WITHIN_S).stream_info(name)).state.messages for client in (ann, ben)]
        assert states == [1, 0]
    async with connected(url, user="cid", password="c") as cid:  # noqa: S106
        with pytest.raises(ServiceUnavailableError, match="JetStream not enabled for account"):
            await cid.jetstream(timeout=WITHIN_S).account_info()


async def test_permissions_are_kept(start: StartServer) -> None:
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    url = start(ACCOUNTS).url
    async with connected(url, user="bob", password="b", error_cb=note) as bob, connected(url) as ann:  # noqa: S106
        everything = await ann.subscribe(">")
        await settled(ann)
        await bob.subscribe("ok.a")
        await bob.subscribe("not.ok")
        await bob.publish("not.ok", b"x")
        await bob.publish("ok.a", b"y")
        await settled(bob)
        await eventually(lambda: len(errors) == 2)
        assert 'permissions violation for subscription to "not.ok"' in errors[0].lower()
        assert 'permissions violation for publish to "not.ok"' in errors[1].lower()
        assert (await everything.next_msg(WITHIN_S)).subject == "ok.a"
        assert everything.pending_msgs == 0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def _context(certificates: Certificates, *, client: bool = False, ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca or certificates.ca))
    if client:
        context.load_cert_chain(str(certificates.client_cert), str(certificates.client_key))
    return context


async def test_tls(start: StartServer, certificates: Certificates, name: str) -> None:
    url = start(certificates.settings(), scheme="tls").url
    async with connected(url, tls=_context(certificates)) as client:
        subscription = await client.subscribe(name)
        await client.publish(name, bytes(500_000))
        assert len((await subscription.next_msg(WITHIN_S)).data) == 500_000
        await client.jetstream(timeout=WITHIN_S).add_stream(name=name, subjects=[f"{name}.>"])
        assert (await client.jetstream(timeout=WITHIN_S).publish(f"{name}.a", b"x")).seq == 1
    assert await is_refused(url, tls=_context(certificates, ca=certificates.other_ca))


async def test_tls_with_a_certificate_of_the_client(start: StartServer, certificates: Certificates) -> None:
    url = start(certificates.settings(mutual=True), scheme="tls").url
    async with connected(url, tls=_context(certificates, client=True)) as client:
        await settled(client)
    assert await is_refused(url, tls=_context(certificates))


async def test_tls_before_anything_is_said(start: StartServer, certificates: Certificates) -> None:
    settings = certificates.settings().replace("tls {", "tls { handshake_first: true,")
    url = start(settings, scheme="tls").url
    async with connected(url, tls=_context(certificates), tls_handshake_first=True) as client:
        await settled(client)


async def test_tls_and_a_password(start: StartServer, certificates: Certificates) -> None:
    url = start(f"{USER}\n{certificates.settings()}", scheme="tls").url
    async with connected(url, tls=_context(certificates), user="ann", password="s3cret pass") as client:  # noqa: S106
        await settled(client)
    assert await is_refused(url, tls=_context(certificates), user="ann", password="wrong")  # noqa: S106
