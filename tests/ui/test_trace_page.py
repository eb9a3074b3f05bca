"""The trace page: deep links, tokens beside ids, state changes, and foreign text that stays text."""

from tests.ui.conftest import FOREIGN, Open, Site, html_of


def test_a_beginning_of_an_id_opens_the_trace(site: Site, page: Open) -> None:
    reward = page(site.url, data_dir=site.data_dir).dataframe[0].value.set_index("outcome").loc["succeeded", "reward id"]
    app = page(site.url, "trace", data_dir=site.data_dir, reward=str(reward)[:9])
    assert not app.exception
    assert not app.error
    shown = html_of(app)
    assert "reward 1" in shown
    assert "every check holds" in shown
    assert "not sealed" in shown
    assert "the one that counts" in shown
    assert "planted: has a gap on purpose" in shown
    assert site.rollouts["solved"] in app.code[0].value


def test_sampled_tokens_stand_with_text_id_and_logprob(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["solved"])
    shown = html_of(app)
    assert "&lt;|im_end|&gt;" in shown
    assert "· logprob -0.0025 · p 0.998" in shown
    assert "processed_logprobs" in shown
    app.selectbox(key="signal").select("position").run()
    assert "hsla(215,75%,50%,0.06)" in html_of(app)
    prompt = next(box for box in app.toggle if "prompt tokens" in box.label)
    before = html_of(app).count("tl-token")
    prompt.set_value(True).run()
    assert html_of(app).count("tl-token") > before + 50


def test_the_state_at_the_end_is_compared_with_the_start(site: Site, page: Open) -> None:
    shown = html_of(page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["solved"]))
    assert "/last_reminded_at" in shown
    assert "added" in shown


def test_a_call_without_tokens_says_why(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["disputed"])
    assert any("a scripted policy samples no tokens" in item.value for item in app.info)


def test_foreign_text_is_never_markup(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["foreign"])
    assert not app.exception
    shown = html_of(app)
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; **bold**" in shown
    assert "\u202e" not in shown
    assert "\\u202e\\u001b[31m" in shown
    assert "malformed_arguments" in shown
    assert not any(FOREIGN[:8] in item.value for item in [*app.markdown, *app.caption])


def test_long_text_is_clipped_until_all_is_asked_for(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["foreign"])
    assert "x" * 2000 not in html_of(app)
    next(box for box in app.toggle if box.label.startswith("Show all 5,0")).set_value(True).run()
    assert "x" * 5000 in html_of(app)


def test_what_broke_is_shown_and_is_no_number(site: Site, page: Open) -> None:
    shown = html_of(page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["broken"]))
    assert "reward missing" in shown
    assert "env failed" in shown
    assert "Traceback: &lt;b&gt;boom&lt;/b&gt;" in shown


def test_an_unknown_id_is_a_message_and_not_a_traceback(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, reward="<script>nothing")
    assert not app.exception
    assert "Nothing has this id" in app.error[0].value
    assert "no reward whose id begins with" in app.code[0].value


def test_the_training_rows_stand_with_the_text_of_both_sides_where_a_prompt_left_one(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["solved"])
    assert not app.exception
    shown = html_of(app)
    assert "opened because" in shown
    assert "the next prompt held" in shown
    # The history of these rollouts has no tool calls, which the model had sampled.
    assert ">parser</span>" in shown
    assert "&lt;tool_call&gt;" in shown
    assert any("Row 1 left row 0 at token" in caption.value for caption in app.caption)


def test_a_rollout_without_token_ids_says_that_it_has_no_rows(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["disputed"])
    assert any("No rows: no call of this rollout has token ids" in caption.value for caption in app.caption)
    assert "left_out:no_token_ids" in html_of(app)


def test_without_an_id_the_page_asks_for_one(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir)
    assert not app.exception
    assert app.text_input[0].label == "Id"


def test_a_rollout_that_runs_shows_its_dangling_call(site: Site, page: Open) -> None:
    app = page(site.url, "trace", data_dir=site.data_dir, rollout=site.rollouts["dangling"])
    assert not app.exception
    assert "no answer was recorded: the call is dangling" in html_of(app)
