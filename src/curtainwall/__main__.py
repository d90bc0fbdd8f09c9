"""`python -m curtainwall` is the same program as `curtainwall` and `cw`."""

from curtainwall.cli.entry import program

if __name__ == "__main__":
    program()
