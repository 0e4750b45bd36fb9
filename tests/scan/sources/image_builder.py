"""Container images as docker, buildah and skopeo write them, and a registry that serves them."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import zstandard

OCI = "application/vnd.oci.image"
Files = dict[str, bytes]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def layer_tar(files: Files) -> bytes:
    """Return a layer; a name that ends with "/" is a folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.size = len(data)
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


class Built:
    """An image: layers, configuration, manifest and blobs by digest."""

    def __init__(
        self,
        layers: Sequence[Files],
        pack: Callable[[bytes], bytes] = zipped,
        env: Sequence[str] = (),
        steps: Sequence[str] = (),
        arch: str = "amd64",
    ) -> None:
        self.tars = [layer_tar(files) for files in layers]
        self.diff_ids = [sha256(tar) for tar in self.tars]
        self.config = json.dumps(
            {
                "architecture": arch,
                "os": "linux",
                "config": {"Env": ["PATH=/bin", *env], "Cmd": ["run"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in self.diff_ids]},
                "history": [{"created_by": step} for step in steps],
            }
        ).encode()
        self.packed = [pack(tar) for tar in self.tars]
        self.blobs = {sha256(blob): blob for blob in (*self.packed, self.config)}
        kinds: dict[object, str] = {zipped: "tar+gzip", zstd: "tar+zstd"}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": f"{OCI}.manifest.v1+json",
                "config": self._descriptor(self.config, "config.v1+json"),
                "layers": [self._descriptor(blob, f"layer.v1.{kinds.get(pack, 'tar')}") for blob in self.packed],
            }
        ).encode()
        self.blobs[sha256(self.manifest)] = self.manifest

    def _descriptor(self, data: bytes, kind: str) -> dict[str, Any]:
        return {"mediaType": f"{OCI}.{kind}", "digest": f"sha256:{sha256(data)}", "size": len(data)}

    def entry(self, tag: str | None = None, arch: str | None = None) -> dict[str, Any]:
        """Return the entry of an index."""
        entry = self._descriptor(self.manifest, "manifest.v1+json")
        if tag:
            entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
        if arch:
            entry["platform"] = {"os": "linux", "architecture": arch}
        return entry

    def layout_files(self, tag: str | None = "latest") -> Files:
        """Return the files of an OCI layout, as `buildah push oci:` writes it."""
        index = {"schemaVersion": 2, "manifests": [self.entry(tag)]}
        return {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{f"blobs/sha256/{digest}": blob for digest, blob in self.blobs.items()},
        }

    def layout(self, folder: Path) -> Path:
        for name, data in self.layout_files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    def oci_archive(self, path: Path) -> Path:
        """Write what `skopeo copy … oci-archive:` does."""
        path.write_bytes(layer_tar(self.layout_files()))
        return path

    def skopeo_archive(self, path: Path, tags: Sequence[str] = ("shop:1",)) -> Path:
        """Write what `skopeo copy … docker-archive:` does: plain layers under the digests of their content."""
        config = f"{sha256(self.config)}.json"
        layers = {f"{digest}.tar": tar for digest, tar in zip(self.diff_ids, self.tars, strict=True)}
        manifest = [{"Config": config, "RepoTags": list(tags), "Layers": list(layers)}]
        path.write_bytes(layer_tar({**layers, config: self.config, "manifest.json": json.dumps(manifest).encode()}))
        return path

    def old_docker_save(self, path: Path) -> Path:
        """Write what `docker save` did up to version 24: a folder for each layer, and links where one is repeated."""
        config = f"{sha256(self.config)}.json"
        names = [f"{number:064x}/layer.tar" for number in range(len(self.tars))]
        manifest = [{"Config": config, "RepoTags": ["shop:1"], "Layers": names}]
        with tarfile.open(path, "w") as tar:
            first: dict[str, str] = {}
            for name, digest, data in zip(names, self.diff_ids, self.tars, strict=True):
                entry = tarfile.TarInfo(name)
                if digest in first:
                    entry.type, entry.linkname = tarfile.SYMTYPE, f"../{first[digest]}"
                    tar.addfile(entry)
                else:
                    first[digest], entry.size = name, len(data)
                    tar.addfile(entry, io.BytesIO(data))
            for name, data in ((config, self.config), ("manifest.json", json.dumps(manifest).encode())):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        return path

    def new_docker_save(self, path: Path) -> Path:
        """Write what `docker save` does since version 25: an OCI layout with a manifest.json beside it."""
        layers = [f"blobs/sha256/{sha256(blob)}" for blob in self.packed]
        manifest = [{"Config": f"blobs/sha256/{sha256(self.config)}", "RepoTags": ["shop:1"], "Layers": layers}]
        path.write_bytes(layer_tar({**self.layout_files(), "manifest.json": json.dumps(manifest).encode()}))
        return path


