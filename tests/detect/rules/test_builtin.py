"""Every built-in rule finds its examples, and nothing else finds them; nothing finds what only looks like a secret."""

import pickle
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from pathlib import Path

import hyperscan
import pytest

import strandline.detect.rules
from strandline.detect.engine import Engine
from strandline.detect.expressions.nodes import width
from strandline.detect.limits import Limits
from strandline.detect.rules.gitleaks import load_builtin
from strandline.detect.rules.rule import Rule, parse_regex
from strandline.detect.tokens.examples import expand
from strandline.detect.tokens.validators import VALIDATORS
from strandline.pipeline.identity import TenantSecretKey
from tests.detect.fakes import rule_examples
from tests.detect.rules.negatives import hard_negatives
from tests.effort import Part, parts

RULES = load_builtin().rules
FOLDER = Path(strandline.detect.rules.__file__).parent
KINDS = {"token", "key", "secret", "password", "private-key", "webhook", "uri", "header"}
SEEDS = 3
SURROUNDINGS = {
    "an environment file": "{name}={value}\n",
    "a quoted variable": 'export {name}="{value}"\n',
    "YAML": "app:\n  {name}: {value}\n",
    "quoted YAML": "  {name}: '{value}'\n",
    "JSON": '{{"a": 1, "{name}": "{value}", "z": []}}',
    "dense JSON": '{{"{name}":"{value}"}}',
    "JSON in a string": '"{{\\"{name}\\": \\"{value}\\"}}"',
    "names and values": '{{"name": "{name}", "value": "{value}"}}',
    "a manifest": '  - name: {name}\n    value: "{value}"\n',
    "a constant": '{name} = "{value}"  # production\n',
    "an annotated constant": '{name}: str = "{value}"\n',
    "an environment that is set": 'os.environ["{name}"] = "{value}"\n',
    "a default": 'x = os.getenv("{name}", "{value}")\n',
    "JavaScript": "const {name} = `{value}`;\n",
    "Go": '{name} := "{value}"\n',
    "Ruby": ":{name} => '{value}',\n",
    "PHP": "$config['{name}'] = '{value}';",
    "XML": "<{name}>{value}</{name}>",
    "a command": "run --{name}={value} --verbose\n",
    "a call": 'set_{name}("{value}")',
    "properties": "app.{name}={value}\r\n",
}
ASSIGNED = re.compile(r"(?:export )?([\w.-]+)=(\S+)")
COMPILE_S_MAX = 20.0
UNBOUNDED = {
    *("aws-session-token", "gcp-service-account", "github-stateless-server-token", "json-web-token"),
    *("private-key", "openssh-private-key", "pgp-private-key"),
}
"""Runs of one class up to a character outside it; Go counts to 1000, and the engine's limit bounds the match."""
OPEN_ENDED = {
    *("amqp-uri", "mongodb-uri", "mysql-uri", "postgresql-uri", "redis-uri", "sqlserver-uri", "zapier-webhook"),
    *("azure-storage-connection-string", "google-chat-webhook", "cloudinary-url"),
}
"""Addresses: what follows the secret is a part of them."""
SEVERAL_PLACES = {
    *("credential-file-git", "credential-file-secrets", "credential-file-snmp"),
    *("generic-config-password", "generic-curl-user", "generic-login-pair", "generic-value-pair"),
    *("generic-quoted-password", "generic-password-list", "generic-sql-password"),
}
"""Their secret stands in one of several groups: the first that took part in the match."""
NAMED_AND_WORDED = {"generic-config-password"}
"""It is for some kinds of files, too many to read all of them, so it has keywords too."""
NAMES_ITSELF = {"azure-app-configuration-string"}
"""Its example begins with a name of its own."""
FAMILIES = (
    *(
        "aws",
        "gcp",
        "azure",
        "digitalocean",
        "alibaba",
        "tencent",
        "ibm",
        "oracle",
        "hetzner",
        "linode",
        "vultr",
        "scaleway",
    ),
    *("ovh", "cloudflare", "fastly", "heroku", "vercel", "netlify", "fly", "render", "railway", "github", "gitlab"),
    *(
        "bitbucket",
        "circleci",
        "travis",
        "buildkite",
        "drone",
        "jenkins",
        "teamcity",
        "sonarqube",
        "snyk",
        "codecov",
        "npm",
    ),
    *("pypi", "rubygems", "nuget", "crates-io", "docker", "artifactory", "clojars", "packagist", "openai", "anthropic"),
    *(
        "huggingface",
        "cohere",
        "replicate",
        "groq",
        "mistral",
        "deepseek",
        "perplexity",
        "xai",
        "elevenlabs",
        "langsmith",
    ),
    *("slack", "discord", "telegram", "twilio", "sendgrid", "mailgun", "mailchimp", "postmark", "intercom", "zendesk"),
    *(
        "microsoft-teams",
        "stripe",
        "square",
        "paypal",
        "braintree",
        "plaid",
        "adyen",
        "razorpay",
        "shopify",
        "coinbase",
    ),
    *(
        "mongodb",
        "postgresql",
        "mysql",
        "redis",
        "amqp",
        "snowflake",
        "databricks",
        "planetscale",
        "supabase",
        "airtable",
    ),
    *(
        "algolia",
        "elastic",
        "confluent",
        "firebase",
        "notion",
        "contentful",
        "sentry",
        "datadog",
        "new-relic",
        "grafana",
    ),
    *(
        "honeycomb",
        "dynatrace",
        "pagerduty",
        "launchdarkly",
        "okta",
        "auth0",
        "jwt",
        "onepassword",
        "vault",
        "terraform",
    ),
    *(
        "doppler",
        "infisical",
        "age",
        "private-key",
        "ssh",
        "pgp",
        "twitter",
        "facebook",
        "linkedin",
        "dropbox",
        "figma",
    ),
    *("linear", "asana", "atlassian", "postman", "typeform", "mapbox", "easypost", "shippo", "duffel"),
)


