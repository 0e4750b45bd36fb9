"""What a configuration file says becomes settings, or is refused with all that is wrong and what to do."""

from pathlib import Path

import pytest

from strandline.broker.settings import (
    AccountSettings,
    JetStreamLimits,
    JetStreamSettings,
    Permissions,
    ResponseRule,
    Rule,
    ServerSettings,
    UserSettings,
)
from strandline.broker.settings.configuration import Configuration, read_configuration
from strandline.broker.settings.errors import ConfigurationRefused, NotServed
from strandline.broker.settings.reload import describe_changes
from strandline.errors import InvalidInput
from strandline.journal import SYNCED, WRITTEN

ANN = UserSettings("ann", "secret")
NKEY = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"


def configured(text: str) -> Configuration:
    """Read a text as `c.conf`."""
    return read_configuration(Path("c.conf"), {}, read=lambda _: text)


def settings(text: str) -> ServerSettings:
    """Return the settings of a text."""
    return configured(text).settings


def test_what_is_not_said_is_as_nats_server_has_it() -> None:
    found = settings("port: 4333")
    assert (found.host, found.port, found.jetstream, found.http_port) == ("0.0.0.0", 4333, None, None)  # noqa: S104
    assert found.accounts == (AccountSettings("$G"),)
    assert (found.max_payload, found.max_connections, found.max_subscriptions) == (1 << 20, 65_536, None)


def test_where_the_system_account_alone_has_users_others_need_none_and_a_reload_keeps_them() -> None:
    text = "jetstream: enabled\nstore_dir: /d\naccounts { $SYS { users: [{user: sys, password: s}] } }"
    found = settings(text)
    assert found.no_auth_user.startswith("nats-")
    assert found.accounts[0].users[0].user == found.no_auth_user
    assert found.accounts[0].jetstream == JetStreamLimits()
    assert settings(text) == found
    assert settings(text + "\nauthorization { timeout: 5 }").no_auth_user == ""


def test_listeners_and_limits() -> None:
    found = settings(
        'listen: 127.0.0.1:-1\nhttp: "localhost:8222"\nmax_payload: 2MB\nmax_conn: 10\nmax_subs: 5\n'
        'ping_interval: "20s"\nping_max: 3\nwrite_deadline: 2s\nlame_duck_duration: "1m"\nserver_name: one'
    )
    assert (found.host, found.port, found.http_host, found.http_port) == ("127.0.0.1", -1, "localhost", 8222)
    assert (found.max_payload, found.max_connections, found.max_subscriptions) == (2 << 20, 10, 5)
    assert (found.ping_interval_s, found.ping_max, found.write_deadline_s) == (20.0, 3, 2.0)
    assert (found.lame_duck_s, found.server_name) == (60.0, "one")


@pytest.mark.parametrize(
    ("text", "enabled", "durability"),
    [
        ("jetstream: enabled", True, SYNCED),
        ("jetstream: false\nport: 1", False, SYNCED),
        ("jetstream {}", True, SYNCED),
        ("jetstream { enabled: false }", False, SYNCED),
        ("jetstream { sync_interval: always }", True, SYNCED),
        ('jetstream { sync_interval: "2m" }', True, SYNCED),
        ("jetstream { sync: written }", True, WRITTEN),
    ],
)
def test_jetstream_is_on_when_it_is_said_and_never_syncs_less_than_asked(
    text: str, enabled: bool, durability: object
) -> None:
    found = settings(text)
    assert (found.jetstream is not None, found.durability) == (enabled, durability)


def test_jetstream_has_limits_a_domain_and_a_folder() -> None:
    found = settings(
        'jetstream { store_dir: "/tmp/x", max_mem: 64MB, max_file: "1GB", domain: hub, limits { max_ha_assets: 3 } }'
    )
    assert found.store_dir == Path("/tmp/x")  # noqa: S108 - not made
    assert found.jetstream == JetStreamSettings(64 << 20, 1 << 30, "hub")


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("authorization { user: ann, password: secret }", (ANN,)),
        ("authorization { users: [ {user: ann, pass: secret} ] }", (ANN,)),
        (f"authorization {{ users: [ {{nkey: {NKEY}}} ] }}", (UserSettings(nkey=NKEY),)),
        (
            """authorization { default_permissions { publish: 'a.>' }
            users: [ {user: ann, password: secret}\n{user: bob, password: b, permissions { sub: [x, 'y q'] }} ] }""",
            (
                UserSettings("ann", "secret", permissions=Permissions(Rule(("a.>",)))),
                UserSettings("bob", "b", permissions=Permissions(subscribe=Rule(("x", "y q")))),
            ),
        ),
        (
            """authorization { users: [ {user: ann, password: secret, permissions { publish { deny: 'a' }
            subscribe { allow: ['b', 'c'], deny: 'd' }\n allow_responses: { max: 2, expires: '1m' } } } ] }""",
            (
                UserSettings(
                    "ann",
                    "secret",
                    permissions=Permissions(Rule((), ("a",)), Rule(("b", "c"), ("d",)), ResponseRule(2, 60.0)),
                ),
            ),
        ),
    ],
)
def test_users_of_the_global_account_and_what_they_may_do(text: str, users: object) -> None:
    assert settings(text).accounts[0].users == users


