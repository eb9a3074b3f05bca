"""Subjects: their content is unreadable without their key, fits in no other place, and is forgotten with the key."""

import dataclasses
import secrets
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import blobs, subjects
from ledger.errors import BlobError, BlobShredded, SettingsError, SubjectDestroyed
from ledger.events import RunConfigured
from ledger.ledger import Guards, LedgerHandle, open_ledger
from ledger.subjects import PUBLIC_SUBJECT, Subject, decode, encode, read_kek

ONE = Subject("project:a", b"s" * 32, b"k" * 32)
LONG = b"a sentence that comes again. " * 50


@given(data=st.binary(max_size=300) | st.builds(lambda n: LONG * n, st.integers(0, 20)), private=st.booleans())
def test_what_was_encoded_comes_back(data: bytes, private: bool) -> None:
    subject = ONE if private else PUBLIC_SUBJECT
    codec, stored = encode(subject, "blob", b"id", data)
    assert decode(subject, "blob", b"id", codec, stored, size=len(data)) == data
    assert (codec & subjects.ENCRYPTED > 0) == private
    assert encode(subject, "blob", b"id", data) == (codec, stored)


def test_codecs_say_what_was_done() -> None:
    noise = secrets.token_bytes(500)
    assert [encode(s, "blob", b"i", d)[0] for s in (PUBLIC_SUBJECT, ONE) for d in (noise, LONG)] == [0, 1, 2, 3]
    assert encode(ONE, "pack", b"i", LONG, compress=False)[0] == 2
    assert LONG[:40] not in encode(ONE, "pack", b"i", LONG, compress=False)[1]


@pytest.mark.parametrize("change", [
    lambda s, k, i, c, d: (dataclasses.replace(s, key=b"x" * 32), k, i, c, d),
    lambda s, k, i, c, d: (s, "pack", i, c, d),
    lambda s, k, i, c, d: (s, k, b"other", c, d),
    lambda s, k, i, c, d: (s, k, i, 2, d),
    lambda s, k, i, c, d: (s, k, i, 7, d),
    lambda s, k, i, c, d: (s, k, i, c, d[:-1]),
    lambda s, k, i, c, d: (s, k, i, c, d[:5]),
    lambda s, k, i, c, d: (s, k, i, c, d[:20] + bytes([d[20] ^ 1]) + d[21:]),
    lambda s, k, i, c, d: (dataclasses.replace(s, key=None), k, i, c, d),
])  # fmt: skip
def test_ciphertext_fits_only_where_it_was_made(change: object) -> None:
    codec, stored = encode(ONE, "blob", b"id", LONG)
    with pytest.raises(BlobError):
        decode(*change(ONE, "blob", b"id", codec, stored))  # type: ignore[operator]


def test_a_nonce_comes_again_only_with_the_same_message() -> None:
    stored = [encode(ONE, kind, ident, data)[1] for kind in ("blob", "pack") for ident in (b"1", b"2") for data in (b"x", b"y", LONG)]
    assert len({data[: subjects.NONCE_BYTES] for data in stored}) == len(stored)


def test_damaged_or_lying_frames_are_refused() -> None:
    codec, stored = encode(PUBLIC_SUBJECT, "blob", b"id", LONG)
    with pytest.raises(BlobError, match=f"unpacks to {len(LONG)} bytes; expected 5"):
        decode(PUBLIC_SUBJECT, "blob", b"id", codec, stored, size=5)
    with pytest.raises(BlobError, match="not what was compressed"):
        decode(PUBLIC_SUBJECT, "blob", b"id", codec, b"junk" + stored[4:], size=len(LONG))


def test_a_destroyed_subject_neither_encodes_nor_decodes() -> None:
    codec, stored = encode(ONE, "blob", b"id", LONG)
    gone = Subject("project:a", b"", None, datetime(2026, 1, 2, tzinfo=UTC))
    with pytest.raises(BlobShredded, match="project:a' was shredded at 2026-01-02"):
        decode(gone, "blob", b"id", codec, stored)
    with pytest.raises(SubjectDestroyed):
        encode(gone, "blob", b"id", LONG)


def test_text_in_the_database_is_encrypted_and_public_text_is_not(ledger: LedgerHandle) -> None:
    mine, public = ledger.pending(LONG), ledger.pending(b"source of a verifier", subject_id="public")
    with ledger.connection() as conn:
        blobs.write(conn, [mine, public])
        rows = dict(conn.execute("SELECT b.codec, c.data FROM blob AS b JOIN blob_chunk AS c USING (blob_no)").fetchall())
    assert rows[0] == b"source of a verifier"
    assert b"sentence" not in rows[3]
    assert mine.ref.size == len(LONG) and len(rows[3]) < len(LONG) / 4


def test_wrapped_keys_need_the_key_around_them(ledger_url: str, tmp_path: Path) -> None:
    (tmp_path / "kek").write_text(secrets.token_hex(32) + "\n")
    (tmp_path / "other").write_text(secrets.token_hex(32))

    def opened(name: str | None) -> LedgerHandle:
        guards = Guards(kek=None if name is None else read_kek(tmp_path / name))
        return open_ledger(ledger_url, project="test", actor_id="t", guards=guards)

    with opened("kek") as ledger:
        blob = ledger.pending("told in confidence")
        ref = blob.ref
        body = RunConfigured(run_id="r", experiment_id="e", name="n", config=ref, config_digest="0" * 64, root_seed=1)
        ledger.append([ledger.new(body, blob)])
        assert ledger.blob(ref.blob_id) == b"told in confidence"
        with ledger.connection() as conn:
            salt, key = conn.execute("SELECT salt, key FROM subject").fetchone() or (b"", b"")
        assert len(salt) == len(key) == 40
    with opened("kek") as ledger:
        assert ledger.pending("told in confidence").ref == ref
    for name, told in ((None, "TALLY_SUBJECT_KEK_FILE must name"), ("other", "wrapped by another key")):
        with opened(name) as ledger, pytest.raises(SettingsError, match=told):
            ledger.blob(ref.blob_id)


@pytest.mark.parametrize("content", ["", "zz", "ab" * 31, "ab" * 33])
def test_a_file_that_holds_no_key_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "kek").write_text(content)
    with pytest.raises(SettingsError, match="64 hexadecimal digits"):
        read_kek(tmp_path / "kek")


@pytest.mark.parametrize("statement", [
    "UPDATE subject SET key = 'x'", "UPDATE subject SET salt = NULL, key = NULL", "UPDATE subject SET destroyed_at = now()",
    "UPDATE subject SET salt = NULL, key = NULL, destroyed_at = now(), subject_id = 'y'", "DELETE FROM subject", "TRUNCATE subject",
])  # fmt: skip
def test_a_subject_only_forgets(ledger: LedgerHandle, statement: str) -> None:
    ledger.pending("x")
    with psycopg.connect(ledger.url) as conn, pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        conn.execute(statement)  # type: ignore[arg-type]
