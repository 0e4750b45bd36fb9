"""A changed rule rescans what it must and no more, and comes to the rows of a full scan."""

import base64
import random
from pathlib import Path
from typing import Any

import pytest

from strandline.detect import Engine, Limits, Required, Rule, RuleSet
from strandline.scan.plan.planner import Reason
from strandline.scan.plan.rule_deltas import added_rules, base_of, bases_of
from strandline.scan.sources import Content, Part
from strandline.scan.worker.content_scan import finds_any
from strandline.scan.worker.engine_cache import engine_for
from tests.scan.things import READS, Thing, Things
from tests.scan.threaded_workers import KEY, RULES, TENANT, made, on_each_look, request_for, rule, scanned
from tests.spark.rows import rows_of

PROVIDER = ("provider:test",)
POOL = (
    rule("alpha"),
    rule("beta", tags=PROVIDER),
    Rule("generic", r"\b[a-z]+_[0-9]{3,}\b"),
    Rule("wide", r"(?s)BEGIN.{0,60}?END", tags=PROVIDER),
    Rule("digits", r"[0-9]{5}"),
    Rule("digits", r"[0-9]{6}"),
    rule("gamma", required=(Required("alpha", within_lines=1),)),
    rule("hidden", skip_report=True),
    rule("delta", required=(Required("hidden"),)),
    Rule("path", path=r"\.key$"),
    rule("beta", tags=PROVIDER, entropy=2.0),
    Rule("generic", r"\b[a-z]+_[0-9]{3,}\b", secret_group=0, keywords=("alpha",)),
)
WORDS = ("alpha_12345", "beta_123456", "gamma_777", "hidden_100", "delta_200", "BEGIN", "END", "12345", "word_999", "x")
COMMENTS = ("", "", "", "  # strandline:allow", " # gitleaks:allow")


def drawn_rules(source: random.Random) -> RuleSet:
    by_id = {one.id: one for one in source.sample(POOL, source.randrange(2, len(POOL)))}
    for one in list(by_id.values()):
        for other in one.required:
            by_id.setdefault(other.rule_id, next(rule for rule in POOL if rule.id == other.rule_id))
    return RuleSet(tuple(by_id.values()))


def drawn_text(source: random.Random) -> str:
    lines = []
    for _ in range(source.randrange(4)):
        line = " ".join(source.choices(WORDS, k=source.randrange(1, 4)))
        if source.random() < 0.2:
            line = base64.b64encode((line + " padding to be long enough").encode()).decode()
        lines.append(line + source.choice(COMMENTS))
    return "\n".join(lines)


