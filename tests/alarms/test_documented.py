"""The page about alarms: its snippet verifies what is sent, its table has every kind, its file is accepted."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.alarms import sign, verify
from strandline.alarms.alarm import KINDS
from strandline.cli.alarm_options import alarm_settings
from strandline.config import read_file
from strandline.errors import InvalidInput
from tests.alarms.receiver import SECRET, receiving
from tests.cli.runs import run_command

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "alarms.md").read_text()


def test_the_snippet_of_the_page_tells_genuine_notices_from_others() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Callable[..., bool]] = {}
    exec(code, names)  # noqa: S102 - our own page
    body, now_s = b'{"id": "a.1"}', int(time.time())

    def ours(secret: str, header: str, signed: bytes) -> bool:
        return verify(secret, header, signed, now_s)

    for check in (names["is_genuine"], ours):
        assert check(SECRET, sign(SECRET, body, now_s), body)
        assert not check("another", sign(SECRET, body, now_s), body)
        assert not check(SECRET, sign(SECRET, body, now_s), body + b" ")
        assert not check(SECRET, sign(SECRET, body, now_s - 3600), body), "an old one"
    for header in ("", "t=1", "v1=a", "t=x,v1=a", "t=1,t=2,v1=a", f"t={now_s},v1=ü", f"t={'1' * 5000},v1=a"):
        assert not verify(SECRET, header, body, now_s)


def test_the_page_lists_every_kind_and_its_file_is_accepted(tmp_path: Path) -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(KINDS)
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "strandline.toml").write_text(text)
    file = read_file(tmp_path / "strandline.toml", {"STRANDLINE_HOOK_SECRET": SECRET})
    settings = alarm_settings(file)
    assert (len(settings.receivers()), settings.lag_s, settings.secret) == (2, 60.0, SECRET)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_a_variable_that_holds_no_such_number_is_refused_by_its_name(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_ALARMS_LOOK_EVERY", value)
    said = f"STRANDLINE_ALARMS_LOOK_EVERY: expected a number of at least 0.05, not {value!r}"
    with pytest.raises(InvalidInput, match=re.escape(said)):
        alarm_settings(None)


def test_the_command_tests_receivers_lists_what_they_have_not_taken_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with receiving() as server:
        (tmp_path / "strandline.toml").write_text(
            f'[alarms]\nwebhook = ["{server.url}"]\nwebhook-secret = {{ env = "HOOK_SECRET" }}\noutbox = "outbox"\n'
        )
        server.statuses = [500, 500]
        ran = run_command("alarms", "test", "--json")
        assert (ran.code, "answers 500" in ran.out) == (1, True)
        assert '"undelivered": 2' in run_command("alarms", "list", "--json").out
        assert run_command("alarms", "test").code == 0
        assert server.states("test")[:2] == ["raised", "resolved"]
        assert run_command("alarms", "list").out == ""
        shown = run_command("config", "show", "alarms").out
        assert "(hidden)" in shown
        for written in (ran.out, ran.err, shown, *(path.read_text() for path in tmp_path.glob("outbox/*"))):
            assert SECRET not in written
    (tmp_path / "strandline.toml").write_text('[alarms]\nwebhook-secret = "plain"\n')
    refused = run_command("alarms", "list")
    assert (refused.code, "a password does not belong into this file" in refused.err) == (1, True)
    (tmp_path / "strandline.toml").unlink()
    assert "no receiver of alarms is configured" in run_command("alarms", "test").err
