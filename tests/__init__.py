"""Tests: policy with literals, fusefs without a mount, and real programs on real mounts."""
