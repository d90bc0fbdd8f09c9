import pytest

from curtainwall.compose.tools import share_limits
from curtainwall.config.loader import parse_config
from curtainwall.host import MIB, limits_of_this_machine


def test_what_is_left_out_goes_by_the_machine() -> None:
    assert share_limits(parse_config("").sandboxes) == limits_of_this_machine()


def test_what_is_written_holds_and_a_total_that_was_left_out_is_never_less_than_a_part() -> None:
    limits = share_limits(parse_config("[sandboxes]\nsession-commands = 1000\nsession-memory = 10000000\n").sandboxes)
    assert (limits.session_commands, limits.commands) == (1000, 1000)
    assert limits.session_memory == limits.memory == 10_000_000 * MIB
    limits = share_limits(parse_config("[sandboxes]\nmemory = 64\ncommands = 5\n").sandboxes)
    assert limits.session_memory == limits.memory == 64 * MIB
    assert (limits.session_commands, limits.commands) == (4, 5)
    limits = share_limits(parse_config("[sandboxes]\ncommands = 2\nprocesses = 100\n").sandboxes)
    assert (limits.session_commands, limits.commands) == (2, 2)
    assert (limits.session_processes, limits.processes) == (100, 100)
    limits = share_limits(parse_config("[sandboxes]\nsession-processes = 5000\n").sandboxes)
    assert limits.session_processes == limits.processes == 5000


@pytest.mark.parametrize("part", ["commands", "memory", "processes"])
def test_a_part_that_is_more_than_the_whole_is_refused_with_its_name(part: str) -> None:
    with pytest.raises(ValueError, match=f"`session-{part}` is 9, more than the 8"):
        parse_config(f"[sandboxes]\nsession-{part} = 9\n{part} = 8\n")