class RegistryServer(ThreadingHTTPServer):
    """A registry with the API of the distribution specification: tokens or a basic login, redirects for blobs."""

    daemon_threads = True

    def __init__(self, login: str = "", auth: str = "bearer") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = login
        self.auth = auth
        self.manifests: dict[str, tuple[bytes, str]] = {}
        self.blobs: dict[str, bytes] = {}
        self.got: list[str] = []
        self.leaked: list[str] = []
        """Logins that arrived where blobs are, which is another host."""
        self.storage_asks = False
        """Whether that host asks for a login, to be sent to itself."""
        self.storage = ThreadingHTTPServer(("127.0.0.1", 0), _Storage)
        self.storage.registry = self  # type: ignore[attr-defined]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def push(self, *images: Built, tag: str = "1", repository: str = "team/shop") -> None:
        """Put an image under a tag, or images of several platforms under one."""
        for image in images:
            self.blobs |= {f"sha256:{digest}": blob for digest, blob in image.blobs.items()}
            self.manifests[f"{repository}@sha256:{sha256(image.manifest)}"] = image.manifest, f"{OCI}.manifest.v1+json"
        if len(images) == 1:
            self.manifests[f"{repository}@{tag}"] = images[0].manifest, f"{OCI}.manifest.v1+json"
        else:
            entries = [image.entry(arch=json.loads(image.config)["architecture"]) for image in images]
            body = json.dumps({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": entries}).encode()
            self.manifests[f"{repository}@{tag}"] = body, f"{OCI}.index.v1+json"


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = self.headers.get("Authorization", "")
        if parts.path == "/token":
            self._token(given, parse_qs(parts.query))
            return
        basic = f"Basic {base64.b64encode(self.server.login.encode()).decode()}"
        if self.server.login and given != (basic if self.server.auth == "basic" else "Bearer good-token"):
            realm = f"http://{self.server.host}/token"
            scope = "repository:team/shop:pull"
            challenge = (
                'Basic realm="r"'
                if self.server.auth == "basic"
                else f'Bearer realm="{realm}",service="s",scope="{scope}"'
            )
            self._answer(401, b"{}", {"WWW-Authenticate": challenge})
            return
        _, _, rest = parts.path.partition("/v2/")
        self.server.got.append(rest)
        repository, kind, name = rest.rsplit("/", 2)
        if kind == "manifests" and f"{repository}@{name}" in self.server.manifests:
            body, media = self.server.manifests[f"{repository}@{name}"]
            self._answer(200, body, {"Content-Type": media})
        elif kind == "blobs" and name in self.server.blobs:
            port = self.server.storage.server_port
            self._answer(307, b"", {"Location": f"http://127.0.0.1:{port}/{name}"})
        else:
            self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    def _token(self, given: str, query: dict[str, list[str]]) -> None:
        wanted = f"Basic {base64.b64encode(self.server.login.encode()).decode()}"
        if given == wanted and query["scope"] == ["repository:team/shop:pull"] and query["service"] == ["s"]:
            self._answer(200, b'{"token": "good-token"}')
        else:
            self._answer(401, b"{}")

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the class behind it has it
        """Keep quiet."""


class _Storage(_Handler):
    def do_GET(self) -> None:
        registry: RegistryServer = self.server.registry  # type: ignore[attr-defined]
        if "Authorization" in self.headers:
            registry.leaked.append(self.path)
        if registry.storage_asks:
            here = f"http://127.0.0.1:{registry.storage.server_port}/token"
            self._answer(401, b"{}", {"WWW-Authenticate": f'Bearer realm="{here}"'})
            return
        self._answer(200, registry.blobs[self.path[1:]])


@contextmanager
def running_registry(login: str = "", auth: str = "bearer") -> Iterator[RegistryServer]:
    """Run a registry, gone afterwards."""
    with RegistryServer(login, auth) as server, server.storage:
        threads = [threading.Thread(target=one.serve_forever) for one in (server, server.storage)]
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            for one in (server, server.storage):
                one.shutdown()
            for thread in threads:
                thread.join()
