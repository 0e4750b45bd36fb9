"""Where container images are: an OCI layout, an archive of one, an archive of `docker save`, or a registry.

Invariants: a blob is named by its digest, or by its name in an archive; a manifest and a configuration are used only if
they have the digest that names them; names in an image are never used as paths outside it.
"""

import hashlib
import json
import lzma
import os
import platform
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from strandline.detect.locations import shown
from strandline.errors import StrandlineError
from strandline.scan.sources.errors import InputMissing, InputRefused, InputUnusable

MANIFEST_BYTES_MAX = 8 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


class Layer(NamedTuple):
    """A layer: its blob in the store, and the digest of its unpacked content."""

    blob: str
    diff_id: str


class Image(NamedTuple):
    """An image of one platform."""

    config_blob: str
    config: bytes
    layers: tuple[Layer, ...]


class ImageStore(Protocol):
    """Reads images and blobs."""

    def image(self, platform: str) -> Image:
        """Return the image for a platform, such as `linux/amd64`."""
        ...

    def blob(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a blob; a missing one is `FileNotFoundError`."""
        ...


def default_platform() -> str:
    """Return the platform of images for this machine."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def no_image(where: str, problem: str = "it is not a container image") -> InputUnusable:
    """Return the error of something that is no image."""
    hint = "give an OCI layout, an archive of `docker save` or `skopeo copy`, or docker://registry/repository:tag"
    return InputUnusable(shown(where), problem, hint=hint)


def checked(where: str, digest: str, data: bytes) -> bytes:
    """Return a blob that has its digest."""
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise no_image(where, f"{digest} is damaged: its bytes have another digest")
    return data


def parse_image(where: str, config_blob: str, config: bytes, blobs: list[str]) -> Image:
    """Return an image from its configuration and the blobs of its layers."""
    try:
        diff_ids = [one.removeprefix("sha256:") for one in json.loads(config)["rootfs"]["diff_ids"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise no_image(where, "its configuration names no layers") from error
    if len(diff_ids) != len(blobs) or not all(isinstance(one, str) for one in blobs):
        raise no_image(where, "its manifest and its configuration name other layers")
    if not all(_DIGEST.fullmatch(f"sha256:{one}") for one in diff_ids):
        raise no_image(where, "its manifest and its configuration name other layers")
    return Image(config_blob, config, tuple(map(Layer, blobs, diff_ids)))


def choose(where: str, index: Any, wanted: str) -> str:  # noqa: ANN401 - JSON
    """Return the digest of the manifest for a platform, from an index."""
    found: dict[str, str] = {}
    for one in index["manifests"]:
        target = one.get("platform") or {}
        name = "/".join(filter(None, (target.get("os"), target.get("architecture"), target.get("variant"))))
        if not name and found.get(name, one["digest"]) != one["digest"]:
            hint = "copy the one to scan to a layout of its own"
            raise InputUnusable(shown(where), "it has several images without a name and a platform", hint=hint)
        if not name.startswith("unknown"):  # attestations
            found.setdefault(name, one["digest"])
    if len(found) == 1 and (not next(iter(found)) or wanted == default_platform()):
        return next(iter(found.values()))
    for name, digest in found.items():
        if name == wanted or name.startswith(f"{wanted}/"):
            return digest
    names = shown(", ".join(sorted(filter(None, found)))) or "none"
    raise InputUnusable(shown(where), f"it has no image for {wanted}", hint=f"give --platform, one of: {names}")


class BlobImages:
    """Images whose blobs are named by digest: a layout or a registry."""

    where: str

    def manifest(self, digest: str) -> bytes:
        """Return a manifest."""
        with self.blob(digest) as blob:
            return checked(self.where, digest, blob.read(MANIFEST_BYTES_MAX))

    def blob(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a blob."""
        raise NotImplementedError

    def resolved(self, manifest: Any, wanted: str) -> Image:  # noqa: ANN401 - JSON
        """Return the image of a manifest or an index."""
        try:
            for _ in range(4):  # an index of an index
                if "manifests" not in manifest and manifest.get("mediaType") not in _INDEX_TYPES:
                    break
                manifest = json.loads(self.manifest(_digest(self.where, choose(self.where, manifest, wanted))))
            config_blob = _digest(self.where, manifest["config"]["digest"])
            blobs = [_digest(self.where, layer["digest"]) for layer in manifest["layers"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputUnusable):
                raise
            raise no_image(self.where) from error
        except FileNotFoundError as error:
            raise no_image(self.where, "a blob of it is missing") from error
        try:
            with self.blob(config_blob) as blob:
                config = checked(self.where, config_blob, blob.read(MANIFEST_BYTES_MAX))
        except FileNotFoundError as error:
            raise no_image(self.where, "its configuration is missing") from error
        return parse_image(self.where, config_blob, config, blobs)


class Layout(BlobImages):
    """An OCI layout: a folder with `index.json` and `blobs/sha256/…`."""

    def __init__(self, folder: Path, tag: str = "") -> None:
        self.where = str(folder)
        self._folder = folder
        self._tag = tag

    def image(self, platform: str) -> Image:
        """Return the image of the tag, or the only one."""
        return self.resolved(tagged(self.where, json_of(self.where, self._read("index.json")), self._tag), platform)

    @contextmanager
    def blob(self, name: str) -> Iterator[IO[bytes]]:
        """Open a blob."""
        with (self._folder / "blobs" / "sha256" / _digest(self.where, name).removeprefix("sha256:")).open("rb") as file:
            yield file

    def _read(self, name: str) -> bytes:
        with (self._folder / name).open("rb") as file:
            return file.read(MANIFEST_BYTES_MAX)


class Archive(BlobImages):
    """A tar of a layout, or of `docker save`."""

    def __init__(self, path: Path, tag: str = "") -> None:
        self.where = str(path)
        self._path = path
        self._tag = tag

    def image(self, platform: str) -> Image:
        """Return the image of the tag, or the only one."""
        with self._opened() as tar:
            names = set(tar.getnames())
            if "index.json" in names and "oci-layout" in names:
                return self.resolved(
                    tagged(self.where, json_of(self.where, _member(tar, "index.json")), self._tag), platform
                )
            if "manifest.json" not in names:
                raise no_image(self.where)
            saved = json_of(self.where, _member(tar, "manifest.json"))
            try:
                one = _saved(self.where, saved, self._tag)
                return parse_image(self.where, one["Config"], _member(tar, one["Config"]), list(one["Layers"]))
            except (KeyError, TypeError, AttributeError) as error:
                raise no_image(self.where) from error

    @contextmanager
    def blob(self, name: str) -> Iterator[IO[bytes]]:
        """Open a blob by its digest, or by its name in an archive of `docker save`."""
        with self._opened() as tar:
            inner = f"blobs/sha256/{name.removeprefix('sha256:')}" if _DIGEST.fullmatch(name) else name
            try:
                file = tar.extractfile(inner)
            except KeyError:
                file = None
            if file is None:
                raise FileNotFoundError(inner)
            with file:
                yield file

    @contextmanager
    def _opened(self) -> Iterator[tarfile.TarFile]:
        try:
            with tarfile.open(self._path, "r:*") as tar:
                yield tar
        except StrandlineError:
            raise
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, RecursionError, ValueError) as error:
            raise no_image(self.where, "it is not a container image, or it is cut off") from error


def open_archive_or_layout(path: str, tag: str) -> Layout | Archive:
    """Return the images at a path."""
    where = Path(path)
    try:
        if (where / "index.json").is_file():
            return Layout(where, tag)
        if where.is_dir():
            raise no_image(path, "the folder has no index.json")
        os.stat(where)  # noqa: PTH116 - for its error
    except FileNotFoundError:
        raise InputMissing(shown(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputRefused(shown(path), reason, hint="run as a user with read permission") from error
    return Archive(where, tag)


def json_of(where: str, data: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return JSON of an image."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise no_image(where) from error


def tagged(where: str, index: Any, tag: str) -> Any:  # noqa: ANN401 - JSON
    """Return the part of a layout's index that a tag names; without a tag, all of it."""
    key = "org.opencontainers.image.ref.name"
    try:
        names = sorted({(one.get("annotations") or {}).get(key, "") for one in index["manifests"]} - {""})
        if not tag and len(names) == 1:  # those without a name were replaced: tools take the name, and leave the image
            tag = names[0]
        named = [one for one in index["manifests"] if (one.get("annotations") or {}).get(key, "") == tag]
    except (KeyError, TypeError, AttributeError) as error:
        raise no_image(where) from error
    if not tag and len(names) > 1:
        raise _which(where, names)
    if tag and not named:
        raise InputUnusable(
            shown(where), f"it has no tag {tag}", hint=f"its tags are: {shown(', '.join(names)) or 'none'}"
        )
    return {"manifests": named} if tag else index


def _saved(where: str, saved: Any, tag: str) -> Any:  # noqa: ANN401 - JSON
    """Return the image of `docker save` that a tag names, or the only one."""
    names = sorted(name for one in saved for name in one.get("RepoTags") or ())
    chosen = [
        one
        for one in saved
        if not tag or any(tag in (name, name.rpartition(":")[2]) for name in one.get("RepoTags") or ())
    ]
    if not chosen:
        raise InputUnusable(
            shown(where), f"it has no tag {tag}", hint=f"its tags are: {shown(', '.join(names)) or 'none'}"
        )
    if len(chosen) > 1:
        raise _which(where, names)
    return chosen[0]


def _which(where: str, names: list[str]) -> InputUnusable:
    return InputUnusable(
        shown(where), "it has several images", hint=f"add :TAG to the path, one of: {shown(', '.join(names))}"
    )


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    return b"" if file is None else file.read(MANIFEST_BYTES_MAX)


def _digest(where: str, text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise no_image(where, "it has a digest that is not SHA-256")
    return text
