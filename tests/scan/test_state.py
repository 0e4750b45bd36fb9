"""The state of scans: made once, refused where it is another's, never shown."""

import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.errors import FormatError, InvalidInput
from strandline.pipeline.identity import TenantId, TenantSecretKey
from strandline.pipeline.key_files import (
    KeyFileInvalid,
    KeyMissing,
    KeyRefused,
    TenantUnknown,
    format_key,
    make_key,
    parse_key,
    tenant_key,
)
from strandline.pipeline.state import MemoryState
from strandline.scan.state import State, StateMissing, open_state, tenant_named

KEY = TenantSecretKey(bytes(range(32)))


def key_file(folder: Path, key: TenantSecretKey = KEY, name: str = "given.key") -> Path:
    path = folder / name
    path.write_bytes(format_key(key))
    path.chmod(0o600)
    return path


class Forgetful(MemoryState):
    """A state whose readers all come before its writers: nobody sees what another is about to write."""

    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:  # noqa: ARG002 - of the seam
        return [None for _ in keys]


def test_of_two_machines_that_use_a_tenant_first_at_once_with_two_keys_one_is_refused(tmp_path: Path) -> None:
    state, who = Forgetful(), tenant_named("default")
    first, second = key_file(tmp_path), key_file(tmp_path, TenantSecretKey(b"x" * 32), "other.key")
    tenant_key(state, who, "default", first, create=True, is_ours=False)
    with pytest.raises(KeyRefused):
        tenant_key(state, who, "default", second, create=True, is_ours=False)
    tenant_key(state, who, "default", first, create=True, is_ours=False)


class TestFolder:
    """A state on this machine."""

    def test_may_be_in_a_folder_whose_name_speaks_of_passwords(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path / "Password Store" / "state"), create=True) as state:
            assert state.folder == tmp_path / "Password Store" / "state"

    def test_is_made_on_first_use_for_its_owner_alone(self, tmp_path: Path) -> None:
        folder = tmp_path / "deep" / "state"
        with open_state(str(folder), create=True) as state:
            assert (state.tenant, state.name, state.folder) == (tenant_named("default"), "default", folder)
            assert state.address == str(folder / "pipeline.db")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "tenant-default.key").stat().st_mode) == 0o600
        assert (folder / ".gitignore").read_text() == "*\n"

    def test_has_the_same_key_ever_after(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path), create=True) as first, open_state(str(tmp_path)) as second:
            assert bytes(first.key) == bytes(second.key)

    def test_a_folder_that_was_there_gets_no_gitignore(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path), create=True):
            assert not (tmp_path / ".gitignore").exists()

    @pytest.mark.parametrize("create", [True, False])
    def test_a_file_in_its_place_is_refused_with_a_hint(self, tmp_path: Path, create: bool) -> None:
        (tmp_path / "state").write_text("")
        where = str(tmp_path / "state")
        with pytest.raises(InvalidInput, match="not a folder") as refused, open_state(where, create=create):
            pass
        assert "creates it" in (refused.value.hint or "")

    def test_reading_where_nothing_is_makes_nothing(self, tmp_path: Path) -> None:
        with (
            pytest.raises(StateMissing, match="no scan has stored results") as refused,
            open_state(str(tmp_path / "none")),
        ):
            pass
        assert "strandline scan" in (refused.value.hint or "")
        assert list(tmp_path.iterdir()) == []

    def test_a_tenant_that_never_scanned_is_told_so(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path), create=True):
            pass
        with pytest.raises(TenantUnknown, match="'ada' has no results"), open_state(str(tmp_path), tenant="ada"):
            pass
        assert not (tmp_path / "tenant-ada.key").exists()

    def test_tenants_have_keys_of_their_own(self, tmp_path: Path) -> None:
        with (
            open_state(str(tmp_path), create=True, tenant="ada") as one,
            open_state(str(tmp_path), create=True, tenant="grace") as two,
        ):
            assert one.tenant != two.tenant
            assert bytes(one.key) != bytes(two.key)

    @pytest.mark.parametrize("name", ["", "../up", "a/b", "-a", "a b", "é", "x" * 65])
    def test_a_name_that_is_no_file_name_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InvalidInput, match="cannot name a tenant"), open_state(str(tmp_path), tenant=name):
            pass

    def test_another_programs_database_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "pipeline.db").write_bytes(b"not a database at all" * 100)
        with pytest.raises(FormatError), open_state(str(tmp_path), create=True):
            pass
        assert not (tmp_path / "tenant-default.key").exists()


