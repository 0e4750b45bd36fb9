"""Who may connect and do what: the same words to those who may not."""

import json
from collections.abc import Callable

import pytest

from tests.broker.clients.raw import Body, Talk

ACCOUNTS = """
accounts {
  A {
    jetstream: enabled
    users: [
      { user: ann, password: apple }
      { user: bob, password: "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", permissions: {
          publish: { allow: ["ok.>", "$JS.API.>", "_INBOX.>"], deny: "ok.not" }
          subscribe: { allow: ["ok.>", "_INBOX.>", "in.* group"], deny: "ok.never.>" }
          allow_responses: { max: 1, expires: "1m" } } }
      { user: cat, password: c, permissions: { publish: "cat.>" } }
      { user: dan, password: d, permissions: { subscribe: { deny: "secret.*" } } }
      { user: eve, password: e, permissions: { publish: { deny: [">"] } } }
    ]
  }
  B { users: [ { user: ben, password: b } ] }
}
no_auth_user: ben
"""
SYSTEM_USERS = """
jetstream: enabled
accounts { $SYS { users: [ { user: sys, password: s } ] } }
"""
OTHER_SYSTEM_USERS = """
jetstream: enabled
accounts { OWN { users: [ { user: sys, password: s } ] } }
system_account: OWN
"""
LIMITED = """
max_connections: 3
max_subscriptions: 2
max_payload: 100
max_control_line: 256
"""
USERS = (
    ("ann", "apple"),
    ("ann", "wrong"),
    ("nobody", "x"),
    ("bob", "U*U"),
    ("bob", "U*V"),
    ("ben", "b"),
    ("ann", ""),
    ("", ""),
)
Compare = Callable[..., None]


def _as(user: str, password: str, **more: object) -> Body:
    return {
        "user": user,
        "pass": password,
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        **more,
    }


def _line(connect: Body) -> bytes:
    return b"CONNECT " + json.dumps(connect).encode() + b"\r\n"


