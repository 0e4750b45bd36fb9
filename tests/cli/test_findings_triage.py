"""`strandline findings triage` over many findings: chosen by secret, rule, path and state, everywhere, and undone."""

import json
from pathlib import Path

import pytest

from tests.cli.runs import run_command
from tests.cli.scan_command import Repository


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    """A repository in which one secret is in two files."""
    repository = Repository(tmp_path)
    repository.commit(one="alpha_12345678\n", two="alpha_12345678 beta_12345678\n", three="beta_00000003\n")
    repository.scan()
    return repository


def states(shop: Repository) -> dict[str, str]:
    """Return the states of findings, by path and rule."""
    lines = run_command("findings", "list", "--json", "--state", shop.state).out.splitlines()
    return {f"{row['path']} {row['rule_id']}": row["state"] for row in map(json.loads, lines)}


def only(shop: Repository, state: str) -> list[str]:
    """Return the findings in a state."""
    return sorted(name for name, found in states(shop).items() if found == state)


def test_many_are_chosen_as_in_a_list_and_undone_at_once(shop: Repository) -> None:
    for options, chosen in {
        ("--rule", "alpha"): ["one alpha", "two alpha"],
        ("--path", "two"): ["two alpha", "two beta"],
        ("--path", "two", "--rule", "beta"): ["two beta"],
        ("--is", "open"): ["one alpha", "three beta", "two alpha", "two beta"],
        ("--is", "new", "--rule", "b*"): ["three beta", "two beta"],
    }.items():
        planned = shop.triage(*options, "--as", "false-positive", "--dry-run")
        assert planned.out.count("not stored") == len(chosen)
        assert only(shop, "false-positive") == []
        ran = shop.triage(*options, "--as", "false-positive", "--reason", "fixtures")
        assert ran.code == 0, ran.err
        assert only(shop, "false-positive") == chosen
        assert shop.triage("--undo").code == 0
        assert only(shop, "false-positive") == []


def test_a_secret_is_decided_about_in_all_its_places(shop: Repository) -> None:
    (first, *_) = shop.ids("--path", "one")
    assert shop.triage("--secret", first[:8], "--as", "revoked").code == 0
    assert only(shop, "revoked") == ["one alpha", "two alpha"]
    shop.commit(four="alpha_12345678\n")
    assert shop.scan().code == 1
    assert states(shop)["four alpha"] == "open", "it was decided about findings that were known"


def test_everywhere_holds_where_the_secret_appears_later(shop: Repository) -> None:
    (first, *_) = shop.ids("--path", "one")
    done = shop.triage(first, "--everywhere", "--as", "revoked", "--reason", "rotated")
    assert done.code == 0, done.err
    assert only(shop, "revoked") == ["one alpha", "two alpha"]
    shop.triage("--rule", "beta", "--as", "false-positive")
    shop.commit(four="x\nalpha_12345678\n")
    assert shop.scan().code == 0, "the gate knows it too"
    assert only(shop, "revoked") == ["four alpha", "one alpha", "two alpha"]
    (four,) = shop.ids("--path", "four")
    shown = json.loads(run_command("findings", "show", four, "--json", "--state", shop.state).out)
    assert [(one["about"], one["why"]) for one in shown["decisions"]] == [("the secret, everywhere", "rotated")]
    assert shown["state"] == "revoked"
    assert json.loads(shop.triage(first, "--everywhere", "--as", "revoked", "--reason", "rotated", "--json").out) == {
        "finding_id": first,
        "state": "revoked",
        "changed": False,
    }
    shop.triage(four, "--as", "confirmed")
    assert only(shop, "confirmed") == ["four alpha"], "a later decision about one finding is current there"
    shop.triage(four, "--undo")
    assert only(shop, "revoked") == ["four alpha", "one alpha", "two alpha"]
    shop.triage(four, "--undo")
    assert states(shop)["four alpha"] == states(shop)["one alpha"] == "open"


def test_everywhere_survives_a_rotation_of_the_key(shop: Repository) -> None:
    (first, *_) = shop.ids("--path", "one")
    shop.triage(first, "--everywhere", "--as", "revoked")
    rotated = run_command("pipeline", "rotate-key", "--state", shop.state)
    assert rotated.code == 0, rotated.err
    assert only(shop, "revoked") == ["one alpha", "two alpha"]


def test_an_undo_goes_one_step_back_each_time_and_is_in_the_history(shop: Repository) -> None:
    (first, *_) = shop.ids("--path", "one")
    for decided in ("confirmed", "revoked"):
        shop.triage(first, "--as", decided)
    for left in ("confirmed", "open", "open"):
        ran = shop.triage(first, "--undo")
        assert ran.code == 0, ran.err
        assert states(shop)["one alpha"] == left
    assert "unchanged" in ran.out
    shown = json.loads(run_command("findings", "show", first, "--json", "--state", shop.state).out)
    assert [one["why"] for one in shown["decisions"]] == ["", "", "(undo)", "(undo)"]
    assert shop.triage("--undo").err.startswith("error: there is no decision to undo")


def test_the_last_command_is_undone_alone(shop: Repository) -> None:
    shop.triage("--rule", "alpha", "--as", "confirmed")
    shop.triage("--rule", "beta", "--as", "revoked")
    shop.triage("--undo")
    assert (only(shop, "revoked"), only(shop, "confirmed")) == ([], ["one alpha", "two alpha"])
    shop.triage("--undo")
    assert only(shop, "confirmed") == []


def test_a_call_that_is_not_clear_is_refused(shop: Repository) -> None:
    refused: list[tuple[list[str], str]] = [
        ([], "give either --as STATE or --undo"),
        (["--as", "open", "--undo"], "give either --as STATE or --undo"),
        (["--as", "open"], "no findings are chosen"),
        (["abcd", "--rule", "x", "--as", "open"], "findings are chosen in one way only"),
        (["--rule", "gamma", "--as", "open"], "no finding matches"),
        (["--undo", "--everywhere"], "--undo takes a decision back as it was made"),
    ]
    for arguments, said in refused:
        ran = shop.triage(*arguments)
        assert ran.code == 1
        assert f"error: {said}" in ran.err
        assert "hint: " in ran.err
