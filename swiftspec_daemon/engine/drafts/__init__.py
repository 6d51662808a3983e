"""Drafts of one target: what they propose, in this process or in one of their own."""
