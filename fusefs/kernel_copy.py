"""What is known of the copy of a listing that the kernel keeps (fs/fuse/readdir.c)."""


class Copy:
    """What is known of the kernel's copy of a directory's listing.

    `grown` tells whether entries came since a listing was begun last, `half_listed` whether none was read to its end
    since.
    """

    __slots__ = ("grown", "half_listed")

    def __init__(self, known: bool) -> None:
        """Of a copy of which nothing is known the worst is."""
        self.grown = self.half_listed = not known

    def begin(self) -> bool:
        """A listing begins: whether entries may be missing in a copy that is half read."""
        may_miss = self.grown and self.half_listed
        self.grown, self.half_listed = False, True
        return may_miss

    def end(self) -> None:
        """A listing was read to its end."""
        self.half_listed = False