def test_accounts_have_users_limits_and_jetstream_of_their_own() -> None:
    found = settings(
        "accounts { A { users: [{user: ann, password: secret}], jetstream: enabled, limits { max_conn: 2 } }\n"
        " a { jetstream { max_mem: 1M, max_streams: 3 } }\n $SYS { users: [{user: s, password: s}] } }\n"
        "no_auth_user: ann"
    )
    assert found.accounts == (
        AccountSettings("$G", jetstream=None),
        AccountSettings("A", (ANN,), max_connections=2),
        AccountSettings("a", jetstream=JetStreamLimits(max_memory=10**6, max_streams=3)),
        AccountSettings("$SYS", (UserSettings("s", "s"),), None),
    )
    assert found.no_auth_user == "ann"


def test_the_global_account_keeps_jetstream_beside_the_system_account_alone() -> None:
    found = settings("accounts { SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS")
    assert found.accounts[0].jetstream is not None


def test_a_system_account_with_jetstream_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidInput, match="system account") as refused:
        ServerSettings(accounts=(AccountSettings(), AccountSettings("$SYS", (ANN,))))
    assert "jetstream=None" in (refused.value.hint or "")
    without = AccountSettings("$SYS", (ANN,), jetstream=None)
    assert ServerSettings(accounts=(AccountSettings(), without)).accounts[1] == without


def test_a_token_and_a_websocket_listener() -> None:
    found = settings("authorization { token: abc, timeout: 3 }\nwebsocket { listen: '127.0.0.1:-1', no_tls: true }")
    assert (found.token, found.auth_timeout_s) == ("abc", 3.0)
    assert found.websocket is not None
    assert (found.websocket.host, found.websocket.port, found.websocket.tls) == ("127.0.0.1", -1, None)


def test_tls_reads_its_files_names_and_leaves_time_for_the_handshake(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).touch()
    block = f'tls {{ cert_file: "{tmp_path}/cert", key_file: "{tmp_path}/key"'
    found = settings(f'{block}, ca_file: "{tmp_path}/ca", verify: true, timeout: 5, handshake_first: auto }}')
    assert found.tls is not None
    assert (found.tls.verify, found.tls.handshake_first, found.tls.handshake_first_fallback_s) == (True, True, 0.05)
    assert found.auth_timeout_s == 6.0
    with pytest.raises(ConfigurationRefused, match="missing 'key_file' in TLS configuration"):
        settings(f'tls {{ cert_file: "{tmp_path}/cert" }}')


def test_remotes_are_servers_that_mirrors_copy_from() -> None:
    block = 'remotes { "$JS.hub.API": "nats://ann:s@127.0.0.1:4333", "$JS.b.API": { url: [a, b], domain: b } }'
    found = settings(block)
    assert found.remotes["$JS.hub.API"].urls == ("nats://127.0.0.1:4333",)
    assert found.remotes["$JS.b.API"].domain == "b"


def test_remotes_are_those_of_one_account_alone() -> None:
    own = 'accounts { A { remotes { "$JS.a.API": "nats://a" } }, B { users: [ {user: b, password: b} ] } }'
    found = settings('remotes { "$JS.hub.API": "nats://hub" }\n' + own)
    remotes = {account.name: set(found.remotes_of(account)) for account in found.accounts}
    assert remotes == {"$G": {"$JS.hub.API"}, "A": {"$JS.a.API"}, "B": set()}
    with pytest.raises(ConfigurationRefused, match="remotes of an account"):
        describe_changes(found, settings('remotes { "$JS.hub.API": "nats://hub" }\n' + own.replace("$JS.a", "$JS.c")))


