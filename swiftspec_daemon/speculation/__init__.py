"""Sampling, constraints and (later) token trees: pure Python and NumPy, no other room of ours."""
