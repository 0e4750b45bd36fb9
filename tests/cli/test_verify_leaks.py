"""A verified scan leaves no byte of a secret, and none of what providers answer."""

from functools import partial
from pathlib import Path

import pytest

from strandline.verify.host_limits import HostLimits
from tests.cli.runs import run_command
from tests.spark.leaks import Search, Secrets, written_down
from tests.verify.provider_server import LIVE, provider_server

PROVIDERS = ("npm", "digitalocean", "github")
RULES = "\n".join(
    f"[[rules]]\nid = '{rule}'\nregex = '''leak_[0-9A-Za-z]{{24}}'''\npath = '''{provider}$'''\nkeywords = ['leak_']\n"
    for rule, provider in zip(("npm-token", "digitalocean-token", "github-pat"), PROVIDERS, strict=True)
)


def test_no_byte_of_a_secret_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets, left, files = Secrets(44), tmp_path / "left", tmp_path / "files"
    left.mkdir()
    files.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(left / "cache"))
    monkeypatch.setattr("strandline.cli.verification.HostLimits", partial(HostLimits, interval_s=0.0))
    monkeypatch.setattr("strandline.verify.providers.Provider.form", property(lambda _: _AnyForm()), raising=False)
    planted = {name: secrets.new(name) for name in PROVIDERS}
    for name, secret in planted.items():
        (files / name).write_text(f"token = {secret}\n")
    (tmp_path / "rules").write_text(RULES)
    words = ("--rules", tmp_path / "rules", "--state", left / "state", "--without-spark", "--exit-zero")
    with provider_server() as server:
        server.live |= {planted["npm"]}
        server.modes = {"digitalocean": ["garbage"]}
        answered = secrets.new("answered")
        monkeypatch.setitem(LIVE, "npm", {"username": answered})
        log = ("--log-format", "json")
        said = [run_command("scan", files, *words, "--verify", *server.options, *more) for more in (log, ("--json",))]
        chosen = ("--rules", tmp_path / "rules", "--state", left / "state")
        said.append(run_command("findings", "verify", "--again", *chosen, *server.options))
        assert {"npm", "digitalocean", "github"} <= set(server.names()), "the secrets were sent"
    said += [run_command("findings", "list", "--state", left / "state", *more) for more in ((), ("--json",))]
    assert '"state": "live"' in said[-1].out
    for form in ("jsonl", "csv", "sarif", "html"):
        run_command("findings", "export", "--state", left / "state", "--format", form, "-o", left / f"report.{form}")
    (left / "said").write_text("\n".join(one.out + one.err for one in said))
    search = Search(secrets)
    assert search.folder(left) == []
    assert search.bytes > 100_000
    for name, data in written_down(planted["github"]).items():
        (left / "planted").write_bytes(data)
        assert search.folder(left), f"the search does not find what is written as {name}"


class _AnyForm:
    """The form of secrets that this test can search for."""

    @staticmethod
    def fullmatch(_: bytes) -> bool:
        return True
