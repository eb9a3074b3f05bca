"""The rewards page: counts with their denominators, missing rewards that are not zero, filters, an empty ledger."""

from tests.ui.conftest import Open, Site, html_of


def test_counts_stand_with_their_denominators(site: Site, page: Open) -> None:
    app = page(site.url, data_dir=site.data_dir)
    assert not app.exception
    shown = {box.label: box.value for box in app.metric}
    assert shown["Succeeded of judged"] == "1 / 5"
    assert shown["Success rate"] == "20.0 %"
    assert shown["Rewards with a value"] == "5 / 6"
    assert shown["Faults"] == "1 / 7"


def test_a_missing_reward_is_not_zero_and_its_reason_is_counted(site: Site, page: Open) -> None:
    app = page(site.url, data_dir=site.data_dir)
    table = app.dataframe[0].value.set_index("policy")
    assert table["reward"].isna().to_dict()["broken"]
    assert table.loc["foreign", "reward"] == 0.0
    assert "1 × no evidence about the policy: world_error" in html_of(app)


def test_rewards_are_newest_first(site: Site, page: Open) -> None:
    positions = list(page(site.url, data_dir=site.data_dir).dataframe[0].value["position"])
    assert positions == sorted(positions, reverse=True)


def test_filters_narrow_the_table_and_its_counts(site: Site, page: Open) -> None:
    app = page(site.url, data_dir=site.data_dir)
    app.selectbox(key="filter-policy").select("sampled").run()
    assert set(app.dataframe[0].value["policy"]) == {"sampled"}
    assert app.metric[0].value == "1 / 2"
    app.selectbox(key="filter-outcome").select("succeeded").run()
    assert list(app.dataframe[0].value["reward"]) == [1.0]


def test_text_finds_ids_tasks_and_reasons(site: Site, page: Open) -> None:
    app = page(site.url, data_dir=site.data_dir)
    app.text_input(key="filter-text").input(site.rollouts["disputed"][:10].upper()).run()
    assert list(app.dataframe[0].value["policy"]) == ["ignores_cooldown"]
    app.text_input(key="filter-text").input("nothing holds this").run()
    assert not app.dataframe
    assert app.info[0].value == "No reward fits."


def test_an_empty_ledger_says_how_to_fill_it(ledger_url: str, page: Open) -> None:
    app = page(ledger_url)
    assert not app.exception
    assert "empty" in app.info[0].value
    assert any("make demo" in item.value for item in app.markdown)
