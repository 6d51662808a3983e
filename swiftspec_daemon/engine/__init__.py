"""The engine: its torch-free face for the daemon, and the workers that hold the models."""
