"""Tests, laid out as `src/strandline` is."""
