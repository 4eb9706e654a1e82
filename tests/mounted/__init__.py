"""Real programs on real mounts, beside a plain directory: the same results and the same errors."""
