"""A fold is opened by its path: its content says what it is, and its name what a new one becomes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.errors import FormatError, InvalidInput, Locked, StorageRefused
from strandline.fold import (
    AppendLogStore,
    Backend,
    FoldBatch,
    RocksDbStore,
    SqliteStore,
    backend_of,
    existing_backend,
    holder_of,
    open_fold,
    open_read_only,
)
from strandline.fold.addresses import parse_address
from strandline.kv import format_cursor
from strandline.nats.settings import NatsSettings

NAMES = {
    "fold": (Backend.APPEND_LOG, AppendLogStore),
    "fold.log": (Backend.APPEND_LOG, AppendLogStore),
    "fold.db": (Backend.SQLITE, SqliteStore),
    "fold.sqlite": (Backend.SQLITE, SqliteStore),
    "fold.sqlite3": (Backend.SQLITE, SqliteStore),
    "fold.rocks": (Backend.ROCKSDB, RocksDbStore),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_decides_for_a_new_fold(name: str, tmp_path: Path) -> None:
    backend, store_class = NAMES[name]
    assert existing_backend(tmp_path / name) is None
    store = open_fold(tmp_path / name)
    assert isinstance(store, store_class)
    store.close()
    assert existing_backend(tmp_path / name) is backend


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("name", ["fold", "fold.db", "fold.rocks"])
def test_the_content_decides_for_one_that_exists(name: str, backend: Backend, tmp_path: Path) -> None:
    store = open_fold(tmp_path / name, backend)
    store.apply(FoldBatch([b"a"], [b"1"], [b""]), format_cursor(1))
    store.close()
    assert backend_of(tmp_path / name) is backend
    again = open_fold(str(tmp_path / name))
    assert again.get(b"a") is not None
    again.close()
    reader = open_read_only(tmp_path / name)
    assert reader.cursor() == format_cursor(1)
    reader.close()
    other = next(found for found in Backend if found is not backend)
    with pytest.raises(FormatError, match=backend.value):
        open_fold(tmp_path / name, other)


def test_what_is_no_fold_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("something else")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("something else")
    for name in ("text", "folder"):
        with pytest.raises(FormatError):
            open_fold(tmp_path / name)
        with pytest.raises(FormatError):
            open_read_only(tmp_path / name)
    assert (tmp_path / "text").read_text() == "something else"


@pytest.mark.parametrize("name", ["fold", "fold.db", "fold.rocks"])
def test_reading_one_that_is_not_there_makes_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageRefused):
        open_read_only(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["fold", "fold.db", "fold.rocks"])
def test_a_locked_fold_names_who_holds_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert holder_of(path) is None
    code = (
        "import sys\nfrom strandline.fold import open_fold\n"
        "open_fold(sys.argv[1])\nprint('ready', flush=True)\ninput()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        with pytest.raises(Locked) as caught:
            open_fold(path)
        assert f"process {child.pid}" in (caught.value.hint or "")
        assert caught.value.path == str(path)
        child.communicate(b"\n")
    open_fold(path).close()
    assert os.getpid() != child.pid
    assert holder_of(path) is None


def test_addresses_name_a_server_and_a_bucket() -> None:
    settings, bucket = parse_address("nats://user:pw@host:4333/prices")
    assert (settings.urls, bucket, settings.user_info) == (("nats://host:4333",), "prices", "user:pw")
    settings, bucket = parse_address("tls://host/prices", NatsSettings(creds_file="/x", timeout_s=3.0))
    assert (settings.urls, bucket) == (("tls://host:4222",), "prices")
    assert (settings.creds_file, settings.timeout_s) == ("/x", 3.0)
    settings, bucket = parse_address("nats://a:1,nats://b:2/prices")
    assert (settings.urls, bucket) == (("nats://a:1", "nats://b:2"), "prices")


@pytest.mark.parametrize("address", ["", "prices", "nats://host", "nats://host/", "nats://u:secret@host"])
def test_an_address_without_a_bucket_is_refused_without_its_secret(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(address)
    assert "secret" not in str(caught.value)
