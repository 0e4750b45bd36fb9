"""Messages that are to be published later, and again: which schedules are taken, and what comes of them."""

import datetime as dt

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.raw import Script, Talk

API = "$JS.API"
LATER = "@at 2099-01-01T00:00:00Z"
SCHEDULES: tuple[dict[str, str], ...] = (
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": LATER},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "elsewhere"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.*"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.at.1"},
    {"Nats-Schedule": "nonsense", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "@at nonsense", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "@every 1ms", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "@hourly", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "0 0 12 * * *", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "0 0 12 * *", "Nats-Schedule-Target": "sched.to.a"},
    {"Nats-Schedule": "0 0 12 * * *", "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-Time-Zone": "Europe/Berlin"},
    {"Nats-Schedule": "0 0 12 * * *", "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-Time-Zone": "No/Where"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-TTL": "5m"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-TTL": "nonsense"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-Source": "sched.from"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-Source": "sched.*"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-Rollup": "sub"},
    {"Nats-Schedule": LATER, "Nats-Schedule-Target": "sched.to.a", "Nats-Schedule-Rollup": "nonsense"},
    {"Nats-Schedule-Target": "sched.to.a"},
)


def schedules_right_and_wrong(talk: Talk) -> None:
    config = {"name": "SCHED", "subjects": ["sched.>"], "allow_msg_schedules": True, "allow_msg_ttl": True}
    talk.ask(f"{API}.STREAM.CREATE.SCHED", {**config, "allow_rollup_hdrs": True})
    for number, headers in enumerate(SCHEDULES):
        talk.ask("sched.at.1" if number == 4 else f"sched.at.{number}", f"{number}", headers)
    talk.ask(f"{API}.STREAM.INFO.SCHED", {"subjects_filter": ">", "deleted_details": True})


def a_message_published_later(talk: Talk) -> None:
    config = {"name": "SOON", "subjects": ["soon.>"], "allow_msg_schedules": True, "allow_direct": True}
    talk.ask(f"{API}.STREAM.CREATE.SOON", config)
    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    headers = {"Nats-Schedule": f"@at {soon}", "Nats-Schedule-Target": "soon.to", "Other": "kept"}
    talk.publish("soon.at", "body", headers, reply="")
    talk.wait_for(f"{API}.STREAM.INFO.SOON", lambda info: info["state"]["last_seq"] == 2)
    talk.ask(f"{API}.STREAM.INFO.SOON", {"subjects_filter": ">", "deleted_details": True})
    talk.ask(f"{API}.DIRECT.GET.SOON.soon.to")


SCRIPTS: list[Script] = [schedules_right_and_wrong, a_message_published_later]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
