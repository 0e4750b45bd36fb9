"""A server that lists keys as S3 does (ListObjectsV2), any keys at all, in the order of bytes or folder by folder.

A client finds it by its environment, as any store; `asked` has the parameters of each request.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE_KEYS = 1_000


def by_folder(key: str) -> list[str]:
    """Return what sorts keys folder by folder, as SeaweedFS and file systems do."""
    return key.split("/")


@dataclass
class ListingServer:
    """Keys, each of which is an object of one byte."""

    keys: list[str]
    is_by_folder: bool = False
    asked: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a client."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
        }

    def page(self, asked: dict[str, str]) -> str:
        """Return a page of the listing."""
        order = by_folder if self.is_by_folder else str.encode
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token") or asked.get("start-after", "")
        wanted = sorted((key for key in self.keys if key.startswith(prefix)), key=order)
        seen: dict[str, bool] = {}
        for key in wanted:
            rest = key[len(prefix) :]
            is_folder = bool(delimiter) and delimiter in rest
            name = prefix + rest.partition(delimiter)[0] + delimiter if is_folder else key
            if not after or order(name) > order(after):  # type: ignore[operator]
                seen[name] = is_folder
        shown, more = list(seen.items())[:PAGE_KEYS], len(seen) > PAGE_KEYS
        body = [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            if is_folder
            else f"<Contents><Key>{escape(name)}</Key><LastModified>2026-11-18T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{name.encode().hex()[-20:]}&quot;</ETag><Size>1</Size></Contents>"
            for name, is_folder in shown
        ]
        token = f"<NextContinuationToken>{escape(shown[-1][0])}</NextContinuationToken>" if more else ""
        truncated = "true" if more else "false"
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<IsTruncated>{truncated}</IsTruncated>{token}{''.join(body)}</ListBucketResult>"
        )


@contextmanager
def listing_server(keys: list[str], *, is_by_folder: bool = False) -> Iterator[ListingServer]:
    """Serve keys on a free port of this machine."""
    served = ListingServer(keys, is_by_folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: value[0] for name, value in parse_qs(parts.query, keep_blank_values=True).items()}
            if "list-type" in asked:
                served.asked.append(asked)
                self._answer(200, served.page(asked).encode())
            else:
                self._object(unquote(parts.path).split("/", 2)[2])

        def do_HEAD(self) -> None:
            self._object(unquote(urlsplit(self.path).path).split("/", 2)[2])

        def _object(self, key: str) -> None:
            self._answer(200 if key in served.keys else 404, b"x")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", "Wed, 18 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
