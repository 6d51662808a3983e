"""Fused kernels, one fusion a file. Imports none of the project's other packages."""
