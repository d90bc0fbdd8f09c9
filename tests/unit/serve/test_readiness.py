"""What becomes of the variables of a service manager."""

import os

import pytest

from curtainwall.serve.readiness import NotifySocket
from tests.support.covers import covers


@covers("serve.tells-its-manager")
def test_the_variables_are_taken_so_that_no_child_speaks_in_our_name() -> None:
    environ = {"PATH": "/usr/bin", "NOTIFY_SOCKET": "/run/none", "WATCHDOG_USEC": "200000", "WATCHDOG_PID": str(os.getpid())}
    NotifySocket(environ)
    assert environ == {"PATH": "/usr/bin"}


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/run/none/none"}])
def test_a_manager_that_does_not_listen_stops_nobody(environ: dict[str, str]) -> None:
    manager = NotifySocket(environ)
    manager.ready("serving")
    manager.stopping()
