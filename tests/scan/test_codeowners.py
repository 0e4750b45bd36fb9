"""CODEOWNERS is read as GitHub and GitLab read it, in time that the length of a path bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.scan.codeowners import CodeOwners, Dialect, format_rules, parse_codeowners, parse_rules

GITHUB = """
# The examples of GitHub's documentation.
*       @global-owner1 @global-owner2
*.js    @js-owner #This is an inline comment.
*.go docs@example.com
*.txt @octo-org/octocats
/build/logs/ @doctocat
docs/* docs@example.com
apps/ @octocat
/scripts/ @doctocat @octocat
**/logs @octocat
"""

GITLAB = r"""
# The examples of GitLab's documentation.
* @default-owner
*.rb @ruby-owner
\#file_with_pound.rb @owner-file-with-pound
LICENSE @legal janedoe@gitlab.com
README @group @group/with-nested/subgroup
/docs/ @all-docs
/docs/* @root-docs
/docs/**/*.md @markdown-docs  # Match specific file types in any subdirectory
lib/ @lib-owner
/config/ @config-owner
path\ with\ spaces/ @space-owner

[Documentation] @docs-team
internal/docs/
blog/
ee/docs/ @product-team
!blog/drafts/

^[Optional][2] @opt
README.md

[documentation]
more/ @more-docs
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README.md", ["@global-owner1", "@global-owner2"]),
        ("src/deep/app.js", ["@js-owner"]),
        ("cmd/main.go", ["docs@example.com"]),
        ("notes.txt", ["@octo-org/octocats"]),
        ("build/logs/2026/x.bin", ["@octocat"]),  # `**/logs` comes later, and matches too
        ("docs/getting-started.md", ["docs@example.com"]),
        ("docs/build-app/troubleshooting.md", ["@global-owner1", "@global-owner2"]),
        ("sub/docs/x.md", ["@global-owner1", "@global-owner2"]),
        ("apps/a/b.md", ["@octocat"]),
        ("x/apps/a", ["@octocat"]),
        ("apps", ["@global-owner1", "@global-owner2"]),  # a file, not a folder
        ("scripts/run.sh", ["@doctocat", "@octocat"]),
        ("sub/scripts/run.sh", ["@global-owner1", "@global-owner2"]),
        ("deeply/nested/logs/x", ["@octocat"]),
        ("./src/app.js", ["@js-owner"]),
    ],
)
def test_the_examples_of_github(path: str, owners: list[str]) -> None:
    assert list(parse_codeowners(GITHUB, "CODEOWNERS").of(path)) == owners


def test_a_folder_below_can_have_no_owner_or_another() -> None:
    left = parse_codeowners("/apps/ @octocat\n/apps/github\n")
    assert (left.of("apps/x"), left.of("apps/github/x")) == (("@octocat",), ())
    other = parse_codeowners("/apps/ @octocat\n/apps/github @doctocat # because\n")
    assert other.of("apps/github/a/b") == ("@doctocat",)


@pytest.mark.parametrize("line", ["!*.md @x", "[ab].md @x", r"\#a @x", "*.md not-an-owner", "a***b @x"])
def test_lines_that_github_does_not_take_are_left_out(line: str) -> None:
    owners = parse_codeowners(f"* @all\n{line}\n", "CODEOWNERS")
    assert owners.dialect is Dialect.GITHUB
    assert [rule.pattern for rule in owners.rules] == ["*"]


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("x/y", ["@default-owner"]),
        ("a/b.rb", ["@ruby-owner"]),
        ("#file_with_pound.rb", ["@owner-file-with-pound"]),
        ("sub/LICENSE", ["@legal", "janedoe@gitlab.com"]),
        ("README", ["@group", "@group/with-nested/subgroup"]),
        ("docs/x.txt", ["@root-docs"]),
        ("docs/a/x.txt", ["@all-docs"]),
        ("docs/a/b/x.md", ["@markdown-docs"]),
        ("deep/lib/x", ["@lib-owner"]),
        ("config/x", ["@config-owner"]),
        ("deep/config/x", ["@default-owner"]),
        ("path with spaces/x", ["@space-owner"]),
        ("blog/post", ["@default-owner", "@docs-team"]),
        ("blog/drafts/post", ["@default-owner"]),
        ("x/ee/docs/y", ["@default-owner", "@product-team"]),
        ("README.md", ["@default-owner", "@opt"]),
        ("more/x", ["@default-owner", "@more-docs"]),
    ],
)
def test_the_examples_of_gitlab(path: str, owners: list[str]) -> None:
    found = parse_codeowners(GITLAB)
    assert found.dialect is Dialect.GITLAB
    assert list(found.of(path)) == owners


def test_a_file_in_gitlabs_place_is_gitlabs() -> None:
    text = "internal/README.md @a\n"
    assert parse_codeowners(text, ".gitlab/CODEOWNERS").of("x/internal/README.md") == ("@a",)
    assert parse_codeowners(text, "CODEOWNERS").of("x/internal/README.md") == ()


@given(st.text(alphabet="ab*/\\ @#[]!^.\n", max_size=60), st.text(alphabet="ab/.", min_size=1, max_size=12))
def test_any_text_is_read_and_its_rules_are_read_back(text: str, path: str) -> None:
    for place in ("CODEOWNERS", ".gitlab/CODEOWNERS"):
        owners = parse_codeowners(text, place)
        assert parse_rules(format_rules(owners)) == owners
        assert set(owners.of(path)) <= {owner for rule in owners.rules for owner in rule.owners}


def test_a_hostile_pattern_takes_no_long_time() -> None:
    pattern = "/".join(["**", "*a*a*a*a*b"] * 12)
    owners = parse_codeowners(f"{pattern} @x\n{'*a' * 40} @x\n")
    assert owners.of("/".join(["aaaaaaaa"] * 200)) == ()
    assert CodeOwners().of("x") == ()
