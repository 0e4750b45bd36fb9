"""The folder of a server: every account has one of its own, below it, whatever the account is called."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.broker.embedded_server import running
from strandline.broker.settings import AccountSettings, ServerSettings, UserSettings
from strandline.broker.store import FOLDER_BYTES_MAX, format_account_folder
from tests.broker.socket_client import SocketClient
from tests.waiting import PATIENCE_S

ODD_NAMES = ["..", ".", "/", "../..", "a/../../b", "a\0b", "%2E", "é", "x" * 300, "x" * 301, "A", "a", "\ud800", " "]


@given(st.lists(st.text(min_size=1), unique=True))
@example(ODD_NAMES)
@example(["%2E", ".", "%2E%2E", ".."])
def test_every_account_has_a_folder_of_its_own_within_that_of_the_server(names: list[str]) -> None:
    folders = [format_account_folder(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder not in (".", "..")
        assert "/" not in folder
        assert "\0" not in folder
        assert len(folder.encode()) <= FOLDER_BYTES_MAX


def test_folders_of_usual_names_are_what_they_were() -> None:
    assert [format_account_folder(name) for name in ("$G", "ACME", "my account", "a.b", "a/b")] == [
        "$G",
        "ACME",
        "my%20account",
        "a.b",
        "a%2Fb",
    ]


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "x" * 300])
def test_an_account_stores_nothing_outside_the_folder_of_its_server(name: str, tmp_path: Path) -> None:
    store = tmp_path / "outer" / "store"
    user = UserSettings(user="u", password="p")  # noqa: S106 - of a test
    account = AccountSettings(name=name, users=(user,))
    accounts = (AccountSettings(name="$G"), account)
    settings = ServerSettings(port=0, store_dir=store, accounts=accounts, auth_timeout_s=PATIENCE_S)
    for expected in (0, 1):  # it is found again
        with running(settings) as url, SocketClient(urlsplit(url).port or 0, {"user": "u", "pass": "p"}) as client:
            assert client.request("$JS.API.INFO").json()["streams"] == expected
            client.api("STREAM.CREATE.KEPT", {"name": "KEPT"})
    found = {path.relative_to(tmp_path).parts[:3] for path in tmp_path.rglob("*") if path.is_file()}
    assert {parts[:2] for parts in found} == {("outer", "store")}
    assert list(store.glob("strandline/*/streams/KEPT"))
