"""fusefs: one mount that gives every turn a workspace with live limits."""

__version__ = "0.1.0"
