"""Settings of the machine do not reach the tests."""

from pathlib import Path

from tests.isolation import files_above, remove_settings


def test_variables_of_settings_are_removed_and_others_stay() -> None:
    environ = {"STRANDLINE_CONFIG": "a", "STRANDLINE_STATE": "b", "STRANDLINE_SCAN_MASTER": "c", "NATS_CREDS": "d"}
    environ |= {"FORCE_COLOR": "1", "COLUMNS": "40", "AWS_PROFILE": "f", "PGHOST": "g", "GIT_DIR": "h"}
    environ |= {"STRANDLINE_SEED": "17", "HOME": "e"}
    remove_settings(environ)
    assert environ == {"STRANDLINE_SEED": "17", "HOME": "e"}


def test_servers_of_this_machine_are_reached_past_a_proxy() -> None:
    environ = {"https_proxy": "http://proxy:3128", "no_proxy": "example.org"}
    remove_settings(environ)
    assert environ == {
        "https_proxy": "http://proxy:3128",
        "no_proxy": "example.org,127.0.0.1,localhost,::1",
        "NO_PROXY": "127.0.0.1,localhost,::1",
    }


def test_a_file_above_a_folder_of_tests_is_found(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert files_above([tmp_path / "a" / "b"]) == []
    (tmp_path / "strandline.toml").write_text("")
    assert files_above([tmp_path / "a" / "b", tmp_path]) == [tmp_path / "strandline.toml"] * 2
