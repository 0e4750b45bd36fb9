"""`strandline ui` as a process: how it reaches servers and buckets that ask for TLS."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from strandline.fold.followed_fold import follow
from strandline.nats import JetStreamApi, NatsSettings
from strandline.nats.socket import NatsSocket
from tests import identities_nats as identities
from tests.servers_nats import running_nats
from tests.waiting import PATIENCE_S, eventually

BUCKET = {"name": "KV_prices", "subjects": ["$KV.prices.>"], "max_msgs_per_subject": 1}
MORE = {"allow_rollup_hdrs": True, "deny_delete": True, "discard": "new", "allow_direct": True}


class Ui:
    """A running `strandline ui`."""

    def __init__(self, told: dict[str, str]) -> None:
        self._netloc = str(urlsplit(told["address"]).netloc)
        self._headers = {"Authorization": f"Bearer {told['token']}"}

    def get(self, path: str) -> str:
        connection = HTTPConnection(self._netloc, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers=self._headers)
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@contextmanager
def running_ui(folder: Path, *arguments: str) -> Iterator[Ui]:
    command = [sys.executable, "-m", "strandline", "ui", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as child:
        assert child.stdout is not None
        try:
            yield Ui(json.loads(child.stdout.readline()))
        finally:
            child.terminate()
            child.wait(PATIENCE_S)


@pytest.mark.parametrize("by", ["flags", "file"])
def test_servers_and_buckets_are_reached_by_tls_with_a_certificate(tmp_path: Path, by: str) -> None:
    files = identities.make_certificates(tmp_path)
    with running_nats(files.settings(mutual=True), scheme="tls") as server:
        settings = NatsSettings(
            *(server.url,), tls_ca=str(files.ca), tls_cert=str(files.client_cert), tls_key=str(files.client_key)
        )
        with NatsSocket.connect(settings) as socket:
            api = JetStreamApi(socket, settings.api_prefix)
            api.call("STREAM.CREATE.KV_prices", {**BUCKET, **MORE}, "KV_prices")
            assert b'"seq"' in socket.request("$KV.prices.gold", b"7").payload
        fold, bucket = tmp_path / "prices.fold", f"{server.url}/prices"
        with follow(bucket, fold, settings=settings) as kept:
            eventually(lambda: kept.get("gold"), "the fold has the key")
        given: Sequence[tuple[str, Path]] = (
            ("nats-tls-ca", files.ca),
            ("nats-tls-cert", files.client_cert),
            ("nats-tls-key", files.client_key),
        )
        if by == "file":
            lines = [f'{key} = "{path}"' for key, path in given]
            (tmp_path / "strandline.toml").write_text("\n".join(["[ui]", *lines]))
        options = [text for key, path in given for text in (f"--{key}", str(path))] if by == "flags" else []
        with running_ui(tmp_path, *options, "--server", server.url, "--fold", f"{fold}={bucket}") as ui:
            eventually(lambda: "KV_prices" in ui.get("/streams"), "the streams are shown")
            eventually(lambda: "A watch that starts now would" in ui.get("/folds/0"), "the bucket was asked")
            eventually(lambda: "cannot be read" not in ui.get("/"), "nothing is away")
