"""Signed checkpoints of the log: C2SP tlog-checkpoint texts as C2SP signed notes, written, read and verified. Pure.

The readers are those of `ledger/proof.py`, so that what is written here is what an auditor's copy of that file reads.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger import proof
from ledger.errors import CheckpointError
from ledger.proof import Checkpoint, Signature


def checkpoint_text(checkpoint: Checkpoint) -> str:
    """The text that is signed: origin, size, root and extension lines, each with its newline.

    Raises:
        CheckpointError: the text would not read back as the same checkpoint, as with a newline in the origin.
    Source: C2SP tlog-checkpoint.
    """
    lines = (checkpoint.origin, str(checkpoint.size), proof.b64(checkpoint.root), *checkpoint.extensions)
    text = "".join(f"{line}\n" for line in lines)
    try:
        same = proof.parse_checkpoint(text) == checkpoint
    except proof.ProofError as error:
        raise CheckpointError(str(error)) from error
    if not same:
        raise CheckpointError(f"{checkpoint} has no checkpoint text; allowed: lines without newline, size from 0, root of 32 bytes")
    return text


def sign_text(text: str, name: str, private_key: Ed25519PrivateKey) -> str:
    """The signed note of `text` with one signature line.

    Args:
        text: what is signed; ends in a newline.
        name: the key's name, without space, control character or plus.
    Raises:
        CheckpointError: text or name cannot be in a note.
    Source: C2SP signed-note.
    """
    public_key = private_key.public_key().public_bytes_raw()
    signed = Signature(name, proof.key_id(name, public_key), private_key.sign(text.encode()))
    note = f"{text}\n— {name} {proof.b64(signed.key_id + signed.signature)}\n"
    try:
        same = proof.parse_note(note) == (text, (signed,))
    except proof.ProofError as error:
        raise CheckpointError(str(error)) from error
    if not same:
        raise CheckpointError(f"{text[-40:]!r} by {name!r} cannot be a note; allowed: text ending in a newline, no control character")
    return note


def sign(checkpoint: Checkpoint, private_key: Ed25519PrivateKey) -> str:
    """The checkpoint as a note signed under the name of its origin.

    Raises:
        CheckpointError: the checkpoint has no text, or its origin holds a space or a plus and so cannot name a key.
    """
    return sign_text(checkpoint_text(checkpoint), checkpoint.origin, private_key)


def parse(note: str) -> tuple[Checkpoint, tuple[Signature, ...]]:
    """The checkpoint in a note and its signature lines, of witnesses too; no signature is verified.

    Raises:
        CheckpointError: the note has another form.
    """
    try:
        text, signatures = proof.parse_note(note)
        return proof.parse_checkpoint(text), signatures
    except proof.ProofError as error:
        raise CheckpointError(str(error)) from error


def verify(note: str, key: str) -> Checkpoint:
    """The checkpoint in a note that `key`, the text of a verifier key, signed for the log of its own name.

    Raises:
        CheckpointError: the note or the key has another form, the key did not sign it, or it is of another log.
    """
    try:
        return proof.open_checkpoint(note, proof.parse_key(key))
    except (proof.ProofError, proof.KeyFault) as error:
        raise CheckpointError(str(error)) from error


def vkey(name: str, public_key: Ed25519PublicKey) -> str:
    """The text of a verifier key: what is published, and what `proof.py --key` takes.

    Raises:
        CheckpointError: `name` cannot name a key.
    """
    data = public_key.public_bytes_raw()
    if not proof.KEY_NAME.fullmatch(name):
        raise CheckpointError(f"key name {name[:80]!r}; allowed: one or more characters, no space, control character or plus")
    return f"{name}+{proof.key_id(name, data).hex()}+{proof.b64(proof.ED25519 + data)}"
