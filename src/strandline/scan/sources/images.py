"""A container image as a source: the files of its layers and its configuration.

    locator     path in the image, and behind NUL the number of earlier layers of the image that have the path too (if
                any); NUL "config" is the configuration
    version     "<diff id of the layer>", with ":deleted" or ":replaced" behind it if a later layer hides the file;
                "<SHA-256 of the configuration>"

All images share one instance: a layer that many images have is scanned once. A path that a rebuilt image has in another
layer is the same item in another version, so that its findings stay. A file that a later layer deletes or replaces is
still in the image for everyone who pulls it: it is scanned, and its location says so.

Invariants: layers are streamed, in bounded memory; a layer whose index is in the cache is read only for files that are
not done; a layer that is broken, or not what its digest says, is one item with a problem; a file whose bytes are not
those that were indexed is a problem.
"""

import json
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any, NamedTuple, Self

import pyarrow as pa
from blake3 import blake3

from strandline.detect.locations import shown
from strandline.errors import StrandlineError
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import InputRefused, Problem
from strandline.scan.sources.image_stores import (
    Image,
    ImageStore,
    Layer,
    default_platform,
    open_archive_or_layout,
)
from strandline.scan.sources.layers import (
    DELETED,
    REPLACED,
    VISIBLE,
    BrokenLayer,
    LayerFile,
    cached_index,
    entries,
    hidden,
    index_layer,
    keep_index,
    layer_errors,
    unpacked,
)
from strandline.scan.sources.registry import SCHEME, Registry, parse_reference
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches

LOCAL_SCHEMES = ("image:", "oci:", "oci-archive:", "docker-archive:")
SCHEMES = (SCHEME, *LOCAL_SCHEMES)
EXCLUDED = "excluded"
CONFIG = b"\0config"
_STATES = (VISIBLE, DELETED, REPLACED)
_EXTRA = struct.Struct(">IB32s32s")
_HEX_DIGEST = 64


class Where(NamedTuple):
    """The place of a file in an image: its number in its layer, its state, the digests of file and layer, the blob."""

    number: int
    state: str
    digest: bytes
    diff_id: bytes
    blob: str


def format_extra(where: Where) -> bytes:
    """Return the place of a file as bytes."""
    head = _EXTRA.pack(where.number, _STATES.index(where.state), where.digest, where.diff_id)
    return head + where.blob.encode(errors="surrogateescape")


def parse_extra(data: bytes) -> Where:
    """Return the place of a file from the bytes of `format_extra`."""
    number, state, digest, diff_id = _EXTRA.unpack_from(data)
    return Where(number, _STATES[state], digest, diff_id, data[_EXTRA.size :].decode(errors="surrogateescape"))


def format_locator(path: str, earlier: int) -> bytes:
    """Return the locator of a file that so many earlier layers have too."""
    return path.encode(errors="surrogateescape") + (b"\0%d" % earlier if earlier else b"")


def parse_locator(locator: bytes) -> tuple[str, int]:
    """Return the path of a file, and the number of earlier layers that have it too."""
    path, _, earlier = locator.partition(b"\0")
    return path.decode(errors="surrogateescape"), int(earlier or b"0")


@dataclass(frozen=True)
class ImageSource:
    """An image; make it with `ImageSource.at`."""

    address: str
    platform: str
    name: str
    instance: ConnectorInstanceId
    excludes: PathGlobs
    size_max: int

    tag = "image"
    cut = "one part: layers are streams, and which files a later one hides is known at their end"
    is_part = True

    @classmethod
    def at(
        cls,
        address: str,
        *,
        platform: str | None = None,
        name: str = "",
        excludes: PathGlobs | None = None,
        size_max: int = SIZE_MAX,
    ) -> Self:
        """Return the image at an address: `docker://registry/repository:tag`, `image:PATH` or `image:PATH:tag`."""
        source = cls(
            address,
            platform or default_platform(),
            name or address,
            connector_instance_id(b"image\0" + name.encode()),
            excludes or PathGlobs(),
            size_max,
        )
        source.store()  # checks the address
        return source

    def store(self) -> ImageStore:
        """Return the store that has the image."""
        if self.address.startswith(SCHEME):
            return Registry(parse_reference(self.address))
        path, tag = self.address.partition(":")[2], ""
        head, colon, last = path.rpartition(":")
        if colon and "/" not in last:
            path, tag = head, last
        return open_archive_or_layout(path, tag)

    def plain(self) -> Plain:
        """Return the settings that decide the listing."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "image": shown(self.address),
            "platform": self.platform,
            "excludes": [glob.text for glob in self.excludes.globs],
            "size_max": self.size_max,
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the configuration, and the files of the layers from the first to the last."""
        counts: Counter[str] = Counter()
        store = self.store()
        return batches(self._rows(store, store.image(self.platform), counts), tell, counts)

    @contextmanager
    def open(self) -> Iterator[ItemReader]:
        """Return a reader of files."""
        with ExitStack() as stack:
            yield ImageReader(self, stack)

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the path is enough
        """Return the path in the image."""
        if locator.startswith(b"\0"):
            return f"({locator[1:].decode()})"
        return parse_locator(locator)[0]

    def _rows(self, store: ImageStore, image: Image, counts: Counter[str]) -> Iterator[Row]:
        digest = blake3(image.config).digest()
        place = Where(0, VISIBLE, digest, bytes(32), image.config_blob)
        yield CONFIG, b"config:" + digest.hex().encode(), len(image.config), None, format_extra(place), None
        indexes = [_index(store, layer) for layer in image.layers]
        states = hidden([index or [] for index in indexes])
        seen: Counter[str] = Counter()
        for layer, index, changed in zip(image.layers, indexes, states, strict=True):
            if index is None:
                locator = f"\0layer {layer.diff_id}".encode()
                yield locator, b"layer:" + layer.diff_id.encode(), None, None, None, Problem.DAMAGED
            for file in index or ():
                if len(file.digest) == _HEX_DIGEST:
                    row = self._row(layer, file, changed.get(file.number, VISIBLE), seen[file.path])
                    seen[file.path] += 1
                    if self.excludes.leaving_out(file.path) is not None:
                        counts[EXCLUDED] += 1
                    elif file.size:
                        yield row

    def _row(self, layer: Layer, file: LayerFile, state: str, earlier: int) -> Row:
        place = Where(file.number, state, bytes.fromhex(file.digest), bytes.fromhex(layer.diff_id), layer.blob)
        problem = Problem.TOO_LARGE if file.size > self.size_max else None
        return format_locator(file.path, earlier), _version(place), file.size, None, format_extra(place), problem