@pytest.fixture(scope="module")
def compiled() -> tuple[Engine, float]:
    """Return an engine, and the processor time that it took to compile all rules."""
    begun = time.process_time()
    return Engine(load_builtin(), key=TenantSecretKey(bytes(range(32)))), time.process_time() - begun


@pytest.fixture
def engine(compiled: tuple[Engine, float]) -> Engine:
    return compiled[0]


def found(engine: Engine, text: str, path: str = "") -> list[str]:
    return [finding.rule_id for finding in engine.scan(text.encode(), path).findings]


def check_rules(check: Callable[[Rule], None], rules: Iterable[Rule] = RULES) -> None:
    """Check each rule, and name all that fail: a test of its own for each of hundreds takes longer than the checks."""
    failures = {}
    for rule in rules:
        try:
            check(rule)
        except Exception as error:  # noqa: BLE001 - told below
            failures[rule.id] = f"{type(error).__name__}: {error}"
    assert not failures


def provider(rule: Rule) -> str:
    return next((tag.removeprefix("provider:") for tag in rule.tags if tag.startswith("provider:")), "")


def test_a_rule_finds_each_of_its_examples_once_and_no_other_rule_does(engine: Engine) -> None:
    def check(rule: Rule) -> None:
        for text in rule_examples(rule.id, rule.examples):
            assert found(engine, text, rule.example_path) == [rule.id], text

    check_rules(check)


def test_a_rule_finds_its_examples_whatever_the_seed(engine: Engine) -> None:
    def check(rule: Rule) -> None:
        for position, text in enumerate(rule.examples):
            for seed in range(SEEDS):
                expanded = expand(text, f"{rule.id}/{position}/{seed}")
                assert rule.id in found(engine, expanded, rule.example_path), expanded

    check_rules(check)


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
@parts(3)
def test_a_rule_finds_a_secret_in_whatever_surroundings(engine: Engine, surrounding: str, part: Part) -> None:
    tried, missed = 0, []
    for rule in part.of([rule for rule in RULES if rule.path is None]):
        match = ASSIGNED.fullmatch(rule_examples(rule.id, rule.examples)[0])
        if match is not None and rule.id not in NAMES_ITSELF:
            tried += 1
            text = SURROUNDINGS[surrounding].format(name=match[1], value=match[2])
            missed += [] if rule.id in found(engine, text) else [rule.id]
    assert tried > 100
    assert not missed


