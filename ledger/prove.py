"""Text of a proof file, for `ledger/proof.py` to check anywhere. Pure."""

import json

from ledger.proof import FORMAT, Proof, b64


def write_proof(proof: Proof) -> str:
    """The JSON text of a proof file.

    Args:
        proof: its leaf's `body_hash` is left out, because the reader derives it from the body.
    """
    event = {name: value for name, value in proof.leaf._asdict().items() if name != "body_hash"} | {"body": b64(proof.body)}
    consistency = None
    if proof.consistency is not None:
        old_size, new_size, hashes = proof.consistency
        consistency = {"old_size": old_size, "new_size": new_size, "hashes": [b64(item) for item in hashes]}
    content = {
        "format": FORMAT,
        "event": event,
        "index": proof.index,
        "inclusion": [b64(item) for item in proof.inclusion],
        "checkpoint": proof.checkpoint,
        "consistency": consistency,
    }
    return json.dumps(content, indent=1) + "\n"
