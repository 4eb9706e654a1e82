"""`fusefs run`: a program in a call behaves as if it had been run directly, in a place of its own."""
