"""`python -m curtainwall` is the same program as `curtainwall` and `cw`."""

import sys

from curtainwall.app.main import main

if __name__ == "__main__":
    sys.exit(main())