def test_users_of_accounts(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        talk.another(None).raw(b"", lines=1)
        for user, password in USERS:
            talk.another(None).raw(_line(_as(user, password)))
        talk.another(None).raw(_line({"auth_token": "x", "verbose": False}))
        talk.another(None).raw(b"PUB a 1\r\nx\r\n")
        ann, cat = talk.another(_as("ann", "apple")), talk.another(_as("cat", "c"))
        dan, eve = talk.another(_as("dan", "d")), talk.another(_as("eve", "e"))
        ann.raw(b"SUB > 8\r\n")
        talk.raw(b"PUB other.account 1\r\nx\r\n")
        cat.raw(
            b"PUB cat.a 1\r\nx\r\nPUB dog.a 1\r\nx\r\nHPUB dog.a re.ply 12 13\r\nNATS/1.0\r\n\r\nx\r\nSUB dog.> 8\r\n"
        )
        dan.raw(b"SUB secret.a 5\r\nSUB secret.* 6\r\nSUB > 7\r\nSUB secret.a.b 9\r\nSUB secret.a queue 10\r\n")
        eve.raw(b"PUB a 1\r\nx\r\nPUB _INBOX.x 1\r\nx\r\n")
        ann.raw(b"PUB secret.a 1\r\nx\r\nPUB public.a 1\r\ny\r\n")
        dan.raw(b"")

    compare_with(script, ACCOUNTS)


@pytest.mark.parametrize(
    "settings",
    [
        SYSTEM_USERS,
        OTHER_SYSTEM_USERS,
        SYSTEM_USERS + "authorization { timeout: 5 }",
        SYSTEM_USERS.replace("] } }", "] }, A {} }"),
        SYSTEM_USERS + "no_auth_user: sys",
    ],
    ids=["$SYS", "another", "authorization", "a second account", "no_auth_user"],
)
def test_users_of_the_system_account_alone_leave_the_global_one_open(compare_with: Compare, settings: str) -> None:
    def script(talk: Talk) -> None:
        talk.another(None).raw(b"", lines=1)
        for user, password in (("", ""), ("sys", "s"), ("sys", "wrong"), ("nobody", "x")):
            talk.another(None).raw(_line(_as(user, password)))
        talk.another(None).raw(b"PUB a 1\r\nx\r\n")
        talk.another(None).raw(_line(_as("", "")) + b"SUB a 1\r\nPUB a 1\r\nx\r\n")

    compare_with(script, settings)


def test_permissions_of_a_user_with_bcrypt(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        bob, ann = talk.another(_as("bob", "U*U")), talk.another(_as("ann", "apple"))
        bob.raw(b"SUB ok.a 5\r\nSUB ok.never.a 6\r\nSUB ok.> 7\r\nSUB not.ok 8\r\n")
        bob.raw(b"SUB in.a 9\r\nSUB in.a group 10\r\nSUB in.b other 11\r\n")
        bob.raw(b"PUB ok.a 1\r\nx\r\nPUB ok.not 1\r\nx\r\nPUB not.ok 1\r\nx\r\nPUB ok.never.a 1\r\nx\r\n")
        ann.raw(b"SUB re.ply.> 5\r\nPUB ok.ask re.ply.1 1\r\nx\r\n")
        bob.raw(b"PUB re.ply.1 1\r\n1\r\nPUB re.ply.1 1\r\n2\r\nPUB re.ply.2 1\r\n3\r\n")
        ann.raw(b"")
        for request in ("STREAM.CREATE.PERM", "STREAM.INFO.PERM", "INFO"):
            bob.ask(f"$JS.API.{request}", {"name": "PERM", "subjects": ["perm.>"]} if "CREATE" in request else "")
        bob.raw(b"PUB perm.a 1\r\nx\r\n")
        ann.ask("$JS.API.STREAM.INFO.PERM")
        talk.ask("$JS.API.INFO")
        talk.ask("$JS.API.STREAM.INFO.PERM")
        talk.ask("$JS.API.STREAM.CREATE.NO", {"name": "NO"})

    compare_with(script, ACCOUNTS)


def test_one_user_or_a_token(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        for connect in (
            _as("ann", "s3cret"),
            _as("ann", "wrong"),
            {"auth_token": "t0ken", "verbose": False},
            {"auth_token": "wrong", "verbose": False},
            {"verbose": False},
            {"user": "t0ken", "verbose": False},
        ):
            talk.another(None).raw(_line(connect))
        talk.another(None).raw(b"SUB a 1\r\n")

    compare_with(script, "authorization { user: ann, password: s3cret }", _as("ann", "s3cret"))
    compare_with(script, "authorization { token: t0ken }", {"auth_token": "t0ken", "headers": True, "verbose": False})


def test_limits_of_connections(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        one = talk.another()
        one.raw(b"SUB a 5\r\nSUB b 6\r\nSUB c 7\r\nPUB a 1\r\nx\r\n")
        talk.another(None).raw(b"PUB a 101\r\n")
        talk.another(None).raw(b"PUB " + b"a" * 300 + b" 1\r\nx\r\n")
        two = talk.another()
        talk.another(None).raw(b"", lines=2)
        two.raw(b"PUB a 1\r\nx\r\n")

    compare_with(script, LIMITED)


def test_a_server_without_jetstream(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        talk.ask("$JS.API.INFO", answers=-1)
        talk.ask("$JS.API.STREAM.CREATE.S", {"name": "S"}, answers=-1)

    compare_with(script, "", jetstream=None)


LIMITED_ACCOUNT = """
accounts {
  L {
    jetstream { max_mem: 1000, max_file: 5000, max_streams: 2, max_consumers: 2, max_bytes_required: false }
    users: [ { user: lou, password: l } ]
  }
}
"""


def test_limits_of_an_account(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        talk.ask("$JS.API.INFO")
        for name, more in (
            ("ONE", {"max_bytes": 6000}),
            ("ONE", {"max_bytes": 3000}),
            ("TWO", {"max_bytes": 3000}),
            ("TWO", {"storage": "memory", "max_bytes": 2000}),
            ("TWO", {"storage": "memory"}),
            ("THREE", {}),
        ):
            talk.ask(f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **more})
        for _ in range(3):
            talk.ask("TWO.a", "x" * 400)
        for name in ("A", "B", "C"):
            talk.ask(f"$JS.API.CONSUMER.CREATE.ONE.{name}", {"stream_name": "ONE", "config": {"durable_name": name}})
        talk.ask("$JS.API.INFO")

    compare_with(script, LIMITED_ACCOUNT, _as("lou", "l"))
