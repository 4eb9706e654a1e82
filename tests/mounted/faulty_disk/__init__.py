"""EIO and ENOSPC of the disk below: they reach the program that asked, and nothing and nobody else."""
