"""How a house is, as machines read it."""

import asyncio
import subprocess
import sys
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from curtainwall.channels.measures import Measures
from curtainwall.channels.status import Health, health_json, metrics_text, status_routes

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
    assert "very-secret" not in f"{told}{metrics_text(ill, Measures()).decode()}"


SCRAPED = """\
# HELP curtainwall_info Version and rules in force.
# TYPE curtainwall_info gauge
curtainwall_info{version="1",policy="a\\"b\\\\c\\nd"} 1
# HELP curtainwall_up 1 where nothing is wrong.
# TYPE curtainwall_up gauge
curtainwall_up 1
# HELP curtainwall_config_valid 1 where the files as they are now are in force.
# TYPE curtainwall_config_valid gauge
curtainwall_config_valid 1
# HELP curtainwall_sessions Sessions by status.
# TYPE curtainwall_sessions gauge
curtainwall_sessions{status="ready"} 3
curtainwall_sessions{status="waiting"} 1
# HELP curtainwall_sessions_attended Sessions that this process looks after.
# TYPE curtainwall_sessions_attended gauge
curtainwall_sessions_attended 2
# HELP curtainwall_asks_open Asks that wait for an answer.
# TYPE curtainwall_asks_open gauge
curtainwall_asks_open 1
# HELP curtainwall_oldest_ask_seconds How long the oldest open ask has waited.
# TYPE curtainwall_oldest_ask_seconds gauge
curtainwall_oldest_ask_seconds 2
# HELP curtainwall_service_up 1 where a service is well.
# TYPE curtainwall_service_up gauge
curtainwall_service_up{service="cron"} 1
curtainwall_service_up{service="web"} 1
# HELP curtainwall_service_restarts_total How often a service fell over.
# TYPE curtainwall_service_restarts_total counter
curtainwall_service_restarts_total{service="cron"} 0
curtainwall_service_restarts_total{service="web"} 2
# HELP process_start_time_seconds When the process began.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1763438400.125
# HELP process_resident_memory_bytes Memory in use.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 123456789012
# HELP process_cpu_seconds_total Processor time used.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 0.5
"""
"""What scrapers are given about the process, letter by letter."""
MEASURED = "# HELP gen_ai_client_token_usage "
"""Where the counts of what agents do begin."""


def test_scrapers_find_the_names_types_labels_and_values_that_they_know() -> None:
    began = 1_763_438_400_125
    health = replace(
        WELL, policy='a"b\\c\nd', began=began, now=began + 2_500, oldest_ask=began + 500, memory=123_456_789_012
    )  # fmt: skip
    text = metrics_text(health, Measures()).decode().partition(MEASURED)[0]
    assert list(text_string_to_metric_families(text)) == list(text_string_to_metric_families(SCRAPED))
    described = [line for line in text.splitlines() if line.startswith("#")]
    assert described == [line for line in SCRAPED.splitlines() if line.startswith("#")]


def test_the_page_says_which_format_it_has() -> None:
    routes = {route.path: route for route in status_routes(lambda: WELL, Measures())}
    page = asyncio.run(routes["/metrics"].endpoint(Request({"type": "http"})))
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    assert page.body == metrics_text(WELL, Measures())


def test_only_a_scrape_loads_the_library_of_the_format() -> None:
    program = f"""
import sys
import curtainwall.serve.status
from curtainwall.channels.measures import Measures
from curtainwall.channels.status import Health, health_json, metrics_text
health = {WELL!r}
health_json(health)
before = "prometheus_client" in sys.modules
metrics_text(health, Measures())
print(before, "prometheus_client" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
