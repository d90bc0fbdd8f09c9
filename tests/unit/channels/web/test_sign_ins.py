"""Sign-ins: codes work once, cookies are found again after a restart, and the file lets nobody in."""

from pathlib import Path

import pytest

from curtainwall.channels.web.sign_ins import CODE_LIFE, SignIns
from curtainwall.model import Broken
from tests.support.covers import covers
from tests.support.houses import FakeClock

LIFE = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sign_ins(tmp_path: Path, clock: FakeClock) -> SignIns:
    return SignIns(tmp_path / "web.json", clock.now, LIFE)


@covers("web.links-work-once")
def test_a_code_signs_in_once_and_not_for_long(sign_ins: SignIns, clock: FakeClock) -> None:
    code, late = sign_ins.new_code("ann"), sign_ins.new_code("ann")
    assert sign_ins.spend("wrong") is None
    assert sign_ins.spend(code) == "ann"
    assert sign_ins.spend(code) is None
    clock.advance(CODE_LIFE)
    assert sign_ins.spend(late) is None


@covers("web.links-lead-to-us")
def test_a_code_is_good_for_one_run_of_the_server_alone(tmp_path: Path, clock: FakeClock) -> None:
    one, other = (SignIns(tmp_path / "web.json", clock.now, LIFE, run) for run in ("one", "other"))
    code = one.new_code("ann")
    assert (other.spend(code), one.spend(code)) == (None, "ann")


@covers("web.sign-ins-are-counted-per-person")
def test_one_person_pushes_out_only_their_own_oldest_sign_ins_and_codes(sign_ins: SignIns) -> None:
    ann, code, umas = sign_ins.sign_in("ann"), sign_ins.new_code("ann"), [sign_ins.sign_in("uma") for _ in range(205)]
    for _ in range(60):
        sign_ins.new_code("uma")
    assert sign_ins.find(ann) is not None
    assert sign_ins.spend(code) == "ann"
    assert [sign_ins.find(umas[0]), sign_ins.find(umas[-1]) is not None] == [None, True]


@covers("web.sign-ins-survive-a-restart")
def test_a_cookie_is_known_to_every_process_until_its_time_is_over(tmp_path: Path, sign_ins: SignIns, clock: FakeClock) -> None:
    token = sign_ins.sign_in("ann")
    again = SignIns(tmp_path / "web.json", clock.now, LIFE)
    found = again.find(token)
    assert found is not None
    assert (found.user, found.csrf) == ("ann", sign_ins.find(token).csrf)  # type: ignore[union-attr] - it was found
    clock.advance(LIFE)
    assert again.find(token) is None


def test_one_process_sees_at_once_what_another_ended(tmp_path: Path, sign_ins: SignIns, clock: FakeClock) -> None:
    here, there, bobs = sign_ins.sign_in("ann"), sign_ins.sign_in("ann"), sign_ins.sign_in("bob")
    other = SignIns(tmp_path / "web.json", clock.now, LIFE)
    assert other.find(here) is not None
    sign_ins.sign_out(here)
    assert (other.find(here), other.find(there) is not None) == (None, True)
    sign_ins.sign_out(there, everywhere=True)
    assert (other.find(there), other.find(bobs) is not None) == (None, True)
    assert (sign_ins.end_all(None), other.find(bobs)) == (1, None)


@covers("web.sign-ins-survive-a-restart")
def test_the_file_holds_nothing_that_signs_anybody_in_and_is_ours_alone(tmp_path: Path, sign_ins: SignIns) -> None:
    code, token = sign_ins.new_code("ann"), sign_ins.sign_in("ann")
    kept = (tmp_path / "web.json").read_text()
    assert code not in kept
    assert token not in kept
    assert (tmp_path / "web.json").stat().st_mode & 0o777 == 0o600
    for written in kept.split('"'):
        assert sign_ins.find(written) is None


@pytest.mark.parametrize("token", ["", "x", "\0", "\ud800", "a" * 1000, "é"])
def test_what_was_never_given_is_never_found(sign_ins: SignIns, token: str) -> None:
    sign_ins.sign_in("ann")
    assert sign_ins.find(token) is None
    assert sign_ins.spend(token) is None


def test_a_damaged_file_is_told(tmp_path: Path, sign_ins: SignIns) -> None:
    (tmp_path / "web.json").write_text("{")
    with pytest.raises(Broken, match="everybody signs in again"):
        sign_ins.find("x" * 43)
