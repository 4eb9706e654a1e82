"""How many live turns an org, and the whole mount, may hold."""

from policy.refusals import TooManyTurns


def check_begin(org: str, held_by_org: int, held_by_all: int, max_per_org: int, max_all: int) -> None:
    """Raise TooManyTurns where one more turn of `org` is one too many; the org's own bound goes first."""
    if held_by_org >= max_per_org:
        raise TooManyTurns(f"org {org}", held_by_org, max_per_org)
    if held_by_all >= max_all:
        raise TooManyTurns("the mount", held_by_all, max_all)
