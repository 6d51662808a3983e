"""Worker processes and their life."""
