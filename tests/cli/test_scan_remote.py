"""`strandline scan URL`: remote repositories through a mirror, of which nothing is executed and no login is kept."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.scan.sources.git_mirrors import Remote, mirrored, remote_at
from strandline.scan.sources.git_urls import is_git_url, without_login
from tests.cli.git_shop import KEY, Shop
from tests.cli.runs import run_command

PASSWORD = "pa55-word-of-a-login"  # noqa: S105 - made up


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "strandline"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.commit(app=KEY)
    shop.commit(app="clean\n")
    shop.git("clone", "--quiet", "--bare", ".", str(tmp_path / "remote.git"))
    return shop


def url(shop: Shop) -> str:
    return f"file://{shop.folder.parent}/remote.git"


def ids(shop: Shop, *arguments: str) -> list[str]:
    """Scan the remote; return the ids of findings."""
    words = ("--rules", shop.rules, "--state", shop.state, "--without-spark", "--exit-zero", "--json", *arguments)
    ran = run_command("scan", url(shop), *map(str, words))
    assert ran.code == 0, ran.err
    return [json.loads(line)["finding_id"] for line in ran.out.splitlines()[:-1]]


def test_a_remote_has_the_findings_of_its_clones_and_is_fetched_again(shop: Shop) -> None:
    (here,) = shop.rows("--git")
    assert ids(shop) == [here["finding_id"]]
    shop.commit(more="beta_12345678\n")
    shop.git("push", "--quiet", str(shop.folder.parent / "remote.git"), "main")
    assert len(ids(shop)) == 2
    assert {row["commits"]["at_head"] for row in shop.listed() if row["path"] == "more"} == {True}


@pytest.mark.long
def test_a_shallow_mirror_has_the_last_commits_alone(shop: Shop) -> None:
    shop.commit(app="beta_12345678\n")
    shop.git("push", "--quiet", str(shop.folder.parent / "remote.git"), "main")
    assert len(ids(shop, "--depth", "1")) == 1
    (again,) = ids(shop, "--depth", "1")
    assert again == ids(shop, "--depth", "1")[0]
    assert len(ids(shop)) == 2


def test_nothing_of_a_repository_is_executed(shop: Shop, tmp_path: Path, cache: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    evil.chmod(0o755)
    remote = tmp_path / "remote.git"
    modules = f'[submodule "x"]\n\tpath = x\n\turl = ext::{evil}\n\tupdate = !{evil}\n'
    (shop.folder / ".gitmodules").write_text(modules)
    (shop.folder / ".gitattributes").write_text("* filter=lfs diff=lfs\n")
    head = shop.git("rev-parse", "HEAD")
    shop.git("update-index", "--add", "--cacheinfo", f"160000,{head},x")
    shop.commit()
    shop.git("push", "--quiet", str(remote), "main")
    (remote / "hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "post-update", "reference-transaction", "pre-auto-gc", "post-merge"):
        (remote / "hooks" / name).symlink_to(evil)
    assert not (tmp_path / "ran").exists()
    assert ids(shop)
    assert not (tmp_path / "ran").exists()
    (mirror,) = (cache / "mirrors").glob("*.git")
    assert not list(mirror.glob("hooks/*"))
    assert not list(mirror.glob("modules/*"))


def test_settings_of_the_repository_of_the_working_folder_do_not_apply(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.git("config", "url.file:///nowhere/.insteadOf", "file:///")
    monkeypatch.chdir(shop.folder)
    assert (mirrored(remote_at(url(shop))) / "HEAD").exists()


@pytest.mark.parametrize("address", [f"https://ada:{PASSWORD}@127.0.0.1:1/x.git", "ssh://git@127.0.0.1:1/x.git"])
def test_a_server_that_is_away_is_an_error_without_the_login(shop: Shop, address: str) -> None:
    ran = run_command("scan", address, "--rules", shop.rules, "--state", shop.state, "--without-spark")
    assert ran.code == 1
    assert "hint:" in ran.err
    assert PASSWORD not in ran.err + ran.out


class Locked(BaseHTTPRequestHandler):
    """A server of git that takes one login, and then has no repository."""

    def do_GET(self) -> None:
        """Ask for a login, or say that there is nothing."""
        expected = "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
        is_known = self.headers.get("Authorization") == expected
        self.send_response(404 if is_known else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that the server calls
        """Say nothing."""


@pytest.fixture
def locked() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Locked) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_login_is_handed_over_and_kept_nowhere(shop: Shop, locked: str, cache: Path) -> None:
    words = ("--rules", shop.rules, "--state", shop.state, "--without-spark")
    ran = run_command("scan", f"http://{locked}/shop.git", *words)
    assert ran.code == 1
    assert "wants a login" in ran.err
    assert "credential helper" in ran.err
    for user in (f"ada:{PASSWORD}", f"ada:{PASSWORD}x"):
        ran = run_command("scan", f"http://{user}@{locked}/shop.git", *words)
        assert ("no such repository" if user.endswith("login") else "wants a login") in ran.err
        assert PASSWORD not in ran.err + ran.out
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept
    encoded = base64.b64encode(f"ada:{PASSWORD}".encode())
    assert not [path for path in kept if PASSWORD.encode() in path.read_bytes() or encoded in path.read_bytes()]
    assert PASSWORD not in repr(remote_at(f"https://ada:{PASSWORD}@host/x.git"))


KILLED = """
import os, sys
from strandline.scan.sources.git_mirrors import Remote, mirrored
mirrored(Remote(sys.argv[1]))
"""
SLOW = """#!/bin/sh
echo $$ > {pid}
exec sleep 1000
"""


def test_a_fetch_that_is_killed_is_completed_by_the_next(shop: Shop, tmp_path: Path) -> None:
    """The first fetch stands still inside git, with a lock file and half a pack, when everything is killed."""
    told = tmp_path / "pid"
    os.mkfifo(told)
    slow = tmp_path / "git-upload-pack"
    slow.write_text(SLOW.format(pid=told))
    slow.chmod(0o755)
    address = "ssh://git@host/remote.git"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {slow}\n")
    ssh.chmod(0o755)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, address],
        env=os.environ | {"GIT_SSH_COMMAND": str(ssh)},
        start_new_session=True,
    )
    told.read_text()  # git waits for its server
    mirror = Remote(address).folder
    (mirror / "packed-refs.lock").write_text("")
    (mirror / "objects" / "pack").mkdir(parents=True, exist_ok=True)
    (mirror / "objects" / "pack" / "tmp_pack_abc").write_text("half")
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    ssh.write_text(f"#!/bin/sh\nexec git upload-pack {shop.folder.parent}/remote.git\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_SSH_COMMAND", str(ssh))
        assert mirrored(Remote(address)) == mirror
    assert not (mirror / "objects" / "pack" / "tmp_pack_abc").exists()
    (row,) = shop.rows("--git", path=mirror)
    assert [one["finding_id"] for one in shop.rows("--git")] == [row["finding_id"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://host/a.git", "https://host/a.git"),
        ("https://user:secret@host:8443/a.git?token=secret#x", "https://host:8443/a.git"),
        ("https://user:pa/ss@host/a", "https://host/a"),
        ("https://user:pa#ss@host/a?b", "https://host/a"),
        ("https://user:pass", "https://…"),
        ("https://token@host/a", "https://host/a"),
        ("https://user:p@ss@host/a", "https://host/a"),
        ("ssh://git@host/a.git", "ssh://host/a.git"),
        ("git@host:org/a.git", "host:org/a.git"),
        ("file:///srv/a.git", "file:///srv/a.git"),
    ],
)
def test_an_address_is_shown_without_a_login(text: str, expected: str) -> None:
    assert is_git_url(text)
    assert without_login(text) == expected


@pytest.mark.parametrize(
    "text",
    ["src", "C:\\x", "a:b", "file:///srv/folder", "s3://bucket/x", "ext::sh -c x", "-", "-oX=y@host:a", "x@-host:a"],
)
def test_other_arguments_are_no_addresses(text: str) -> None:
    assert not is_git_url(text)


def test_a_password_for_ssh_and_other_protocols_are_refused() -> None:
    for address in (f"ssh://git:{PASSWORD}@host/a.git", f"ext://x:{PASSWORD}@y", f"https://x:a/{PASSWORD}@y/z.git"):
        with pytest.raises(InvalidInput) as refused:
            remote_at(address)
        assert refused.value.hint
        assert PASSWORD not in str(refused.value)


def test_options_that_do_not_fit_are_refused(shop: Shop) -> None:
    ran = run_command("scan", url(shop), "--staged", "--rules", shop.rules, "--state", shop.state)
    assert "no index" in ran.err
    ran = run_command("scan", shop.folder, "--depth", "1", "--rules", shop.rules, "--state", shop.state)
    assert "--depth applies to remote repositories" in ran.err
