"""Exports of Slack, Jira and Confluence: places that a reader knows, ids that stay, and hostile XML and zips."""

import errno
import io
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.scan.sources import ExportSource, InputMissing, InputRefused, InputUnusable, Problem
from strandline.scan.sources import export_xml as xml_module
from strandline.scan.sources.export_xml import XmlRefused, confluence_records, jira_records
from tests.cli.runs import run_command
from tests.scan.sources.export_builder import confluence, confluence_html, jira, packed, slack, write
from tests.scan.sources.helpers import left_out, listed, problems
from tests.scan.threaded_workers import ThreadWorkers, made, request_for, scanned

SLACK_PLACES = [
    "general@1700000000.000100 by ada:1:12",
    "general@1700000100.000200 by bob:3:30",
    "general@1700000100.000200 by bob:4:5",
    "general@1700000200.000300 by deploy:3:1",
]
JIRA_PLACES = [
    "(MailServer)@1:3:10",
    "SHOP-1/comment/10200:1:5",
    "SHOP-1/customfield/Deploy key:1:1",
    "SHOP-1/description:1:10",
    "SHOP-1/history/8/oldstring:1:8",
    "SHOP-2/comment/10201:2:3",
    "SHOP-2/summary:1:1",
    "activeobjects.xml:1:9",
]
CONFLUENCE_PLACES = [
    "ENG/How to deploy/comment/103@1:1:5",
    "ENG/How to deploy@2:1:4",
    "ENG/How to deploy@3:2:1",
    "attachments/100/104/1:1:1",
]
HTML_PLACES = ["ENG/How to deploy:1:65", "attachments/100/104.txt:1:1"]
Make = Callable[[], Mapping[str, str]]


def places(source: ExportSource, address: str) -> list[str]:
    outcome = scanned(request_for(address, source), ThreadWorkers(1))
    return sorted(one.observation.location_display or "" for one in outcome.findings)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [(slack, SLACK_PLACES), (jira, JIRA_PLACES), (confluence, CONFLUENCE_PLACES), (confluence_html, HTML_PLACES)],
    ids=["slack", "jira", "confluence", "html"],
)
def test_places_are_those_that_a_reader_knows(make: Make, wanted: list[str], tmp_path: Path) -> None:
    zipped = ExportSource.at(f"export:{packed(tmp_path / 'x.zip', make())}")
    folder = write(tmp_path / "x", make())
    found = places(zipped, made(str(tmp_path / "zip.db")))
    assert [one.partition(" (inside")[0] for one in found] == wanted
    assert places(ExportSource.at(f"export:{folder}"), made(str(tmp_path / "folder.db"))) == found


def test_two_exports_of_a_workspace_have_the_same_findings_and_decisions(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(
        "[[rules]]\nid = 'alpha'\nregex = '''alpha_[0-9]{3}'''\nkeywords = ['alpha_']\n"
    )
    common = ("--rules", tmp_path / "rules.toml", "--state", tmp_path / "state", "--without-spark")
    first = packed(tmp_path / "monday.zip", slack())
    assert run_command("scan", f"slack:{first}", *common).code == 1
    told = run_command("findings", "triage", "--rule", "alpha", "--as", "revoked", "--state", tmp_path / "state")
    assert told.code == 0, told.err
    # The channel has another name now, the archive another one and a folder in it, and users other pictures.
    later = {f"Acme export/{name}": data for name, data in slack(channel="all-hands", avatar="2").items()}
    ran = run_command("scan", f"slack:{packed(tmp_path / 'friday.zip', later)}", *common)
    assert (ran.code, "findings: 2, 0 open" in ran.err) == (0, True), ran.err


@pytest.mark.parametrize(("make", "word"), [(slack, "jira"), (jira, "slack"), (confluence, "jira")])
def test_an_export_of_another_program_is_an_error(make: Make, word: str, tmp_path: Path) -> None:
    with pytest.raises(InputUnusable, match="it is an export of"):
        ExportSource.at(f"{word}:{packed(tmp_path / 'x.zip', make())}")


def test_what_is_no_export_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputMissing):
        ExportSource.at(f"export:{tmp_path}/nowhere")
    with pytest.raises(InputUnusable, match="no export of a known form"):
        ExportSource.at(f"export:{write(tmp_path / 'x', {'entities.xml': '<other/>'})}")
    (tmp_path / "text").write_text("text")
    with pytest.raises(InputUnusable, match="neither a folder nor a zip"):
        ExportSource.at(f"export:{tmp_path / 'text'}")
    with pytest.raises(InvalidInput, match="names no export"):
        ExportSource.at(str(tmp_path))


