"""Checks a proof that a ledger holds an event; stands alone, with `cryptography` as its only dependency. Reads files, prints a verdict.

Copy this one file anywhere and run `python proof.py proof.json --key <verifier key>`. The project takes its leaves, event ids and readers
of checkpoints from here: there is one definition of each.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

DOMAIN = "tallystick/event/1"
FORMAT = "tallystick/proof/1"
EMPTY_ROOT = hashlib.sha256(b"").digest()
_ABSENT = (2**32 - 1).to_bytes(4, "big")
ED25519 = b"\x01"
KEY_NAME = re.compile(r"[^\s+\x00-\x1f]+")
_MAX_SIGNATURES = 100
_json_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ProofError(ValueError):
    """Something does not prove what it should; the message says what was seen and what was needed."""


class SplitView(ProofError):
    """Two checkpoints signed by one key cannot belong to one append-only log."""


class KeyFault(ValueError):
    """The trusted key is missing or is not a verifier key."""


class LeafFields(NamedTuple):
    """What a leaf commits to, in this order; position and server time stay outside.

    Attributes:
        occurred_at: the producer's clock, ISO 8601 UTC with six decimals and `Z`.
        body_hash: SHA-256 of the body's canonical bytes, 32 bytes.
    """

    ledger_id: str
    event_id: str
    project: str
    stream: str
    version: int
    kind: str
    schema_version: int
    canonicaliser: str
    occurred_at: str
    actor_id: str
    correlation_id: str | None
    causation_id: str | None
    key: str
    body_hash: bytes


def leaf_parts(leaf: LeafFields) -> tuple[bytes, bytes]:
    """What a leaf hashes before the version and after it: each field with its length as 4 big-endian bytes, an absent one as 2^32 - 1."""
    head = _START + _known(leaf.ledger_id) + _encoded(leaf.event_id) + _known(leaf.project) + _encoded(leaf.stream)
    tail = _known(leaf.kind) + _known(str(leaf.schema_version)) + _known(leaf.canonicaliser) + _encoded(leaf.occurred_at)
    tail += _known(leaf.actor_id) + _known(leaf.correlation_id) + _encoded(leaf.causation_id) + _encoded(leaf.key)
    return head, tail + len(leaf.body_hash).to_bytes(4, "big") + leaf.body_hash


def leaf_hash(leaf: LeafFields) -> bytes:
    """32-byte SHA-256 of 0x00, the domain and every field. Source: RFC 9162 section 2.1.1 (leaf prefix 0x00)."""
    return leaf_of_parts(*leaf_parts(leaf), leaf.version)


def leaf_of_parts(head: bytes, tail: bytes, version: int) -> bytes:
    """The leaf of an event whose other fields `leaf_parts` has encoded."""
    return hashlib.sha256(head + _encoded(str(version)) + tail).digest()


def _encoded(value: str | None) -> bytes:
    return _ABSENT if value is None else len(data := value.encode()).to_bytes(4, "big") + data


_known = lru_cache(maxsize=1024)(_encoded)  # few values of these fields recur in very many leaves
_START = b"\x00" + _encoded(DOMAIN)


def uuid_of(sha256: bytes) -> str:
    """The UUIDv8 (RFC 9562) made of the first 122 free bits of a digest."""
    hexed = sha256[:16].hex()
    return f"{hexed[:8]}-{hexed[8:12]}-8{hexed[13:16]}-{int(hexed[16], 16) & 3 | 8:x}{hexed[17:20]}-{hexed[20:]}"


def event_id(ledger_id: str, project: str, stream: str, key: str) -> str:
    """The id of the event with this idempotency key in this stream."""
    return uuid_of(hashlib.sha256(_json_text(["tallystick/event-id/1", ledger_id, project, stream, key]).encode()).digest())


def node_hash(left: bytes, right: bytes) -> bytes:
    """32-byte SHA-256 of 0x01 and two children. Source: RFC 9162 section 2.1.1."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def inclusion_root(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root to which leaf and path lead; ProofError when index or path do not fit the size. Source: RFC 9162 section 2.1.3.2."""
    if not 0 <= index < size:
        raise ProofError(f"index {index} is outside a tree of {size} leaves; allowed: 0 to {size - 1}")
    inner = (index ^ (size - 1)).bit_length()  # below this level the leaf's subtree is not the last one, so it may have a right sibling
    needed = inner + (index >> inner).bit_count()
    if len(path) != needed:
        raise ProofError(f"inclusion path has {len(path)} hashes; leaf {index} of {size} needs {needed}")
    for level, sibling in enumerate(path):
        on_left = level >= inner or index >> level & 1
        leaf = node_hash(sibling, leaf) if on_left else node_hash(leaf, sibling)
    return leaf


