"""The native CPU kernels: a whole forward pass of int8 weights in one call.

C++ sources with a C interface (`api.h`), the Python side that builds, loads and calls them, and
the same arithmetic in plain NumPy (`reference.py`). Imports none of the project's other packages;
importing it loads nothing.
"""
