"""Azurite, Azure's own emulator: the whole contract of an object store holds for `az://`."""

import base64
import hashlib
import hmac
import http.client
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from strandline.objects import ObjectStore, open_objects
from strandline.testing import check_object_store
from tests.js_packages import js_packages
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, eventually

FOLDER = Path(__file__).parent / "azure_js"
ACCOUNT = "devstoreaccount1"
KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # public, the emulator's
)
CONTAINER = "strandline"


def make_container(port: int) -> bool:
    """Make the container; False while the server does not answer."""
    headers = {"x-ms-date": format_datetime(datetime.now(UTC), usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    signed = "PUT" + 12 * "\n" + f"{named}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        try:
            connection.putrequest("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container")
            for name, value in {**headers, "Content-Length": "0"}.items():
                connection.putheader(name, value)
            connection.endheaders()
            return connection.getresponse().status == http.HTTPStatus.CREATED
        except OSError:
            return False


@pytest.mark.long
@pytest.mark.timeout(int(2 * PATIENCE_S))
def test_the_contract_holds_on_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = js_packages(FOLDER) / ".bin" / "azurite-blob"
    (port,) = free_ports(1)
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(tmp_path)]
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")

    @contextmanager
    def opened() -> Iterator[ObjectStore]:
        with closing(open_objects(f"az://{CONTAINER}/{uuid.uuid4().hex}", conditional=True)) as store:
            yield store

    with subprocess.Popen([str(program), "--silent", "--skipApiVersionCheck", *where]) as server:
        try:
            eventually(lambda: make_container(port), "a container in Azurite")
            check_object_store(opened)
        finally:
            server.kill()
