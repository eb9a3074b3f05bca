"""The gateway's metrics: every counter has its name, and a scrape parses."""

from dataclasses import fields

from prometheus_client.parser import text_string_to_metric_families

from training.rollout.gateway_call import Counters
from training.rollout.gateway_metrics import ERRORS, PLAIN, exposition

from .conftest import Rig

STATE = {
    **{item.name: n for n, item in enumerate(fields(Counters))},
    "commits": 40,
    "retried_alone": 41,
    "inflight": 2,
    "waiting": 1,
    "paused": True,
}


def test_every_counter_of_the_gateway_is_shown_once() -> None:
    assert ERRORS.keys() | PLAIN.keys() == {item.name for item in fields(Counters)} | {"commits", "retried_alone"}
    assert not ERRORS.keys() & PLAIN.keys()


def test_a_scrape_parses_and_holds_the_state() -> None:
    families = list(text_string_to_metric_families(exposition(STATE).decode()))
    assert all(family.documentation for family in families)
    seen = {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}
    assert seen["tallystick_gateway_calls_total",] == STATE["calls"]
    assert seen["tallystick_gateway_errors_total", "timeout"] == STATE["timeouts"]
    assert (seen["tallystick_gateway_retried_alone_total",], seen["tallystick_gateway_inflight",], seen["tallystick_gateway_paused",]) == (
        41,
        2,
        1,
    )


async def test_a_gateway_serves_them_under_its_controls(rig: Rig) -> None:
    rig.gateway.control_token = "s3cret"
    async with rig.http.get(f"{rig.gateway.url}/metrics") as response:
        assert response.status == 401
    async with rig.http.get(f"{rig.gateway.url}/metrics", headers={"Authorization": "Bearer s3cret"}) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        assert "tallystick_gateway_calls_total 0.0" in await response.text()
