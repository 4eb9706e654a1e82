"""What is allowed: values in, a value or a Refusal out.

Nothing here does I/O, reads a clock or awaits, so every rule is tested with literals.
"""
