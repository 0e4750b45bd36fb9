"""The protocol itself, byte by byte: greetings, what is refused and with which words, and what ends a connection."""

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.raw import Script, Talk

LONG = b"x" * 5000


def greetings(talk: Talk) -> None:
    talk.another(None).raw(b"", lines=1)
    for connect in (b"{}", b'{"verbose":true}', b"{nope", b"", b"[]", b'{"protocol":0}', b'{"protocol":7}'):
        talk.another(None).raw(b"CONNECT " + connect + b"\r\n")
    talk.another(None).raw(b"PING\r\n")
    talk.another(None).raw(b'CONNECT {"no_responders":true}\r\n')
    talk.another(None).raw(b'CONNECT {"user":"a","pass":"b","auth_token":"c","name":"n","lang":"l"}\r\n')
    talk.another(None).raw(b'connect {"verbose":true}\r\nsub a 1\r\npub a 1\r\nx\r\nunsub 1\r\nping\r\n')
    talk.another(None).raw(b'CONNECT {"verbose":true}\r\nCONNECT {"verbose":false}\r\nSUB a 1\r\n')


def what_is_no_operation(talk: Talk) -> None:
    for line in (
        b"FOO",
        b"",
        b" ",
        b"+OK",
        b"-ERR 'x'",
        b"PONG",
        b"INFO {}",
        b"MSG a 1 0",
        b"PUBX a 0",
        b"P",
        b"\x00\xff",
    ):
        talk.another().raw(line + b"\r\n")
    talk.another().raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    talk.another().raw(b"PING\nPING\n")
    talk.another().raw(b"PING  \r\nPI")


def what_is_no_publish(talk: Talk) -> None:
    for line in (b"PUB", b"PUB a", b"PUB a b", b"PUB a b c 1", b"PUB a -1", b"PUB a 1x", b"PUB a 99999999999999999999"):
        talk.another().raw(line + b"\r\nx\r\n")
    talk.another().raw(b"PUB a 2000000\r\n")
    talk.another().raw(b"PUB a 1\r\nxy\r\n")
    talk.another().raw(b"PUB  a\t \t1 \r\nx\r\n")
    for line in (
        b"HPUB a 12",
        b"HPUB a 14 12",
        b"HPUB a -1 3",
        b"HPUB a b c 12 12",
        b"HPUB a x 12",
        b"HPUB",
        b"HPUB a 3 2000000",
    ):
        talk.another().raw(line + b"\r\nNATS/1.0\r\n\r\n\r\n")
    talk.another().raw(b"SUB h 9\r\nHPUB h 12 12\r\nNATS/1.0\r\n\r\n\r\nHPUB h 4 5\r\nabcde\r\n")
    talk.another().raw(b"PUB " + LONG + b" 1\r\nx\r\n", shown="a long control line")
    talk.another().raw(b"SUB " + LONG, shown="a long unfinished line")


def subjects_that_are_wrong(talk: Talk) -> None:
    for subject in (b"a..b", b".a", b"a.", b".", b"a.>.b", b"a.*b", b"a>", b"only.>", b"only.*", b"a.*.b"):
        talk.another().raw(b"SUB %s 5\r\nPUB %s 1\r\nx\r\n" % (subject, subject))
        talk.another({"pedantic": True, "verbose": True}).raw(b"SUB %s 5\r\nPUB %s 1\r\nx\r\n" % (subject, subject))


def what_is_no_subscription(talk: Talk) -> None:
    for line in (b"SUB", b"SUB a", b"SUB a b c d", b"SUB  a \t 8", b"UNSUB", b"UNSUB 1 x", b"UNSUB 77", b"UNSUB a b c"):
        talk.another().raw(line + b"\r\nPUB a 1\r\nx\r\n")
    talk.another().raw(b"SUB same 8\r\nSUB same 8\r\nSUB same2 8\r\nPUB same 1\r\nx\r\nPUB same2 1\r\ny\r\n")
    talk.another().raw(b"SUB auto 8\r\nUNSUB 8 2\r\n" + b"PUB auto 1\r\nx\r\n" * 3)
    talk.another().raw(b"SUB auto 8\r\n" + b"PUB auto 1\r\nx\r\n" * 3 + b"UNSUB 8 2\r\nPUB auto 1\r\nx\r\n")
    talk.another().raw(b"SUB auto 8\r\nUNSUB 8 0\r\nPUB auto 1\r\nx\r\nUNSUB 8 -1\r\nPUB auto 1\r\nx\r\n")


def answers_to_a_verbose_client(talk: Talk) -> None:
    verbose = talk.another({"verbose": True, "headers": True})
    verbose.raw(
        b"SUB v 8\r\nPUB v 1\r\nx\r\nHPUB v 12 12\r\nNATS/1.0\r\n\r\n\r\nUNSUB 8 9\r\nPING\r\nPONG\r\nUNSUB 8\r\n"
    )


def headers_for_those_who_know_none(talk: Talk) -> None:
    plain = talk.another({"headers": False})
    plain.raw(b"SUB hh 8\r\n")
    talk.raw(b"HPUB hh 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nxyz\r\nPUB hh 1\r\nx\r\n")
    plain.raw(b"")
    plain.raw(b"HPUB hh 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nxyz\r\n")


def nobody_there_to_answer(talk: Talk) -> None:
    talk.ask("nobody.there", "x")
    talk.ask("nobody.there", "x", {"A": "b"})
    talk.publish("nobody.there", "x")
    talk.listen("somebody.there")
    talk.ask("somebody.there", "x", answers=0)
    quiet = talk.another({"headers": True, "no_responders": False})
    quiet.raw(b"SUB q 3\r\nPUB nobody.there q 1\r\nx\r\n")


def echoes_and_queues(talk: Talk) -> None:
    silent = talk.another({"echo": False, "headers": True, "no_responders": True})
    silent.raw(b"SUB own 8\r\nPUB own 1\r\nx\r\nPUB own own 1\r\nx\r\n")
    talk.raw(b"SUB qq group 5\r\nSUB qq 6\r\nSUB q* group 7\r\nSUB qq group 5\r\nPUB qq re.ply 2\r\nhi\r\n")
    talk.raw(b"UNSUB 5\r\nPUB qq 2\r\nhi\r\n")


def what_must_not_be_subscribed(talk: Talk) -> None:
    for subject in (b"$SYS.>", b"$JS.API.>", b"$KV.x.>", b"_INBOX.>", b"$"):
        talk.another().raw(b"SUB %s 8\r\n" % subject)


SCRIPTS: list[Script] = [
    greetings,
    what_is_no_operation,
    what_is_no_publish,
    subjects_that_are_wrong,
    what_is_no_subscription,
    answers_to_a_verbose_client,
    headers_for_those_who_know_none,
    nobody_there_to_answer,
    echoes_and_queues,
    what_must_not_be_subscribed,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
