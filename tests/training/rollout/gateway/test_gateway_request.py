"""Requests go upstream as they came, but for what capture needs; what a server runs with is checked before anything is asked of it."""

import json
from typing import Any

import pytest

from ledger.errors import CanonicalError, SettingsError
from training.rollout.gateway_command import upstream_of
from training.rollout.gateway_request import ChatRequest, read_chat, sampling_of, upstream_body
from training.rollout.gateway_upstream import Upstream

VLLM = Upstream("http://127.0.0.1:1/v1", "m1", logprobs_mode="processed_logprobs", sampling_defaults={"temperature": 1.0, "top_p": 1.0})


def chat(**fields: Any) -> ChatRequest:
    return read_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}).encode(), {})


def test_a_field_that_contradicts_capture_is_overridden_and_named() -> None:
    request = chat(logprobs=False, stream=True, stream_options={"continuous_usage_stats": True})
    body, added = upstream_body(request, VLLM)
    sent = json.loads(body)
    assert sent["logprobs"] is True
    assert sent["stream_options"] == {"continuous_usage_stats": True, "include_usage": True}
    assert added == ("return_token_ids", "logprobs", "top_logprobs", "stream_options.include_usage")


def test_only_vllm_gets_additions() -> None:
    request = chat(stream=True)
    assert upstream_body(request, Upstream("http://127.0.0.1:1/v1", "m1", "openai")) == (request.raw, ())


def test_sampling_in_effect_is_the_requests_over_the_servers() -> None:
    assert sampling_of(chat(temperature=0.2, stop=["a", "b"]), VLLM) == {"temperature": 0.2, "top_p": 1.0, "stop_count": 2, "guided": False}


@pytest.mark.parametrize(
    ("fields", "guided", "choice"),
    [
        ({"tools": [{}]}, False, "auto"),
        ({"tools": [{"function": {"strict": True}}]}, True, "auto"),
        ({"tools": [{}], "tool_choice": "required"}, True, "required"),
        ({"tools": [{}], "tool_choice": "none"}, False, "none"),
        ({"tools": [{}], "tool_choice": {"function": {"name": "secret words"}}}, True, "named"),
        ({"response_format": {"type": "json_schema"}}, True, None),
        ({"response_format": {"type": "text"}}, False, None),
    ],
)
def test_a_grammar_that_masks_the_distribution_is_noted(fields: dict[str, Any], guided: bool, choice: str | None) -> None:
    sampling = sampling_of(chat(**fields), VLLM)
    assert sampling["guided"] is guided
    assert sampling.get("tool_choice") == choice


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "tgi"}, {"base_url": "127.0.0.1"}, {"base_url": "http://h/v1/"}, {"base_url": "http://u:p@h/v1"},
        {"model_version": "a b"}, {"logprobs_mode": None}, {"timeout_s": 0.0},
    ],
)  # fmt: skip
def test_an_upstream_that_cannot_be_recorded_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Upstream(**{"base_url": "http://h/v1", "model_version": "m", "logprobs_mode": "raw_logprobs", **fields})


def test_defaults_that_have_no_canonical_form_are_refused() -> None:
    with pytest.raises(CanonicalError):
        Upstream("http://h/v1", "m", "openai", sampling_defaults={"temperature": float("nan")})


def test_an_upstream_is_read_from_the_command_line_with_its_key_from_the_environment() -> None:
    text = "model=gpt,url=https://h/v1/,version=gpt-x,kind=openai,timeout_s=5,api_key_env=KEY"
    assert upstream_of(text, {"KEY": "k"}) == ("gpt", Upstream("https://h/v1", "gpt-x", "openai", api_key="k", timeout_s=5.0))
    for wrong in ("model=gpt", text + ",colour=red", text.replace("openai", "x"), text.replace("=5", "=soon")):
        with pytest.raises(SettingsError):
            upstream_of(wrong, {"KEY": "k"})
    with pytest.raises(SettingsError, match="'KEY'"):
        upstream_of(text, {})
