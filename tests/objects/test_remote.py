"""What the answers of a bucket's server mean, told by a server that gives any answer."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from strandline.objects import (
    KeyUnlistable,
    ObjectConflict,
    ObjectStore,
    ObjectTooLarge,
    Retries,
    StoreRefused,
    StoreUnavailable,
    WriteUnknown,
    open_objects,
    remote,
)


class AnsweringServer(ThreadingHTTPServer):
    """Answers each method with a status and an error code; other methods with success."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str]] = {}
        self.keys: set[str] = set()
        self.encryption: dict[str, str] = {}
        self.requests = 0
        self.answers_after_s = 0.0
        self.listing = b""


class _Handler(BaseHTTPRequestHandler):
    server: AnsweringServer

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests += 1
        time.sleep(self.server.answers_after_s)
        self.server.keys.add(self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0])
        prefix = "x-amz-server-side-encryption"
        found = {name.lower(): value for name, value in self.headers.items()}
        self.server.encryption |= {name: value for name, value in found.items() if name.startswith(prefix)}
        status, code = self.server.answers.get(self.command, (200, ""))
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else self.server.listing
        self.close_connection = True
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"1"', "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the class behind it has it
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with AnsweringServer() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def store(server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return open_objects("s3://bucket/prefix", environ=environ_of(server), retries=Retries(1))


def environ_of(server: AnsweringServer) -> dict[str, str]:
    """Return the environment of a client of the server."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "the-key-that-was-given",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def test_the_keys_are_those_of_the_environment_that_was_given(store: ObjectStore, server: AnsweringServer) -> None:
    store.put("a", b"1")
    assert server.keys == {"the-key-that-was-given"}


@pytest.mark.parametrize("condition", [{"if_absent": True}, {"if_match": '"1"'}])
@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (409, "ConditionalRequestConflict", StoreUnavailable),
        (409, "OperationAborted", StoreUnavailable),
        (409, "BlobAlreadyExists", ObjectConflict),
        (412, "PreconditionFailed", ObjectConflict),
        (404, "NoSuchBucket", StoreRefused),
        (403, "AccessDenied", StoreRefused),
        (503, "SlowDown", StoreUnavailable),
        (500, "InternalError", WriteUnknown),
        (504, "", WriteUnknown),
        (400, "RequestTimeout", WriteUnknown),
        (400, "InvalidRequest", StoreRefused),
    ],
)
def test_answers_to_a_conditional_write(
    store: ObjectStore, server: AnsweringServer, condition: dict[str, object], status: int, code: str, error: type
) -> None:
    server.answers["PUT"] = status, code
    with pytest.raises(error):
        store.put("a", b"1", **condition)  # type: ignore[arg-type]


def test_a_read_that_arrived_too_late_may_be_tried_again(store: ObjectStore, server: AnsweringServer) -> None:
    server.answers["GET"] = 400, "RequestTimeout"
    with pytest.raises(StoreUnavailable):
        store.get("a")


@pytest.mark.parametrize("status", [503, 403])
def test_a_stream_that_was_written_and_cannot_be_looked_at_has_an_unknown_outcome(
    store: ObjectStore, server: AnsweringServer, status: int
) -> None:
    server.answers["HEAD"] = status, ""
    with pytest.raises(WriteUnknown):
        store.put_stream("a", [b"1", b"2"])


def test_the_settings_of_the_servers_own_encryption_are_passed_on(server: AnsweringServer) -> None:
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms",
        "AWS_SSE_KMS_KEY_ID": "arn:aws:kms:us-east-1:1:key/2",
        "AWS_SSE_BUCKET_KEY_ENABLED": "true",
    }
    open_objects("s3://bucket", environ=environ, retries=Retries(1)).put("a", b"1", if_absent=True)
    assert server.encryption == {
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:us-east-1:1:key/2",
        "x-amz-server-side-encryption-bucket-key-enabled": "true",
    }


def test_settings_of_encryption_that_do_not_go_together_are_refused(server: AnsweringServer) -> None:
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SERVER_SIDE_ENCRYPTION": "rot13",
    }
    with pytest.raises(StoreRefused):
        open_objects("s3://bucket", environ=environ)


def test_a_large_write_has_time_in_proportion_to_its_size(
    server: AnsweringServer, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "REQUEST_TIMEOUT", timedelta(milliseconds=100))
    monkeypatch.setattr(remote, "LARGE_BYTES", 1000)
    monkeypatch.setattr(remote, "SLOWEST_BYTES_PER_S", 1)
    hasty = open_objects("s3://bucket/prefix", environ=environ_of(server), retries=Retries(1))
    server.answers_after_s = 0.5  # longer than a small write has, and much less than a large one
    with pytest.raises(WriteUnknown):
        hasty.put("a", bytes(1000), if_absent=True)
    hasty.put("a", bytes(1001), if_absent=True)
    store.put("a", b"1")


def test_what_a_store_does_not_take_in_one_write_is_not_sent(
    server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote.PUT_BYTES_MAX["s3"] == 5 * 1024**3
    monkeypatch.setitem(remote.PUT_BYTES_MAX, "s3", 10)
    store = open_objects("s3://bucket/prefix", environ=environ_of(server), retries=Retries(1))
    store.put("a", bytes(10))
    with pytest.raises(ObjectTooLarge, match="has 11 bytes, and the store takes 10"):
        store.put("a", memoryview(bytes(11)))
    assert server.requests == 1


@pytest.mark.parametrize("key", ["a//b", "a/../b", "a\nb"])
def test_a_key_that_cannot_be_asked_for_is_named_at_once(server: AnsweringServer, key: str) -> None:
    contents = f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><Size>1</Size></Contents>"
    server.listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    with pytest.raises(KeyUnlistable) as refused:
        list(open_objects("s3://bucket", environ=environ).list())
    assert repr(key) in str(refused.value)
    assert server.requests == 1, "it is not tried again"
