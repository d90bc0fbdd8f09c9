"""`python -m curtainwall` is the same program as `curtainwall` and `cw`."""

from curtainwall.app.main import program

if __name__ == "__main__":
    program()
