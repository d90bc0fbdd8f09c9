"""The start and the end of the program. Import it only to run the program: until that is loaded, Ctrl-C ends the process silently."""

import ctypes
import gc
import os
import resource
import signal
import sys

INTERRUPTED = 130
_SET_DUMPABLE = 4


def _leave(_number: int, _frame: object) -> None:
    os._exit(INTERRUPTED)


# Our parent may have set it to be ignored, as a shell does for background jobs.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)


def program() -> None:
    """Run the program and end the process."""
    # Imported objects never become garbage, and scanning them repeatedly costs a tenth of a second.
    gc.disable()
    _keep_memory_private()
    # Late: they take a while, during which Ctrl-C should end us silently.
    from curtainwall.cli.main import main
    from curtainwall.cli.streams import make_streams_print_everything, open_missing_streams

    # Our parent may have set it to be ignored; then neither we nor our sandboxes would notice that a child ends.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    open_missing_streams()
    make_streams_print_everything()
    try:
        _restore_interrupts()
        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if "pydantic_monty" in sys.modules:
        # The code interpreter's threads can crash Python's shutdown; everything of ours is closed by now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _keep_memory_private() -> None:
    """Prevent core dumps of us and our children, which may contain keys, and keep this user's other programs from reading our memory.

    Every child inherits the limit. A dump that the kernel pipes to a program ignores it, so we also make ourselves undumpable; for a
    child, that ends when it executes another program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _restore_interrupts() -> None:
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
