"""Measures fusefs beside a plain directory and other FUSE filesystems: python -m tools.bench (docs/performance.md)."""
