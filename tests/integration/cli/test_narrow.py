"""Lists in terminals that are narrower than they are."""

import pytest

from tests.support.covers import covers
from tests.support.program import Program

pytestmark = pytest.mark.usefixtures("tmux")


@covers("cli.narrow")
def test_what_one_has_to_copy_from_a_list_is_whole_in_a_narrow_terminal(program: Program) -> None:
    program("start", "--model", "demo", "read /etc/hostname", fails=True)
    (session,), approval = [row["id"] for row in program.sessions()], program.open_approval()
    grant = program.json("approve", approval, "--for", "session")["grant"]
    for words, wanted in ((("sessions", "list"), session), (("grants", "list", "--all"), grant), (("tools", "list"), "session.recall")):
        for size in (60, 40):
            with program.terminal(*words, size=(size, 50), COLUMNS="") as screen:
                assert screen.exit_code() == 0
                long = [line for line in screen.screen.splitlines() if len(line) > size and not line.startswith("Pane is dead")]
                assert not long, "no line goes on in the next row by itself"
                assert wanted in screen.screen.split()
    row = program("sessions", "list", COLUMNS="40").stdout.splitlines()[1]
    assert row.startswith(f"{session}  "), "what is read by a program does not depend on the terminal"
