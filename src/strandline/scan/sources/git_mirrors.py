"""Mirrors of remote repositories: bare copies in the cache folder, fetched anew for each scan.

    <cache>/mirrors/<BLAKE3 of address and depth>.git     branches and tags; HEAD as the server has it
    <cache>/mirrors/<BLAKE3 of address and depth>.lock    held by one fetch, and by git as long as it runs

Invariants: nothing of a repository is executed: no hook, no filter, no submodule, no work tree; git speaks the protocol
of the address and no other, and never prompts. A login in an address is handed to git in its environment: it is in no
file, in no argument, and in no message. A fetch that was killed leaves a mirror that the next one completes; a mirror
that cannot be fetched is an error, never an old state.
"""

import base64
import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from blake3 import blake3

from strandline.cache import cache_folder
from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.scan.sources.errors import InputRefused, InputUnusable
from strandline.scan.sources.git_urls import has_host, has_login, scheme_of, without_login

REFERENCES = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.askPass": "",
    "core.fsmonitor": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "transfer.credentialsInUrl": "die",
}
_GIT = ("git", "--no-pager", *(part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))))
_REMOTE_HEAD = re.compile(r"^ref: (refs/heads/\S+)\tHEAD$", re.MULTILINE)
_LEFTOVERS = ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/tmp_*")
_LOGIN = (
    *("could not read Username", "could not read Password", "Authentication failed", "terminal prompts disabled"),
    *("Permission denied", "The requested URL returned error: 401", "The requested URL returned error: 403"),
)
_AWAY = ("Could not resolve host", "Connection refused", "unable to connect", "Failed to connect to")
_SAID_BYTES_MAX = 4096


@dataclass(frozen=True)
class Remote:
    """The address of a repository; `depth` is the number of commits to fetch of each branch, or None for all."""

    url: str
    depth: int | None = None

    def __repr__(self) -> str:
        return f"Remote({self.shown!r}, depth={self.depth})"

    @property
    def shown(self) -> str:
        """Return the address for messages and reports, without a login."""
        return shown(without_login(self.url))

    @property
    def folder(self) -> Path:
        """Return the folder of the mirror."""
        name = blake3(f"{without_login(self.url)}\0{self.depth or ''}".encode(errors="surrogateescape")).hexdigest()
        return cache_folder() / "mirrors" / f"{name[:40]}.git"


def mirrored(remote: Remote) -> Path:
    """Fetch a repository; return the folder of its mirror."""
    folder = remote.folder
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    with _locked(folder.with_suffix(".lock")) as lock:
        git = _MirrorGit(remote, folder, lock)
        if not (folder / "HEAD").exists():
            git.run("init", "--bare", "--quiet", "--template=", str(folder))
        for pattern in _LEFTOVERS:  # of a git that was killed: no other one is at work here
            for left in folder.glob(pattern):
                left.unlink(missing_ok=True)
        git.run("-C", str(folder), "config", "remote.origin.url", without_login(remote.url))
        head = _REMOTE_HEAD.search(git.run("-C", str(folder), "ls-remote", "--symref", "--", git.address, "HEAD"))
        if head is not None:
            git.run("-C", str(folder), "symbolic-ref", "HEAD", head[1])
        depth = () if remote.depth is None else (f"--depth={remote.depth}",)
        options = ("--quiet", "--prune", "--no-tags", "--no-recurse-submodules", "--no-auto-gc", "--force", *depth)
        git.run("-C", str(folder), "fetch", *options, "--", git.address, *REFERENCES)
    return folder


