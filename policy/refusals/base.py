"""What every refusal is."""


class Refusal(Exception):
    """A rule said no. `message` is the text for people; `{name}` in it stands for the field of that name."""

    errno: int
    message: str

    def __str__(self) -> str:
        return self.message.format_map(vars(self))
