"""How a house is, as machines read it."""

from dataclasses import replace

from curtainwall.channels.status import Health, health_json, metrics_text

WELL = Health(
    version="1", pid=7, began=1_000, now=3_500, policy="abc", fault_in_files="", wait_for_restart=(), services={"web": "", "cron": ""},
    restarts={"web": 2, "cron": 0}, sessions={"ready": 3, "waiting": 1}, asks={"open": 1, "granted": 5}, oldest_ask=1_500, attended=2,
    memory=10, cpu_seconds=0.5,
)  # fmt: skip


def test_a_house_is_well_until_something_is_wrong() -> None:
    assert health_json(WELL)["status"] == "ok"
    for fault in ({"fault_in_files": "line 3"}, {"store_fault": "the disk is full"}, {"services": {"web": "the port is taken"}}):
        assert health_json(replace(WELL, **fault))["status"] == "degraded", fault  # type: ignore[arg-type] - one field each
    told = health_json(replace(WELL, fault_in_files="line 3", wait_for_restart=("code",)))
    assert told["config"] == {"valid": False, "waits_for_restart": ["code"]}


def test_what_is_wrong_is_not_told_to_everybody() -> None:
    secret = "https://ann:very-secret@example.org"
    ill = replace(WELL, fault_in_files=secret, store_fault=secret, services={"web": secret, "cron": ""}, notes={"x": secret})
    told = health_json(ill)
    assert (told["store"], told["services"]) == ("unreadable", {"web": "failing", "cron": "ok"})
    assert "curtainwall doctor" in str(told["see"])
    assert "very-secret" not in f"{told}{metrics_text(ill)}"


def test_metrics_are_text_that_prometheus_reads() -> None:
    lines = metrics_text(replace(WELL, policy='a"b\\c\nd')).splitlines()
    assert 'curtainwall_info{version="1",policy="a\\"b\\\\c\\nd"} 1' in lines
    assert "curtainwall_oldest_ask_seconds 2" in lines
    assert 'curtainwall_asks_settled_total{how="granted"} 5' in lines
    assert 'curtainwall_service_restarts_total{service="web"} 2' in lines
    names = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
    described = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert list(dict.fromkeys(names)) == described