def test_all_problems_are_told_at_once_with_their_places() -> None:
    text = "bogus: 1\nport: x\nauthorization {\n  foo: 1\n  users: [ {user: a, password: b, bar: 2}, {password: c} ]\n}"
    with pytest.raises(ConfigurationRefused) as refused:
        settings(text)
    assert refused.value.problems == (
        'c.conf:1:0: unknown field "bogus"',
        "c.conf:2:1: expected an integer, not a text",
        'c.conf:4:3: unknown field "foo"',
        'c.conf:5:35: unknown field "bar"',
        "c.conf:5:44: User entry requires a user",
    )


@pytest.mark.parametrize(
    "text",
    [
        "cluster { name: c, listen: 127.0.0.1:6222 }",
        "gateway { name: g }",
        "leafnodes { port: 7422 }",
        "leafnodes { remotes: [{url: 'nats://x'}] }",
        "mqtt { port: 1883 }",
        "operator: x.jwt",
        "resolver: MEMORY",
        "jetstream { key: abc }",
        "accounts { A { exports: [{stream: x}] } }",
        "tls { verify_and_map: true }",
        "https_port: 8443",
    ],
)
def test_what_nats_server_has_and_we_have_not_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(NotServed, match=r"^c\.conf:1:\d+: .*not served") as refused:
        settings(text)
    assert "nats-server" in str(refused.value.hint)


def test_a_listener_for_leaf_nodes_that_nobody_could_find_is_only_noted() -> None:
    assert "leaf nodes are not served" in configured("leafnodes { listen: '127.0.0.1:-1' }").notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "config has no values or is empty"),
        ("lame_duck_duration: 40", "expected a duration with a unit"),
        ("lame_duck_duration: 5s", "minimum is 30 seconds"),
        ("server_name: 'a b'", "server name cannot contain spaces"),
        ("max_payload: 70MB", "cannot be higher than max_pending"),
        ("no_auth_user: nobody", "present, but users/nkeys are not defined"),
        ("websocket { port: 80 }", "websocket requires TLS configuration"),
        ("authorization { users: [{user: a, password: b}, {user: a, password: c}] }", 'Duplicate user "a" detected'),
        ("authorization { user: a, password: b, token: c }", "Cannot have a user/pass and token"),
        ("accounts { $G {} }", "is a Reserved Account"),
        ("jetstream: maybe", "expected 'enabled' or 'disabled'"),
        ("listen: nowhere", "could not parse address string 'nowhere'"),
        ("port: 70000", "port must be at most 65535"),
        ("authorization { users: [{user: a, permissions: {publish: 'a..b'}}] }", '"a..b" is not a valid subject'),
        ('server_name: one\nhost: "127.0.0.1', "c.conf:2:7: Parse error on line 2: a quoted text does not end"),
    ],
)
def test_what_cannot_work_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        settings(text)


def test_a_reload_changes_users_and_limits_and_nothing_that_takes_a_restart() -> None:
    old = settings("port: -1\nauthorization { user: ann, password: a }")
    changed = (
        "port: -1\nauthorization { user: ann, password: b }\nmax_conn: 3\nping_interval: 90s\ntrace: true\nlog_file: x"
    )
    assert describe_changes(old, settings(changed)) == [
        "accounts",
        "max_connections = 3",
        "ping_interval = 90s",
        "log_file = x",
        "trace = true",
    ]
    assert describe_changes(settings("port: 1"), settings("port: 1\nauthorization { token: secret }")) == [
        "authorization token"
    ]
    with pytest.raises(ConfigurationRefused, match="config reload not supported for port"):
        describe_changes(old, settings("port: 4333"))


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("authorization { user: a, password: b }", ("Plaintext passwords detected, use nkeys or bcrypt",)),
        ("authorization { user: a, password: '$2a$11$x' }", ()),
        ("websocket { port: -1, no_tls: true }", ("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!",)),
    ],
)
def test_what_is_not_safe_is_noted_in_nats_servers_words(text: str, notes: tuple[str, ...]) -> None:
    assert configured(text).notes == notes


def test_how_much_is_traced_is_read() -> None:
    log = settings("trace_verbose: true\nmax_traced_msg_len: 10\ntrace_headers: true").log
    assert (log.trace, log.traced_bytes_max, log.trace_headers) == (True, 10, True)


def test_seconds_without_a_unit_are_taken_and_doubted() -> None:
    found = configured("ping_interval: 20\nwrite_deadline: 2\njetstream { sync_interval: 3, store_dir: x }")
    assert (found.settings.ping_interval_s, found.settings.write_deadline_s) == (20.0, 2.0)
    assert found.settings.durability is SYNCED
    assert len(found.doubts) == 3
    with pytest.raises(ConfigurationRefused, match='"ping_interval": ping_interval should be conv'):
        found.refuse_doubts()
