"""A long conversation that was once had with nats-server 2.15.1, had again: the same answers, ids and times aside."""

import json
import re
from pathlib import Path
from typing import Any

from tests.broker.clients.raw import Talk, json_of
from tests.broker.clients.servers import StartServer

FIXTURE = Path(__file__).parents[3] / "fixtures" / "broker" / "conversation.jsonl"
PASSED_MEANWHILE = {"consumer delete", "consumer delete missing"}
"""Of a consumer that had gone by then, as nobody had used it for five seconds."""
BY_CHANCE = {"consumer names", "consumer list"}
"""Where a consumer stands whose name the server makes up; it was the last."""
CAUGHT_UP = {"mirror info": 9, "source info": 3}
PUSHED = ["s1.a", "s1.c", "s1.ttl", "s1.m.2", "s1.m.3", "s1.m.4"]


def _exchanges() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FIXTURE.read_text().splitlines()]


def test_a_conversation_goes_as_it_once_did(start: StartServer) -> None:
    for _ in range(3):  # on a machine that stalls for five seconds a consumer may go that nobody uses
        if not (wrong := _parted(start().port)):
            break
    assert wrong == []


def _parted(port: int) -> list[Any]:
    """Have the conversation and return where it goes another way."""
    talk = Talk(port)
    pushed = talk.listen("push.1")
    wrong: list[Any] = []
    made_up = ""
    for exchange in _exchanges():
        if exchange["title"] in PASSED_MEANWHILE:
            continue
        _prepare(talk, exchange["title"])
        said = len(talk.said)
        answers = talk.ask(
            exchange["subject"], exchange["payload"], exchange["headers"], answers=len(exchange["answers"])
        )
        if exchange["title"] == "legacy ephemeral":
            made_up = json_of(answers[0])["name"]
            talk.call(made_up, "<made up>")
            talk.note(f"< {answers[0]}")
        heard = [_plain(line) for line in talk.said[said + 1 :]][-len(exchange["answers"]) or len(talk.said) :]
        if heard != exchange["answers"] and not (exchange["title"] in BY_CHANCE and made_up < "LD"):
            wrong.append((exchange["title"], exchange["answers"], heard))
    subjects = [line.split(" ")[1] for line in talk.heard(pushed, 6)]
    if subjects != PUSHED:
        wrong.append(("pushed", PUSHED, subjects))
    talk.close()
    return wrong


def _prepare(talk: Talk, title: str) -> None:
    """Do what was done between the requests that were written down."""
    if title == "stream info":
        talk.publish_all((f"s1.m.{number}", f"m{number}") for number in range(5))
    if title in CAUGHT_UP:
        name = {"mirror info": "MIR", "source info": "SRC"}[title]
        while json_of(talk.peek(f"$JS.API.STREAM.INFO.{name}"))["state"]["last_seq"] < CAUGHT_UP[title]:
            talk.pause(0.02)


def _plain(line: str) -> str:
    text = re.sub(r"_INBOX\.raw\.\d+", "_INBOX", line.removeprefix("< "))
    return re.sub(r"(Nats-Stream-Source: .* )\w{8}\\r", r"\1<id>\\r", text)
