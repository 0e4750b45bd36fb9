"""Cells of tables: each is read behind its column's name, and found at its own bytes."""

import tracemalloc
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect import Engine, load_builtin
from strandline.detect.matching.prefilter import CSV, GRID, SQL
from strandline.detect.views.tables import table_view
from tests.detect.fakes import KEY, engine_of
from tests.effort import examples

MARKS = {CSV: 0, GRID: 0, SQL: 0}
RULES = """
[[rules]]
id = "assigned"
description = "a password that is assigned"
regex = '''(?i)(?:password|passwd|api_key): "([^"\\n]{5,40})"'''
secretGroup = 1
keywords = ["passw", "api_key"]
"""
SHOWN = {
    "csv": b"id,name,password\n1,jo,<harbor-1>\n2,al,<tide;two>\n",
    "csv-quoted": b'"id";"note";"Password"\r\n1;"a;b";"<harbor-1>"\r\n',
    "csv-behind-a-title": b"# exported\n\xc3\xa4\nname\tAPI Key\nshop\t<harbor-1>\n",
    "csv-with-a-mark": b"\xef\xbb\xbfpassword,name\n<harbor-1>,jo\n",
    "markdown": (
        b"# Logins\n\n| Login | Password |\n|:---|---:|\n| ops | `<harbor-1>` |\n| al | **<tide-two>** |\n\n| a | b |\n"
    ),
    "markdown-open": b"Login | Password\n--- | ---\nops | <harbor-1>\n",
    "psql": b" id | password \n----+----------\n  1 | <harbor-1>\n(1 row)\n",
    "mysql": b"+----+----------+\n| id | password |\n+----+----------+\n|  1 | <harbor-1> |\n+----+----------+\n",
    "insert": b"INSERT INTO `users` (`id`, `password`, `at`) VALUES\n(1, '<harbor-1>', NOW()),\n(2, '<it''s>', 1);\n",
    "insert-in-words": b"insert ignore into [db].[u] (passwd, id)\n values (N'<harbor-1>', 1), (E'<b\\'c-two>', 2)",
    "create": (
        b"CREATE TABLE IF NOT EXISTS `users` (\n `id` int(11) NOT NULL,\n `fee` decimal(8,2) DEFAULT '0',\n"
        b" `password` varchar(9),\n"
        b" PRIMARY KEY (`id`)\n) ENGINE=InnoDB;\nINSERT INTO `users` VALUES (1,0.5,'<harbor-1>'),(2,1,'<tide-two>');\n"
    ),
    "csv-over-lines": (
        b'url,username,password,totp,extra,name\nhttps://a,jo,<harbor-1>,,"line one\n\nline ""two",A\n'
        b'https://b,5" disk,<harbor-2>,,x,B\nhttps://c,al,<harbor-3>,,"one\ntwo",C\n'
    ),
    "csv-with-blanks": b"name, password\njo, <harbor-1>\nal (ops), <tide-two>\n",
    "csv-signs": b"name,password\njo,<`harbor-1**>\nal,<*1234567>\n",
    "markdown-signs": b"| id | password |\n|----|---|\n| 1 | `<harbor-1>` |\n| 2 | **<harbor-2>** |\n",
    "psql-signs": b" id | password \n----+----------\n  1 | <`harbor-1**>\n(1 row)\n",
    "insert-signs": b"INSERT INTO u (id, password) VALUES (1, '<`harbor-1**>'), (2, '<*1234567>');\n",
    "copy-signs": b"COPY u (id, password) FROM stdin;\n1\t<*harbor-1*>\n\\.\n",
    "csv-token-in-digits": b"name,api_key\njo,<" + b"5f4dcc3b" * 4 + b">\n",
    "copy": b"COPY public.users (id, password) FROM stdin;\n1\t<harbor-1>\n2\t\\N\n\\.\n3\tharbor-9\n",
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_cell_is_found_at_its_own_bytes(name: str) -> None:
    shown = SHOWN[name]
    data = shown.replace(b"<", b"").replace(b">", b"")
    result = engine_of(RULES).scan(data)
    found = sorted(data[found.start : found.end] for found in result.findings if found.via == ("tables",))
    assert found == sorted(part.split(b">")[0] for part in shown.split(b"<")[1:])
    assert result.coverage.is_whole
    assert engine_of(RULES).may_find(data)
    assert list(engine_of(RULES).suspects([b"a", data, b"b,c"], ["", "", ""])) == [1]


@pytest.mark.parametrize(
    "data",
    [
        b"id,name\n1,harbor-1\n",
        b"id,password_hash\n1,harbor-1\n",
        b"id,password\n1,harbor-1,too-many\n",
        b"1,2,3\n4,5,6\n7,8,9\nid,password\n1,harbor-1\n",
        b"def login(user, password):\n    return harbor(user, password)\n",
        b"password, then a sentence of many words that goes on\nharbor-one, and more\n",
        b"| Field | Type |\n|---|---|\n| password | string |\n",
        b"\n\n\nno table | password\n- - - | - - -\nx | harbor-1\n",
        b"INSERT INTO users VALUES (1, 'harbor-1');\n",
        b"INSERT INTO users (id, password) SELECT id, old FROM harbor;\n",
        b"COPY users (id, name) FROM stdin;\n1\tharbor-1\n\\.\n",
        b"id,password\n1,abc\n",
        b"id,password\n1,5f4dcc3b5aa765d61d8327deb882cf99\n2,5baa61e4c9b93f3f0682250b6cf8331b7ee68fd8\n",
        b"id,password\n1,W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n",
        b"INSERT INTO u (id, password) VALUES (1, '*2470C0C06DEE42FD1618BBB99005ADCA2EC9D1E1');\n",
        b"COPY u (id, passwd) FROM stdin;\n1\t\\\\x5f4dcc3b5aa765d61d8327deb882cf99\n\\.\n".replace(b"\\\\", b"\\"),
        b"render_pass,shader\nshadowmap1,y\nshadowmap2,n\n",
        b"let user, password\nfoo(user, 'harbor-xyz')\n",
        b"name, token\nfunction (a, getElementById2Selector)\n",
        b"let user, password\nuser, 'harbor-xyz'\n}\n",
        b"user,password\nharbor,harbor-1\nThis is\na text\nof more lines\n",
    ],
)
def test_what_is_no_cell_of_a_secret_is_not_read(data: bytes) -> None:
    assert table_view(data, MARKS) is None


@pytest.mark.parametrize("name", SHOWN)
def test_a_view_is_made_for_its_marks_alone(name: str) -> None:
    data = b"a text\n" * 3 * (name[:2] != "cs") + SHOWN[name]
    assert [mark for mark in MARKS if table_view(data, {mark: 0}) is not None] == [
        {"cs": CSV, "ma": GRID, "ps": GRID, "my": GRID, "in": SQL, "cr": SQL, "co": SQL}[name[:2]]
    ]


@examples(100)
@given(
    parts=st.lists(
        st.sampled_from(
            [
                *(
                    "id,password\n",
                    "x,harbor-1\n",
                    '"',
                    ",",
                    "|",
                    "\n",
                    "'",
                    "(",
                    ")",
                    "\\",
                    "|---|---|\n",
                    "| id | password |\n",
                ),
                *(
                    "INSERT INTO u (id, password) VALUES ",
                    "(1, 'harbor-1')",
                    ";",
                    "COPY u (a, password) FROM stdin;\n",
                    "\t",
                ),
                "INSERT INTO u VALUES ",
                "CREATE TABLE u (id int, password text)",
            ]
        ),
        max_size=30,
    )
)
def test_every_cell_of_a_view_is_in_the_buffer_where_it_says(parts: list[str]) -> None:
    data = "".join(parts).encode()
    view = table_view(data, MARKS)
    if view is None:
        return
    _, text, locate = view
    at = 0
    for line in text.splitlines(keepends=True):
        start = at + line.index(b": ") + 3
        first, last = locate(start, at + len(line) - 2)
        assert data[first:last] == text[start : at + len(line) - 2]
        at += len(line)


def test_work_is_linear_in_statements_that_never_end() -> None:
    table_view(b"INSERT INTO u (id, password) VALUES ('" * 20_000, MARKS)
    table_view(b"INSERT INTO u (id, password) VALUES (\"''" * 20_000, MARKS)
    table_view(b"|" + b"--|" * 300_000 + b"\n", MARKS)


def test_quotes_that_stay_open_are_looked_at_once() -> None:
    for line in (b'jo,"harbor-1\n', b'"\n', b'jo,x"harbor-1\nal,harbor-2\n'):
        data = b"id,password\n" + line * 30_000
        view = table_view(data, MARKS)
        assert view is None or len(view[1]) < 4 * len(data)


def test_a_row_that_is_a_head_as_well_is_read_once() -> None:
    data = b"| password |\n|--|--|\n" * 400
    view = table_view(data, MARKS)
    assert view is not None
    assert len(view[1]) < 2 * len(data)


def test_a_value_that_never_ends_costs_no_more_than_one_that_ends() -> None:
    def seconds(data: bytes) -> float:
        began = process_time()
        table_view(data, MARKS)
        return process_time() - began

    endless = b"INSERT INTO u (id, password) VALUES (" + b" " * 700 + b"'x;\n"
    ended = b"INSERT INTO u (id, password) VALUES (1, 'x');".ljust(len(endless)) + b"\n"
    assert min(seconds(endless * 8) for _ in range(2)) < 50 * min(seconds(ended * 8) for _ in range(2))


@pytest.mark.parametrize(
    "data",
    [
        b"id,password\n" + b"," * 500_000,
        b"password,name,harbor," * 30_000 + b"\nid,password\n",
        b"| id | password |\n|----|----------|\n" + b"|" * 500_000,
        b"COPY u (id, password) FROM stdin;\n" + b"\t" * 500_000,
    ],
    ids=["csv", "csv-head", "grid", "copy"],
)
def test_a_line_of_many_cells_takes_little_memory(data: bytes) -> None:
    table_view(data[:1_000], MARKS)  # what is made once
    tracemalloc.start()
    try:
        table_view(data, MARKS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(data)


@pytest.mark.parametrize(
    ("row", "values"),
    [
        (b"(1,   'harbor-1'  )", [b"harbor-1"]),
        (b"( now( ) , 'it''s \\' (x), y' )", [b"it''s \\' (x), y"]),
        (b'(coalesce(1, 2) + 1, _utf8 \'harbor-1\'),(2,"a""b, c")', [b"harbor-1", b'a""b, c']),
        (b"(x'00'" + b" " * 200 + b", 'harbor-1')", []),
        (b"(-1.5" + b" " * 500 + b"," + b" " * 200 + b"'harbor-1'" + b" " * 200 + b")", [b"harbor-1"]),
        (b"(1, 'harbor-1'", []),
    ],
)
def test_values_of_a_row_are_read_as_sql_writes_them(row: bytes, values: list[bytes]) -> None:
    view = table_view(b"INSERT INTO u (id, password) VALUES " + row + b";", MARKS)
    cells = [] if view is None else [line.split(b": ")[1][1:-1] for line in view[1].splitlines()]
    assert cells == values


def test_the_rules_read_weak_and_strong_cells_and_leave_hashes_and_types() -> None:
    engine = Engine(load_builtin().only(["generic-password", "generic-weak-password"]), key=KEY)
    data = (
        b"login,password,role\njo,rZ7-kQ91vw,ops\nal,harborline,dev\n"
        b"bo,$2b$12$abcdefghijklmnopqrstuuJHGFDSAQWERTYUIOPLKJHGFDSAZXCVB,dev\nfoo,string,dev\nbar,changeme,dev\n"
    )
    data += b"api,supported,x\napi,deprecated,x\napi,write-only,x\ncase,tooshort1,x\ncase,NoSpecial1,x\n"
    found = [(found.rule_id, data[found.start : found.end]) for found in engine.scan(data, "users.csv").findings]
    assert found == [("generic-password", b"rZ7-kQ91vw"), ("generic-weak-password", b"harborline")]
