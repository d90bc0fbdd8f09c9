"""The way into a code worker's confinement: a program of its own that tidies up, locks the door from inside, and becomes the worker.

Run as `python -I -S worker_entry.py VOICE HOW MEMORY FILTER WORD … -- ARGUMENT …` by the launcher that `workers` writes. It imports the
standard library alone. The WORDs are for HOW: `bubblewrap` (its command line, up to the worker's name), `landlock` (the number
of `execveat`, the worker, its loader or an empty word, its libraries) or `none` (the worker). A `loud` VOICE keeps standard error, for
trying it out.
"""

import os
import resource
import struct
import sys
from contextlib import suppress

_MOST_FILES, _MOST_TASKS = 64, 16_384
# prctl
_SET_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 1, 22, 24, 38, 47
_SIGKILL, _FILTER_MODE, _CLEAR_ALL, _CAPABILITIES_V3 = 9, 2, 4, 0x20080522
# Landlock; the same numbers on every architecture
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _ASK_VERSION, _PATH_BENEATH = 444, 445, 446, 1, 1
_EXECUTE, _READ_FILE = 1, 4
_AT_EMPTY_PATH = 0x1000

INSIDE = "/monty"
"""Where bubblewrap is told to show the worker."""


def main(argv: list[str]) -> None:
    """Become the worker; ends with 126 where the confinement cannot be made."""
    voice, how, memory, program, *words = argv
    end = words.index("--")
    words, arguments = words[:end], words[end + 1 :]
    try:
        _tidy(voice, int(memory))
        match how:
            case "bubblewrap":
                # Read by bubblewrap, and closed by it.
                filtered = ["--seccomp", str(_pipe_with(bytes.fromhex(program)))] if program else []
                os.execve(words[0], ["bwrap", *words[1:], *filtered, "--", INSIDE, *arguments], {})  # noqa: S606 - no shell is the point
            case "landlock":
                _become_locked(words, arguments, bytes.fromhex(program))
            case _:
                _leave_session()
                os.execve(words[0], ["monty", *arguments], {})  # noqa: S606 - no shell is the point
    except OSError as fault:
        os.write(2, f"{fault}\n".encode())
        os._exit(126)


def _tidy(voice: str, memory: int) -> None:
    """Let go of what was inherited and set the bounds."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if int(name) > 2:
                os.close(int(name))
    if voice == "quiet":
        # INVARIANT: our terminal and our log are not the worker's to write to, or to read from. What it has to say goes to its pipe.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        os.close(nothing)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    os.chdir("/")
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
        # Counts everything this user runs, so it bounds a flood of threads, not this worker's own few.
        (resource.RLIMIT_NPROC, _MOST_TASKS),
        (resource.RLIMIT_DATA, memory),
    ):
        hard = resource.getrlimit(which)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (allowed, allowed))


def _leave_session() -> None:
    # Whoever leads a group of processes, as from an interactive shell, cannot leave it.
    with suppress(PermissionError):
        os.setsid()


def _pipe_with(content: bytes) -> int:
    """Return a descriptor that reads as this, and stays open over the next start; for little, and no file is bounded away from it."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    os.set_inheritable(reading, True)
    return reading


def _become_locked(words: list[str], arguments: list[str], program: bytes) -> None:
    # Only here: bubblewrap starts sooner without it.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long

    def ask(what: str, number: int, *given: int | bytes | None) -> int:
        answer = int(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(one) if isinstance(one, int) else one for one in given)))
        if answer < 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
        return answer

    def control(what: str, option: int, *given: int | ctypes.Array[ctypes.c_char]) -> None:
        padded = [*given, 0, 0, 0, 0][:4]
        if libc.prctl(option, *(ctypes.c_ulong(one) if isinstance(one, int) else one for one in padded)) < 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    def install(rules: bytes) -> None:
        kept = ctypes.create_string_buffer(rules, len(rules))
        whole = struct.pack("@HP", len(rules) // 8, ctypes.addressof(kept))
        control("system-call filter", _SET_SECCOMP, _FILTER_MODE, ctypes.create_string_buffer(whole, len(whole)))

    start, binary, loader, *libraries = words
    worker = os.open(binary, os.O_PATH | os.O_CLOEXEC)
    _leave_session()
    # Root gets its capabilities back with every program it starts, unless none are left to be had. A root that may not even give them up
    # (in some containers) has few, and no system call to use them with.
    with suppress(OSError):
        for capability in range(int(_read("/proc/sys/kernel/cap_last_cap")) + 1):
            control("capabilities", _CAPBSET_DROP, capability)
    with suppress(OSError):
        control("capabilities", _CAP_AMBIENT, _CLEAR_ALL)
    if libc.capset(struct.pack("=Ii", _CAPABILITIES_V3, 0), bytes(24)) < 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")
    control("no new privileges", _SET_NO_NEW_PRIVS, 1)

    handled = _handled(ask("landlock", _CREATE_RULESET, None, 0, _ASK_VERSION))
    rules = ask("landlock", _CREATE_RULESET, handled, len(handled), 0)
    for path in (binary, loader, *libraries):
        if path:
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = _READ_FILE if path in libraries else _READ_FILE | _EXECUTE
            ask("landlock", _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, file), 0)
            os.close(file)
    ask("landlock", _RESTRICT_SELF, rules, 0)
    os.close(rules)
    # If our parent is gone by now, nobody feeds this worker any more: it reads the end of its input and ends.
    control("death with its parent", _SET_PDEATHSIG, _SIGKILL)

    # INVARIANT: this starts one program, once. The call must name this very buffer, whose place nobody inside knows; a guess is the end.
    nowhere = ctypes.create_string_buffer(1)
    install(_only_from(ctypes.addressof(nowhere), int(start)))
    install(program)
    if libc.open(b"/", 0) >= 0 or libc.socket(1, 1, 0) >= 0:
        raise OSError("the confinement was made and does not hold")
    given = (ctypes.c_char_p * (len(arguments) + 2))(b"monty", *map(os.fsencode, arguments), None)
    empty = (ctypes.c_char_p * 1)(None)
    libc.syscall(ctypes.c_long(int(start)), ctypes.c_long(worker), nowhere, given, empty, ctypes.c_long(_AT_EMPTY_PATH))
    raise OSError(ctypes.get_errno(), f"{binary}: {os.strerror(ctypes.get_errno())}")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _handled(version: int) -> bytes:
    """Return everything that this version of Landlock can take away."""
    files = (1 << 13) - 1 | sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if version >= since)
    words = [files]
    if version >= 4:
        words.append(0b11)  # binding and connecting TCP
    if version >= 6:
        words.append(0b11)  # abstract sockets and signals, to whoever is not in here
    return struct.pack(f"={len(words)}Q", *words)


def _only_from(address: int, start: int) -> bytes:
    """Return a filter that kills whoever makes the starting call with another path than the one at this address."""
    load, equal, verdict = 0x20, 0x15, 0x06
    path = 16 + 8
    return b"".join(
        struct.pack("=HBBI", *rule)
        for rule in (
            (load, 0, 0, 0),
            (equal, 0, 5, start),
            (load, 0, 0, path),
            (equal, 0, 2, address & 0xFFFFFFFF),
            (load, 0, 0, path + 4),
            (equal, 1, 0, address >> 32),
            (verdict, 0, 0, 0x80000000),
            (verdict, 0, 0, 0x7FFF0000),
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
