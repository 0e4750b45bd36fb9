"""Placeholders: values in the place of a secret that are none.

Templates (`${TOKEN}`), words of documentation ("changeme", "your-api-key-here"), identifiers (`config.password`), runs
and sequences ("xxxxxxxx", "12345678") are told apart from generated values. Only values that a loose rule found by
their context are checked; a token with a format of its own never is.

Invariants: any bytes are accepted and none raise; the reason is a fixed phrase; six characters of a random token look
like a word or a run less than once in ten thousand.
"""

import re
from typing import NamedTuple


class _Form(NamedTuple):
    reason: str
    pattern: re.Pattern[bytes]


_WORDS = rb"""
    example | change[ _.-]?(?:me|this|it) | placeholder | dummy | sample | redact | replace[ _.-]?(?:me|this|with)
  | (?:^|[ _.<-])(?:your|my|the|some|any|insert|enter|put|add|use|paste|provide|set)[ _.-]?(?:own[ _.-]?)?
    (?:[a-z]{0,12}[ _.-]?)?(?:api|key|token|secret|pass|pwd|value|credential|auth|access|client|private)
  | not[ _.-]?(?:a|an|the|real|used|set|valid)[ _.-]?(?:real|secret|key|token|password|value)?$
  | (?:fake|test|mock|demo|temp|default|invalid|bogus|super)[ _.-]?(?:api|key|token|secret|pass|pwd|value|cred|auth)
  | (?:api|key|token|secret|password|pass)[ _.-]?(?:here|goes|value|string|placeholder|name|field)
  | lorem | foobar | foo[ _.-]?bar | b[a4]dpass | hunter2 | letmein | trustno1 | iloveyou | correct.?horse
  | ^too[ _.-]?(?:short|long|weak|simple|common)\d{0,4}!?$
  | ^no[ _.-]?(?:special|upper|lower|digit|number|symbol)s?(?:[ _.-]?(?:case|char|character)s?)?\d{0,4}!?$
  | to[ _.-]?be[ _.-]?(?:set|filled|replaced|defined) | ^tbd$ | ^todo | fixme | \bn/a\b | undefined | ^none$ | ^null$
  | p[a4@][s5$]{2}(?:w[o0]?r?d|phrase) | ^s[e3]cr[e3]t\d{0,4}!?$
  | ^(?:admin|root|user|guest|postgres|mysql|mongo|redis|rabbitmq)\d{0,4}$
  | ^scram-sha
  | process\.env | os\.(?:environ|getenv) | getenv | env\( | system\.get | secretsmanager | keyvault | vault[:_/(]
"""

_SEQUENCES = rb"""
    (.)\1{5} | (..)\2{4} | (...)\3{3} | 12345678 | 01234567 | 23456789 | 87654321 | 98765432
  | abcdefg | bcdefgh | qwerty | asdfgh | zxcvbn
  | deadbeef | cafebabe | (?:baad|f00d|dead|beef|cafe|face|feed){3} | abc123 | 123abc | a1b2c3 | 1a2b3c
"""

_TEMPLATES = rb"""
    ^\$[A-Za-z_{(\[] | [$\#%@]\{ | \{\{ | \}\} | <%|%> | \$\( | %\(
  | (?:^|[ =:/])%[sdv]\b | ^%[A-Za-z_]+%$ | ^<[^>]*>?$ | ^\{[A-Za-z_.0-9]*\}$ | ^\[[^\]]*\]$
  | \.\.\. | \xe2\x80\xa6 | ^\(|\($|\(\) | ^&[a-z] | ^@[\w-]+[./]
  | ^\^.*\$$ | \[[^\]]{0,8}(?:[aA]-[zZ]|0-9)
  | ^!(?:Ref|Sub|GetAtt|vault|secret)\b | ^__\w+__$ | \*{4}
"""

