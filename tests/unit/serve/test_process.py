"""A process that stays."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from curtainwall.serve.process import open_many_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
open_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def _limits(soft: int, hard: int) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM.format(soft=soft, hard=hard)], check=True, capture_output=True, text=True)
    return [int(each) for each in ran.stdout.split()]


def test_it_opens_as_many_files_as_it_may() -> None:
    assert _limits(256, 1024) == [1024, 1024]
    assert _limits(1024, 1024) == [1024, 1024]


_ALLOCATES = """
import ctypes, threading
from curtainwall.serve.process import return_freed_memory
{call}


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info

def mapped():
    return libc.mallinfo2().hblks


def heaps():
    libc.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    return text.value.count(b"<heap ")


before = mapped()
conversation = bytes(16 * 1024 * 1024)
del conversation
summaries = [bytes(1024 * 1024) for _ in range(20)]
own = mapped() - before

meet = threading.Barrier(12)

def work():
    kept = bytes(10_000)
    meet.wait()


threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(own, heaps())
"""


def _allocated(call: str) -> tuple[int, int]:
    """Return how many of twenty big blocks go back to the system when they are freed, and how many heaps twelve threads have."""
    ran = subprocess.run([sys.executable, "-c", _ALLOCATES.format(call=call)], check=True, capture_output=True, text=True)
    own, heaps = ran.stdout.split()
    return int(own), int(heaps)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this is about the allocator of glibc")
def test_memory_that_was_needed_once_goes_back_to_the_system() -> None:
    own, heaps = _allocated("")
    assert own < 20
    assert heaps > 2
    assert _allocated("return_freed_memory()") == (20, 2)
