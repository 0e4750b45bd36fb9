"""Tests of jobs; workers of Spark import their sources by this name."""
