"""Tests of the installed package: what each extra brings, and what each part does with its extra and without."""
