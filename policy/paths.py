"""The one check of paths that anyone gives: when publishing, listing and reading a context, and in every pattern.

A canonical path is relative and spelt in the one way that there is. What is not canonical is refused, never repaired.
"""

from policy.refusals import NotCanonical

LONGEST_COMPONENT = 255  # bytes: NAME_MAX of Linux
LONGEST = 4096  # bytes: PATH_MAX of Linux
MOST_COMPONENTS = 200
"""So that whatever walks a tree may do so by calling itself."""


def check_path(path: str | bytes) -> str:
    """The path, if it is canonical: relative, of UTF-8, with no empty component. Raises NotCanonical.

    No component is `.` or `..` or longer than 255 bytes; there is no backslash and no NUL; all of it has at most 4,096
    bytes and 200 components.
    """
    text, raw = _both_forms(path)
    if not raw:
        raise _refused(path, "is empty")
    if len(raw) > LONGEST:
        raise _refused(path, f"has more than {LONGEST} bytes")
    if raw.startswith(b"/"):
        raise _refused(path, "is absolute")
    components = text.split("/")
    if len(components) > MOST_COMPONENTS:
        raise _refused(path, f"has more than {MOST_COMPONENTS} components")
    for component in components:
        reason = _wrong_with(component)
        if reason is not None:
            raise _refused(path, reason)
    return text


def check_component(name: str | bytes) -> str:
    """The name, if it could stand in a canonical path as one component. Raises NotCanonical."""
    text, _ = _both_forms(name)
    reason = "has a slash in it" if "/" in text else _wrong_with(text)
    if reason is not None:
        raise _refused(name, reason)
    return text


def check_link(target: bytes, depth: int) -> int:
    """How many folders a symbolic link's target goes up, whose link lies in a folder so many below the top.

    A target is `..` so many times and then a canonical path, or only one of both. As nothing else may go up, a link
    cannot leave the tree, whatever links it leads through. Raises NotCanonical.
    """
    climbs, rest = 0, target
    while rest == b".." or rest.startswith(b"../"):
        climbs, rest = climbs + 1, rest[3:]
    if climbs > depth:
        raise _refused(target, "leads out of the tree")
    if len(target) >= LONGEST:
        raise _refused(target, f"has more than {LONGEST - 1} bytes")
    if rest or not climbs or target.endswith(b"/"):
        check_path(rest)
    return climbs


def _both_forms(path: str | bytes) -> tuple[str, bytes]:
    try:
        if isinstance(path, bytes):
            return path.decode(), path
        return path, path.encode()
    except UnicodeError:
        raise _refused(path, "is not UTF-8") from None


def _wrong_with(component: str) -> str | None:
    if component in ("", ".", ".."):
        return f"has the component '{component}'" if component else "has an empty component"
    if "\\" in component:
        return "has a backslash in it"
    if "\0" in component:
        return "has a NUL in it"
    if len(component.encode()) > LONGEST_COMPONENT:
        return f"has a component of more than {LONGEST_COMPONENT} bytes"
    return None


def _refused(path: str | bytes, reason: str) -> NotCanonical:
    return NotCanonical(path if isinstance(path, bytes) else path.encode(errors="surrogateescape"), reason)
