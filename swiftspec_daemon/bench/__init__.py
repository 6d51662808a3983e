"""Benchmarks: what the project's figures are and how they are measured and reported."""
