"""The native CPU kernels: C++ sources, and the shared library once it is built."""
