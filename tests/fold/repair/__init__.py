"""Tests of repairs of a fold."""
