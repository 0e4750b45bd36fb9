"""Benchmarks, one module per component; `make bench` runs every one whose name has no leading underscore."""
