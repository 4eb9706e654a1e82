"""How long a worker is waited for: until it is killed because it hangs, or does not do as it was told."""

GRACE_S = 10.0
"""For a worker to do as it was told."""
START_S = 60.0
"""For a worker to be ready; until then it has no heartbeat."""
STOOD_STILL_S = 3.0
"""After so long without a call it was this process that stood still, and what it missed does not count."""


class Patience:
    """Patience with one worker after the other. All times are monotonic seconds."""

    def __init__(self, hang_s: float, now: float) -> None:
        self._hang_s = hang_s
        self._asked_at = self._since = now
        self._ends_at: float | None = None

    def begin(self, now: float) -> None:
        """For a new worker."""
        self._since, self._ends_at = now, None

    def told(self, now: float) -> None:
        """It was told something that ends it."""
        self._ends_at = now + GRACE_S

    def complaint(self, now: float, last_beat: float, *, is_ready: bool) -> str | None:
        """Why the worker is to be killed now, if it is; then not again before it has had the time to be gone."""
        if now - self._asked_at > STOOD_STILL_S:
            self._since = now
        self._asked_at = now
        if self._ends_at is not None:
            why = f"did not end within {GRACE_S:g} s" if now > self._ends_at else None
        else:
            still = now - max(last_beat, self._since)
            why = f"hangs, for {still:.1f} s now" if still > (self._hang_s if is_ready else START_S) else None
        if why is not None:
            self.told(now)  # the kernel may have it wait for a disk
        return why
