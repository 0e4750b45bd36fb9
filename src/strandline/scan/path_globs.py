r"""Path globs, a documented subset of git's `.gitignore` patterns.

    # comment           a line of its own; `\#` and `\!` begin a pattern with that character
    *.pem               no slash but at the end: any file or folder of that name, at any depth
    /build, docs/*.key  a slash at the beginning or in the middle: from the root
    vendor/             a slash at the end: a folder, and all that is in it
    ** / * / ?          any folders; any characters but a slash; one character but a slash
    [a-z] [!0-9]        one character of a class
    !keep.pem           includes again what an earlier pattern excluded; the last match decides

Unlike in git, a file in an excluded folder can be included again, and a pattern that matches an archive matches its
members (`outer!inner`). Trailing spaces are ignored.

Invariants: pure; a pattern is matched in time linear in the path; an invalid pattern is an error with
the line's number.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from strandline.errors import InvalidInput


class Glob(NamedTuple):
    """One pattern: its line, its text, whether it includes again, and its expression."""

    line: int
    text: str
    puts_in: bool
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class PathGlobs:
    """Patterns in their order; the last that matches a path decides."""

    globs: tuple[Glob, ...] = ()
    source: str = "path globs"

    def leaving_out(self, path: str) -> Glob | None:
        """Return the pattern that excludes a path, or None."""
        clean = clean_path(path)
        for glob in reversed(self.globs):
            if glob.pattern.fullmatch(clean):
                return None if glob.puts_in else glob
        return None


def clean_path(path: str) -> str:
    """Return a path with slashes, without `./` before it: as fingerprints and globs name it."""
    clean = path.replace("\\", "/")
    while clean.startswith("./"):
        clean = clean[2:].lstrip("/")
    return clean


def parse_globs(text: str, source: str = "path globs") -> PathGlobs:
    """Return the patterns of a text, one on a line."""
    globs = [glob for number, line in enumerate(text.splitlines(), 1) if (glob := _parse(line, number, source))]
    return PathGlobs(tuple(globs), source)


def _parse(line: str, number: int, source: str) -> Glob | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    puts_in = text.startswith("!")
    body = text[1:] if puts_in or text.startswith(("\\#", "\\!")) else text
    is_folder = body.endswith("/")
    body = body.rstrip("/") if is_folder else body
    if not body.strip("/"):
        raise InvalidInput(f"{source}, line {number}: a pattern of slashes alone", hint="write ** to mean everything")
    rooted = "/" in body
    pattern = ("" if rooted else "(?:.*/)?") + _translated(body.removeprefix("/"), number, source)
    pattern += "/.*" if is_folder else "(?:[/!].*)?"
    return Glob(number, text, puts_in, re.compile(pattern, re.DOTALL))


def _translated(body: str, number: int, source: str) -> str:
    """Return a body as an expression; the segments between two `**` are matched at their first place only.

    An earlier place leaves more of the path to the rest, so no other has to be tried (atomic groups). Otherwise the
    time would grow with a power of the number of `**`.
    """
    runs: list[list[str]] = [[]]
    for segment in body.split("/"):
        if segment != "**":
            runs[-1].append(_segment(segment, number, source))
        elif len(runs) == 1 or runs[-1]:
            runs.append([])
    parts = ["".join(f"{segment}/" for segment in run) for run in runs]
    parts[-1] = "/".join(runs[-1])
    if len(runs) == 1:
        return parts[0]
    between = [f"(?>(?:[^/]+/)*?{part})" for part in parts[1:-1]]
    return "".join([parts[0], *between, f"(?:[^/]+/)*?{parts[-1]}" if runs[-1] else ".+"])


_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)|\[(?P<not>[!^]?)(?P<set>\]?[^\]]*)\]|(?P<plain>.)")


def _segment(segment: str, number: int, source: str) -> str:
    """Return a segment as an expression; text between two stars is matched at its first place only, as above."""
    runs = [""]
    for token in _TOKEN.finditer(segment):
        if token["stars"]:
            runs.append("")
        elif token["any"]:
            runs[-1] += "[^/]"
        elif token["set"] is not None:
            runs[-1] += _class(token["not"], token["set"], number, source)
        elif token["plain"] == "[":
            raise InvalidInput(f"{source}, line {number}: a class of characters is not closed")
        else:
            runs[-1] += re.escape(token["escaped"] or token["plain"])
    first, *others = runs
    between = [f"(?>[^/]*?{run})" for run in others[:-1] if run]
    return "".join([first, *between, *(f"[^/]*{run}" for run in others[-1:])])


def _class(negated: str, members: str, number: int, source: str) -> str:
    ranges = re.findall(r"(.)-(.)|(.)", members, re.DOTALL)
    if any(low > high for low, high, _ in ranges):
        raise InvalidInput(f"{source}, line {number}: a range of characters runs backwards")
    body = "".join(f"{re.escape(low)}-{re.escape(high)}" if low else re.escape(one) for low, high, one in ranges)
    return f"(?!/)[{'^' if negated else ''}{body}]"