_IDENTIFIERS = rb"""
    ^[A-Z]?[a-z]+(?:[-_. /:][A-Z]?[a-z]+)*[0-9]?$  # words, and paths of words
  | ^[A-Z]+(?:[-_. /:][A-Z]+)*[0-9]?$            # CONSTANTS
  | ^[A-Za-z]?[a-z]{2,}[0-9]{0,2}(?:[A-Z][a-z]{2,}[0-9]{0,2}|[A-Z]{2,4}(?=[A-Z]|$))+$      # camelCase
  | ^[A-Z]{2,6}[0-9]{0,4}(?:[A-Z][a-z]{2,}[0-9]{0,2})+$        # ACRONYMS7BeforeWords
  | ^[A-Za-z_]+[0-9]{0,5}[A-Za-z_]*(?:(?:\.|->|::|\?\.)[A-Za-z_]+(?:[0-9]{1,5}[A-Za-z_]*){0,3})+(?:[(\[].*)?$  # a.b.c
  | ^[A-Za-z_][\w.]*[(\[] | [(\[{]$              # calls and subscripts
  | ^(?:\.{0,2}|~)(?:/[A-Za-z_.-]+[0-9]{0,3})+/?$ | ^[A-Za-z]:\\
  | ^(?:https?|file|s3|gs|arn|urn|ssm|vault|op|ref|env|data|secret)s?:
"""

_UUID = rb"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_DATE = rb"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?$|^v?[0-9]+(?:\.[0-9]+){1,3}$|^[0-9]{1,12}$"

_HASHES = rb"""
    ^\$(?:2[abxy]|apr1|[1567y]|gy|argon2\w{1,2}|scrypt|pbkdf2[\w-]*|P|H|S)\$
  | ^\$?(?:pbkdf2|bcrypt|scrypt|argon2)\w*[$:]
  | ^(?:sha\d{1,3}|md5|crypt)\$ | ^\{(?:S?SHA\d{0,3}|S?MD5|CRYPT|PBKDF2[\w-]*|bcrypt|noop)\}
"""

_WORD = "a word of documentation"
IDENTIFIER = "an identifier, a path or an address"
_TEMPLATE = _Form("a template's variable", re.compile(_TEMPLATES, re.VERBOSE))
_FORMS = (
    _Form("a hash of a password", re.compile(_HASHES, re.VERBOSE | re.IGNORECASE)),
    _TEMPLATE,
    _Form(_WORD, re.compile(_WORDS, re.VERBOSE | re.IGNORECASE)),
    _Form("a run or a sequence", re.compile(_SEQUENCES, re.VERBOSE | re.IGNORECASE | re.DOTALL)),
    _Form(IDENTIFIER, re.compile(_IDENTIFIERS, re.VERBOSE)),
    _Form("a UUID", re.compile(_UUID)),
    _Form("a date, a version or a number", re.compile(_DATE)),
    _Form("control characters", re.compile(rb"[\x00-\x1f\x7f]")),
)

# What stands in the place of a stored password and is none: references, switches, and words that ask for a value.
_REFERENCES = re.compile(
    rb"""
    ^(?:true|false|yes|no|on|off|null|nil|none|undefined|required|optional|string|empty|prompt|ask|todo|tbd)$
  | change[_.-]?(?:me|this|it) | placeholder | redacted | ^\W*x{4,} | ^[*.x\#-]+$ | ^\d{1,4}$
  | ^(?:your|insert|enter|replace|put|fill)[_.-] | [_.-](?:here|goes_here)$ | your[_.-]?(?:password|token|key|secret)
  | ^[A-Za-z_][\w.>:-]*\( | ^(?:os|process|env|config|settings|self|this|ENV|System|props)[.\[(]
  | ^\$\w | ^\$?\{ | ^%\w+%$
  | ^(?:\.{0,2}|~)/[\w./-]+$ | ^(?:https?|file|vault|op|ssm|arn|awssecret|secret)s?: | \.(?:pem|key|crt|json|ya?ml|txt)$
    """,
    re.VERBOSE | re.IGNORECASE,
)

