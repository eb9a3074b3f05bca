"""The leaf of an event, and the verifier that stands alone."""

import ast
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import ids, proof, tree
from ledger.checkpoint import checkpoint_text, sign, sign_text, vkey
from ledger.proof import Checkpoint, LeafFields, Proof, ProofError, SplitView, checks, event_id, leaf_hash, parse_key, read_proof
from ledger.prove import write_proof

LEAF = LeafFields("l", "e", "p", "s", 1, "K", 1, "c1", "2026-11-29T00:00:00.000000Z", "a", None, None, "k", b"\x00" * 32)


def _field(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def test_a_leaf_is_the_hash_written_out_by_hand() -> None:
    parts = [b"tallystick/event/1", b"l", b"e", b"p", b"s", b"1", b"K", b"1", b"c1", b"2026-11-29T00:00:00.000000Z", b"a"]
    data = b"\x00" + b"".join(map(_field, parts)) + b"\xff\xff\xff\xff" * 2 + _field(b"k") + _field(b"\x00" * 32)
    assert leaf_hash(LEAF) == hashlib.sha256(data).digest()


def test_every_field_changes_the_leaf() -> None:
    changed = []
    for name, value in LEAF._asdict().items():
        other = value + 1 if isinstance(value, int) else b"\x01" * 32 if isinstance(value, bytes) else "other"
        changed.append(leaf_hash(LEAF._replace(**{name: other})))
    assert len({leaf_hash(LEAF), *changed}) == len(LeafFields._fields) + 1


def test_absent_differs_from_empty_and_neighbours_do_not_run_together() -> None:
    assert leaf_hash(LEAF) != leaf_hash(LEAF._replace(correlation_id=""))
    assert leaf_hash(LEAF._replace(project="ab", stream="c")) != leaf_hash(LEAF._replace(project="a", stream="bc"))


@given(st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), min_size=4, max_size=4))
def test_an_event_id_is_the_derived_id_of_its_parts(parts: list[str]) -> None:
    assert event_id(*parts) == ids.derived_id("tallystick/event-id/1", *parts)


ORIGIN = "tally.example/0198"
PRIVATE = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
STRANGER = Ed25519PrivateKey.from_private_bytes(b"\x08" * 32)
KEY = vkey(ORIGIN, PRIVATE.public_key())
BODY = b'{"reward_id":"r-1","value":1.0}'


def _leaf(number: int, body: bytes = BODY) -> LeafFields:
    stream, key = f"reward-r-{number}", f"k-{number}"
    ident = event_id("l", "p", stream, key)
    return LeafFields(
        "l",
        ident,
        "p",
        stream,
        1,
        "RewardDerived",
        1,
        "c1",
        "2026-11-29T00:00:00.000000Z",
        "a",
        "run-1",
        None,
        key,
        hashlib.sha256(body).digest(),
    )