def test_a_site_that_is_not_named_has_to_be(tmp_path: Path) -> None:
    files = {"entities.xml": "<entity-engine-xml><Issue id='1' key='A-1' summary='alpha_100'/></entity-engine-xml>"}
    address = f"export:{packed(tmp_path / 'x.zip', files)}"
    with pytest.raises(InputUnusable, match="which site") as caught:
        ExportSource.at(address)
    assert "--source-name" in (caught.value.hint or "")
    assert len(listed(ExportSource.at(address, name="jira.example.org"))) == 1


def test_pages_of_an_unpacked_space_are_those_of_its_archive(tmp_path: Path) -> None:
    zipped = ExportSource.at(f"export:{packed(tmp_path / 'x.zip', confluence_html())}")
    inner = f"export:{write(tmp_path / 'x', confluence_html()) / 'ENG'}"
    with pytest.raises(InputUnusable, match="which site"):
        ExportSource.at(inner)
    unpacked = ExportSource.at(inner, name="ENG")
    assert unpacked.instance == zipped.instance
    assert [row["locator"] for row in listed(unpacked)] == [row["locator"] for row in listed(zipped)]


def test_texts_of_collections_are_read() -> None:
    words = "<collection name='words'><element class='String'>one</element><element>two</element></collection>"
    (record,) = confluence_records(
        io.BytesIO(f"<hibernate-generic><object>{words}</object></hibernate-generic>".encode())
    )
    assert record.fields == {"words": "one\ntwo"}


ROOT = "<entity-engine-xml>"
LAUGHS = "".join(f'<!ENTITY l{number + 1} "{f"&l{number};" * 10}">' for number in range(9))


@pytest.mark.parametrize(
    "document",
    [
        f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]>{ROOT}<Issue id="1" summary="&l9;"/></entity-engine-xml>',
        f'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]>{ROOT}<Issue>&f;</Issue></entity-engine-xml>',
        '<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><entity-engine-xml/>',
        "<entity-engine-xml>" + "<a>" * 100,
        "<entity-engine-xml><Issue",
        "<entity-engine-xml>&unknown;</entity-engine-xml>",
    ],
    ids=["laughs", "file", "dtd", "deep", "torn", "unknown"],
)
def test_xml_with_entities_or_without_an_end_is_refused(document: str, tmp_path: Path) -> None:
    with pytest.raises(XmlRefused):
        list(jira_records(io.BytesIO(document.encode())))
    source = ExportSource.at(f"export:{packed(tmp_path / 'x.zip', {'entities.xml': document})}", name="x")
    with pytest.raises(InputUnusable, match=r"entities\.xml"):
        listed(source)


def test_a_long_value_is_cut_and_counted_and_bad_characters_are_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_module, "VALUE_BYTES_MAX", 10)
    text = b"<entity-engine-xml><Issue id='1'><description>0123456789abcdef</description></Issue></entity-engine-xml>"
    (record,) = jira_records(io.BytesIO(text))
    assert (record.fields["description"], record.cut) == ("0123456789", 1)
    bad = b'<hibernate-generic><object class="A"><property name="b">x\x08\x0by</property></object></hibernate-generic>'
    (record,) = confluence_records(io.BytesIO(bad))
    assert record.fields == {"b": "x  y"}


