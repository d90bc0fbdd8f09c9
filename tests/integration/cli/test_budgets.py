"""Budgets from the command line: a task that parks says how to go on, and goes on there."""

from tests.integration.cli.test_start import script
from tests.support.covers import covers
from tests.support.program import Program


@covers("cli.budget", "cli.conversation")
def test_a_task_out_of_budget_names_the_command_that_lets_it_go_on(program: Program) -> None:
    program.configure("[limits]\nsteps = 1\n")
    (program.workspace / "a.txt").write_text("pears\n")
    model = script(program, {"code": "await filesystem.read_file(path='a.txt')"}, {"text": "It is about pears."})
    parked = program("start", "--model", model, "--workspace", program.workspace, "what is it about?", fails=True)
    assert parked.returncode == 3
    (row,) = program.sessions()
    assert f"`curtainwall sessions budget {row['id']} steps 2` allows more" in parked.stderr
    shown = program("sessions", "show", row["id"]).stdout
    assert "what is it about?" in shown
    assert f"the budget of steps is used up: `curtainwall sessions budget {row['id']} steps AMOUNT` allows more" in shown
    again = program("start", "--resume", row["id"], fails=True)
    assert (again.returncode, again.stdout) == (3, ""), "it stays where it is"
    raised = program("sessions", "budget", row["id"], "steps", "2")
    assert "steps    1 of 2 (measured)" in raised.stdout
    assert f"`curtainwall start --resume {row['id']}` goes on" in raised.stderr
    assert "It is about pears." in program("start", "--resume", row["id"]).stdout


@covers("start.a-budget-is-not-waited-for")
def test_a_task_that_waits_for_answers_parks_on_a_budget_which_nobody_can_be_asked_about(program: Program) -> None:
    program.configure('[limits]\nsteps = 1\n[approvals]\ndeadline = "1s"\n')
    model = script(program, {"code": "await filesystem.read_file(path='/etc/hostname')"}, {"text": "It is a machine."})
    parked = program("start", "--on-ask", "wait", "--model", model, "--workspace", program.workspace, "what is it?", fails=True)
    assert parked.returncode == 3
    (row,) = program.sessions()
    assert "nobody answered" in parked.stderr
    assert f"`curtainwall sessions budget {row['id']} steps 2` allows more" in parked.stderr
    assert "/budget" not in parked.stderr, "there is nobody to type a slash word to"
