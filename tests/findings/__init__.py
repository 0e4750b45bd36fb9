"""Tests of `strandline.findings`."""