class _MirrorGit:
    """Git's commands that speak to a server."""

    def __init__(self, remote: Remote, folder: Path, lock: int) -> None:
        self._remote = remote
        self._folder = folder
        self._lock = lock
        self._scheme = scheme_of(remote.url)
        self._login = _login(remote.url) if self._scheme in {"http", "https"} else ""
        # A user of ssh is part of the address, and no secret.
        self.address = without_login(remote.url) if self._login else remote.url

    def run(self, *arguments: str) -> str:
        """Return the output of a command."""
        try:
            done = subprocess.run(  # noqa: S603 - fixed words, and an address after `--`
                [*_GIT, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env=self._environment(),
                pass_fds=(self._lock,),
            )
        except FileNotFoundError as error:
            hint = "install git 2.31 or newer, and check it with `git --version`"
            raise InputUnusable(self._remote.shown, "git is not installed", hint=hint) from error
        if done.returncode:
            self._refuse(done.stderr[-_SAID_BYTES_MAX:].decode(errors="replace"))
        return done.stdout.decode(errors="surrogateescape")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        kept |= {name: os.environ[name] for name in ("GIT_EXEC_PATH", "GIT_SSL_CAINFO") if name in os.environ}
        kept |= {name: value for name, value in os.environ.items() if name == "GIT_CONFIG_GLOBAL"}
        ssh = os.environ.get("GIT_SSH_COMMAND", "ssh")
        own = {
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS": "",
            "SSH_ASKPASS_REQUIRE": "never",
            "GCM_INTERACTIVE": "never",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_ALLOW_PROTOCOL": self._scheme,
            "GIT_SSH_COMMAND": f"{ssh} -oBatchMode=yes",
        }
        return kept | own | self._login_settings()

    def _login_settings(self) -> dict[str, str]:
        """Return the login as settings in the environment, for this server alone."""
        if not self._login:
            return {}
        parts = urlsplit(self.address)
        server = f"http.{parts.scheme}://{parts.netloc}/"
        settings = {f"{server}.extraHeader": f"Authorization: Basic {self._login}", "http.followRedirects": "false"}
        numbered = list(enumerate(settings.items()))
        return {
            "GIT_CONFIG_COUNT": str(len(numbered)),
            **{f"GIT_CONFIG_KEY_{number}": name for number, (name, _) in numbered},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in numbered},
        }

    def _refuse(self, said: str) -> NoReturn:
        name = self._remote.shown
        if any(words in said for words in _LOGIN):
            hint = (
                "set up a git credential helper or an ssh key, and check it with `git ls-remote`; nothing is asked here"
            )
            raise InputRefused(name, "the server wants a login, or refuses the one it got", hint=hint)
        if "Host key verification failed" in said:
            raise InputRefused(
                name, "the server's host key is unknown", hint="connect once with ssh, and check the key"
            )
        if any(words in said for words in _AWAY):
            raise InputRefused(name, "the server cannot be reached", hint="check the address and the network")
        if re.search(r"not found|does not exist|does not appear to be a git repository", said, re.IGNORECASE):
            hint = "check the address; a server may also hide a repository from those without a login"
            raise InputUnusable(name, "there is no such repository", hint=hint)
        first = next((line for line in said.splitlines() if line.startswith(("fatal:", "error:"))), "")
        text = self._without_login(first.partition(":")[2].strip()) or "it failed without a message"
        raise InputRefused(name, f"git: {shown(text)}", hint="try `git ls-remote` with the same address")

    def _without_login(self, text: str) -> str:
        return text.replace(self._remote.url, self._remote.shown)


def _login(url: str) -> str:
    """Return the user and the password of an address, as a header has them; empty if there are none."""
    user, mark, _ = urlsplit(url).netloc.rpartition("@")
    return base64.b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode() if mark else ""


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold a lock for the block; git's commands hold it too, so that one that outlives us is waited for."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def remote_at(url: str, depth: int | None = None) -> Remote:
    """Return the remote of an address; an error if git would not be let speak to it."""
    if scheme_of(url) not in {"https", "http", "ssh", "git", "file"}:
        raise InvalidInput(f"{shown(without_login(url))}: not the address of a repository", hint="https, ssh or file")
    if not has_host(url):
        hint = "write each of / ? # @ : in a user or a password as %2F %3F %23 %40 %3A"
        raise InvalidInput(f"{shown(without_login(url))}: the address has no valid port", hint=hint)
    if scheme_of(url) == "ssh" and has_login(url, with_password=True):
        raise InvalidInput(
            "an ssh address holds a password, which ssh does not take", hint="use a key, and leave it out"
        )
    return Remote(url, depth)
