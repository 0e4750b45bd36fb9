"""Stores by their address, conventions of the ecosystems, and stores that are refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.objects import (
    ConditionsIgnored,
    InvalidAddress,
    LocalObjects,
    MemoryObjects,
    Retries,
    StoreRefused,
    StoreUnavailable,
    browsable,
    local_folder,
    open_objects,
    probe_conditions,
    race_conditions,
)
from strandline.objects.addresses import _s3_config
from tests.servers_seaweed import SeaweedServer

ONCE = Retries(attempts=1)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "no scheme"),
        ("/tmp/x", "no scheme"),  # noqa: S108 - an address that is refused
        ("ftp://host/x", "unknown"),
        ("s3://", "no bucket"),
        ("s3:///key", "no bucket"),
        ("file://host/x", "absolute path"),
        ("s3://bucket/x?region=1", "query"),
        ("s3://key:secret@bucket/x", "credentials"),
        ("s3://key:secret@[bucket/x", "cannot be parsed"),
    ],
)
def test_what_is_no_address_is_refused_with_the_forms_that_are(address: str, problem: str) -> None:
    with pytest.raises(InvalidAddress, match=problem) as refused:
        open_objects(address)
    assert "secret" not in str(refused.value)
    assert refused.value.hint is not None
    assert "file:///folder" in refused.value.hint


def test_a_folder_and_memory_are_opened(tmp_path: Path) -> None:
    assert isinstance(open_objects(f"{tmp_path.as_uri()}/new%20folder", conditional=True), LocalObjects)
    assert (tmp_path / "new folder").is_dir()
    assert open_objects("memory://shared") is open_objects("memory://shared")
    assert open_objects("memory://") is not open_objects("memory://")


def test_a_folder_has_one_name_however_it_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "ä b"
    for address in (folder.as_uri(), f"file://{folder}", f"file://{folder}/", f"file://localhost{folder}"):
        assert local_folder(address) == folder
        assert open_objects(address).address == folder.as_uri()
    for other in ("s3://bucket/x", f"file://host{folder}", f"file://{folder}?x=1", "x"):
        assert local_folder(other) is None


def test_a_place_in_a_bucket_has_one_address_with_a_slash_at_its_end_or_without() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    for given, address in (
        ("s3://bucket/x/y", "s3://bucket/x/y"),
        ("s3://bucket/x/y/", "s3://bucket/x/y"),
        ("s3://bucket//x/y//", "s3://bucket/x/y"),
        ("s3://bucket/", "s3://bucket"),
    ):
        assert open_objects(given, environ=environ).address == address


def test_a_bucket_is_probed_and_leaves_nothing_behind(
    seaweed_server: SeaweedServer, seaweed_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)
    store = open_objects(seaweed_address, conditional=True)
    race_conditions(store, rounds=3)
    assert list(store.list()) == []


def test_wrong_credentials_are_refused_at_once(
    seaweed_server: SeaweedServer, seaweed_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (seaweed_server.environ | {"AWS_ACCESS_KEY_ID": "nobody"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreRefused, match="InvalidAccessKeyId") as refused:
        open_objects(seaweed_address, conditional=True)
    assert not refused.value.retryable


def test_a_server_that_is_not_there_is_unavailable(seaweed_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    store = open_objects(seaweed_address, retries=ONCE)
    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):  # and not an unknown outcome: nothing was sent
        store.put("a", b"1", if_absent=True)


class Ignoring(MemoryObjects):
    """A store that takes every write, as some emulators of S3 do, but for the conditions it knows."""

    def __init__(self, known: str = "") -> None:
        super().__init__()
        self._known = known

    def put(
        self,
        key: str,
        body: bytes | bytearray | memoryview,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        return super().put(
            key,
            body,
            if_absent=if_absent and self._known == "if_absent",
            if_match=if_match if self._known == "if_match" else None,
            metadata=metadata,
        )


@pytest.mark.parametrize("known", ["", "if_absent", "if_match"])
def test_a_store_that_ignores_conditions_is_refused(known: str) -> None:
    with pytest.raises(ConditionsIgnored) as refused:
        probe_conditions(Ignoring(known))
    assert refused.value.hint is not None


class LateCheck(MemoryObjects):
    """A store that checks, then writes, with time between."""

    def put(
        self,
        key: str,
        body: bytes | bytearray | memoryview,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if if_absent and self.head(key) is not None:
            return super().put(key, body, if_absent=True)
        self.faults.delay_s = 0.02
        return super().put(key, body, if_match=if_match, metadata=metadata)


def test_a_store_that_checks_before_it_locks_passes_the_probe_and_not_the_race() -> None:
    probe_conditions(LateCheck())
    with pytest.raises(ConditionsIgnored, match="racing writers"):
        race_conditions(LateCheck())


def test_keys_and_region_come_from_the_files_that_aws_tools_share(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id=D\naws_secret_access_key=S\n[other]\naws_access_key_id=O\naws_secret_access_key=P%\n"
    )
    (tmp_path / ".aws/config").write_text("[default]\nregion=eu-west-1\n[profile other]\nregion=eu-north-1\n")
    home = {"HOME": str(tmp_path)}
    default = {"access_key_id": "D", "secret_access_key": "S", "region": "eu-west-1"}
    assert _s3_config(home, None) == default
    assert _s3_config(home | {"AWS_REGION": "us-west-2"}, None) == default | {"region": "us-west-2"}
    other = {"access_key_id": "O", "secret_access_key": "P%", "region": "eu-north-1"}
    assert _s3_config(home | {"AWS_PROFILE": "other"}, None) == other
    keys = {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "F"}
    assert _s3_config(home | keys, "http://e:1") == {
        "endpoint": "http://e:1",
        "region": "us-east-1",
        "access_key_id": "E",
        "secret_access_key": "F",
    }
    with pytest.raises(InvalidInput, match="no AWS profile 'absent'"):
        _s3_config(home | {"AWS_PROFILE": "absent"}, None)


@pytest.mark.parametrize(
    ("address", "more", "sorts_bytes"),
    [
        ("s3://bucket", {}, True),
        ("s3://bucket/logs", {}, True),
        ("s3://bucket--use1-az4--x-s3", {}, False),
        ("s3://bucket", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, False),
        ("s3://bucket", {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, False),
    ],
)
def test_only_a_store_of_known_order_is_said_to_sort_keys(
    address: str, more: Mapping[str, str], sorts_bytes: bool
) -> None:
    login = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"}
    store = browsable(open_objects(address, environ={**login, **more}))
    assert store.sorts_bytes is sorts_bytes
    if not sorts_bytes:
        with pytest.raises(StoreRefused, match="not known to sort"):
            next(store.list_sorted("", "a"))
