"""Tests of the pipeline in SQL."""
