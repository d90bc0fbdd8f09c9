import pytest

from curtainwall.model import CommandFacts, Resource, Role
from curtainwall.policy.cedar import parse_rules
from curtainwall.policy.coverage import aliases_of_command, forbids_by_name, named_programs
from curtainwall.policy.entities import Entity

HEAD = 'forbid (principal, action == Action::"run-command", resource)'


@pytest.mark.parametrize(
    ("rule", "is_by_name"),
    [
        ('forbid (principal, action, resource in Program::"rm");', True),
        ('forbid (principal, action, resource is Command in Program::"rm");', True),
        ('forbid (principal, action, resource == Command::"rm x");', True),
        ('permit (principal, action, resource in Program::"rm");', False),
        (f'{HEAD} when {{ resource in Program::"rm" }};', True),
        (f'{HEAD} when {{ resource.text like "rm *" || resource in Program::"dd" }};', True),
        (f'{HEAD} when {{ resource.parsed && resource.text == "rm" }};', True),
        (f'{HEAD} unless {{ !(resource in Program::"rm") }};', True),
        (f'{HEAD} unless {{ resource != Command::"rm x" }};', True),
        (f'{HEAD} when {{ resource in Program::"rm" }} unless {{ resource.text like "rm -i *" }};', True),
        (f'{HEAD} when {{ if context.approved then resource in Program::"rm" else resource in Program::"dd" }};', True),
        (f'{HEAD} unless {{ resource in Program::"git" }};', False),
        (f'{HEAD} when {{ !(resource.text like "/opt/*") }};', False),
        (f'{HEAD} when {{ resource != Command::"ls" }};', False),
        (f'{HEAD} when {{ resource in Program::"rm" || context.mode == "plan" }};', False),
        (f'{HEAD} unless {{ resource.parsed && !(resource.text like "*;*") && resource.text like "git *" }};', False),
        (f"{HEAD} when {{ !resource.parsed }};", False),
    ],
)
def test_a_forbid_by_name_is_told_from_one_that_spares_a_name(rule: str, is_by_name: bool) -> None:
    (written,) = parse_rules("x", rule)
    assert forbids_by_name(written.expr) is is_by_name


def names(text: str, program: str, *, parsed: bool, named: frozenset[str] = frozenset({"rm", "dd"})) -> tuple[str, list[str]] | None:
    resource = Resource(role=Role.RUN_COMMAND, value=text, facts=CommandFacts(program=program, parsed=parsed))
    entity = Entity(("Command", text), {"text": text, "parsed": parsed}, (("Program", program),) if program else ())
    other = aliases_of_command(entity, resource, named)
    return None if other is None else (other.uid[1], [name for _, name in other.parents])


def test_a_path_is_also_its_last_part() -> None:
    assert names("/bin/rm -f x", "/bin/rm", parsed=True) == ("rm -f x", ["/bin/rm", "rm"])
    assert names("rm -f x", "rm", parsed=True) is None
    assert names("ls rm", "ls", parsed=True) is None


def test_what_cannot_be_parsed_is_whatever_it_mentions_of_what_is_forbidden() -> None:
    assert names("x=rm; dd", "", parsed=False) == ("x=rm; dd", ["dd", "rm"])
    assert names("/usr/bin/watch rm", "/usr/bin/watch", parsed=False) == ("watch rm", ["/usr/bin/watch", "watch", "rm"])
    assert names("x=1", "", parsed=False) is None


def test_the_programs_that_rules_name_are_known() -> None:
    rules = parse_rules("x", 'forbid (principal, action, resource in Program::"rm") when { resource in Program::"dd" };')
    assert named_programs(rule.expr for rule in rules) == {"rm", "dd"}
