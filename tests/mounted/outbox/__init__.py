"""The outbox on a real mount: what programs are told, what leaves a turn, and what cannot be made to leave it."""
