"""Checkpoints and signed notes: published vectors, strict reading, foreign signatures."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from ledger import proof
from ledger.checkpoint import checkpoint_text, parse, sign, sign_text, verify, vkey
from ledger.errors import CheckpointError
from ledger.proof import Checkpoint, KeyFault, ProofError, parse_key, parse_note

# golang.org/x/mod/sumdb/note, example_test.go: the private key's seed, its verifier key, a text and its signed note.
PETER_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
PETER_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
PETER_NOTE = PETER_TEXT + "\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
ENOCH_LINE = "— EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n"
# C2SP signed-note, section "Verifier keys".
C2SP_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
C2SP_NOTE = "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
# The Go checksum database: the key in golang.org/x/mod (gosumcheck/main.go) and two of its checkpoints, the second cosigned by a witness.
SUMDB_KEY = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
SUMDB_NOTE = "go.sum database tree\n6476701\nmb8QLQIs0Z0yP5Cstq6guj87oXWeC9gEM8oVikmm9Wk=\n\n— sum.golang.org Az3grsLX85Gz+s1SiTbgkuqxgItqFq7gsMUEyVnrsa9LM7Us9S+1xbFIGu95949rj4nPRYfvimWEPWL+o3GeoWwOoAw=\n"
SUMDB_COSIGNED = (
    "go.sum database tree\n15067302\ngJyioq6dwR9n+NjEWORfYmH+ubeYm3kH42BBQ0bTpYI=\n\n"
    "— sum.golang.org Az3grp1rvWOs5NKlr/xR4GLN/CDyzzakmt1o61uSxYKpK1SerqOP2ClbX/peKUZjYnyomH5Xz7GZG3TpB7OeKn4E2ww=\n"
    "— test.example.com qTGhC/xIPQ0AXKHK6Y+9ypRfuvMZWPjRXM8NiOg5M1WREn07VQXyuIXM3NRNav3ieVFLUqDRK77PWDmL6w8w84UqeAw=\n"
)

PRIVATE = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
ORIGIN = "tally.example/0198"
KEY = vkey(ORIGIN, PRIVATE.public_key())
HEAD = Checkpoint(ORIGIN, 20, bytes(range(32)))
NOTE = sign(HEAD, PRIVATE)


@pytest.mark.parametrize(
    ("note", "key"), [(PETER_NOTE, PETER_KEY), (C2SP_NOTE, C2SP_KEY), (SUMDB_NOTE, SUMDB_KEY), (SUMDB_COSIGNED, SUMDB_KEY)]
)
def test_published_notes_verify_and_changed_ones_do_not(note: str, key: str) -> None:
    proof.check_signature(*parse_note(note), parse_key(key))
    with pytest.raises(ProofError, match="does not match the note's text"):
        proof.check_signature(*parse_note(note.replace("e", "E", 1)), parse_key(key))


def test_a_signature_has_the_bytes_that_go_writes() -> None:
    private = Ed25519PrivateKey.from_private_bytes(PETER_SEED)
    assert sign_text(PETER_TEXT, "PeterNeumann", private) == PETER_NOTE
    assert vkey("PeterNeumann", private.public_key()) == PETER_KEY


def test_a_published_checkpoint_is_read_and_written_again() -> None:
    checkpoint, signatures = parse(SUMDB_COSIGNED)
    assert (checkpoint.origin, checkpoint.size) == ("go.sum database tree", 15067302)
    assert [item.name for item in signatures] == ["sum.golang.org", "test.example.com"]
    assert SUMDB_COSIGNED.startswith(checkpoint_text(checkpoint) + "\n— ")


def test_a_signed_checkpoint_verifies_and_reads_back() -> None:
    assert verify(NOTE, KEY) == HEAD == parse(NOTE)[0]
    assert NOTE.startswith("tally.example/0198\n20\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n\n— tally.example/0198 ")


def test_extension_lines_are_kept_and_signed() -> None:
    head = Checkpoint(ORIGIN, 0, b"\x00" * 32, ("one", "two words"))
    note = sign(head, PRIVATE)
    assert verify(note, KEY) == head
    with pytest.raises(CheckpointError, match="does not match"):
        verify(note.replace("two", "too"), KEY)


def test_signatures_of_other_keys_are_kept_and_ignored() -> None:
    cosigned = NOTE + ENOCH_LINE
    assert verify(cosigned, KEY) == HEAD
    assert [item.name for item in parse(cosigned)[1]] == [ORIGIN, "EnochRoot"]
    same_name = sign_text(checkpoint_text(HEAD), ORIGIN, Ed25519PrivateKey.from_private_bytes(b"\x08" * 32)).splitlines(keepends=True)[-1]
    assert verify(NOTE + same_name, KEY) == HEAD


def test_every_signature_of_the_trusted_key_must_verify() -> None:
    line = NOTE.splitlines(keepends=True)[-1]
    other = sign(Checkpoint(ORIGIN, 21, HEAD.root), PRIVATE).splitlines(keepends=True)[-1]
    assert verify(NOTE + line, KEY) == HEAD
    with pytest.raises(CheckpointError, match="does not match"):
        verify(NOTE + other, KEY)


def test_a_note_that_the_trusted_key_did_not_sign_is_refused() -> None:
    stranger = vkey(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"\x08" * 32).public_key())
    with pytest.raises(CheckpointError, match=r"no signature of the trusted key tally.example/0198\+\w{8}; signed by tally.example/0198\+"):
        verify(NOTE, stranger)
    with pytest.raises(CheckpointError, match="checkpoint is of the log 'go.sum database tree'; the trusted key is of 'sum.golang.org'"):
        verify(SUMDB_NOTE, SUMDB_KEY)


SIGNATURE = NOTE.splitlines(keepends=True)[-1]
ROOT = base64.b64encode(HEAD.root).decode()


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("", "allowed: text, blank line"),
        (NOTE[:-1], "allowed: text, blank line"),
        (NOTE.split("\n\n")[0] + "\n\n", "allowed: text, blank line"),
        (NOTE.replace("\n\n", "\n"), "allowed: text, blank line"),
        (NOTE.replace("\n", "\r\n"), "allowed: text, blank line"),
        (NOTE.replace("20", "20\t", 1), "allowed: text, blank line"),
        (NOTE + SIGNATURE * 100, "up to 100 lines of signatures"),
        (NOTE + "\n", "allowed: text, blank line"),
        (NOTE.replace("— ", "-- "), "signature line"),
        (NOTE.replace("— ", "—\u00a0"), "signature line"),
        (NOTE + "— name\n", "signature line"),
        (NOTE + "— na+me AAAAAAAA\n", "signature line '— na"),
        (NOTE + "— name AAAAAA==\n", "signature line '— name"),
        (NOTE + "— name AAAAAAA\n", "is not standard base64"),
        (NOTE + "— name AAAAAAB= \n", "is not standard base64"),
        (NOTE + "— name AAAAAAB=\n", "is not standard base64"),
        (f"{ORIGIN}\n20\n\n{SIGNATURE}", "at least three lines"),
        (f"\n20\n{ROOT}\n\n{SIGNATURE}", "none empty"),
        (f"{ORIGIN}\n20\n{ROOT}\n\nmore\n\n{SIGNATURE}", "none empty"),
        *((f"{ORIGIN}\n{size}\n{ROOT}\n\n{SIGNATURE}", "checkpoint size") for size in ("020", "+20", "-1", "2e1", " 20", "٢", "1" * 20)),
        *(
            (f"{ORIGIN}\n20\n{root}\n\n{SIGNATURE}", "checkpoint root: .* is not standard base64 of 32 bytes")
            for root in (ROOT[:-1], ROOT[:-4], ROOT + "AAAA", ROOT[:-2] + "9=", ROOT.replace("A", "-", 1))
        ),
    ],
)
def test_a_malformed_note_is_refused(note: str, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        parse(note)


@given(st.data())
def test_a_changed_character_never_verifies_as_another_checkpoint(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(NOTE) - 1))
    changed = NOTE[:place] + data.draw(st.characters()) + NOTE[place + 1 :]
    if changed != NOTE:
        with pytest.raises(CheckpointError):
            verify(changed, KEY)


@pytest.mark.parametrize(
    "head",
    [
        Checkpoint("two\nlines", 1, b"x" * 32),
        Checkpoint("", 1, b"x" * 32),
        Checkpoint(ORIGIN, -1, b"x" * 32),
        Checkpoint(ORIGIN, 1, b"x" * 31),
        Checkpoint(ORIGIN, 1, b"x" * 32, ("",)),
        Checkpoint(ORIGIN, 1, b"x" * 32, ("a\nb",)),
        Checkpoint("a space", 1, b"x" * 32),
        Checkpoint("a+plus", 1, b"x" * 32),
        Checkpoint("evil\n999", 1, b"x" * 32),
        Checkpoint("bell\x07", 1, b"x" * 32),
    ],
)
def test_what_would_not_read_back_is_not_signed(head: Checkpoint) -> None:
    with pytest.raises(CheckpointError):
        sign(head, PRIVATE)


@pytest.mark.parametrize("text", ["no newline", "", "control\x01\n"])
def test_a_text_that_is_no_note_is_not_signed(text: str) -> None:
    with pytest.raises(CheckpointError):
        sign_text(text, ORIGIN, PRIVATE)


# The second and third are golang.org/x/mod/sumdb/note, note_test.go: a key of the wrong length, an unknown algorithm, with fitting ids.
@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("", "is not a verifier key"),
        ("PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==", "is not a verifier key"),
        ("PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW", "is not a verifier key"),
        (PETER_KEY.replace("c74f20a3", "c74f20a4"), "key id 'c74f20a4' of 'PeterNeumann' does not follow .* c74f20a3"),
        (PETER_KEY.replace("c74f20a3", "C74F20A3"), "does not follow"),
        (PETER_KEY.replace("Peter", "Paul"), "does not follow"),
        (PETER_KEY.replace("+", " "), "is not a verifier key"),
        ("+" + PETER_KEY, "is not a verifier key"),
    ],
)
def test_a_malformed_key_is_refused(key: str, told: str) -> None:
    with pytest.raises(KeyFault, match=told):
        parse_key(key)
    with pytest.raises(CheckpointError, match=told):
        verify(NOTE, key)


def test_a_key_is_read_as_written_and_its_name_is_checked() -> None:
    read = parse_key(f" {KEY}\n")
    assert (read.name, Ed25519PublicKey.from_public_bytes(read.public_key)) == (ORIGIN, PRIVATE.public_key())
    for name in ("", "a b", "a+b", "a\nb"):
        with pytest.raises(CheckpointError, match="key name"):
            vkey(name, PRIVATE.public_key())
