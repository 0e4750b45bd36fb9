"""Messages that are traced: what is reported, what is stored and delivered, and who may have it reported where."""

from collections.abc import Callable

from tests.broker.clients.raw import Talk

SETTINGS = """
accounts {
  A {
    jetstream: enabled
    msg_trace: { dest: "sampled", sampling: "100%" }
    users: [
      { user: a, password: a }
      { user: careful, password: c, permissions: { publish: { deny: [secret] }, subscribe: { deny: ["v.a"] } } }
    ]
  }
}
no_auth_user: a
"""
DEST = {"Nats-Trace-Dest": "dest"}
ONLY = {**DEST, "Nats-Trace-Only": "true"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
CONNECT = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, "name": "raw"}


def _traced(talk: Talk, *hearers: str) -> Callable[..., None]:
    reports = talk.listen("dest")

    def traced(subject: str, headers: dict[str, str], *, reports_expected: int = 1, answers: int = 0) -> None:
        talk.ask(subject, "x", headers, answers=answers)
        talk.heard(reports, reports_expected)
        for hearer in hearers:
            talk.heard(hearer, 0 if headers == ONLY else 1)

    return traced


def of_subscriptions(talk: Talk) -> None:
    traced = _traced(talk)
    traced("nobody", DEST, answers=1)
    traced("nobody", ONLY, answers=1)
    hearers = [talk.listen("t.a"), talk.listen("t.*"), talk.listen("t.a", "group")]
    traced = _traced(talk, *hearers)
    traced("t.a", DEST)
    traced("t.a", ONLY)
    traced("t.a", {**DEST, "Nats-Trace-Only": "no", "A": "b"})
    for headers in ({"Nats-Trace-Only": "true"}, {"nats-trace-dest": "dest"}, {"Nats-Trace-Dest": "trace disabled"}):
        traced("t.a", headers, reports_expected=0)
    quiet = talk.another({**CONNECT, "echo": False})
    quiet.listen("quiet")
    quiet.publish("quiet", "x", DEST)
    talk.heard("2", 1)


def of_streams(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    talk.ask("$JS.API.STREAM.CREATE.R", {"name": "R", "subjects": ["kept"]})
    traced = _traced(talk)
    traced("s.1", DEST, answers=1)
    traced("s.1", ONLY)
    traced("s.1", {**DEST, "Nats-Msg-Id": "1"}, answers=1)
    traced("s.1", {**DEST, "Nats-Msg-Id": "1"}, answers=1)
    traced("s.1", {**ONLY, "Nats-Msg-Id": "1"}, answers=1)
    traced("s.1", {**ONLY, "Nats-Expected-Last-Sequence": "100"}, answers=1)
    traced("s.1", {**DEST, "Nats-Expected-Last-Subject-Sequence": "100"}, answers=1)
    traced("$JS.API.STREAM.NAMES", DEST, answers=1)
    traced("$JS.API.STREAM.NAMES", ONLY, answers=1)
    talk.ask("s.1", "x", {"Nats-Trace-Dest": "kept"})
    talk.ask("$JS.API.STREAM.INFO.S")
    talk.wait_for("$JS.API.STREAM.INFO.R", lambda info: info["state"]["messages"] > 0)  # a report is stored, too
    talk.ask("$JS.API.STREAM.MSG.GET.S", {"seq": 1})


def of_accounts(talk: Talk) -> None:
    reports, hearer = talk.listen("sampled"), talk.listen("u.a")
    for parent in (PARENT + "1", PARENT + "0", "junk", ""):
        for name in ("traceparent", "Traceparent"):
            talk.publish("u.a", "x", {name: parent})
            talk.heard(hearer, 1)
            talk.heard(reports, int(parent.endswith("1")))


def of_those_who_may_not(talk: Talk) -> None:
    reports, hearer = talk.listen("dest"), talk.listen("v.a")
    careful = talk.another({**CONNECT, "user": "careful", "pass": "c"})
    careful.raw(b"SUB v.* 7\r\n")
    for subject, dest in (("v.a", "secret"), ("secret", "dest"), ("secret", "secret"), ("v.a", "dest")):
        block = b"NATS/1.0\r\nNats-Trace-Dest: %s\r\n\r\n" % dest.encode()
        careful.raw(b"HPUB %s %d %d\r\n%s\r\n" % (subject.encode(), len(block), len(block), block))
        talk.heard(reports, int(dest == "dest"))
        talk.heard(hearer, int((subject, dest) == ("v.a", "dest")))


def to_no_subject(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.N", {"name": "N", "subjects": ["n.>"]})
    hearer = talk.listen("n.>")
    for dest in (b"n.b c d e", b"n.x 1 5\nhello\nPING", b"n.>", b"n..q"):
        talk.ask("n.a", "x", b"NATS/1.0\r\nNats-Trace-Dest: %s\r\nNats-Trace-Only: true\r\n\r\n" % dest, answers=0)
        talk.ask("n.a", "x", b"NATS/1.0\r\nNats-Trace-Dest: %s\r\n\r\n" % dest)
        talk.heard(hearer, 1)
    # Without a line for the version there are no headers.
    talk.ask("n.a", "x", b"Nats-Trace-Dest: x\r\nNats-Trace-Only: true\r\n\r\n")
    talk.ask("$JS.API.STREAM.INFO.N")
    talk.ask("$JS.API.STREAM.MSG.GET.N", {"seq": 1})


def test_both_servers_report_the_same(compare_with: Callable[..., None]) -> None:
    def script(talk: Talk) -> None:
        for part in (of_subscriptions, of_streams, of_accounts, of_those_who_may_not, to_no_subject):
            other = talk.another()
            part(other)
            other.close()

    compare_with(script, SETTINGS)