class TestKey:
    """The tenant's key."""

    def test_a_key_that_is_gone_is_not_replaced(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path), create=True):
            pass
        (tmp_path / "tenant-default.key").unlink()
        with pytest.raises(KeyMissing) as refused, open_state(str(tmp_path), create=True):
            pass
        assert "copy" in (refused.value.hint or "")
        assert not (tmp_path / "tenant-default.key").exists()

    def test_another_key_is_refused_and_not_shown(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path), create=True):
            pass
        path = key_file(tmp_path)
        with pytest.raises(KeyRefused) as refused, open_state(str(tmp_path), create=True, key_file=path):
            pass
        assert bytes.hex(KEY)[:8] not in f"{refused.value} {refused.value.hint} {refused.value!r}"

    def test_a_key_that_is_given_is_used(self, tmp_path: Path) -> None:
        path = key_file(tmp_path)
        for _ in range(2):
            with open_state(str(tmp_path / "state"), create=True, key_file=path) as state:
                assert bytes(state.key) == bytes(KEY)
        assert not (tmp_path / "state" / "tenant-default.key").exists()

    def test_a_key_file_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        with (
            pytest.raises(KeyFileInvalid, match="no such file"),
            open_state(str(tmp_path / "state"), create=True, key_file=tmp_path / "none.key"),
        ):
            pass

    @pytest.mark.parametrize("content", [b"", b"zz" * 32, b"00" * 31, b"\xff" * 64])
    def test_a_file_without_a_key_is_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "bad.key"
        path.write_bytes(content)
        path.chmod(0o600)
        with (
            pytest.raises(KeyFileInvalid, match="holds no key"),
            open_state(str(tmp_path / "state"), create=True, key_file=path),
        ):
            pass

    def test_a_key_that_everybody_can_read_is_refused(self, tmp_path: Path) -> None:
        path = key_file(tmp_path)
        path.chmod(0o644)
        with (
            pytest.raises(KeyFileInvalid, match="everybody") as refused,
            open_state(str(tmp_path / "state"), create=True, key_file=path),
        ):
            pass
        assert "chmod 600" in (refused.value.hint or "")

    def test_raw_bytes_and_digits_are_the_same_key(self) -> None:
        assert parse_key(bytes(KEY)) == parse_key(format_key(KEY)) == KEY

    def test_of_many_who_make_one_at_once_all_get_the_same(self, tmp_path: Path) -> None:
        made: list[bytes] = []
        threads = [threading.Thread(target=lambda: made.append(bytes(make_key(tmp_path / "k")))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 8
        assert len(set(made)) == 1
        assert os.listdir(tmp_path) == ["k"]  # noqa: PTH208


class TestServer:
    """A state that many machines share."""

    def test_needs_a_key_file(self) -> None:
        with pytest.raises(InvalidInput, match="needs --key-file") as refused, open_state("postgresql://ada:pw@h/db"):
            pass
        assert "pw" not in f"{refused.value}{refused.value.hint}"

    @pytest.mark.parametrize(
        "where", ["mysql://ada:hunter2@host/db", "host=h password=hunter2", "host=hunter2 user=ada"]
    )
    def test_an_address_that_is_not_known_is_not_shown(self, where: str) -> None:
        with pytest.raises(InvalidInput) as refused, open_state(where, create=True):
            pass
        assert "hunter2" not in f"{refused.value}{refused.value.hint}{refused.value!r}"

    def test_no_repr_shows_an_address_or_a_key(self, tmp_path: Path) -> None:
        with open_state(str(tmp_path), create=True) as opened:
            state = State(opened.stores, "postgresql://a:hunter2@h/d", None, opened.tenant, "x", KEY, None)
            assert "hunter2" not in repr(state)
            assert "00, 01" not in repr(state)
            assert "TenantSecretKey(…)" in repr(state)
