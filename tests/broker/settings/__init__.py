"""Tests of what a broker is told: by flags and by a configuration file."""
