"""Images in a registry, through the HTTP API of the OCI distribution specification.

    docker://ghcr.io/owner/name:tag        docker://name (docker.io/library/name:latest)        docker://…@sha256:…

A login is `STRANDLINE_REGISTRY_USER` with `STRANDLINE_REGISTRY_PASSWORD`, or that of `docker login` and `podman login`
(`REGISTRY_AUTH_FILE`, `DOCKER_CONFIG`, `~/.docker/config.json`). Registries on this machine are asked without TLS, as
Docker does it. Proxies are those of the environment.

Invariants: a login is sent to the registry and to the token service that it names, over TLS unless the registry is on
this machine, and never to the host of a redirect; no message holds a login or a token; no helper program is run.
"""

import base64
import binascii
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.scan.sources.errors import InputMissing, InputRefused
from strandline.scan.sources.image_stores import MANIFEST_BYTES_MAX, BlobImages, Image, checked, json_of

SCHEME = "docker://"
TIMEOUT_S = 60
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
_HUB, _HUB_HOST, _HUB_LOGIN = "docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"
_REFERENCE = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_LOOPBACK = re.compile(r"127\.\d+\.\d+\.\d+")
_TOKEN = re.compile(r"[!-~]+")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Reference(NamedTuple):
    """The name of an image in a registry."""

    host: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    @property
    def base(self) -> str:
        """The address of the API."""
        host = _HUB_HOST if self.host == _HUB else self.host
        name = host.partition(":")[0]
        is_here = name == "localhost" or _LOOPBACK.fullmatch(name) or host.startswith("[::1]")
        return f"{'http' if is_here else 'https'}://{host}/v2/"


def parse_reference(text: str) -> Reference:
    """Return a reference as Docker reads it."""
    rest = text.removeprefix(SCHEME)
    first, slash, more = rest.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host, name = (first, more) if is_host else (_HUB, rest)
    found = _REFERENCE.fullmatch(name)
    if found is None or (is_host and not re.fullmatch(r"[\w.-]+(?::\d+)?|\[[0-9a-f:]+\](?::\d+)?", host)):
        hint = "write docker://registry/repository:tag, or docker://registry/repository@sha256:…"
        named = f"{SCHEME}…@{rest.rpartition('@')[2]}" if "@" in rest else text  # before it may be a login
        raise InvalidInput(f"{shown(named)} does not name an image", hint=hint)
    repository = found["name"] if is_host or "/" in found["name"] else f"library/{found['name']}"
    return Reference(host, repository, found["tag"] or "latest", found["digest"] or "")


