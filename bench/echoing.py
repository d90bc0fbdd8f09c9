"""An agent that answers at once, as a process of its own: each line that comes in goes back out."""

import sys


def main() -> None:
    """Echo lines until the other side ends."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