def test_a_bomb_and_a_damaged_member_are_problems_of_their_own(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", {**slack(), "bomb.txt": b"\0" * (8 << 20), "large.txt": "x" * 5000, "empty": ""})
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("general/2023-11-15.json")
    begin = info.header_offset + 30 + len(info.filename) + 20
    data[begin : begin + 8] = b"\xff" * 8
    path.write_bytes(bytes(data))
    source = ExportSource.at(f"export:{path}", size_max=16 << 20)
    outcome = scanned(request_for(made(str(tmp_path / "state.db")), source), ThreadWorkers(1))
    assert outcome.codes == {Problem.TOO_LARGE: 1, Problem.DAMAGED: 1}
    assert len(outcome.findings) == 4
    assert left_out(source) == {"empty": 1}
    small = ExportSource.at(f"export:{path}", size_max=4000)
    assert problems(small) == {b"m\0bomb.txt": "TOO_LARGE", b"m\0large.txt": "TOO_LARGE"}


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", slack())
    (tmp_path / "outside").write_text("alpha_999")
    (folder / "link.txt").symlink_to(tmp_path / "outside")
    assert not [row for row in listed(ExportSource.at(f"export:{folder}")) if b"link" in row["locator"]]


def test_a_zip_that_is_damaged_in_any_way_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**slack(), "é.txt": "alpha_999"}.items():
            archive.writestr(name, text)
        archive.writestr("notes.txt", bytes(range(256)) * 20, compress_type=zipfile.ZIP_LZMA)
        info = archive.getinfo("notes.txt")
    data = bytearray(path.read_bytes())
    begin = info.header_offset + 30 + len(info.filename) + 20
    data[begin : begin + 60] = b"\xff" * 60
    path.write_bytes(data)
    outcome = scanned(
        request_for(made(str(tmp_path / "state.db")), ExportSource.at(f"export:{path}")), ThreadWorkers(1)
    )
    assert outcome.codes == {Problem.DAMAGED: 1}
    path.write_bytes(bytes(data).replace("é.txt".encode(), b"\xff\xff.txt"))
    with pytest.raises(InputUnusable, match="the zip is damaged"):
        ExportSource.at(f"export:{path}")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputUnusable, match="neither a folder nor a zip"):
        ExportSource.at(f"export:{tmp_path / 'pipe'}")


def test_a_folder_that_cannot_be_listed_is_a_problem_and_never_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "x", slack())
    source = ExportSource.at(f"export:{folder}")
    refused, scandir = [str(folder / "general")], os.scandir

    def listing(path: str) -> object:
        if path in refused:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listing)
    assert problems(source) == {b"m\0general/": "UNREADABLE_FOLDER"}
    refused.append(str(folder))
    with pytest.raises(InputRefused, match="Permission denied"):
        listed(source)


def test_identities_of_channels_do_not_depend_on_the_size_of_files_to_scan(tmp_path: Path) -> None:
    address = f"export:{packed(tmp_path / 'x.zip', slack())}"
    days = [row["locator"] for row in listed(ExportSource.at(address)) if row["locator"].startswith(b"d")]
    small = [row["locator"] for row in listed(ExportSource.at(address, size_max=10)) if row["locator"].startswith(b"d")]
    assert days == small == [b"d\0C1\x002023-11-14", b"d\0C1\x002023-11-15"]


def test_files_of_one_identity_and_messages_of_any_form_are_all_read(tmp_path: Path) -> None:
    odd = {
        "C1/2023-11-14.json": '[{"ts": "1", "text": "alpha_777"}]',
        "x/2023-11-14.json": '["alpha_778", [1, "beta_779"]]',
    }
    source = ExportSource.at(f"export:{packed(tmp_path / 'x.zip', {**slack(), **odd})}")
    names = [row["locator"] for row in listed(source)]
    assert len(names) == len(set(names)) == 6
    assert len(places(source, made(str(tmp_path / "state.db")))) == len(SLACK_PLACES) + 3


@pytest.mark.parametrize("piece", [1 << 18, 7, 1])
def test_references_to_characters_that_xml_does_not_allow_are_spaces(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xml_module, "_PIECE_BYTES", piece)
    text = "a&#8;b&#x1B;c\uffffd&#xD800;e&#65;&#x1F600;&amp;é퀀"
    document = f"{ROOT}<Issue id='1' summary='{text}'/></entity-engine-xml>"
    (record,) = jira_records(io.BytesIO(document.encode()))
    assert record.fields["summary"] == "a b c d eA\U0001f600&é퀀"


def test_a_record_without_an_end_is_refused_and_fields_that_come_often_are_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = b"<entity-engine-xml><Issue id='1' b='0'>" + b"<b>x</b>" * 50_000
    (record,) = jira_records(io.BytesIO(fields + b"</Issue></entity-engine-xml>"))
    assert record.fields["b"] == "0" + "x" * 50_000
    monkeypatch.setattr(xml_module, "RECORD_BYTES_MAX", 1 << 20)
    with pytest.raises(XmlRefused, match="a record of the XML is too large"):
        list(jira_records(io.BytesIO(fields + b"</Issue></entity-engine-xml>")))
    text = b"<hibernate-generic><object><property name='a'>" + b"y" * (2 << 20) + b"</property></object>"
    with pytest.raises(XmlRefused, match="a record of the XML is too large"):
        list(confluence_records(io.BytesIO(text)))
