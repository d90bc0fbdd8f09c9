"""Numbers of things in words for people, the same on every channel."""


def counted(many: int, one: str, more: str = "") -> str:
    """Return how many there are of something, as `1 turn` or `2 turns`."""
    return f"{many} {one if many == 1 else more or f'{one}s'}"
