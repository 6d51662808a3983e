"""A local daemon that streams inline code completions."""

__version__ = "0.1.0"
