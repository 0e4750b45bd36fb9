"""Settings say where and as whom to connect, show no secret, and refuse what cannot work."""

import base64
import pickle
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.nats import Login, NatsSettings
from strandline.nats.logins import parse_creds
from tests.identities_nats import make_certificates, make_nkey, make_operator

SECRET = "s3cr3t-w0rd"  # noqa: S105 - of nobody


@pytest.mark.parametrize(
    ("servers", "urls"),
    [
        ("nats://h:4000", ("nats://h:4000",)),
        ("h", ("nats://h:4222",)),
        ("h:1, tls://i", ("nats://h:1", "tls://i:4222")),
        (["nats://a", "nats://b:2"], ("nats://a:4222", "nats://b:2")),
        ("NATS://[::1]:7/", ("nats://[::1]:7",)),
    ],
)
def test_servers_are_urls_with_scheme_and_port(servers: str, urls: tuple[str, ...]) -> None:
    assert NatsSettings(servers).urls == urls


@pytest.mark.parametrize("servers", ["", "ws://h", "nats://", "nats://h:x", "nats://h/bucket", [], "nats://a b:1,"])
def test_what_is_no_server_is_refused(servers: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        NatsSettings(servers)
    assert caught.value.hint


def test_user_info_is_taken_out_of_urls_and_decoded() -> None:
    settings = NatsSettings("nats://ann:p%40ss%3Aword@h:1,nats://i:2")
    assert settings.urls == ("nats://h:1", "nats://i:2")
    assert settings.login() == Login(user="ann", password="p@ss:word")  # noqa: S106 - of nobody
    assert NatsSettings("nats://tok%2Fen@h").login() == Login(token="tok/en")  # noqa: S106 - the same


def test_different_users_in_the_urls_are_refused() -> None:
    with pytest.raises(InvalidInput, match="different users") as caught:
        NatsSettings(f"nats://ann:{SECRET}@a,nats://bob:{SECRET}@b")
    assert SECRET not in str(caught.value)


def test_creds_come_before_a_creds_file_before_the_url(tmp_path: Path) -> None:
    one, two = make_operator(), make_operator()
    file = tmp_path / "two.creds"
    file.write_text(two.creds)
    both = NatsSettings("nats://ann:pw@h", creds=one.creds_base64, creds_file=str(file))
    assert both.login() == parse_creds(one.creds)
    assert NatsSettings("nats://ann:pw@h", creds_file=str(file)).login() == parse_creds(two.creds)
    assert NatsSettings("nats://ann:pw@h").login().user == "ann"
    assert NatsSettings("nats://h").login() == Login()


def test_a_creds_file_that_is_renewed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    settings = NatsSettings("nats://h", creds_file=str(file))
    for operator in (make_operator(), make_operator()):
        file.write_text(operator.creds)
        assert settings.login() == parse_creds(operator.creds)


def test_a_bare_nkey_seed_is_a_login_that_signs() -> None:
    key = make_nkey()
    login = parse_creds(f"{key.seed.decode()}\n")
    assert login.signs
    assert login.public_key == key.public
    assert base64.b64decode(login.signature("nonce")) == key.sign(b"nonce")


@pytest.mark.parametrize("creds", ["%%%", base64.b64encode(b"\xff\xfe").decode(), base64.b64encode(b"text").decode()])
def test_creds_that_are_none_are_refused_without_being_shown(creds: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        NatsSettings("nats://h", creds=creds).login()
    assert creds not in str(caught.value)
    assert caught.value.hint


def test_a_damaged_seed_is_refused_without_being_shown() -> None:
    creds = make_operator().creds
    seed = parse_creds(creds).seed
    broken = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
    with pytest.raises(InvalidInput, match="damaged") as caught:
        parse_creds(creds.replace(seed, broken))
    assert broken not in str(caught.value)


def test_a_creds_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"gone\.creds"):
        NatsSettings("nats://h", creds_file="/nowhere/gone.creds").login()


def test_neither_repr_nor_str_shows_a_secret() -> None:
    creds = base64.b64encode(make_operator().creds.encode()).decode()
    settings = NatsSettings(f"nats://ann:{SECRET}@h,i", creds=creds)
    shown = f"{settings!r} {settings} {settings.addresses} {Login(user='ann', password=SECRET, seed=SECRET)!r}"
    assert SECRET not in shown
    assert creds not in shown
    assert "h:4222, i:4222" in shown


def test_settings_pickle_with_their_credentials() -> None:
    settings = NatsSettings(f"nats://ann:{SECRET}@h", domain="hub", timeout_s=2.0)
    again = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own
    assert again == settings
    assert again.login().password == SECRET
    assert again.api_prefix == "$JS.hub.API"


def test_the_prefix_of_the_api_is_that_of_the_domain_or_the_one_given() -> None:
    assert NatsSettings("h").api_prefix == "$JS.API"
    assert NatsSettings("h", prefix="$JS.other.API").api_prefix == "$JS.other.API"
    with pytest.raises(InvalidInput):
        NatsSettings("h", prefix="x", domain="y")


def test_tls_is_wanted_where_a_url_or_a_file_says_so(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    assert NatsSettings("nats://h").ssl_context() is None
    assert NatsSettings("tls://h").ssl_context() is not None
    assert NatsSettings("nats://h", tls_ca=str(files.ca)).wants_tls
    NatsSettings(
        "h", tls_ca=str(files.ca), tls_cert=str(files.client_cert), tls_key=str(files.client_key)
    ).ssl_context()


@pytest.mark.parametrize("fault", ["missing", "swapped", "not PEM"])
def test_certificates_that_cannot_be_loaded_are_named(tmp_path: Path, fault: str) -> None:
    files = make_certificates(tmp_path)
    ca = {"missing": tmp_path / "gone.pem", "swapped": files.ca, "not PEM": tmp_path / "text"}[fault]
    (tmp_path / "text").write_text("nothing of that kind")
    key = files.key if fault == "swapped" else files.client_key
    settings = NatsSettings("h", tls_ca=str(ca), tls_cert=str(files.client_cert), tls_key=str(key))
    with pytest.raises(InvalidInput, match="cannot be loaded"):
        settings.ssl_context()


@pytest.mark.parametrize("wrong", [{"timeout_s": 0.0}, {"tls_cert": "x"}])
def test_settings_that_contradict_themselves_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        NatsSettings("h", **wrong)  # type: ignore[arg-type]
