"""Forms in which other people write credentials are found, and what stands beside them in such files is not.

Each text is of our own writing; its form is one that public collections of examples showed to be missed. The secret is
between the two marks.
"""

import pytest

from strandline.detect.engine import Engine
from strandline.detect.results import Found
from strandline.detect.rules.gitleaks import load_builtin
from strandline.detect.tokens.examples import expand
from strandline.pipeline.identity import TenantSecretKey

FOUND = {
    "a password of a network device": ("a.txt", "enable password ⟦{{base36:18}}⟧\n"),
    "a password of an installer": ("ks.txt", "rootpw --plaintext ⟦{{base36:18}}⟧\n"),
    "a password of a preseed": ("a.txt", "d-i passwd/user-password-again password ⟦{{base36:18}}⟧\n"),
    "a password without a sign (Groovy)": ("build.gradle", 'storePassword "⟦{{base36:18}}⟧"\n'),
    "a key without a sign (Clojure)": ("a.clj", '{:api-key "⟦{{base62:40}}⟧"'),
    "a key behind an arrow (R)": ("a.R", 'api_key <- "⟦{{base62:32}}⟧"\n'),
    "a list of passwords": ("a.py", "passwords = ['⟦{{password:14}}⟧']"),
    "a list of passwords (YAML)": ("a.yml", 'admin_passwords:\n  - "⟦{{base36:18}}⟧"\n'),
    "a pair of names (Python)": ("a.py", 'user, password = "root", "⟦{{base36:18}}⟧"'),
    "a pair of names (Go)": ("a.go", 'rootPass, host := "⟦{{base36:18}}⟧", "db"'),
    "an option of libcurl": ("a.php", "curl_setopt($ch, CURLOPT_USERPWD, 'jo:⟦{{base36:18}}⟧');"),
    "an address of Oracle": ("a.txt", "jdbc:oracle:thin:shop/⟦{{base36:18}}⟧@//db.acme.io:1521/shop"),
    "a list of chpasswd (cloud-init)": ("a.yml", "chpasswd:\n  list: |\n    root:⟦{{base36:18}}⟧\n"),
    "a default behind a description (CloudFormation)": (
        "cf.yml",
        "DBPassword:\n    Description: Password of the database\n    Type: String\n    Default: ⟦{{base36:18}}⟧\n",
    ),
    "a key in a sentence": ("a.txt", "Your API key is ⟦{{base62:32}}⟧\n"),
    "a token in a sentence": ("a.txt", "Access Token ⟦{{hex:40}}⟧\n"),
    "a key of Consul": ("a.hcl", 'encrypt = "⟦{{bytes64:32}}⟧"'),
    "a password of rsync": ("rsyncd.secrets", "backup:⟦harbor-lantern⟧\n"),
    "a third argument (PHP)": ("a.php", "ftp_login($ftp, 'shop', '⟦{{base36:18}}⟧');"),
    "a fourth argument (Paramiko)": ("a.py", 'ssh.connect(host, 22, "root", "⟦{{base36:18}}⟧")'),
    "a network's password (Arduino)": ("a.ino", 'WiFi.begin("acme", "⟦{{base36:18}}⟧");'),
    "a statement without quotes (Oracle)": ("a.sql", "CREATE USER shop IDENTIFIED BY ⟦{{lower:9}}22⟧;"),
    "a password for a named user": ("a.txt", 'The default password for the user "shop" is "⟦{{base36:18}}⟧".'),
    "a host with user and password": ("a.txt", "10.0.4.7 (root/⟦{{base36:18}}⟧)"),
    "a value of its own line (unattended setup)": (
        "a.xml",
        "<Password>\n  <Value>⟦{{base36:18}}⟧</Value>\n</Password>",
    ),
    "a disguised word with a number": ("a.yml", "password: ⟦P@ssw0rd7683!⟧\n"),
    "a disguised word with a number, in an address": ("a.yml", "f: ftp://jo:⟦S3cr3t8849!⟧@ftp.acme.io/x\n"),
    "a variable of fish": ("config.fish", "set -gx DEPLOY_TOKEN ⟦{{base62:40}}⟧\n"),
    "a variable of csh": (".cshrc", "setenv DB_PASSWORD ⟦{{base36:18}}⟧\n"),
    "a password in a variable of nginx": ("nginx.conf", 'set $ldap_password "⟦{{password:16}}⟧";'),
    "a UUID in a manifest": ("deploy.yaml", '- name: API_KEY\n  value: "⟦{{uuid:}}⟧"'),
    "a UUID with a type (Rust)": ("lib.rs", 'const ACCESS_TOKEN: &str = "⟦{{uuid:}}⟧";'),
    "a UUID in a row of SQL": ("a.sql", "VALUES ('access_token', '⟦{{uuid:}}⟧');"),
    "a UUID as a default (Terraform)": (
        "a.tf",
        'variable "api_key" {\n  type    = string\n  default = "⟦{{uuid:}}⟧"\n}',
    ),
    "a UUID in a table": ("a.md", "| API_KEY | `⟦{{uuid:}}⟧` |"),
    "a key in a table": ("a.md", "| MASTER_KEY | `⟦{{bytes64:32}}⟧` |"),
    "a key as an option": ("a.sh", "shop login --encryption-key ⟦{{hex:32}}⟧ --region eu"),
    "a padded key as an option": ("a.sh", "shop login --session-secret ⟦{{bytes64:32}}⟧ --region eu"),
    "a password as an option with a short name": ("a.sh", "shop login --db-pass ⟦{{password:14}}⟧ --region eu"),
    "a key with a name of its own in small letters": ("a.hcl", 'inventory_key = "⟦{{hex:32}}⟧"'),
    "a key with a name of its own in camel case": ("a.json", '{"inventoryKey": "⟦{{base62:40}}⟧"}'),
    "a password with brackets": ("a.json", '{"password": "⟦{{base62:5}}<{{base62:4}}7,Q{{base62:4}}>{⟧"}'),
    "a password with a semicolon": ("a.py", "DB_PASSWORD = '⟦{{base62:5}};({{base62:4}}7,Q{{base62:4}}⟧'"),
    "a password of the machine itself": ("a.py", 'URL = "postgres://jo:⟦{{base36:17}}7⟧@localhost:5432/shop"'),
    "words in a variable": ("a.sh", "DB_PASSWORD=⟦harbor-lantern-canyon⟧ ./shop"),
    "words as an option": ("a.sh", "shop login --db-password=⟦harborlantern⟧"),
    "words as a default (Terraform)": (
        "a.tf",
        'variable "db_password" {\n  type    = string\n  default = "⟦harborlantern⟧"\n}',
    ),
    "words in a dense pair": ("a.json", '[{"key":"db_password","value":"⟦harborlantern⟧"}]'),
    "a generated part behind a dot": ("a.yml", "ACME_TOKEN: ⟦prd.z{{base62:8}}Q7k2T{{base62:12}}⟧"),
    "a type between name and sign (Go)": ("main.go", 'var shopToken string = "⟦{{base62:40}}⟧"'),
    "a password with a type (Go)": ("main.go", 'const dbPassword string = "⟦{{password:14}}⟧"'),
    "a value that a constructor wraps": ("Shop.java", 'String password = new String("⟦{{base36:18}}⟧");'),
    "a name that ends with auth": ("a.ini", "registry_auth = ⟦{{base62:40}}⟧"),
    "a name that ends with creds": ("a.ini", "deploy-creds = ⟦{{base62:40}}⟧"),
    "a license key": ("a.xml", "<license_key>⟦{{base62:32}}⟧</license_key>"),
    "a name that ends with pw": ("a.txt", "FTP_PW=⟦{{password:12}}⟧"),
    "words after the name": ("a.py", 'API_TOKEN_FOR_THE_SHOP = "⟦{{base62:40}}⟧"'),
    "a UUID behind a name in camel case": ("A.cs", 'readonly string shopToken = "⟦{{uuid:}}⟧";'),
    "a UUID in an element": ("a.xml", "<apiToken>\n    ⟦{{uuid:}}⟧\n</apiToken>"),
    "a UUID behind a make variable": ("Makefile", 'API_TOKEN ::= "⟦{{uuid:}}⟧"'),
    "a UUID as an option": ("a.sh", "sync --shop-api_token ⟦{{uuid:}}⟧ --all"),
    "a bearer token as an option": ("a.sh", 'curl --oauth2-bearer "⟦{{base62:32}}⟧" https://api.acme.io'),
    "curl over lines": (
        "a.sh",
        "curl -X POST https://acme.io/a \\\n  -H 'Accept: text/plain' \\\n  -u jo:⟦{{base62:16}}⟧\n",
    ),
    "curl with short options together": ("a.sh", 'curl -sku "jo@acme.io:⟦{{password:16}}⟧" https://acme.io'),
    "curl without a user": ("a.sh", 'curl -u ":⟦{{password:12}}⟧" https://acme.io'),
    "curl without a password": ("a.sh", 'curl -u "⟦{{base62:24}}⟧:" https://acme.io'),
    "curl with a quoted password": ("a.sh", "curl --user jo:'⟦{{password:16}}⟧' https://acme.io"),
    "curl with a value behind two blanks": ("a.sh", "curl --user  'jo:⟦{{password:12}}⟧' https://acme.io"),
    "a short token in a header that is sent": ("a.sh", 'curl -H "Token: ⟦{{base62:12}}⟧" https://acme.io'),
    "a variable of nginx": ("nginx.conf", "set $apikey ⟦{{uuid:}}⟧;"),
    "a header that nginx adds": ("nginx.conf", 'proxy_set_header X-Shop-Key "⟦{{base62:32}}⟧";'),
    "a variable of Apache": ("a.conf", "SetEnv API_TOKEN ⟦{{base62:32}}⟧\n"),
    "the arguments of a directory's login": (
        "A.cs",
        'new DirectoryEntry("LDAP://acme.io",\n  "ACME\\\\svc", "⟦{{base36:18}}⟧")',
    ),
    "a key that is nothing but a name, in an environment file": (".env", "SECRET_KEY=⟦{{lower:9}}⟧"),
    "Laravel's key with a length of its own": (".env", "APP_KEY=base64:⟦{{base62:44}}⟧"),
    "a weak login of npm": (".npmrc", "_auth = ⟦{{bytes64:9}}⟧"),
    "a weak password in the address of a database": (
        "mongoid.yml",
        "uri: mongodb://jo:⟦{{lower:8}}⟧@db1.acme.io:27017/shop",
    ),
    "a sentence": ("notes.txt", "The password for the new host is ⟦{{base62:17}}7⟧."),
    "a sentence in quotes": ("notes.txt", "the password for jo is '⟦{{base62:17}}7⟧'"),
    "a note in brackets": ("notes.txt", "ssh jo@10.0.4.7 (pw:⟦{{base62:17}}7⟧)"),
    "a note in French": ("notes.txt", "Mot de passe : ⟦{{base62:17}}7⟧"),
    "a note in Korean": ("notes.txt", "비밀번호: ⟦{{base62:17}}7⟧"),
    "a note in Russian": ("notes.txt", "Пароль - ⟦{{base62:17}}7⟧"),
    "a note in Chinese": ("notes.txt", "密码：⟦{{base62:17}}7⟧"),  # noqa: RUF001 - the colon of that language
    "a note in Japanese": ("notes.txt", "パスワードは ⟦{{base62:17}}7⟧"),
    "a login behind both names": ("notes.txt", "ID/PW: deploy/⟦{{base62:17}}7⟧"),
    "a login behind both names, in words": ("notes.txt", "Username / Password: jo@acme.io / ⟦{{base62:17}}7⟧"),
    "a word that ends with a sign": ("web.config", '<add key="MailPassword" value="⟦{{lower:12}}⟧$"/>'),
}
CLEAN = {
    "disguised words as everybody writes them": (
        "a.yml",
        "password: P@ssw0rd\npassword: P@ssw0rd123\nadmin_password: S3cr3t2024\n",
    ),
    "directives and lists without a secret": (
        "a.txt",
        """
enable password recovery on the console
rootpw --lock
unexpected token 'identifier'
tokens = ["identifier", "number"]
encrypt = "true"
user, password = "user", "password"
curl_setopt($ch, CURLOPT_USERPWD, "user:password");
jdbc:oracle:thin:user/password@//localhost:1521/x
CREATE USER shop IDENTIFIED BY password;
plans of a user are identified by plancache_list (note 2)
Access token AuthenticationTokenProvider2Factory
""",
    ),
    "keys of sites and addresses of contracts": (
        "a.js",
        """
const RECAPTCHA_SITE_KEY = "6Le{{base62:37}}";
address constant TOKEN = 0x{{hex:40}};
{"nextToken": "{{bytes64:48}}", "primaryKey": "{{hex:32}}", "object_key": "{{hex:40}}", "publicKey": "{{bytes64:32}}"}
""",
    ),
    "hashes of passwords in statements": (
        "auth.sql",
        "INSERT INTO users VALUES (1, 'jo@acme.io', '$2b$12${{base62:53}}');",
    ),
    "hashes of passwords in a document": ("a.json", '{"password": "$2a$10${{base62:53}}"}'),
    "regular expressions of passwords": (
        "a.js",
        """password: "^(?=.*[A-Z])(?=.*[0-9]).{8,}$", passwordRule: "^[A-Z]{2}[a-z]+[0-9]{4}$" """,
    ),
    "paths and calls beside the name of a password": (
        "a.py",
        """
data = read(join(pwd, './data/set-1.csv'))
password = "#{node['Acme1']['password']}"
password="%(user)s,%(secret)s;%(Host1)s"
""",
    ),
    "tokens of requests": (
        "a.sh",
        """
aws wafv2 delete-ip-set --lock-token {{uuid:}}
aws ec2 run-instances --client-token {{uuid:}}
nextToken = "{{uuid:}}"
clientRequestToken: "{{uuid:}}"
String csrfToken = "{{uuid:}}";
""",
    ),
    "an option that begins as another": ("a.sh", "mysql -u root --password shop\n"),
    "variables given to curl": (
        "a.sh",
        """
curl -u "$USER:$PASSWORD" https://acme.io
curl --user "${U}":"${P}" https://acme.io
curl -u ":" https://acme.io
curl -u 'test:test' https://acme.io
curl -u jo:[PASSWORD] https://acme.io
curl -u "jo" https://acme.io
curl --user "{{ v.user }}:{{ v.password }}" https://acme.io
curl https://acme.io
docker run -u 1000:1000 a
""",
    ),
    "what is said about keys": (
        "a.py",
        """
secret_key_id = "{{base62:32}}"
TOKEN_CONTRACT_ADDRESS = "0x{{hex:40}}"
api_key_sha256 = "{{hex:64}}"
token_for_tests_of_names = "a_name_of_something_else_entirely"
""",
    ),
    "unions of types": (
        "keys.pyi",
        """
Exchange: TypeAlias = X25519PrivateKey | X448PrivateKey
def load(key: x25519.X25519PrivateKey | x448.X448PrivateKey | None) -> AccessToken | OAuth2RefreshToken: ...
""",
    ),
    "sentences about passwords": (
        "notes.txt",
        """
The password is required.
The password for this is incorrect.
Mot de passe : obligatoire
User/password login is off.
Username/Password: see the wiki
Pass --enable-external-sha256 to configure.
int set_password(gnutls_x509_crq_t crq)
""",
    ),
    "settings of a server without a value": (
        "nginx.conf",
        'set $apikey "";\nproxy_set_header X-Api-Key $http_x_api_key;\nproxy_set_header Host $host;\n',
    ),
    "an environment file to copy": (".env.example", "SECRET_KEY=anything1\nDB=postgres://a:anything1@db.acme.io/x\n"),
    "an address of one's own": (".env", "DB=postgres://user:password@localhost/x\nB=postgres://a:${P}@db.acme.io/x\n"),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(load_builtin(), key=TenantSecretKey(bytes(range(32))))


def findings(engine: Engine, path: str, text: str) -> tuple[Found, ...]:
    return engine.scan(text.encode(), path).findings


@pytest.mark.parametrize("form", FOUND)
@pytest.mark.parametrize("seed", range(3))
def test_a_form_of_strangers_is_found(engine: Engine, form: str, seed: int) -> None:
    path, marked = FOUND[form]
    before, _, rest = expand(marked, f"{form}/{seed}").partition("⟦")
    secret, _, after = rest.partition("⟧")
    start, end = len(before.encode()), len((before + secret).encode())
    found = findings(engine, path, before + secret + after)
    assert [one.rule_id for one in found if one.start < end and one.end > start], before + secret + after
    assert not [one.rule_id for one in found if one.end <= start or one.start >= end]


@pytest.mark.parametrize("what", CLEAN)
@pytest.mark.parametrize("seed", range(3))
def test_what_stands_beside_them_is_not(engine: Engine, what: str, seed: int) -> None:
    path, text = CLEAN[what]
    expanded = expand(text, f"{what}/{seed}")
    lines = expanded.splitlines()
    assert [(one.rule_id, lines[one.line - 1]) for one in findings(engine, path, expanded)] == []