def drawn_things(source: random.Random) -> dict[str, Thing | str]:
    things: dict[str, Thing | str] = {}
    for number in range(14):
        name = f"item{number}" + source.choice(("", ".key"))
        things[name] = Thing(parts=[drawn_text(source) for _ in range(3)]) if number % 5 == 0 else drawn_text(source)
    return things


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 80))])
def test_a_delta_comes_to_the_rows_of_a_full_scan(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    things = Things(tmp_path / "things.json", knows_versions=source.random() < 0.5)
    things.write(drawn_things(source))
    address = made(str(tmp_path / "delta.db"))
    rules = drawn_rules(source)
    for step in range(4):
        request = request_for(address, things, rules=rules)
        outcome = scanned(request)
        whole = request_for(made(str(tmp_path / f"full-{step}.db")), things, rules=rules)
        wanted = scanned(whole)
        with request.open_stores() as stores, whole.open_stores() as full:
            assert rows_of(stores, TENANT, request.policy_hash) == rows_of(full, TENANT, whole.policy_hash)
            found = [sorted(one.finding for one in seen.findings) for seen in (outcome, wanted)]
            assert found[0] == found[1]
            coverages = [one.reads.coverage(TENANT, request.policy_hash) for one in (stores, full)]
            assert coverages[0] == coverages[1]
        assert outcome.statuses == wanted.statuses
        rules = drawn_rules(source)


def test_added_rules_alone_look_at_what_was_clean(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    things.write({"a": "alpha_100", "b": "gamma_100", "c": "nothing"})
    scanned(request_for(address, things))
    looks: list[int] = []
    on_each_look(monkeypatch, lambda content: looks.append(content.size))
    outcome = scanned(request_for(address, things, rules=RuleSet((*RULES.rules, rule("gamma")))))
    assert outcome.reasons == {Reason.RULES: 3}
    assert looks == [len("gamma_100")], "only the item with a new finding is scanned in full"
    assert sorted(one.observation.location_display or "" for one in outcome.findings) == ["a:1:1", "b:1:1"]
    assert outcome.progress is not None
    assert outcome.progress.done.carried == 2


def test_added_rules_look_at_many_items_together(things: Things, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = base64.b64encode(b"words before it, gamma_123 and after it").decode()
    things.write({"a": "alpha_100", "b": "gamma_100", "c": "nothing", "d": 'a = "nothing" + "at all"', "e": hidden})
    scanned(request_for(address, things))
    alone: list[str] = []

    def looked(engine: Engine, content: Content, *rest: Any, is_named: bool) -> bool:  # noqa: ANN401
        assert is_named  # so that it is not looked at twice
        alone.extend(part.path for part in content.parts)
        return finds_any(engine, content, *rest, is_named=is_named)

    monkeypatch.setattr("strandline.scan.worker.item_scanner.finds_any", looked)
    outcome = scanned(request_for(address, things, rules=RuleSet((*RULES.rules, rule("gamma")))))
    assert sorted(alone) == ["b", "e"]
    assert outcome.worked.carried == 3
    assert sorted(one.observation.location_display or "" for one in outcome.findings) == ["a:1:1", "b:1:1", "e:1:23"]


def test_where_rules_were_only_removed_nothing_is_read_that_they_did_not_find(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": "beta_100", "c": "nothing"})
    scanned(request_for(address, things))
    READS.clear()
    outcome = scanned(request_for(address, things, rules=RULES.without({"beta"})))
    assert READS == {"b": 1}
    assert [one.observation.location_display for one in outcome.findings] == ["a:1:1"]


def test_what_a_removed_rule_hid_comes_to_light_though_a_comment_allowed_it(things: Things, address: str) -> None:
    text = "BEGIN beta_12345\n END # strandline:allow"
    hides = RuleSet((Rule("wide", r"(?s)BEGIN.{0,60}?END", tags=PROVIDER), rule("beta")))
    things.write({"a": text, "b": "nothing"})
    assert not scanned(request_for(address, things, rules=hides)).findings
    READS.clear()
    outcome = scanned(request_for(address, things, rules=hides.without({"wide"})))
    assert len(outcome.findings) == 1
    assert READS == {"a": 1}


def test_an_older_policy_of_another_frame_is_no_base(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": "nothing"})
    scanned(request_for(address, things, limits=Limits(decode_depth=1)))
    READS.clear()
    outcome = scanned(request_for(address, things, rules=RuleSet((*RULES.rules, rule("gamma")))))
    assert READS == {"a": 1, "b": 1}
    assert outcome.progress is not None
    assert outcome.progress.done.carried == 0


def test_coming_back_to_an_old_policy_does_nothing(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": "nothing"})
    other = RuleSet((*RULES.rules, rule("gamma")))
    scanned(request_for(address, things))
    scanned(request_for(address, things, rules=other))
    READS.clear()
    outcome = scanned(request_for(address, things))
    assert (outcome.reasons, READS) == ({Reason.DONE: 2}, {})


def test_rules_are_added_with_those_that_they_require() -> None:
    old = RULES.policy()
    rules = RuleSet(
        (*RULES.rules, rule("gamma", required=(Required("delta"),)), rule("delta", required=(Required("beta"),)))
    )
    policy = rules.policy()
    base = base_of(old.record, policy.record)
    assert base is not None
    small = added_rules(rules, policy, base)
    assert small is not None
    assert set(small.by_id) == {"gamma", "delta", "beta"}
    assert base_of(policy.record, policy.record) is None
    assert [one.policy for one in bases_of([None, old.record, policy.record], policy.record)] == [old.hash]


def test_a_rule_of_the_slow_matcher_makes_no_delta(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Rule("slow", r"(?:[a-z]+_?)+_[0-9]{9}")
    things.write({"a": "alpha_100", "b": "nothing"})
    scanned(request_for(address, things))
    looks: list[int] = []
    on_each_look(monkeypatch, lambda content: looks.append(content.size))
    rules = RuleSet((*RULES.rules, slow))
    assert engine_for(rules, Limits(), KEY).slow_rules == ("slow",)
    outcome = scanned(request_for(address, things, rules=rules))
    assert sorted(looks) == [7, 9]
    assert outcome.worked.carried == 0


def test_added_rules_pass_over_no_item_that_they_may_find_something_in() -> None:
    engine = engine_for(RULES, Limits(), KEY)
    fingerprints = frozenset(engine.policy.fingerprints.values())

    def finds(*parts: Part) -> bool:
        return finds_any(engine, Content(b"1", list(parts), 1), fingerprints, lambda: None)

    nothing, hidden = b"nothing to see\n", base64.b64encode(b"words before it, alpha_123 and after it")
    assert not finds(Part(nothing, "a"))
    assert not finds(Part(nothing, "a"), Part(nothing, "a"))
    assert finds(Part(nothing, "a", lost=1))
    assert finds(Part(b"alpha_123", "a"))
    assert finds(Part(hidden, "a"))
    assert finds(Part(nothing, "a"), Part(hidden, "a"))