# Words, short numbers and versions with something between them: names of things, hosts and files.
_PART = rb"(?:[A-Z]?[a-z]{2,}[0-9]{0,3}|[A-Z]{2,}[0-9]{0,3}|[0-9]{1,8}|v[0-9]{1,3})"
_NAMES = re.compile(rb"^(?:\.{0,2}/)?%b(?:[-_./:@]%b)+$" % (_PART, _PART))
# The name of a secret in AWS Secrets Manager: words and six random characters.
_SUFFIXED = re.compile(rb"^(?:[A-Za-z]{3,24}[0-9]{0,3}[-_/.]){1,5}[0-9A-Za-z]{6}$")
_FILES = re.compile(
    rb"\.(?:json|ya?ml|toml|pem|key|crt|cer|txt|csv|md|html?|css|jsx?|tsx?|py|go|rs|java|rb|php|sh|env|xml|log|svg|png)$"
)

# Words that stand where a password could and are none: labels, types, kinds of fields, words of code and of tests.
# Short ones are parts of other words (canyon, latest, shadow), so they count only at the edge of a word.
_SHORT_LABELS = rb"""
    user | auth | text | show | test | fake | mock | none | null | any | type | name | form | html | json
  | http | file | path | config | fail | must | match | admin | bytes | char | object | class | self | this | foo | bar
  | baz | your | never | env | vault | store | basic | digest | query | body | cookie"""
_LABELS = re.compile(
    rb"""
    pass | pwd | passwort | secret | token | credential | login | hash | crypt | plain | hidden | prompt
  | contrase | senha | wachtwoord | salasana | heslo | haslo | adgangskode | parola | jelszo | kennwort | lozinka
  | string | field | input | label | value | valid | enter | confirm | require | option | forgot | reset
  | change | current | default | example | sample | dummy | undefined | empty
  | setting | param | argument | variable | column
  | error | incorrect | wrong | invalid | success | should | cannot | missing | unknown | ignore
  | anonym | public | private | encod | base64 | function | return
  | blah | lorem | whatever | something | unused | disabled | enabled | always
  | ^(?:un)?supported$ | deprecated | ^(?:read|write)[-_.]?only$
  | interactive | keyring | keychain | manager | service | request | response | header | bearer
  | session | optional | generate | random
  | (?:\b|_|(?-i:(?<=[a-z])(?=[A-Z])))(?:%(short)b) | (?:%(short)b)s?(?:\b|_|(?-i:(?<=[a-z])(?=[A-Z]))|[0-9])
    """
    % {b"short": _SHORT_LABELS},
    re.VERBOSE | re.IGNORECASE,
)
_LABEL = "a label, a type or a word of code"
_CHOSEN_WORDS = re.compile(
    rb"[a-z]{6,32}[0-9!?]{0,4}|[a-z]{3,16}(?:[-_.!@#$%^&+][a-z]{2,16}){1,4}[0-9!?]{0,4}|[a-zA-Z]{8,40}"
    rb"|[A-Z]?[a-z]{5,32}[!@#$%^&*?+]{1,3}|[a-z]{2}[!@#$%^&+][a-z]{4,16}"
)
_ONE_LABEL = re.compile(rb"[A-Z][a-z]+|[A-Z]+|(?:[a-z]+|[A-Z][a-z]+)(?:[A-Z][a-z]+)+|(?:[a-z_]+[.])+[a-z_]+")

# A short word, a dot and a generated part (`prd.zVgPRTgc18uWJOyZzRfC`): the form of an identifier, and none.
_PREFIXED = re.compile(
    rb"^[a-z]{1,8}[0-9]{0,2}\.(?=[^0-9]*[0-9][^0-9]*[0-9])(?=[^A-Z]*[A-Z][a-z0-9]*[A-Z])[0-9A-Za-z_-]{16,}$"
)

# A word in its usual disguise with a number behind it: weak, but chosen by its owner.
_DISGUISED = re.compile(
    rb"(?i)(?!password|secret)(?:p[a4@][s5$]{2}w[o0]rd|s[e3]cr[e3]t)(?!0?123|111|000|(?:19|20)[0-9]{2})[0-9]{3,6}[^0-9A-Za-z\s]{0,2}"
)

