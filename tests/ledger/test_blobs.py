"""Blobs: salted, chunked, written once, checked when read."""

import secrets

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import blobs
from ledger.errors import BlobError
from ledger.events import RunConfigured
from ledger.ledger import LedgerHandle


def run(run_id: str, ref: blobs.BlobRef) -> RunConfigured:
    return RunConfigured(run_id=run_id, experiment_id="e", name="n", config=ref, config_digest="0" * 64, root_seed=1)


@pytest.mark.parametrize("size", [0, 1, blobs.CHUNK_BYTES, blobs.CHUNK_BYTES + 1])
def test_bytes_come_back_whatever_their_size(ledger: LedgerHandle, size: int) -> None:
    data = secrets.token_bytes(size)
    blob = ledger.pending(data, media="application/octet-stream")
    ledger.append([ledger.new(run("r", blob.ref), blob)])
    assert ledger.blob(blob.ref.blob_id) == data


def test_equal_bytes_of_a_subject_are_stored_once_and_other_subjects_do_not_share_the_name(ledger: LedgerHandle) -> None:
    one, two = ledger.pending("text"), ledger.pending("text")
    other = ledger.pending("text", subject_id="person:7")
    public = ledger.pending("text", subject_id=blobs.PUBLIC)
    assert one.ref == two.ref
    assert len({one.ref.blob_id, other.ref.blob_id, public.ref.blob_id}) == 3
    assert public.ref.blob_id == blobs.commitment(b"", b"text")
    ledger.append([ledger.new(run("a", one.ref), one), ledger.new(run("b", two.ref), two), ledger.new(run("c", other.ref), other)])
    with ledger.connection() as conn:
        assert conn.execute("SELECT count(*) FROM blob").fetchone() == (2,)


@given(text=st.text(max_size=40))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_of_a_model_survives(ledger: LedgerHandle, text: str) -> None:
    blob = ledger.pending(text)
    ledger.append([ledger.new(run(secrets.token_hex(8), blob.ref), blob)])
    assert ledger.blob(blob.ref.blob_id).decode("utf-8", "surrogatepass") == text


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "\udfff\x00"])
def test_nul_and_lone_surrogates_are_kept_as_blobs(ledger: LedgerHandle, text: str) -> None:
    blob = ledger.pending(text)
    ledger.append([ledger.new(run("r", blob.ref), blob)])
    assert ledger.blob(blob.ref.blob_id).decode("utf-8", "surrogatepass") == text


def test_changed_bytes_are_noticed(ledger: LedgerHandle) -> None:
    blob = ledger.pending("text")
    ledger.append([ledger.new(run("r", blob.ref), blob)])
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE blob_chunk SET data = 'taxt'")
    with pytest.raises(BlobError, match="do not match its commitment"):
        ledger.blob(blob.ref.blob_id)


def test_a_blob_that_no_event_names_is_counted_as_an_orphan(ledger: LedgerHandle) -> None:
    left, used = ledger.pending("left behind"), ledger.pending("used")
    with ledger.connection() as conn:
        assert blobs.write(conn, [left, used]) == 2
        assert blobs.write(conn, [left, used]) == 0
    ledger.append([ledger.new(run("r", used.ref))])
    with ledger.connection() as conn:
        assert blobs.orphans(conn) == (1, len("left behind"))
