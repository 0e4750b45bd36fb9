"""`strandline scan` as a user meets it: what it finds, says and leaves, in every way it can be asked.

Scans that need workers share the Spark session of this process.
"""

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import spark
from strandline.cli.scan_results import EXIT_FOUND
from strandline.journal import Journal
from tests.cli.runs import run_command
from tests.cli.scan_command import RULES, Here
from tests.cli.tables import contents, make_newer

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever asks for a session fails."""

    def refuse(**_: object) -> None:
        pytest.fail("a session was started")

    monkeypatch.setattr(spark, "session", refuse)
    yield
    monkeypatch.undo()


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid", "-c", "init.defaultBranch=main")
    words = ["git", *who, *arguments]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


class TestFiles:
    """Folders and files."""

    def test_are_scanned_once_and_then_known(self, here: Here, request: pytest.FixtureRequest) -> None:
        here.write(one="x = alpha_12345678\n", two="nothing")
        places, summary = here.found()
        assert places == ["one:1:5"]
        assert summary["reasons"] == {"new": 2}
        assert summary["whole"]
        request.getfixturevalue("no_workers")
        places, summary = here.found()
        assert places == ["one:1:5"]
        assert summary["reasons"].keys() <= {"done already", "done"}

    def test_only_what_changed_is_looked_at_again(self, here: Here) -> None:
        here.write(one="alpha_12345678", two="nothing", three="beta_12345678")
        here.done()
        here.write(two="alpha_00000001")
        (here.files / "three").unlink()
        places, summary = here.found()
        assert places == ["one:1:1", "two:1:1"]
        assert summary["items"] == 2
        assert summary["reasons"]["changed"] == 1

    def test_a_single_file_is_scanned(self, here: Here) -> None:
        here.write(one="alpha_12345678", two="alpha_12345678")
        places, summary = here.found(paths=(here.files / "two",))
        assert (places, summary["items"]) == (["two:1:1"], 1)

    def test_what_is_excluded_is_not_looked_at(self, here: Here, tmp_path: Path) -> None:
        here.write(one="alpha_12345678", two="alpha_12345678", three="alpha_12345678")
        (tmp_path / "globs").write_text("thr*\n")
        places, summary = here.found("--exclude", "two", "--exclude-from", tmp_path / "globs")
        assert places == ["one:1:1"]
        assert sum(summary["left_out"].values()) == 2

    def test_an_exit_code_that_is_silent_about_what_failed_is_not_the_last_word(self, here: Here) -> None:
        here.write(one="nothing")
        (here.files / "broken.gz").write_bytes(gzip.compress(b"nothing" * 1000)[:-20])
        note = "note: 1 item could not be scanned, or not completely; the exit code counts findings only\n"
        assert here.scan("--quiet", "--without-spark") == (0, "", f"no findings\n{note}")
        assert note not in here.done("--without-spark").err

    def test_a_size_for_files_is_refused_where_there_are_none(self, here: Here, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": [7]}), tmp_path / "t.parquet")
        ran = here.scan("--table", f"parquet:{tmp_path / 't.parquet'}", "--max-file-bytes", 5)
        assert ran.code == 1
        assert "--max-file-bytes applies to files and blobs" in ran.err

    def test_a_name_makes_a_source_the_same_anywhere(self, here: Here, tmp_path: Path) -> None:
        here.write(one="alpha_12345678")
        here.done("--source-name", "app")
        shutil.copytree(here.files, tmp_path / "elsewhere")
        before = contents(here.state / "pipeline.db")
        places, _ = here.found("--source-name", "app", paths=(tmp_path / "elsewhere",))
        assert places == ["one:1:1"]
        after = contents(here.state / "pipeline.db")
        assert all(after[table] == before[table] for table in ("findings", "observations", "ledger_entries"))

    def test_what_a_comment_allows_is_counted_and_not_found(self, here: Here) -> None:
        here.write(one="alpha_12345678 # strandline:allow\n", two="alpha_12345678 # gitleaks:allow\n")
        places, summary = here.found()
        assert (places, summary["allowed_by_comment"]) == ([], 2)

    def test_a_file_that_is_too_large_is_said_to_be_skipped(self, here: Here) -> None:
        here.write(large="alpha_12345678" * 100, small="beta_12345678")
        places, summary = here.found("--max-file-bytes", 500)
        assert places == ["small:1:1"]
        assert summary["codes"] == {"TOO_LARGE": 1}
        assert not summary["whole"]


class TestRepositories:
    """Histories, the index, and what is new."""

    @pytest.fixture
    def repository(self, here: Here) -> Path:
        git(here.files, "init", "--quiet", ".")
        for name, text in {"old": "alpha_00000001", "new": "alpha_00000002"}.items():
            here.write(**{name: text})
            git(here.files, "add", name)
            git(here.files, "commit", "--quiet", "--message", name)
        git(here.files, "rm", "--quiet", "old")
        git(here.files, "commit", "--quiet", "--message", "remove it")
        return here.files

    def test_history_keeps_what_was_removed(self, here: Here, repository: Path) -> None:
        places, _ = here.found("--git")
        assert [place.partition("@")[0] for place in places] == ["new", "old"]
        assert all(place.endswith(":1:1") for place in places)
        assert not git(repository, "status", "--porcelain")

    def test_since_looks_only_at_what_came_later(self, here: Here, repository: Path) -> None:
        places, _ = here.found("--since", git(repository, "rev-parse", "HEAD~2"))
        assert [place.partition("@")[0] for place in places] == ["new"]

    def test_staged_looks_at_the_index_alone(self, here: Here, repository: Path) -> None:
        here.write(staged="beta_00000001", loose="beta_00000002")
        git(repository, "add", "staged")
        ran = here.scan("--staged", "--json")
        assert ran.code == EXIT_FOUND
        *rows, _ = map(json.loads, ran.out.splitlines())
        assert [row["location"].partition(":")[0].partition("@")[0] for row in rows] == ["staged"]

    def test_what_was_staged_has_the_commit_that_brought_it_since(self, here: Here, repository: Path) -> None:
        here.write(staged="beta_00000001")
        git(repository, "add", "staged")
        here.done("--staged")
        git(repository, "commit", "--quiet", "--message", "staged")
        commit = git(repository, "rev-parse", "HEAD")
        places, _ = here.found("--git")
        assert f"staged@{commit[:7]}:1:1" in places
        (repository / ".gitleaksignore").write_text(f"{commit}:staged:beta:1\n")
        places, _ = here.found("--git")
        assert not [place for place in places if place.startswith("staged")]

    @pytest.mark.parametrize("option", [["--git"], ["--staged"], ["--since", "HEAD"]])
    def test_a_folder_that_is_no_repository_is_refused(self, here: Here, option: list[str]) -> None:
        ran = here.scan(*option)
        assert ran.code == 1
        assert "repository" in ran.err
        assert "hint: name a folder of one; files are scanned without --git, --staged and --since" in ran.err


class TestOthers:
    """Tables and journals."""

    def test_a_cell_of_a_table_is_named_by_key_and_column(self, here: Here, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": [7, 8], "notes": ["", "see alpha_12345678"]}), tmp_path / "t.parquet")
        places, _ = here.found("--table", f"parquet:{tmp_path / 't.parquet'}", "--table-key", "id", paths=())
        assert places == ["t.parquet#8/notes:1:5"]

    def test_a_record_of_a_journal_is_named_by_its_offset(self, here: Here, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "events") as journal:
            journal.append([b"nothing", b"alpha_12345678"])
        places, _ = here.found("--journal", tmp_path / "events", paths=())
        assert places == ["events@1:1:1"]

    def test_all_of_them_are_one_scan(self, here: Here, tmp_path: Path) -> None:
        here.write(one="alpha_12345678")
        pq.write_table(pa.table({"notes": ["alpha_12345678"]}), tmp_path / "t.parquet")
        _, summary = here.found("--table", f"parquet:{tmp_path / 't.parquet'}")
        assert (summary["items"], summary["findings"]) == (2, 2)


class TestExplain:
    """What would be done."""

    def test_says_how_much_and_why_and_changes_nothing(self, here: Here) -> None:
        here.write(one="alpha_12345678", two="nothing")
        here.done()
        here.write(two="changed", three="new")
        before = contents(here.state / "pipeline.db")
        ran = here.done("--explain")
        assert "2 of 3 items to scan" in ran.out
        plan = json.loads(here.done("--explain", "--json").out)
        assert plan["to_look_at"] == 2
        assert plan["reasons"]["new"] == plan["reasons"]["changed"] == 1
        assert contents(here.state / "pipeline.db") == before

    @pytest.mark.usefixtures("no_workers")
    def test_needs_no_workers(self, here: Here) -> None:
        here.write(one="alpha_12345678")
        assert "1 of 1 items" in here.done("--explain").out
        assert not here.state.exists(), "explaining leaves nothing"

    @pytest.mark.usefixtures("no_workers")
    def test_without_spark_it_works_in_this_process(self, here: Here) -> None:
        here.write(one="alpha_12345678", two="nothing")
        places, summary = here.found("--without-spark")
        assert places == ["one:1:1"]
        assert summary["whole"]
        assert here.scan("--without-spark", "--master", "local[2]").code == 1

    @pytest.mark.usefixtures("no_workers")
    def test_rules_that_look_at_paths_see_every_path_of_a_blob(self, here: Here) -> None:
        here.rules.write_text(RULES + "[[allowlists]]\npaths = ['^test/']\n")
        repository = here.folder / "repo"
        (repository / "test").mkdir(parents=True)
        for name in ("prod.env", "test/x"):
            (repository / name).write_text("alpha_12345678")
        commit = ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x")
        for words in (("init", "-q"), ("add", "."), commit):
            subprocess.run(["git", *words], cwd=repository, check=True)  # noqa: S607 - the git that is tested
        places, _ = here.found("--git", "--without-spark", paths=(repository,))
        assert [place.split("@")[0] for place in places] == ["prod.env"]


class TestResults:
    """What comes out."""

    @pytest.fixture
    def scanned(self, here: Here) -> Here:
        here.write(one="alpha_12345678\n", two="beta_12345678\n")
        here.done()
        return here

    @pytest.mark.parametrize("form", ["jsonl", "csv", "sarif", "html", "baseline", "gitleaks"])
    def test_each_format_goes_to_a_file_or_to_the_terminal(self, scanned: Here, tmp_path: Path, form: str) -> None:
        scanned.done("--format", form, "--output", tmp_path / "report", "--quiet")
        text = (tmp_path / "report").read_text()
        assert "alpha" in text
        assert "12345678" not in text
        printed = scanned.done("--format", form).out
        assert len(printed) > 100
        if form in {"jsonl", "csv"}:
            assert len(printed.splitlines()) == 2 + (form == "csv")
        if form in {"sarif", "gitleaks"}:
            json.loads(printed)

    def test_a_baseline_hides_what_it_knows(self, scanned: Here, tmp_path: Path) -> None:
        scanned.done("--format", "baseline", "--output", tmp_path / "known")
        scanned.write(three="alpha_00000009\n")
        ran = scanned.scan("--baseline", tmp_path / "known", "--json")
        assert ran.code == EXIT_FOUND
        *rows, _ = map(json.loads, ran.out.splitlines())
        assert [row["location"] for row in rows] == ["three:1:1"]
        (scanned.files / "three").unlink()
        assert scanned.scan("--baseline", tmp_path / "known").code == 0

    def test_without_findings_the_exit_code_is_0(self, here: Here) -> None:
        here.write(one="nothing")
        assert here.scan().code == 0

    def test_quiet_says_nothing_but_the_findings(self, scanned: Here) -> None:
        ran = scanned.done("--quiet")
        assert ran.err == ""
        assert "one:1:1" in ran.out

    def test_the_summary_says_what_was_covered(self, scanned: Here) -> None:
        (scanned.files / "link").symlink_to("one")
        said = scanned.done().err
        assert "2 with findings" in said
        assert "1 skipped" in said
        assert "link" in said
        assert "findings: 2" in said

    def test_the_name_of_the_output_tells_its_format(self, scanned: Here, tmp_path: Path) -> None:
        scanned.done("--output", tmp_path / "report.sarif")
        assert json.loads((tmp_path / "report.sarif").read_text())["version"] == "2.1.0"


class TestRefused:
    """What cannot be done is said at once, with what to do instead."""

    @pytest.mark.usefixtures("no_workers")
    @pytest.mark.parametrize(
        ("arguments", "said", "hint"),
        [
            (["missing"], "missing", "check the path"),
            ([], "nothing to scan", "give a folder"),
            (["--git"], "not a git repository", ""),
            (["--table", "csv:x"], "csv:x", "parquet:"),
            (["--table", "parquet:missing"], "missing", ""),
            (["--journal", "missing"], "missing", ""),
            ([".", "--exclude-from", "missing"], "missing", "globs"),
            ([".", ".", "--source-name", "x"], "several", "one by one"),
            ([".", "--conf", "nonsense"], "nonsense", "spark.name=value"),
            ([".", "--conf", "nonsense=1"], "nonsense", "spark.name=value"),
            ([".", "--rules", "missing"], "missing", ""),
            ([".", "--master", "spark://127.0.0.1:1"], "in files of this machine", "postgresql://"),
            ([".", "--state", "mysql://host/x"], "--state", "postgresql://"),
            ([".", "--state", "postgresql://127.0.0.1:1/x"], "--key-file", "openssl rand"),
            ([".", "--tenant", "a/b"], "a/b", "letters"),
            ([".", "--master", "nonsense"], "nonsense is no Spark master", "local[4,4]"),
            ([".", "--baseline", "missing"], "missing", ""),
            ([".", "--output", "missing/x.csv"], "missing/x.csv: the folder does not exist", "create it"),
        ],
    )
    def test_arguments(
        self,
        arguments: list[str],
        said: str,
        hint: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ran = run_command("scan", *arguments)
        assert ran.code in (1, 2)
        assert said in ran.err
        assert hint in ran.err.partition("hint: ")[2]
        assert "Traceback" not in ran.err

    @pytest.mark.usefixtures("no_workers")
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[[rules]\nid = 1", "line 1"),
            ("[[rules]]\nid = 'x'\nregex = '''(unclosed'''", "rule 'x'"),
            ("[[rules]]\nid = 'x'\nregex = '''a(?=b)'''", "rule 'x'"),
            ("[[rules]]\nid = 'x'\nregx = '''a'''", "regx"),
            ("[[rules]]\nregex = '''a'''", "id"),
            ("", "rule"),
        ],
    )
    def test_rules(self, here: Here, text: str, said: str) -> None:
        here.rules.write_text(text)
        ran = here.scan()
        assert ran.code == 1
        assert str(here.rules) in ran.err
        assert said in ran.err

    @pytest.mark.usefixtures("no_workers")
    def test_a_state_of_a_newer_version_is_left_alone(self, here: Here) -> None:
        here.write(one="nothing")
        here.done("--without-spark")
        make_newer(here.state / "pipeline.db")
        before = contents(here.state / "pipeline.db")
        ran = here.scan()
        assert ran.code == 1
        assert "schema version" in ran.err
        assert "hint: use the version of Strandline that made it, or a later one" in ran.err
        assert contents(here.state / "pipeline.db") == before

    @pytest.mark.usefixtures("no_workers")
    def test_another_key_is_refused(self, here: Here, tmp_path: Path) -> None:
        here.write(one="nothing")
        here.done("--without-spark")
        other = tmp_path / "other.key"
        other.write_text("ab" * 32)
        other.chmod(0o600)
        ran = here.scan("--key-file", other)
        assert ran.code == 1
        assert "key" in ran.err
        assert "abab" not in ran.err
