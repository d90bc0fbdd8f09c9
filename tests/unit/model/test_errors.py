"""Errors: every refusal has a code of its own, under which another process raises it again."""

from curtainwall.model import REFUSALS, BadCall, CommandRefused, CurtainwallError


def test_every_refusal_has_a_code_of_its_own() -> None:
    def family(kind: type[CommandRefused]) -> list[type[CommandRefused]]:
        return [kind, *(found for below in kind.__subclasses__() for found in family(below))]

    coded = [kind for kind in family(CommandRefused) if "code" in vars(kind)]
    assert {kind.code: kind for kind in coded} == REFUSALS
    assert len(coded) == len(REFUSALS)


def test_a_bad_call_says_which_rule_refuses_it() -> None:
    bad = BadCall("invalid-arguments", "`x` is no path")
    assert (bad.rule, str(bad)) == ("invalid-arguments", "`x` is no path")
    assert isinstance(bad, CurtainwallError)