class Log:
    """A log of small events in memory, read as one partial tile."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.leaves = [leaf_hash(_leaf(number, body)) for number, body in enumerate(bodies)]
        self.bodies = bodies

    def read(self, level: int, index: int, width: int) -> bytes:
        assert (level, index) == (0, 0)
        return b"".join(self.leaves)

    def note(self, size: int, private: Ed25519PrivateKey = PRIVATE) -> str:
        return sign(Checkpoint(ORIGIN, size, tree.root(self.read, size)), private)

    def proof(self, index: int, size: int, link: tuple[int, int] | None = None) -> Proof:
        consistency = None if link is None else (*link, tuple(tree.consistency(self.read, *link)))
        inclusion = tuple(tree.inclusion(self.read, index, size))
        return Proof(_leaf(index, self.bodies[index]), self.bodies[index], index, inclusion, self.note(size), consistency)


LOG = Log([BODY] * 40)
FORGED = Log([*[BODY] * 10, b"{}", *[BODY] * 29])
PROOF = LOG.proof(6, 20, (12, 20))
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def alone(tmp_path: Path) -> Run:
    """Runs a copy of the one file in a folder of its own, with nothing of the project on its path."""
    (tmp_path / "proof.py").write_bytes(Path(proof.__file__).read_bytes())

    def run(*arguments: str, proof_text: str = write_proof(PROOF), **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in {"proof": proof_text, **files}.items():
            (tmp_path / name).write_bytes(text.encode())
        command = [sys.executable, "-I", "proof.py", "proof", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_the_verifier_imports_the_standard_library_and_cryptography_alone() -> None:
    source = ast.parse(Path(proof.__file__).read_text())
    names = {alias.name for node in ast.walk(source) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(source) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"cryptography"}


def test_a_copy_of_the_verifier_says_that_a_proof_is_valid(alone: Run) -> None:
    done = alone("--key", KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "VALID: RewardDerived, version 1 of reward-r-6, is event 7 of the ledger"
    assert [line.split()[:2] for line in done.stdout.splitlines()[:-1]] == [["ok", "checkpoint"], ["ok", "event"], ["ok", "inclusion"]]
    assert ORIGIN in done.stdout


def test_the_key_may_be_in_a_file_and_the_verdict_one_json_object(alone: Run) -> None:
    done = alone("--key", "key", "--json", "--witness", "seen", key=KEY + "\n", seen=LOG.note(12))
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["valid"] and told["position"] == 7 and told["event"]["body"] == BODY.decode()
    assert list(told["checks"]) == ["checkpoint", "event id", "inclusion", "witness"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no trusted key: give --key"),
        (("--key", ""), "no trusted key"),
        (("--key", "missing-file"), "'missing-file' is not a verifier key"),
        (("--key", KEY.replace("+", " ")), "is not a verifier key"),
        (("--key", KEY, "--witness", "missing-file"), "No such file"),
    ],
)
def test_without_a_usable_key_or_file_the_exit_code_is_2(arguments: tuple[str, ...], told: str, alone: Run) -> None:
    done = alone(*arguments)
    assert done.returncode == 2 and told in done.stderr and done.stdout == ""


def test_without_cryptography_the_verifier_says_what_to_install(alone: Run, tmp_path: Path) -> None:
    alone("--key", KEY)
    command = [sys.executable, "-I", "-S", "proof.py", "proof", "--key", KEY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "pip install cryptography" in done.stderr


def test_an_invalid_proof_exits_with_1_and_says_why(alone: Run) -> None:
    wrong_key = alone("--key", vkey(ORIGIN, STRANGER.public_key()))
    assert wrong_key.returncode == 1 and wrong_key.stdout.startswith("INVALID: no signature of the trusted key")
    tampered = alone("--key", KEY, proof_text=write_proof(replace(PROOF, body=b'{"reward_id":"r-1","value":0.0}')))
    assert tampered.returncode == 1 and "INVALID: the event leads to root" in tampered.stdout
    fork = alone("--key", KEY, "--json", "--witness", "seen", seen=FORGED.note(20))
    told = json.loads(fork.stdout)
    assert fork.returncode == 1 and told["split_view"] and not told["valid"] and "different roots" in told["reason"] and "event" not in told


def test_the_example_of_the_page_on_proofs_prints_what_the_page_says(tmp_path: Path) -> None:
    root = Path(proof.__file__).parent.parent
    page = (root / "docs" / "proofs.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, env={"PYTHONPATH": str(root)}, timeout=60, check=True)
    assert json.loads((tmp_path / "proof.json").read_text())["checkpoint"] in page
    shown = re.findall(r"\$ env/bin/python (proof.py .*)\n((?:ok .*\n)+(?:VALID|INVALID).*\n)", page)
    assert len(shown) == 3
    for command, output in shown:
        copied = [sys.executable, "-I", proof.__file__, *command.split()[1:]]
        assert subprocess.run(copied, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False).stdout == output


def verdict(made: Proof, key: str = KEY, witness: str | None = None) -> dict[str, str]:
    return dict(checks(read_proof(write_proof(made)), parse_key(key), witness))


def test_every_event_of_a_log_is_proved() -> None:
    for size in range(1, 41):
        for index in {0, size // 2, size - 1}:
            assert len(verdict(LOG.proof(index, size))) == 3


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_changed_value_makes_a_proof_invalid(data: st.DataObject) -> None:
    content = json.loads(write_proof(PROOF))
    where: Any = data.draw(
        st.sampled_from(
            [(content["event"], name) for name in content["event"]] + [(content, name) for name in ("index", "inclusion", "checkpoint")]
        )
    )
    holder, name = where
    held = holder[name]
    if isinstance(held, int):
        holder[name] = data.draw(st.integers(-3, 70).filter(lambda value: value != held))
    elif isinstance(held, list):
        holder[name] = data.draw(st.sampled_from([held[:-1], held[1:], [*held, held[0]], held[::-1], []]))
    elif held is None:
        holder[name] = data.draw(st.text())
    else:
        place = data.draw(st.integers(0, len(held) - 1))
        changed = held[:place] + data.draw(st.characters()) + held[place + 1 :]
        holder[name] = changed if changed != held else held[:place]
    with pytest.raises(ProofError):
        dict(checks(read_proof(json.dumps(content)), parse_key(KEY)))


def test_an_event_under_an_id_of_another_key_is_refused_even_when_it_is_in_the_log() -> None:
    odd = _leaf(0)._replace(event_id=event_id("l", "p", "other", "k-0"))
    note = sign(Checkpoint(ORIGIN, 1, leaf_hash(odd)), PRIVATE)
    with pytest.raises(ProofError, match="does not follow from ledger, project, stream and key"):
        verdict(Proof(odd, BODY, 0, (), note))


def test_a_checkpoint_of_another_log_is_refused() -> None:
    head = Checkpoint("other.example", 20, tree.root(LOG.read, 20))
    with pytest.raises(ProofError, match=f"of the log 'other.example'; the trusted key is of '{ORIGIN}'"):
        verdict(replace(PROOF, checkpoint=sign_text(checkpoint_text(head), ORIGIN, PRIVATE)))


@pytest.mark.parametrize(
    ("made", "seen", "found"),
    [
        (PROOF, LOG.note(12), "kept: 1, the newest of 12 events: size 20 extends size 12"),
        (PROOF, LOG.note(20), "the same tree"),
        (PROOF, LOG.note(3) + LOG.note(12) + "\n\n" + LOG.note(7), "kept: 3, the newest of 12 events"),
        (LOG.proof(6, 20, (20, 33)), LOG.note(33), "size 33 extends size 20"),
        (LOG.proof(6, 20), sign(Checkpoint(ORIGIN, 0, proof.EMPTY_ROOT), PRIVATE), "size 20 extends size 0"),
        (LOG.proof(6, 20, (16, 20)), LOG.note(16), "size 20 extends size 16"),
    ],
)
def test_a_witness_that_saw_the_same_log_confirms(made: Proof, seen: str, found: str) -> None:
    assert found in verdict(made, witness=seen)["witness"]


@pytest.mark.parametrize(
    ("made", "seen", "told"),
    [
        (LOG.proof(6, 20), LOG.note(12), "needs a consistency proof from size 12 to 20; the file has none"),
        (PROOF, LOG.note(13), "needs a consistency proof from size 13 to 20; the file has from size 12 to 20"),
        (PROOF, LOG.note(3) + LOG.note(33), "needs a consistency proof from size 20 to 33"),
        (PROOF, FORGED.note(12), "does not connect the roots of sizes 12 and 20"),
        (replace(PROOF, consistency=(12, 20, PROOF.consistency[2][:-1])), LOG.note(12), "hashes; needed"),  # type: ignore[index]
        (PROOF, LOG.note(12, STRANGER), "no signature of the trusted key"),
        (PROOF, LOG.note(12)[:-1], "does not end a checkpoint note"),
        (PROOF, LOG.note(12) + "more\n", "does not end a checkpoint note"),
        (PROOF, "", "does not end a checkpoint note"),
        (PROOF, "more\n\n" + LOG.note(12), "does not match the note's text"),
        (PROOF, sign(Checkpoint(ORIGIN, 0, b"x" * 32), PRIVATE), "root of the empty tree"),
    ],
)
def test_a_witness_that_does_not_confirm_makes_the_proof_invalid(made: Proof, seen: str, told: str) -> None:
    with pytest.raises(ProofError, match=told):
        verdict(made, witness=seen)


@pytest.mark.parametrize("seen", [FORGED.note(20), FORGED.note(20) + LOG.note(33), FORGED.note(12) + LOG.note(12)])
def test_two_checkpoints_of_one_size_with_different_roots_are_a_split_view(seen: str) -> None:
    with pytest.raises(SplitView, match="different roots"):
        verdict(PROOF, witness=seen)


CONTENT = json.loads(write_proof(PROOF))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a proof file"),
        ("[" * 100_000, "not a proof file"),
        ("[]", "needed: an object of exactly format, event"),
        ('{"format": 1, "format": 2}', "a key appears twice"),
        (json.dumps(CONTENT | {"extra": 1}), "needed: an object of exactly"),
        (json.dumps({name: value for name, value in CONTENT.items() if name != "consistency"}), "needed: an object of exactly"),
        (json.dumps(CONTENT | {"format": "tallystick/proof/2"}), "format 'tallystick/proof/2'; allowed: 'tallystick/proof/1'"),
        (json.dumps(CONTENT | {"index": True}), "index is 'True'; allowed: int"),
        (json.dumps(CONTENT | {"index": 6.0}), "index is '6.0'; allowed: int"),
        (json.dumps(CONTENT | {"index": 0}).replace('"index": 0', f'"index": {"1" * 5000}'), "not a proof file"),
        (json.dumps(CONTENT | {"inclusion": ["AAAA"]}), "inclusion hash: 'AAAA' is not standard base64 of 32 bytes"),
        (json.dumps(CONTENT | {"inclusion": [None]}), "inclusion hash: 'None'"),
        (json.dumps(CONTENT | {"consistency": {}}), "consistency: {}; needed"),
        (json.dumps(CONTENT | {"event": CONTENT["event"] | {"body": "é"}}), "body: 'é' is not standard base64"),
        (json.dumps(CONTENT | {"event": CONTENT["event"] | {"stream": None}}), "stream is 'None'; allowed: str"),
        (json.dumps(CONTENT | {"event": CONTENT["event"] | {"stream": "\ud800"}}), "not a proof file: .*surrogates"),
        (json.dumps(CONTENT | {"event": CONTENT["event"] | {"version": "1"}}), "version is '1'; allowed: int"),
    ],
)
def test_a_file_of_another_form_is_no_proof(text: str, told: str) -> None:
    with pytest.raises(ProofError, match=told):
        read_proof(text)
