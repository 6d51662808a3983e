"""Entry point of the `swiftspec` command."""
