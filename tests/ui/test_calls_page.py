"""The calls page: coverage that adds up, calls that belong to nobody, calls without an answer."""

from tests.ui.conftest import Open, Site


def test_coverage_adds_up_and_lost_calls_are_listed(site: Site, page: Open) -> None:
    app = page(site.url, "calls", data_dir=site.data_dir)
    assert not app.exception
    coverage, unattributed, dangling = (table.value for table in app.dataframe)
    parts = coverage[["measured", "masked", "failed", "omitted", "unknown"]].sum(axis=1)
    assert list(parts) == list(coverage["expected"])
    assert coverage.set_index("policy").loc["sampled", "unknown"] == 1
    assert list(unattributed["call id"]) == [site.rollouts["unattributed"]]
    assert list(dangling["rollout id"]) == [site.rollouts["dangling"]]
    assert list(dangling["status"]) == ["no answer"]


def test_an_empty_ledger_expects_nothing(ledger_url: str, page: Open) -> None:
    app = page(ledger_url, "calls")
    assert not app.exception
    assert app.info[0].value == "No group has been dispatched."
    assert [item.value for item in app.subheader] == ["Coverage", "Unattributed calls: 0", "Dangling calls: 0"]
