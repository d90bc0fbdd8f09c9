"""Entry script of a code worker: sets limits, confines itself, and becomes the worker.

The launcher that `workers` writes runs it as `python -I -S worker_entry.py STDERR HOW MEMORY FILTER WORD … -- ARGUMENT …`. It imports only
the standard library. The WORDs depend on HOW: `bubblewrap` (its command line, up to the worker's name), `landlock` (the number of
`execveat`, the worker, its loader or an empty word, its libraries) or `none` (the worker). STDERR is `quiet`, or `loud` to keep standard
error for a trial.
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
"""The path of the worker inside bubblewrap."""


def main(argv: list[str]) -> None:
    """Become the worker; exit with 126 if the confinement cannot be set up."""
    stderr, how, memory, program, *words = argv
    end = words.index("--")
    words, arguments = words[:end], words[end + 1 :]
    try:
        _set_up_process(stderr, int(memory))
        match how:
            case "bubblewrap":
                # Bubblewrap reads it and closes it.
                filter_words = ["--seccomp", str(_pipe_with(bytes.fromhex(program)))] if program else []
                os.execve(words[0], ["bwrap", *words[1:], *filter_words, "--", INSIDE, *arguments], {})  # noqa: S606 - no shell is the point
            case "landlock":
                _become_landlocked(words, arguments, bytes.fromhex(program))
            case _:
                _leave_session()
                os.execve(words[0], ["monty", *arguments], {})  # noqa: S606 - no shell is the point
    except OSError as fault:
        os.write(2, f"{fault}\n".encode())
        os._exit(126)


def _set_up_process(stderr: str, memory: int) -> None:
    """Close inherited descriptors and set the limits."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if int(name) > 2:
                os.close(int(name))
    if stderr == "quiet":
        # INVARIANT: the worker cannot write to our terminal or log, or read from them. Its output goes to its pipe.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        os.close(nothing)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    os.chdir("/")
    for which, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
        # The kernel counts everything this user runs, so this stops a flood of threads, not this worker's own few.
        (resource.RLIMIT_NPROC, _MOST_TASKS),
        (resource.RLIMIT_DATA, memory),
    ):
        hard = resource.getrlimit(which)[1]
        allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(which, (allowed, allowed))


def _leave_session() -> None:
    # The leader of a process group, as started by an interactive shell, cannot leave it.
    with suppress(PermissionError):
        os.setsid()


def _pipe_with(content: bytes) -> int:
    """Return an inheritable descriptor that reads as this short content; a pipe, because the limits allow no file to be written."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    os.set_inheritable(reading, True)
    return reading


def _become_landlocked(words: list[str], arguments: list[str], program: bytes) -> None:
    # Imported here because bubblewrap starts faster without it.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long

    def system_call(what: str, number: int, *values: int | bytes | None) -> int:
        answer = int(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(value) if isinstance(value, int) else value for value in values)))
        if answer < 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
        return answer

    def control(what: str, option: int, *values: int | ctypes.Array[ctypes.c_char]) -> None:
        padded = [*values, 0, 0, 0, 0][:4]
        if libc.prctl(option, *(ctypes.c_ulong(value) if isinstance(value, int) else value for value in padded)) < 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    def install(rules: bytes) -> None:
        buffer = ctypes.create_string_buffer(rules, len(rules))
        filter_struct = struct.pack("@HP", len(rules) // 8, ctypes.addressof(buffer))
        control("system-call filter", _SET_SECCOMP, _FILTER_MODE, ctypes.create_string_buffer(filter_struct, len(filter_struct)))

    start, binary, loader, *libraries = words
    worker = os.open(binary, os.O_PATH | os.O_CLOEXEC)
    _leave_session()
    # Root regains its capabilities with every program it starts, unless the bounding set is empty. A root that may not even drop them (in
    # some containers) has few, and the filter leaves no system call to use them with.
    with suppress(OSError):
        for capability in range(int(_read("/proc/sys/kernel/cap_last_cap")) + 1):
            control("capabilities", _CAPBSET_DROP, capability)
    with suppress(OSError):
        control("capabilities", _CAP_AMBIENT, _CLEAR_ALL)
    if libc.capset(struct.pack("=Ii", _CAPABILITIES_V3, 0), bytes(24)) < 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")
    control("no new privileges", _SET_NO_NEW_PRIVS, 1)

    handled = _ruleset_attributes(system_call("landlock", _CREATE_RULESET, None, 0, _ASK_VERSION))
    rules = system_call("landlock", _CREATE_RULESET, handled, len(handled), 0)
    for path in (binary, loader, *libraries):
        if path:
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = _READ_FILE if path in libraries else _READ_FILE | _EXECUTE
            system_call("landlock", _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, file), 0)
            os.close(file)
    system_call("landlock", _RESTRICT_SELF, rules, 0)
    os.close(rules)
    # If our parent is gone already, the worker reads the end of its input and exits.
    control("death with its parent", _SET_PDEATHSIG, _SIGKILL)

    # INVARIANT: this starts one program, once. The call must pass this very buffer, whose address nobody inside knows; a wrong guess kills.
    nowhere = ctypes.create_string_buffer(1)
    install(_only_with_path_at(ctypes.addressof(nowhere), int(start)))
    install(program)
    if libc.open(b"/", 0) >= 0 or libc.socket(1, 1, 0) >= 0:
        raise OSError("the confinement was made and does not hold")
    argv = (ctypes.c_char_p * (len(arguments) + 2))(b"monty", *map(os.fsencode, arguments), None)
    empty = (ctypes.c_char_p * 1)(None)
    libc.syscall(ctypes.c_long(int(start)), ctypes.c_long(worker), nowhere, argv, empty, ctypes.c_long(_AT_EMPTY_PATH))
    raise OSError(ctypes.get_errno(), f"{binary}: {os.strerror(ctypes.get_errno())}")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _ruleset_attributes(version: int) -> bytes:
    """Return the ruleset attributes for everything that this version of Landlock can restrict."""
    files = (1 << 13) - 1 | sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if version >= since)
    words = [files]
    if version >= 4:
        words.append(0b11)  # binding and connecting TCP
    if version >= 6:
        words.append(0b11)  # abstract sockets and signals that lead outside
    return struct.pack(f"={len(words)}Q", *words)


def _only_with_path_at(address: int, start: int) -> bytes:
    """Return a filter that kills a process which makes the starting call with a path at any other address."""
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