def check_consistency(old_size: int, old_root: bytes, new_size: int, new_root: bytes, path: Sequence[bytes]) -> None:
    """None when the consistency proof `path` shows that the newer tree begins with all leaves of the older one.

    Raises:
        SplitView: the sizes are equal and the roots differ.
        ProofError: the path does not connect the two roots.
    Source: RFC 9162 section 2.1.4.2.
    """
    if not 0 <= old_size <= new_size:
        raise ProofError(f"consistency from size {old_size} to {new_size}; allowed: 0 <= old <= new")
    if old_size == new_size and old_root != new_root:
        raise SplitView(f"split view: two checkpoints of size {new_size} have different roots, {b64(old_root)} and {b64(new_root)}")
    if old_size in (0, new_size):
        if path or (old_size == 0 and old_root != EMPTY_ROOT):
            raise ProofError(f"consistency from size {old_size} to {new_size} takes no hashes, and size 0 the root of the empty tree")
        return
    shift = (old_size & -old_size).bit_length() - 1  # levels of the older tree's last full subtree, from whose root the proof starts
    at = (old_size - 1) >> shift
    inner = (at ^ (new_size - 1) >> shift).bit_length()
    hashes = [old_root, *path] if at == 0 else list(path)
    if len(hashes) != (needed := 1 + inner + (at >> inner).bit_count()):
        raise ProofError(f"consistency from size {old_size} to {new_size} has {len(path)} hashes; needed: {needed - (at == 0)}")
    old = new = hashes[0]
    for level, sibling in enumerate(hashes[1:]):
        if level >= inner or at >> level & 1:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
        else:
            new = node_hash(new, sibling)
    if (old, new) != (old_root, new_root):
        raise ProofError(f"the consistency proof does not connect the roots of sizes {old_size} and {new_size}")


# Checkpoints: C2SP tlog-checkpoint in a C2SP signed note.
class Signature(NamedTuple):
    """One signature line: the key's name, its 4-byte id, the signature."""

    name: str
    key_id: bytes
    signature: bytes


class Checkpoint(NamedTuple):
    """A tree head: the log's name, number of leaves, 32-byte root, extension lines."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()


class VerifierKey(NamedTuple):
    """A trusted Ed25519 key: name, 4-byte id, 32-byte public key."""

    name: str
    key_id: bytes
    public_key: bytes


def b64(data: bytes) -> str:
    """Standard base64 (RFC 4648 section 4) of `data`."""
    return base64.b64encode(data).decode()


def unb64(text: Any, what: str, *, size: int | None = None) -> bytes:
    """The bytes of strict standard base64; ProofError, naming `what`, when it is not that or has another length than `size`."""
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        data = b""
    # Encoding again refuses the spellings that a decoder forgives, such as stray bits before the padding.
    if b64(data) != text or size not in (None, len(data)):
        raise ProofError(f"{what}: {str(text)[:60]!r} is not standard base64{'' if size is None else f' of {size} bytes'}")
    return data


def key_id(name: str, public_key: bytes) -> bytes:
    """The 4-byte id of an Ed25519 key. Source: C2SP signed-note, signature type 0x01."""
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public_key).digest()[:4]


def parse_key(text: str) -> VerifierKey:
    """The key in `<name>+<8 hex digits of its id>+<base64 of 0x01 and the public key>`; KeyFault when it is anything else."""
    name, _, rest = text.strip().partition("+")
    ident, _, encoded = rest.partition("+")
    try:
        data = unb64(encoded, "key", size=33)
    except ProofError:
        data = b""
    if not KEY_NAME.fullmatch(name) or data[:1] != ED25519:
        raise KeyFault(f"key {text.strip()[:80]!r} is not a verifier key; allowed: <name>+<8 hex digits>+<base64 of 0x01 and 32 bytes>")
    if ident != key_id(name, data[1:]).hex():
        raise KeyFault(f"key id {ident[:20]!r} of {name!r} does not follow from its name and key; they give {key_id(name, data[1:]).hex()}")
    return VerifierKey(name, bytes.fromhex(ident), data[1:])


def parse_note(note: str) -> tuple[str, tuple[Signature, ...]]:
    """Signed text, with its final newline, and signature lines, not verified; ProofError at another form. Source: C2SP signed-note."""
    bad = re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff]", note)
    text, _, block = note.rpartition("\n\n")
    if bad or not text or not block.endswith("\n") or block.count("\n") > _MAX_SIGNATURES:
        raise ProofError(
            f"note ending in {note[-60:]!r}; allowed: text, blank line, up to {_MAX_SIGNATURES} lines of signatures, no control sign"
        )
    signatures = []
    for line in block[:-1].split("\n"):
        name, _, encoded = line.removeprefix("— ").partition(" ")
        data = unb64(encoded, "signature line")
        if not line.startswith("— ") or not KEY_NAME.fullmatch(name) or len(data) < 5:
            raise ProofError(f"signature line {line[:80]!r}; allowed: '— <key name> <base64 of key id and signature>'")
        signatures.append(Signature(name, data[:4], data[4:]))
    return text + "\n", tuple(signatures)


def parse_checkpoint(text: str) -> Checkpoint:
    """The tree head in a note's text; ProofError when it has another form. Source: C2SP tlog-checkpoint."""
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] != "" or "" in lines[:-1]:
        raise ProofError(f"checkpoint {text[:80]!r}; allowed: at least three lines, none empty: origin, size, root")
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1]):
        raise ProofError(f"checkpoint size {lines[1][:40]!r}; allowed: decimal digits without leading zero, at most 19")
    return Checkpoint(lines[0], int(lines[1]), unb64(lines[2], "checkpoint root", size=32), tuple(lines[3:-1]))