def _version(place: Where) -> bytes:
    return ":".join(filter(None, (place.diff_id.hex(), place.state))).encode()


def _index(store: ImageStore, layer: Layer) -> list[LayerFile] | None:
    """Return the entries of a layer; None if it is broken or missing."""
    known = cached_index(layer.diff_id)
    if known is not None:
        return known
    try:
        with store.blob(layer.blob) as blob:
            found = index_layer(blob, layer.diff_id)
    except (BrokenLayer, FileNotFoundError):
        return None
    except (OSError, HTTPException) as error:
        hint = "run the same command again: layers that were read are known"
        raise InputRefused(
            layer.blob, f"the layer could not be read to its end ({type(error).__name__})", hint=hint
        ) from error
    keep_index(layer.diff_id, found)
    return found


class ImageReader:
    """Reads files of an image; in the order of the listing, each layer is read once."""

    def __init__(self, source: ImageSource, stack: ExitStack) -> None:
        self._store = source.store()
        self._stack = stack
        self._blob = ""
        self._entries: Iterator[Any] = iter(())
        self._next = 0
        self._open = ExitStack()
        stack.callback(self.close)

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        """Return a file, or the configuration."""
        if extra is None:
            raise Problem.VANISHED.error()
        place = parse_extra(extra)
        try:
            if locator == CONFIG:
                return self._config(place)
            data = self._file(place)
        except BrokenLayer as error:
            raise Problem.DAMAGED.error() from error
        except FileNotFoundError as error:
            raise Problem.VANISHED.error() from error
        except StrandlineError:
            raise
        except (OSError, HTTPException) as error:
            self.close()  # the next file begins with a new connection
            raise Problem.IO_ERROR.error() from error
        if data is None or blake3(data).digest() != place.digest:
            raise Problem.CHANGED_WHILE_READ.error()
        path, _ = parse_locator(locator)
        part = Part(data, path, commit=place.diff_id.hex(), field=place.state)
        return Content(_version(place), [part], len(data))

    def close(self) -> None:
        """Close the layer that is being read."""
        self._blob = ""
        self._open.close()

    def _file(self, place: Where) -> bytes | None:
        """Return the bytes of an entry, from where the layer was read to if that is before it."""
        if place.blob != self._blob or place.number < self._next:
            self._begin(place.blob)
        with layer_errors():
            for number, _, entry, tar in self._entries:
                self._next = number + 1
                if number == place.number:
                    file: IO[bytes] | None = tar.extractfile(entry) if entry.isreg() else None
                    return None if file is None else file.read()
        return None

    def _begin(self, blob: str) -> None:
        self._open.close()
        self._open = ExitStack()
        self._blob, self._next = blob, 0
        with layer_errors():
            self._entries = entries(unpacked(self._open.enter_context(self._store.blob(blob))))

    def _config(self, place: Where) -> Content:
        with self._store.blob(place.blob) as blob:
            data = blob.read()
        if blake3(data).digest() != place.digest:
            raise Problem.CHANGED_WHILE_READ.error()
        return Content(b"config:" + place.digest.hex().encode(), list(config_parts(data)), len(data))


def config_parts(data: bytes) -> Iterator[Part]:
    """Yield the parts of a configuration: variables as a file of them, the commands of the build, and the rest."""
    try:
        config = json.loads(data)
        settings = config.get("config") or {}
        variables = "\n".join(map(str, settings.pop("Env", None) or ()))
        steps = [one.get("created_by", "") for one in config.pop("history", None) or ()]
        config.pop("rootfs", None)  # digests alone
        rest = json.dumps(config, indent=1, ensure_ascii=False)
    except (ValueError, AttributeError, TypeError):
        yield Part(data, "(config)/config.json")
        return
    texts = {".env": variables, "history": "\n".join(map(str, steps)), "config.json": rest}
    for address, (name, text) in enumerate(texts.items()):
        yield Part(text.encode(errors="surrogateescape"), f"(config)/{name}", address)
