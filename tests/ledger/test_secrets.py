"""Secrets: found in every usual form, never in digests and ids, never shown, and nothing is ever redacted."""

import random
import string
from hashlib import sha256
from pathlib import Path

import pytest

from ledger import tokens
from ledger.errors import SecretFound, SettingsError
from ledger.events import ModelCalled, RewardDerived, VersionSpan
from ledger.ledger import Guards, LedgerHandle, open_ledger
from ledger.secrets import OFF, Scanner, is_text, scanner
from ledger.token_reading import read_tokens
from tests.token_histories import held


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(random.Random(count).choices(alphabet, k=count - 1)) + "7"


# Put together here, so that no scanner of repositories takes this file for a leak.
SECRETS = {
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "AWS access key": "AK" + "IA" + letters(16, string.ascii_uppercase + string.digits),
    "GCP API key": "AI" + "za" + letters(35),
    "GitHub token": "gh" + "p_" + letters(36),
    "sk- API key": "s" + "k-proj-" + letters(40),
    "Hugging Face token": "h" + "f_" + letters(34),
    "Slack token": "xo" + "xb-" + letters(12, string.digits) + "-" + letters(24),
    "Slack webhook": "https://hooks." + "slack.com/services/" + letters(9).upper() + "/" + letters(24),
    "JSON Web Token": "ey" + "J" + letters(20) + ".ey" + "J" + letters(30) + "." + letters(43),
    "assigned secret": "db_pass" + 'word = "' + letters(24) + '"',
}
ONE = SECRETS["GitHub token"]


@pytest.mark.parametrize("name", sorted(SECRETS))
@pytest.mark.parametrize("form", ["{}", "café\n{}\nmore", '{{"said": "line\\n{}"}}', "x" * 5000 + " {} " + "y " * 3000])
def test_each_kind_is_found_wherever_it_stands(name: str, form: str) -> None:
    text = form.format(SECRETS[name]).encode()
    found = [hit for hit in Scanner().scan(text) if hit.pattern == name]
    assert len(found) == 1
    assert text[found[0].start : found[0].end].decode() in text.decode()
    assert text[found[0].start : found[0].end].decode()[:6] in SECRETS[name]


@pytest.mark.parametrize("text", [
    sha256(b"x").hexdigest(), "0192b3f0-1111-8111-8111-0123456789ab", "the secret = of a good night's sleep", "password = correct horse battery staple",
    "risk-0123456789abcdefghij", "the prompt_token_ids of call-0192b3f011118111", "api_key = aaaaaaaaaaaaaaaaaaaaaaaa1", "sampled_tokens: 12345678901234567890",
    "task-" + "a" * 30 + "1",
])  # fmt: skip
def test_digests_ids_and_words_are_no_secrets(text: str) -> None:
    assert Scanner().scan(text.encode()) == []


def test_a_hexadecimal_value_counts_where_it_is_assigned_but_not_in_a_body() -> None:
    text = f"api_key={sha256(b'x').hexdigest()}".encode()
    assert [hit.pattern for hit in Scanner().scan(text)] == ["assigned secret"]
    assert Scanner().scan(text, digests=True) == []


def test_a_body_with_a_secret_is_refused_naming_pattern_and_field_and_nothing_is_written(ledger: LedgerHandle) -> None:
    body = RewardDerived(reward_id="r", rollout_id="x", rule="binary", rule_id="f" * 64, verdict_ids=[], value=None, reason=f"used {ONE}")
    with pytest.raises(SecretFound, match=r"RewardDerived\.reason: bytes \d+ to \d+ look like a secret \(GitHub token\)") as raised:
        ledger.append([ledger.new(body)])
    assert ONE not in str(raised.value) and ONE[4:12] not in str(raised.value)
    assert ledger.read_stream("reward-r") == []


def test_refused_blobs_do_not_say_the_secret(ledger_url: str) -> None:
    with open_ledger(ledger_url, project="test", actor_id="t", guards=Guards(scanner=Scanner("refuse"))) as ledger:
        with pytest.raises(SecretFound, match=r"blob of text/plain: bytes 4 to 44 look like a secret \(GitHub token\)") as raised:
            ledger.pending(f"use {ONE}")
        assert ONE[4:12] not in str(raised.value)
        assert ledger.pending("harmless").subject_id == "project:test"


def test_an_encrypted_secret_is_kept_whole_under_a_subject_of_its_own_and_named_the_same_again(ledger: LedgerHandle) -> None:
    first, again = ledger.pending(f"use {ONE}"), ledger.pending(f"use {ONE}")
    other = ledger.pending(f"also {ONE}", subject_id="public")
    assert first.ref == again.ref
    assert first.subject_id.startswith("secret:") and other.subject_id.startswith("secret:") and first.subject_id != other.subject_id
    assert ONE.encode() not in first.data


def test_off_looks_at_nothing(ledger_url: str) -> None:
    with open_ledger(ledger_url, project="test", actor_id="t", guards=Guards(scanner=OFF)) as ledger:
        assert ledger.pending(f"use {ONE}").subject_id == "project:test"


def test_a_call_with_tokens_is_never_redacted(ledger: LedgerHandle) -> None:
    """The text and the tokens of a call fit each other and their hashes only when both are kept as they were."""
    said, ids = f'{{"content": "{ONE}"}}', tokens.ids_bytes([5, 6, 7])
    response, own = ledger.pending(said, media="application/json"), held(ledger, (None, ids, None), "x", "c")
    body = ModelCalled(
        call_id="c", rollout_id="x", index=0, participant="agent", role="agent", status="completed", response=response.ref,
        sampled_ids=own.sampled_ids, logprobs_mode=None, finish_reason="stop",
        usage={"completion_tokens": 3}, version_spans=[VersionSpan(model_version="m", start=0, end=3)], attempts=1, latency_s=0.1,
    )  # fmt: skip
    event_id = ledger.append([ledger.new(body, response, tokens=own.staged)]).events[0].event_id
    assert ledger.blob(response.ref.blob_id).decode() == said
    with ledger.connection() as conn:
        row = conn.execute("SELECT stream_id, subject_id FROM token_live").fetchone()
        assert row is not None
        read = read_tokens(conn, [row[0]])[event_id].sampled
    assert read is not None
    assert tokens.ids_bytes(read.tolist()) == ids
    assert (response.subject_id[:7], row[1]) == ("secret:", "project:test")


def test_arrays_and_snapshots_are_not_read_as_text(ledger_url: str) -> None:
    with open_ledger(ledger_url, project="test", actor_id="t", guards=Guards(scanner=Scanner("refuse"))) as ledger:
        assert ledger.pending(ONE.encode(), media="int32").ref.size == len(ONE)
    assert is_text("application/json; charset=utf-8") and not is_text("application/octet-stream")


def test_further_patterns_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[patterns]\nticket = 'TICKET-\\d{4}'\n")
    assert [hit.pattern for hit in scanner("refuse", tmp_path / "p.toml").scan(b"see TICKET-1234")] == ["ticket"]
    (tmp_path / "bad.toml").write_text("[patterns]\nticket = '('\n")
    for name in ("bad.toml", "missing.toml"):
        with pytest.raises(SettingsError, match=r"TALLY_SECRET_PATTERNS_FILE .*allowed: \[patterns\]"):
            scanner("refuse", tmp_path / name)