class Registry(BlobImages):
    """One image of a registry."""

    def __init__(self, reference: Reference, environ: Mapping[str, str] = os.environ) -> None:
        self.reference = reference
        self.where = f"{SCHEME}{reference}"
        self._environ = environ
        self._authorization = ""
        self._opener = urllib.request.build_opener(_Redirects())

    def image(self, platform: str) -> Image:
        """Return the image for a platform."""
        reference = self.reference
        body = self._manifest_body(reference.digest or reference.tag)
        if reference.digest:
            checked(self.where, reference.digest, body)
        return self.resolved(json_of(self.where, body), platform)

    def manifest(self, digest: str) -> bytes:
        """Return a manifest by its digest."""
        return checked(self.where, digest, self._manifest_body(digest))

    @contextmanager
    def blob(self, name: str) -> Iterator[IO[bytes]]:
        """Open a blob."""
        with self._get(f"blobs/{name}", "*/*") as answer:
            yield answer

    def _manifest_body(self, name: str) -> bytes:
        try:
            with self._get(f"manifests/{name}", _MANIFESTS) as answer:
                return answer.read(MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            error = InputMissing(self.where, "image")
            error.hint = "check the repository and the tag; private ones need `docker login`"
            raise error from None

    @contextmanager
    def _get(self, path: str, accept: str) -> Iterator[IO[bytes]]:
        url = f"{self.reference.base}{self.reference.repository}/{path}"
        try:
            answer = self._sent(url, accept)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from error
        except (OSError, ValueError, HTTPException) as error:
            reason = shown(str(getattr(error, "reason", error)))[:200]
            raise InputRefused(self.where, reason, hint="check the registry's name and the network") from error
        with answer:
            yield answer

    def _sent(self, url: str, accept: str) -> Any:  # noqa: ANN401 - an open response
        for is_last in (False, True):
            headers = {"Accept": accept} | ({"Authorization": self._authorization} if self._authorization else {})
            try:
                return self._opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)  # noqa: S310
            except urllib.error.HTTPError as error:
                is_other = urlsplit(error.geturl()).netloc != urlsplit(url).netloc  # it gets no login, whatever it asks
                if error.code != 401 or is_last or is_other:  # noqa: PLR2004 - unauthorized
                    raise
                error.close()
                self._authorization = self._answered(error.headers.get("WWW-Authenticate", ""))
        raise AssertionError("the second answer was returned or raised")

    def _answered(self, challenge: str) -> str:
        """Return the header that answers a challenge."""
        login = find_login(self.reference.host, self._environ)
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            return f"Basic {login}" if login else ""
        values = dict(_CHALLENGE.findall(rest))
        realm = values.get("realm", "")
        if kind.lower() != "bearer" or urlsplit(realm).scheme not in ("https", urlsplit(self.reference.base).scheme):
            return ""
        scope = values.get("scope") or f"repository:{self.reference.repository}:pull"
        query = urlencode({"service": values.get("service", ""), "scope": scope})
        headers = {"Authorization": f"Basic {login}"} if login else {}
        request = urllib.request.Request(f"{realm}{'&' if '?' in realm else '?'}{query}", headers=headers)  # noqa: S310
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            told = json_of(self.where, answer.read(MANIFEST_BYTES_MAX))
        token = told.get("token") or told.get("access_token") or "" if isinstance(told, dict) else ""
        return f"Bearer {token}" if isinstance(token, str) and _TOKEN.fullmatch(token) else ""

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        error.close()
        if error.code == 404:  # noqa: PLR2004 - not found
            return FileNotFoundError(self.where)
        if error.code in (401, 403):
            hint = "log in with `docker login`, or set STRANDLINE_REGISTRY_USER and STRANDLINE_REGISTRY_PASSWORD"
            return InputRefused(self.where, f"the registry refuses the login ({error.code})", hint=hint)
        hint = "try again later" if error.code in (429, 503) else "check the registry"
        return InputRefused(self.where, f"the registry answers {error.code}", hint=hint)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects without the login: blobs are often in another host's storage, under a signed address."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", urlsplit(req.full_url).scheme):
            raise ValueError("the registry redirects to an address without TLS")
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            new.remove_header("Authorization")
        return new


def find_login(host: str, environ: Mapping[str, str]) -> str:
    """Return the login for a registry as basic authentication has it; empty if there is none."""
    user, password = environ.get("STRANDLINE_REGISTRY_USER"), environ.get("STRANDLINE_REGISTRY_PASSWORD")
    if user and password is not None:
        return base64.b64encode(f"{user}:{password}".encode()).decode()
    names = (host, f"https://{host}", _HUB_LOGIN) if host == _HUB else (host, f"https://{host}", f"http://{host}")
    for path in _login_files(environ):
        try:
            known = json.loads(path.read_bytes()).get("auths", {})
            found = next((known[name] for name in names if name in known), None)
            if found is not None:
                return _login_of(found)
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return ""


def _login_of(entry: Mapping[str, Any]) -> str:
    if entry.get("auth"):
        try:
            base64.b64decode(entry["auth"], validate=True)
        except binascii.Error:
            return ""
        return str(entry["auth"])
    if entry.get("username"):
        return base64.b64encode(f"{entry['username']}:{entry.get('password', '')}".encode()).decode()
    return ""


def _login_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("REGISTRY_AUTH_FILE"):
        yield Path(environ["REGISTRY_AUTH_FILE"])
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"]) / "containers" / "auth.json"
    yield Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/")) / ".docker") / "config.json"
