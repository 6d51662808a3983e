"""Backends, each behind `swiftspec_daemon.engine.backend.Backend`; loaded in workers only."""
