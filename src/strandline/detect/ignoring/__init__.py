"""Ignoring: findings that somebody has decided not to see, left out, counted and listed with the reason.

ignores      what is asked, in which order, and the `.gitleaksignore`
baselines    findings that were seen before
globs        paths
"""

from strandline.detect.ignoring.baselines import Baseline, format_baseline, parse_baseline
from strandline.detect.ignoring.globs import PathGlobs, parse_globs
from strandline.detect.ignoring.ignores import Cause, Fingerprint, Ignores, Reason, parse_ignore_file

__all__ = [
    "Baseline",
    "Cause",
    "Fingerprint",
    "Ignores",
    "PathGlobs",
    "Reason",
    "format_baseline",
    "parse_baseline",
    "parse_globs",
    "parse_ignore_file",
]