def check_signature(text: str, signatures: Sequence[Signature], key: VerifierKey) -> None:
    """None when this key signed the text, whoever else did; ProofError when it did not or a signature of it is wrong."""
    # Here and not above: writers import this file for leaves alone, and must not pay for loading OpenSSL.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    own = [item.signature for item in signatures if item[:2] == key[:2]]
    if not own:
        names = ", ".join(f"{item.name}+{item.key_id.hex()}" for item in signatures)
        raise ProofError(f"no signature of the trusted key {key.name}+{key.key_id.hex()}; signed by {names}")
    for signature in own:
        try:
            Ed25519PublicKey.from_public_bytes(key.public_key).verify(signature, text.encode())
        except InvalidSignature:
            raise ProofError(f"the signature of {key.name}+{key.key_id.hex()} does not match the note's text") from None


@dataclass(frozen=True)
class Proof:
    """What a proof file holds; `consistency` connects the checkpoint with one of another size: old size, new size, hashes."""

    leaf: LeafFields
    body: bytes
    index: int
    inclusion: tuple[bytes, ...]
    checkpoint: str
    consistency: tuple[int, int, tuple[bytes, ...]] | None = None


_EVENT: dict[str, Any] = {name: kind for name, kind in get_type_hints(LeafFields).items() if name != "body_hash"} | {"body": str}
_FILE = {"format": str, "event": dict, "index": int, "inclusion": list, "checkpoint": str, "consistency": dict | None}
_CONSISTENCY = {"old_size": int, "new_size": int, "hashes": list}


def read_proof(text: str) -> Proof:
    """What a proof file's text says; ProofError, naming the field, when it is not exactly of the format."""
    try:
        content = json.loads(text, object_pairs_hook=_once)
        json.dumps(content, ensure_ascii=False).encode()  # refuses lone surrogates: they have no bytes that a leaf could commit to
    except (ValueError, RecursionError) as error:
        raise ProofError(f"not a proof file: {error}") from None
    _check_shape(content, _FILE, "proof file")
    if content["format"] != FORMAT:
        raise ProofError(f"proof file: format {content['format'][:40]!r}; allowed: {FORMAT!r}")
    event, link = dict(content["event"]), content["consistency"]
    _check_shape(event, _EVENT, "event")
    body = unb64(event.pop("body"), "body")
    if link is not None:
        _check_shape(link, _CONSISTENCY, "consistency")
        link = link["old_size"], link["new_size"], tuple(unb64(item, "consistency hash", size=32) for item in link["hashes"])
    leaf = LeafFields(**event, body_hash=hashlib.sha256(body).digest())
    inclusion = tuple(unb64(item, "inclusion hash", size=32) for item in content["inclusion"])
    return Proof(leaf, body, content["index"], inclusion, content["checkpoint"], link)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ProofError("a key appears twice in one object")
    return dict(pairs)


def _check_shape(value: dict[str, Any], shape: dict[str, Any], what: str) -> None:
    if not isinstance(value, dict) or value.keys() != shape.keys():
        raise ProofError(f"{what}: {str(value)[:60]}; needed: an object of exactly {', '.join(shape)}")
    for name, allowed in shape.items():
        if not isinstance(value[name], allowed) or isinstance(value[name], bool):
            raise ProofError(f"{what}: {name} is {str(value[name])[:40]!r}; allowed: {getattr(allowed, '__name__', allowed)}")


def open_checkpoint(note: str, key: VerifierKey) -> Checkpoint:
    """The tree head that `key` signed for the log of its own name; ProofError when it did not."""
    text, signatures = parse_note(note)
    check_signature(text, signatures, key)
    checkpoint = parse_checkpoint(text)
    if checkpoint.origin != key.name:
        raise ProofError(f"checkpoint is of the log {checkpoint.origin[:80]!r}; the trusted key is of {key.name!r}")
    return checkpoint


