"""A server with what Google Cloud Storage documents of its XML API, as far as obstore uses it: a twin, not the service.

Emulators that can be installed speak the JSON API, which obstore does not. Objects are kept in memory, with a
generation that grows; `x-goog-if-generation-match` is honoured, or ignored where a test wants that.
"""

import base64
import contextlib
import hashlib
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

BUCKET = "strandline"
CONDITION = "x-goog-if-generation-match"
META = "x-goog-meta-"
PAGE_KEYS = 1000


class Stored(NamedTuple):
    """An object."""

    body: bytes
    generation: int
    etag: str
    metadata: dict[str, str]
    modified: datetime


class GoogleServer(ThreadingHTTPServer):
    """One bucket. `ignores` are the conditions that it does not look at: "absent", "generation"."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = {}
        self.ignores: frozenset[str] = frozenset()
        self.methods = list[str]()
        self.lock = threading.Lock()
        self._generation = 1_700_000_000_000_000

    def environ(self, folder: Path) -> dict[str, str]:
        """Return the settings that point obstore here; the account is written to a folder."""
        account = folder / "account.json"
        fields = {"gcs_base_url": f"http://127.0.0.1:{self.server_port}", "disable_oauth": True}
        account.write_text(json.dumps({**fields, "client_email": "", "private_key": "", "private_key_id": ""}))
        return {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_ALLOW_HTTP": "true"}

    def store(self, key: str, body: bytes, metadata: dict[str, str], condition: str | None) -> Stored | None:
        """Write an object; None where the condition does not hold."""
        with self.lock:
            found = self.objects.get(key)
            kind = "absent" if condition == "0" else "generation"
            held = str(found.generation) if found else "0"
            if condition is not None and kind not in self.ignores and condition != held:
                return None
            self._generation += 1
            etag = base64.b16encode(hashlib.md5(body, usedforsecurity=False).digest()).decode().lower()
            made = Stored(body, self._generation, f'"{etag}"', metadata, datetime.now(UTC))
            self.objects[key] = made
            return made


class _Handler(BaseHTTPRequestHandler):
    server: GoogleServer
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.removeprefix("/").partition("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.methods.append(self.command)
        if bucket != BUCKET:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchBucket")
        elif not key:
            self._list(query)
        elif "uploadId" in query or "uploads" in query:
            self._upload(unquote(key), query, body)
        elif self.command == "PUT":
            self._put(unquote(key), body, self._metadata())
        elif self.command == "DELETE":
            with self.server.lock:
                found = self.server.objects.pop(unquote(key), None)
            self._answer(HTTPStatus.NO_CONTENT) if found else self._refuse(HTTPStatus.NOT_FOUND, "NoSuchKey")
        else:
            self._get(unquote(key))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names that http.server calls

    def _metadata(self) -> dict[str, str]:
        named = ((name.lower(), value) for name, value in self.headers.items())
        return {name: value for name, value in named if name.startswith(META)}

    def _put(self, key: str, body: bytes, metadata: dict[str, str]) -> None:
        made = self.server.store(key, body, metadata, self.headers.get(CONDITION))
        if made is None:
            self._refuse(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
        else:
            self._answer(HTTPStatus.OK, headers=_said_of(made))

    def _get(self, key: str) -> None:
        found = self.server.objects.get(key)
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchKey")
            return
        first, last, size = 0, len(found.body) - 1, len(found.body)
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if wanted:
            start, _, stop = wanted.partition("-")
            first, last = int(start), min(int(stop or size), size - 1)
            if first >= size:
                self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "InvalidRange")
                return
        headers = {**_said_of(found), **found.metadata, "Content-Range": f"bytes {first}-{last}/{size}"}
        if not wanted:
            headers.pop("Content-Range")
        status = HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK
        self._answer(status, found.body[first : last + 1], headers)

    def _list(self, query: Mapping[str, str]) -> None:
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        with self.server.lock:
            found = sorted(self.server.objects.items())
        keys = [(key, one) for key, one in found if key.startswith(query.get("prefix", "")) and key > after]
        page, more = keys[:PAGE_KEYS], len(keys) > PAGE_KEYS
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Generation>{one.generation}</Generation><Size>{len(one.body)}</Size>"
            f"<LastModified>{one.modified:%Y-%m-%dT%H:%M:%S.%fZ}</LastModified><ETag>{escape(one.etag)}</ETag></Contents>"
            for key, one in page
        )
        token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        self._answer(HTTPStatus.OK, f"<ListBucketResult>{truncated}{token}{contents}</ListBucketResult>".encode())

    def _upload(self, key: str, query: Mapping[str, str], body: bytes) -> None:
        uploads, name = self.server.uploads, query.get("uploadId", "")
        if self.command == "POST" and not name:
            name = uuid.uuid4().hex
            uploads[name] = (self._metadata(), {})
            xml = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            self._answer(HTTPStatus.OK, xml.encode())
        elif name not in uploads:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchUpload")
        elif self.command == "PUT":
            uploads[name][1][int(query["partNumber"])] = body
            self._answer(HTTPStatus.OK, headers={"ETag": f'"{query["partNumber"]}"'})
        elif self.command == "DELETE":
            del uploads[name]
            self._answer(HTTPStatus.NO_CONTENT)
        else:
            metadata, parts = uploads.pop(name)
            numbers = [int(one.text or 0) for one in ET.fromstring(body).iter("PartNumber")]  # noqa: S314 - ours
            made = self.server.store(key, b"".join(parts[number] for number in numbers), metadata, None)
            assert made is not None
            xml = f"<CompleteMultipartUploadResult><ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>"
            self._answer(HTTPStatus.OK, xml.encode(), _said_of(made))

    def _refuse(self, status: HTTPStatus, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def _answer(self, status: HTTPStatus, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the class behind it has it
        """Keep quiet."""


def _said_of(one: Stored) -> dict[str, str]:
    modified = format_datetime(one.modified.replace(microsecond=0), usegmt=True)
    return {"ETag": one.etag, "x-goog-generation": str(one.generation), "Last-Modified": modified}


@contextlib.contextmanager
def running_google_server() -> Iterator[GoogleServer]:
    """Run a server for a block."""
    with GoogleServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
