"""The first lines of the program, and its last. Importing this is being it: until it can say anything, Ctrl-C ends it without a word."""

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


# Whoever started us may have it ignored, as a shell does in the background.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)


def program() -> None:
    """Be the program: run it and end the process."""
    # Nothing that is imported becomes garbage. To look for some in it, again and again and at the end, takes a tenth of a second.
    gc.disable()
    _keep_memory_private()
    from curtainwall.cli.main import main  # late: it takes a while, in which nothing can be told yet

    # Whoever started us may have ignored it, and then neither we nor our sandboxes would hear of the end of a child.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _have_streams()
    try:
        _heed_interrupts()
        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if "pydantic_monty" in sys.modules:
        # The threads of the interpreter for programs can crash Python's own ending; everything of ours is closed by now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _keep_memory_private() -> None:
    """Leave no core dump of keys that are in our memory, nor of what we start, and let no other program of this user read that memory.

    The limit is inherited by every child. A dump that the kernel pipes to a program does not heed it, so we cannot be dumped at all; a
    child can again from the moment it is another program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _heed_interrupts() -> None:
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _have_streams() -> None:
    """Lead to nowhere what whoever started us has closed, so that no file of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
