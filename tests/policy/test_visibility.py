"""Rules of what may be seen, against a matcher that is written another way."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.visibility import ALL, Rule, Sight, sight

NAMES = ("a", "b", "hr", "x.key")
PATHS = ["/".join(names) for length in (1, 2, 3) for names in product(NAMES, repeat=length)]


def seen(start: Sight, path: str) -> Sight:
    for name in path.split("/"):
        start = start.of(name)
    return start


def is_visible(rules: list[Rule], path: str) -> bool:
    return seen(sight(rules), path).is_this


def expected(rule: Rule, path: str) -> bool:
    return _covers(rule.include, path) and not _covers(rule.exclude, path)


def _covers(patterns: tuple[str, ...], path: str) -> bool:
    """As the documentation has it: a pattern matches the path, or a folder above it."""
    parts = path.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(_regex(pattern).fullmatch(each) for pattern in patterns for each in above)


def _regex(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("/")
    made = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            made += "[^/]+(/[^/]+)*" if last else "([^/]+/)*"
        else:
            made += re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") + ("" if last else "/")
    return re.compile(made, re.DOTALL)


@pytest.mark.parametrize(
    ("include", "exclude", "visible", "hidden"),
    [
        (("**",), (), ["a", "a/b"], []),
        (("**",), ("hr/**",), ["a", "a/hr/b"], ["hr/a", "hr/a/b"]),
        (("**",), ("hr",), ["a"], ["hr", "hr/a"]),
        (("**",), ("**/*.key",), ["a", "key"], ["x.key", "a/b/x.key", "x.key/a"]),
        (("public/**",), (), ["public/a", "public/a/b"], ["a", "public2/a"]),
        (("public",), ("public/a",), ["public/b"], ["public/a", "public/a/b"]),
        (("a/*/c",), (), ["a/b/c", "a/b/c/d"], ["a/b", "a/b/d", "a/c"]),
        (("**/docs/**/x",), (), ["docs/x", "a/docs/b/c/x"], ["docs", "docs/y", "x"]),
        (("[ab]?",), (), ["a1", "bz/c"], ["a", "c1", "a12"]),
        (("A",), (), ["A"], ["a"]),
        ((), (), [], ["a"]),
    ],
)
def test_rules(include: tuple[str, ...], exclude: tuple[str, ...], visible: list[str], hidden: list[str]) -> None:
    rule = Rule(include, exclude)

    assert [path for path in visible if not is_visible([rule], path)] == []
    assert [path for path in hidden if is_visible([rule], path)] == []


patterns = st.lists(
    st.lists(st.sampled_from(["a", "b", "hr", "*", "**", "x.*", "?", "*r"]), min_size=1, max_size=4).map("/".join),
    max_size=3,
).map(tuple)
rules = st.builds(Rule, patterns, patterns)


@given(rules)
def test_a_rule_is_what_the_documentation_says(rule: Rule) -> None:
    assert [is_visible([rule], path) for path in PATHS] == [expected(rule, path) for path in PATHS]


@given(rules, rules)
def test_a_second_rule_can_only_narrow(first: Rule, second: Rule) -> None:
    both = [is_visible([first, second], path) for path in PATHS]

    assert both == [expected(first, path) and expected(second, path) for path in PATHS]


@given(rules)
def test_all_and_nothing_hold_for_what_is_below(rule: Rule) -> None:
    for path in (path for path in PATHS if path.count("/") < 2):
        here = seen(sight([rule]), path)
        below = [is_visible([rule], deeper) for deeper in PATHS if deeper.startswith(path + "/")]
        if here.is_all:
            assert all(below)
        if here.is_nothing:
            assert not any(below)


def test_everything_is_known_to_be_everything_without_a_look() -> None:
    assert ALL.is_all
    assert sight([Rule()]).is_all
    assert sight([Rule(exclude=("hr/**",))]).of("a").is_all
    assert sight([Rule(exclude=("hr/**",))]).of("hr").of("a").is_nothing
