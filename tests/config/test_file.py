"""`strandline.toml`: found upward, checked key by key, with errors that say where and what."""

from pathlib import Path

import pytest

from strandline.config import ConfigFile, ConfigInvalid, find_file, read_file

GOOD = """
state = "kept"

[scan]
paths = ["src", "/etc"]
table = ["parquet:tables/a"]
max-file-bytes = 1000
git = true
format = "sarif"

[fold]
timeout = 3
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "strandline.toml"
    path.write_text(text)
    return path


def read(folder: Path, text: str, **environ: str) -> ConfigFile:
    return read_file(written(folder, text), environ)


def refused(folder: Path, text: str, **environ: str) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        read(folder, text, **environ)
    return caught.value


def test_the_nearest_file_above_is_found(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    path = written(tmp_path, "")
    assert find_file(below) == path
    nearer = written(below, "")
    assert find_file(below) == nearer


def test_a_folder_that_is_gone_or_may_not_be_searched_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "")
    closed, inner = tmp_path / "closed", tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    is_file = Path.is_file

    def refuse(each: Path) -> bool:
        if closed in each.parents:
            raise PermissionError(13, "Permission denied", str(each))
        return is_file(each)

    with monkeypatch.context() as changed:
        changed.setattr(Path, "is_file", refuse)
        assert find_file(inner) == path
    monkeypatch.chdir(inner)
    assert find_file() == path
    inner.rmdir()
    assert find_file() is None


def test_values_have_their_types_and_paths_are_those_of_the_files_folder(tmp_path: Path) -> None:
    file = read(tmp_path, GOOD)
    values = {key: found.value for key, found in file.values.items()}
    assert values == {
        ("", "state"): str(tmp_path / "kept"),
        ("scan", "paths"): [str(tmp_path / "src"), "/etc"],
        ("scan", "table"): [f"parquet:{tmp_path}/tables/a"],
        ("scan", "max-file-bytes"): 1000,
        ("scan", "git"): True,
        ("scan", "format"): "sarif",
        ("fold", "timeout"): 3,
    }
    assert file.values["scan", "git"].line == 8


def test_a_key_at_the_top_holds_for_every_section_that_has_it_and_does_not_say_otherwise(tmp_path: Path) -> None:
    file = read(tmp_path, 'tenant = "all"\n[scan]\ntenant = "mine"\n')
    mine, all_ = file.get("scan", "tenant"), file.get("findings", "tenant")
    assert mine is not None
    assert all_ is not None
    assert (mine.value, all_.value) == ("mine", "all")
    assert file.get("findings", "state") is None


@pytest.mark.parametrize(
    ("text", "line", "key", "told", "hint"),
    [
        ("[scan]\npath = ['a']", 2, "scan.path", "there is no such key in [scan]", "did you mean paths?"),
        ("stat = 'a'", 1, "stat", "there is no such key at the top of the file", "did you mean state?"),
        ("[scna]\npaths = ['a']", 1, "scna", "there is no section [scna]", "did you mean scan?"),
        ("[scan]\n\npaths = 'a'", 3, "scan.paths", "expected a list, not 'a'", "paths = [ … ]"),
        ("[scan]\nmax-file-bytes = '9'", 2, "scan.max-file-bytes", "expected a whole number, not '9'", None),
        ("[scan]\nmax-file-bytes = 0", 2, "scan.max-file-bytes", "expected at least 1, not 0", None),
        ("[scan]\nmax-file-bytes = true", 2, "scan.max-file-bytes", "expected a whole number, not true", None),
        ("[scan]\ngit = 1", 2, "scan.git", "expected true or false, not 1", None),
        ("[scan]\ngit = { env = 'A' }", 2, "scan.git", "expected true or false, not a table", None),
        ("[fold]\ntimeout = 'x'", 2, "fold.timeout", "expected a number, not 'x'", None),
        (
            "[fold]\nmode = 'mirrow'",
            2,
            "fold.mode",
            "expected one of mirror, archive, not 'mirrow'",
            "did you mean mirror?",
        ),
        ("[scan]\npaths = ['a', 3]", 2, "scan.paths", "expected text, not 3", None),
        ("scan = 3", 1, "scan", "expected a section, not a number", "[scan]"),
        ("fold = [{}]", 1, "fold", "expected a section, not a list", "[fold]"),
    ],
)
def test_a_wrong_key_or_value_is_told_with_its_place(
    tmp_path: Path, text: str, line: int, key: str, told: str, hint: str | None
) -> None:
    error = refused(tmp_path, text)
    assert (error.line, error.key, error.hint) == (line, key, hint)
    assert str(error) == f"{tmp_path}/strandline.toml:{line}: {key}: {told}"


def test_what_is_not_toml_or_not_there_is_told_with_the_file(tmp_path: Path) -> None:
    assert str(refused(tmp_path, "[scan")).startswith(f"{tmp_path}/strandline.toml: is not TOML: ")
    with pytest.raises(ConfigInvalid, match=r"none\.toml: cannot be read: No such file or directory$"):
        read_file(tmp_path / "none.toml", {})
    (tmp_path / "latin.toml").write_bytes(b"state = '\xff'")
    with pytest.raises(ConfigInvalid, match=r"latin\.toml: cannot be read: it is not UTF-8$"):
        read_file(tmp_path / "latin.toml", {})


class TestReferences:
    def test_a_reference_is_replaced_by_what_it_names_and_hidden(self, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("postgresql://me:hush@db/x\n")
        by_file = read(tmp_path, '[scan]\nstate = { file = "secret" }').values["scan", "state"]
        by_name = read(tmp_path, 'state = { env = "DB" }', DB="postgresql://me:hush@db/x").values["", "state"]
        assert by_file.value == by_name.value == "postgresql://me:hush@db/x"
        assert by_file.is_hidden
        assert by_name.is_hidden

    @pytest.mark.parametrize(
        ("reference", "told"),
        [
            ('{ env = "NONE" }', "the variable NONE is not set"),
            ('{ file = "none" }', "cannot read none: No such file or directory"),
            ('{ env = "A", file = "b" }', "expected text or a reference"),
            ("{ other = 1 }", "expected text or a reference"),
        ],
    )
    def test_a_reference_that_leads_nowhere_is_told(self, tmp_path: Path, reference: str, told: str) -> None:
        assert refused(tmp_path, f"[scan]\nstate = {reference}").problem == told

    @pytest.mark.parametrize(
        "line",
        [
            '[scan]\nstate = "postgresql://me:hush@db/x"',
            '[scan]\nstate = "postgresql://db/x?connect_timeout=3&password=hush"',
            '[scan]\nconf = ["spark.app.name=x", "spark.hadoop.fs.s3a.secret.key=hush"]',
            '[serve]\npass = "hush"',
        ],
    )
    def test_a_password_in_the_file_is_refused_and_not_repeated(self, tmp_path: Path, line: str) -> None:
        error = refused(tmp_path, line)
        assert error.problem == "a password does not belong into this file"
        assert "hush" not in f"{error} {error.hint}"
