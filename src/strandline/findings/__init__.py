"""Findings: list, judge, compare and export what was found.

reports    findings for people and programs, in the formats that each of them reads
"""

from strandline.findings import reports

__all__ = ["reports"]