def test_a_rule_finds_none_of_its_counterexamples(engine: Engine) -> None:
    def check(rule: Rule) -> None:
        for text in rule_examples(f"{rule.id}/none", rule.counterexamples):
            assert rule.id not in found(engine, text, rule.example_path), text

    check_rules(check)


@pytest.mark.parametrize("name", hard_negatives())
def test_no_rule_finds_what_only_looks_like_a_secret(engine: Engine, name: str) -> None:
    text = hard_negatives()[name]
    lines = text.encode().split(b"\n")
    findings = engine.scan(text.encode()).findings
    assert not [(finding.rule_id, lines[finding.line - 1][:200]) for finding in findings]


@pytest.mark.parametrize("path", sorted((FOLDER / "builtin").glob("*.toml")), ids=lambda path: path.stem)
def test_the_rule_files_themselves_hold_no_secret(engine: Engine, path: Path) -> None:
    assert [finding.rule_id for finding in engine.scan(path.read_bytes()).findings] == []


def test_a_rule_is_written_in_full() -> None:
    def check(rule: Rule) -> None:
        assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", rule.id)
        assert rule.description.endswith(".")
        assert rule.regex is not None
        assert rule.secret_group == (rule.id not in SEVERAL_PLACES)
        assert bool(rule.keywords) == (rule.path is None or rule.id in NAMED_AND_WORDED)
        assert bool(rule.example_path) == (rule.path is not None)
        assert all(keyword == keyword.lower() for keyword in rule.keywords)
        assert len(rule.examples) >= 2
        assert len(rule.counterexamples) >= 2
        assert rule.validator is None or rule.validator in VALIDATORS

    check_rules(check)


def test_a_rule_is_tagged_with_its_provider_or_as_generic_and_with_its_kind() -> None:
    def check(rule: Rule) -> None:
        assert rule.is_generic == ("generic" in rule.tags)
        assert rule.is_generic == (not provider(rule))
        assert [tag for tag in rule.tags if tag.startswith("kind:") and tag.removeprefix("kind:") in KINDS]
        assert len(rule.tags) == 2

    check_rules(check)


@parts(24)
def test_an_expression_is_one_of_hyperscan(part: Part) -> None:
    def check(rule: Rule) -> None:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(expressions=[(rule.regex or "").encode()], ids=[0], flags=[0])

    check_rules(check, part.of(RULES))


def test_an_expression_is_one_of_python_and_bounded() -> None:
    def check(rule: Rule) -> None:
        count = re.compile((rule.regex or "").encode()).groups
        assert (count == 1) == (rule.id not in SEVERAL_PLACES)
        assert count
        most = width(parse_regex(rule.id, rule.regex or ""))[1]
        assert (most is None) == (rule.id in UNBOUNDED)
        assert most is None or most <= Limits().match_bytes_max

    check_rules(check)


def test_all_rules_compile_together_in_time(compiled: tuple[Engine, float]) -> None:
    assert compiled[1] < COMPILE_S_MAX


def test_the_engine_needs_no_fall_back_for_any_rule(engine: Engine) -> None:
    assert engine.notes == ()


def test_an_engine_that_was_saved_finds_what_the_first_finds(engine: Engine) -> None:
    again: Engine = pickle.loads(pickle.dumps(engine))  # noqa: S301
    texts = [(rule_examples(rule.id, rule.examples)[0].encode(), rule.example_path) for rule in RULES]
    assert [again.scan(*text) for text in texts] == [engine.scan(*text) for text in texts]
    together = b"\n".join(text for text, path in texts if not path)
    assert again.scan(together) == engine.scan(together)
    assert len(again.scan(together).findings) >= sum(rule.path is None for rule in RULES)


def test_the_rules_are_read_once_in_a_process() -> None:
    assert load_builtin() is load_builtin()


def test_there_are_rules_for_every_family_of_provider() -> None:
    providers = {provider(rule) for rule in RULES}
    assert len(RULES) >= 130
    assert len(providers) >= 120
    assert not set(FAMILIES) - providers


