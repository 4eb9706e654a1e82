"""Which paths of a context may be seen: what a rule includes and does not exclude.

A pattern is a canonical path, in components that `*`, `?` and `[…]` stand for characters in. A component `**` stands
for any number of components, and at the end for one or more. A pattern that matches a path covers what lies below, so
`hr` covers all of it. Capitals matter; a leading dot is nothing special.

A rule is looked at name by name, from the top down. So it is known of a folder, without a look into it, that all of it
may be seen, or nothing; only where neither is so, what is in it decides. A folder in which nothing may be seen is not
there.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

_ANY = "**"


class Patterns:
    """Some patterns, of which a path is to match one. A state is where in each of them a path has come to.

    States are sets of (pattern, position in it), or None once a pattern covers the path.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        """Each pattern is a canonical path already."""
        self._patterns = [[_component(part) for part in pattern.split("/")] for pattern in patterns]
        self.start: State = frozenset(
            place for index in range(len(self._patterns)) for place in self._with_skipped(index, 0)
        )

    def _with_skipped(self, index: int, position: int) -> "list[tuple[int, int]]":
        """A place, and those after it that are there already because `**` may stand for nothing, but at the end."""
        pattern = self._patterns[index]
        places = [(index, position)]
        while pattern[position] is None and position + 1 < len(pattern):
            position += 1
            places.append((index, position))
        return places

    def after(self, state: "State", name: str) -> "State":
        """Where a path has come to with one component more."""
        if state is None:
            return None
        reached: set[tuple[int, int]] = set()
        for index, position in state:
            pattern = self._patterns[index]
            part = pattern[position]
            if part is not None and not part.fullmatch(name):
                continue
            if position + 1 == len(pattern):
                return None
            reached.update(self._with_skipped(index, position if part is None else position + 1))
        return frozenset(reached)


State = frozenset[tuple[int, int]] | None
"""None: covered. Empty: no pattern can come to match."""


def _component(part: str) -> re.Pattern[str] | None:
    return None if part == _ANY else re.compile(fnmatch.translate(part), re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """What may be seen: what a pattern of `include` covers, and none of `exclude`."""

    include: tuple[str, ...] = (_ANY,)
    exclude: tuple[str, ...] = ()

    @cached_property
    def included(self) -> Patterns:
        """The patterns of `include`."""
        return Patterns(self.include)

    @cached_property
    def excluded(self) -> Patterns:
        """The patterns of `exclude`."""
        return Patterns(self.exclude)


class Sight:
    """What may be seen of one folder, or file, of a tree: by all of some rules. Two of the same are equal."""

    __slots__ = ("_rules", "_states", "is_all", "is_nothing")

    def __init__(self, rules: Sequence[Rule], states: "tuple[tuple[State, State], ...]") -> None:
        self._rules = tuple(rules)
        self._states = states
        self.is_nothing = any(excluded is None or included == frozenset() for included, excluded in states)
        """Neither this path nor anything below it."""
        self.is_all = all(included is None and excluded == frozenset() for included, excluded in states)
        """This path, and everything below it."""

    @classmethod
    def of_all(cls, sights: "Sequence[Sight]") -> "Sight":
        """What may be seen by all of these."""
        rules = [rule for each in sights for rule in each._rules]
        return cls(rules, tuple(state for each in sights for state in each._states))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sight) and (self._rules, self._states) == (other._rules, other._states)

    def __hash__(self) -> int:
        return hash((self._rules, self._states))

    @property
    def is_this(self) -> bool:
        """This path itself, if it is that of a file, or of a folder with nothing in it."""
        return all(included is None and excluded is not None for included, excluded in self._states)

    def of(self, name: str) -> "Sight":
        """What may be seen of something in this folder."""
        if self.is_all:
            return self
        states = tuple(
            (rule.included.after(included, name), rule.excluded.after(excluded, name))
            for rule, (included, excluded) in zip(self._rules, self._states, strict=True)
        )
        return Sight(self._rules, states)


def sight(rules: Sequence[Rule]) -> Sight:
    """What may be seen of a whole tree. A second rule can only narrow what the first one lets be seen."""
    states = tuple((_settled(rule.included.start, rule), rule.excluded.start) for rule in rules)
    return Sight(rules, states)


def _settled(state: State, rule: Rule) -> State:
    """Of a rule that includes everything, at once: so nothing that it excludes nothing of is ever looked at."""
    return None if _ANY in rule.include else state


ALL = sight([])
"""Everything."""
