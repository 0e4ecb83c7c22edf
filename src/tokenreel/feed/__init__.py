"""Feeds: what a training loop iterates."""