def split_notes(text: str) -> list[str]:
    """The notes that follow one another in `text`, blank lines between them allowed; ProofError when it holds anything else."""
    ends = [match.end() for match in re.finditer(r"\n\n(?:— [^\n]*\n)+\n*", text)]
    if not ends or ends[-1] != len(text):
        raise ProofError(f"{text[-60:]!r} does not end a checkpoint note; needed: notes, each ending in signature lines")
    return [text[start:end].strip("\n") + "\n" for start, end in pairwise([0, *ends])]


def checks(proof: Proof, key: VerifierKey, witness: str | None = None) -> Iterator[tuple[str, str]]:
    """Name and finding of each check that passes; ProofError at the first that fails. `witness`: notes kept outside the database."""
    head, leaf = open_checkpoint(proof.checkpoint, key), proof.leaf
    yield "checkpoint", f"{head.origin}, {head.size} events, root {b64(head.root)}, signed by {key.name}+{key.key_id.hex()}"
    derived = event_id(leaf.ledger_id, leaf.project, leaf.stream, leaf.key)
    if derived != leaf.event_id:
        raise ProofError(f"event id {leaf.event_id[:60]!r} does not follow from ledger, project, stream and key; they give {derived}")
    yield "event id", "follows from ledger, project, stream and key"
    root = inclusion_root(leaf_hash(leaf), proof.index, head.size, proof.inclusion)
    if root != head.root:
        raise ProofError(f"the event leads to root {b64(root)}, not to the checkpoint's {b64(head.root)}: event, index or path was changed")
    yield "inclusion", f"envelope and body of {len(proof.body)} bytes lead to that root over {len(proof.inclusion)} hashes"
    if witness is not None:
        yield "witness", _check_witness(proof, head, [open_checkpoint(note, key) for note in split_notes(witness)])


def _check_witness(proof: Proof, head: Checkpoint, seen: list[Checkpoint]) -> str:
    newest = max(seen, key=lambda item: item.size)
    for one, other in pairwise(sorted([*seen, head], key=lambda item: item.size)):
        if one.size == other.size:
            check_consistency(one.size, one.root, other.size, other.root, ())
    (old, new), given = sorted((newest, head), key=lambda item: item.size), proof.consistency or (0, 0, ())
    if old.size not in (0, new.size) and given[:2] != (old.size, new.size):
        held = "from size {} to {}".format(*given[:2]) if proof.consistency else "none"
        raise ProofError(f"the witness needs a consistency proof from size {old.size} to {new.size}; the file has {held}")
    check_consistency(old.size, old.root, new.size, new.root, () if old.size in (0, new.size) else given[2])
    relation = "the same tree" if newest.size == head.size else f"size {new.size} extends size {old.size}"
    return f"checkpoints kept: {len(seen)}, the newest of {newest.size} events: {relation}"


# The command.
def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the proof is valid, 1 when it is not, 2 when the command is used wrongly or names no trusted key. Prints the verdict."""
    parser = argparse.ArgumentParser(prog="proof.py", description="Check a proof that a Tallystick ledger holds an event.")
    parser.add_argument("proof", help="proof file")
    parser.add_argument("--key", help="the verifier key that you trust, or a file that holds it")
    parser.add_argument("--witness", help="file of checkpoint notes that you kept or got from elsewhere")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    passed: dict[str, str] = {}
    try:
        if not args.key:
            raise KeyFault("no trusted key: give --key, from a source other than the proof; a proof cannot vouch for itself")
        key = parse_key(Path(args.key).read_bytes().decode() if os.path.isfile(args.key) else args.key)
        text, witness = Path(args.proof).read_bytes().decode(), args.witness and Path(args.witness).read_bytes().decode()
    except (KeyFault, OSError, UnicodeDecodeError) as error:
        print(f"cannot check: {error}", file=sys.stderr)
        return 2
    told: dict[str, Any] = {"valid": False, "reason": None, "split_view": False, "checks": passed}
    try:
        proof = read_proof(text)
        passed.update(checks(proof, key, witness))
        event = proof.leaf._asdict() | {"body_hash": proof.leaf.body_hash.hex(), "body": proof.body.decode(errors="backslashreplace")}
        told |= {"valid": True, "position": proof.index + 1, "event": event}
        verdict = "VALID: {kind}, version {version} of {stream}".format(**event) + f", is event {proof.index + 1} of the ledger"
    except ProofError as error:
        told |= {"reason": str(error), "split_view": isinstance(error, SplitView)}
        verdict = f"INVALID: {error}"
    except ModuleNotFoundError as error:
        print(f"cannot check: {error}; needed: pip install cryptography", file=sys.stderr)
        return 2
    lines = [json.dumps(told)] if args.json else [*(f"ok   {name:10} {finding}" for name, finding in passed.items()), verdict]
    print("\n".join(lines))
    return 0 if told["valid"] else 1


if __name__ == "__main__":
    sys.exit(main())