def test_two_tokens_side_by_side_are_two_findings(engine: Engine) -> None:
    text = expand("{{github-crc32:ghp_}} {{github-crc32:ghp_}}\n{{github-crc32:ghp_}},{{github-crc32:ghp_}}", "side")
    assert found(engine, text) == ["github-pat"] * 4


@pytest.mark.parametrize("tail", ["Q7", "q7", "07"])
def test_a_token_that_runs_on_is_not_a_token(engine: Engine, tail: str) -> None:
    rules = [rule for rule in RULES if rule.id not in OPEN_ENDED and rule.path is None]
    texts = {rule.id: rule_examples(rule.id, rule.examples)[0] for rule in rules}
    tried = {name: text for name, text in texts.items() if ASSIGNED.fullmatch(text)}
    assert len(tried) > 300
    assert not [name for name, text in tried.items() if name in found(engine, text + tail * 700)]


def test_a_checksum_that_is_right_proves_a_token_and_one_that_is_wrong_makes_it_doubtful(engine: Engine) -> None:
    good = expand("GITHUB_TOKEN={{github-crc32:ghp_}}", "good")
    (finding,) = engine.scan(good.encode()).findings
    assert finding.confidence == 10
    wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
    (finding,) = engine.scan(wrong.encode()).findings
    assert (finding.rule_id, finding.confidence) == ("github-pat", 1)
    assert found(engine, "GITHUB_TOKEN=ghp_" + "abc123def456" * 3) == []


@pytest.mark.parametrize("name", ["psk", "wifi_psk", "WIFI-PSK"])
def test_a_name_of_a_password_that_an_expression_takes_is_a_keyword_of_it(engine: Engine, name: str) -> None:
    assert found(engine, expand(f'{name} = "{{{{password:16}}}}"', "psk")) == ["generic-password"]


@pytest.mark.parametrize("host", ["localhost:5432", "127.0.0.1", "db", "postgres:5432", "redis"])
def test_a_generated_password_before_a_host_that_everybody_has_is_found_and_a_word_is_not(
    engine: Engine, host: str
) -> None:
    for scheme in ("postgres", "redis", "mysql", "amqp", "mongodb"):
        assert found(engine, expand(f"{scheme}://shop:{{{{base36:18}}}}7@{host}/shop", host)) == [
            {"postgres": "postgresql"}.get(scheme, scheme) + "-uri"
        ]
        for word in (scheme, "harbor", "harbor-lamp", "secret12"):
            assert found(engine, f"{scheme}://shop:{word}@{host}/shop") == []


def test_the_keys_that_vendors_document_are_allowed_and_their_neighbours_are_not(engine: Engine) -> None:
    assert found(engine, "aws_access_key_id = AKIAIOSFODNN7EXAMPLE") == []
    assert found(engine, expand("aws_access_key_id = {{aws-key-id:AKIA}}", "neighbour")) == ["aws-access-key-id"]


def test_what_else_stands_on_a_line_hides_no_generic_secret(engine: Engine) -> None:
    """A file on one line has every name on the line of every secret; reading it for each match is slow too."""
    generic = [rule for rule in RULES if rule.is_generic]
    assert generic
    assert [rule.id for rule in generic if any(one.regex_target == "line" for one in rule.allowlists)] == []
    secrets = ", ".join(f'"api_key": "{expand("{{base62:32}}", seed)}"' for seed in "abc")
    line = f'{{"hashed_token": "", "csrf_token": "", "checksum": 1, "password_hash": "", {secrets}}}'
    assert found(engine, line) == ["generic-api-key"] * 3


def test_a_value_that_only_its_name_marks_is_high_if_it_is_long_and_random(engine: Engine) -> None:
    def confidence(text: str) -> int:
        (finding,) = engine.scan(expand(text, "confidence").encode()).findings
        return finding.confidence

    assert confidence("auth_token: {{base62:32}}") == 5
    assert confidence("auth_token: {{base62:20}}") == 4
    assert confidence("password: Harbor!2031") == 4
    assert confidence('password = "{{base62:6}}<{{base62:9}},7{{base62:9}}>4;2"') == 4
    assert confidence(f"auth_token: {b64encode(b'a lamp at the harbor, 2031').decode()}") == 4
