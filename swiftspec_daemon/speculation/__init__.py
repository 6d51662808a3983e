"""The pure parts of speculative decoding: what decides tokens, trees, planning. NumPy at most."""