_LOOKED_AT = 512
_FEW = 5


def placeholder_reason(value: bytes) -> str | None:
    """Return why a value is a placeholder, or None if it does not look like one."""
    head = value[:_LOOKED_AT].rstrip(b".,:;")
    if not head.isascii() and not _is_text(head):
        return "bytes of no text"
    if len(set(head)) < _FEW:
        return "too few different characters"
    reason = next((form.reason for form in _FORMS if form.pattern.search(head)), None)
    is_secret = (reason == IDENTIFIER and _PREFIXED.match(head)) or (reason == _WORD and _DISGUISED.fullmatch(head))
    return None if is_secret else reason


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as problem:
        return problem.end >= len(head) == _LOOKED_AT  # a character that the cut split
    return True


def reference_reason(value: bytes) -> str | None:
    """Return why a value in a file of credentials is no secret itself, or None if it may be one, however weak."""
    head = value[:_LOOKED_AT].rstrip(b",;")
    if _TEMPLATE.pattern.search(head):
        return _TEMPLATE.reason
    return "a reference, a switch or a word that asks for a value" if _REFERENCES.search(head) else None


# A template, a call or a subscript: what stands between quotes and is replaced or evaluated.
_EVALUATED = re.compile(
    rb"""
    [$\#%@]\{[^}]*\} | \{\{ | \}\} | <%|%> | \$\([^)]*\) | %\(\w*\)[sdr]? | ^<[\w .-]+>$ | ^\{[\w.-]*\}$
  | ^\[[^\]]*\]$ | ^[A-Za-z_][\w.:>-]*\(.*\)[;,]?$ | ^[A-Za-z_]\w*(?:\[[^\]]*\])+$
  | \w\[["'] | :// | \\[ux][0-9a-fA-F]{2} | <[/!]?[a-z]+[ />]
  | \.\.\. | \*{4} | ^\.{0,2}[/\\] | ^%[sdvq]$ | [a-z]\(\) | ^\(?\?[:!=<] | => | [aA]-[zZ]
  | 0-9 | \\[dwsDWS] | [\]}.][+*]\W?\Z
    """,
    re.VERBOSE,
)


def quoted_reason(value: bytes) -> str | None:
    """Return why a value with brackets or commas, between quotes, is no password, or None if it may be one."""
    head = value[:_LOOKED_AT]
    if _FORMS[0].pattern.search(head):
        return _FORMS[0].reason
    if _EVALUATED.search(head):
        return _TEMPLATE.reason
    letters = re.sub(rb"[^0-9A-Za-z]", b"", head)
    if len(set(head)) < _FEW or len(letters) < _FEW:
        return "too few different characters"
    return next(
        (
            form.reason
            for form in _FORMS
            if form.reason != IDENTIFIER and form is not _TEMPLATE and form.pattern.search(letters)
        ),
        None,
    )


def word_reason(value: bytes) -> str | None:
    """Return why a value in the place of a token is a name, or None if it does not look like one."""
    head = value[:_LOOKED_AT]
    if _NAMES.search(head) or _SUFFIXED.search(head):
        return "words with something between them"
    return "the name of a file" if _FILES.search(head) else None


def label_reason(value: bytes) -> str | None:
    """Return why words are a label or a sentence, or None if they may have been chosen."""
    return _LABEL if _LABELS.search(value) or re.search(_WORDS, value, re.VERBOSE | re.IGNORECASE) else None


def chosen_reason(value: bytes) -> str | None:
    """Return why words in the place of a password are none that a person chose, or None if they may be one."""
    if not _CHOSEN_WORDS.fullmatch(value):
        return "no words"
    if len(set(value)) < _FEW or _ONE_LABEL.fullmatch(value):
        return _LABEL
    reason = label_reason(value)
    if reason:
        return reason
    reason = placeholder_reason(value)
    return reason if reason != IDENTIFIER else reference_reason(value)
