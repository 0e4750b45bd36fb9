"""Tests of streaming scans of a journal."""
