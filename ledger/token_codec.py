"""The one place where token bytes pass on their way into the database and out: encrypted where their subject has a key. Pure."""

from ledger import subjects
from ledger.errors import BlobError, TokenError
from ledger.subjects import ENCRYPTED, RAW, Subject


def encode(subject: Subject, kind: str, ident: bytes, plain: bytes) -> bytes:
    """The bytes to store for `plain`, which is a column of `token_live` or a pack as `kind` says, of the row that `ident` names.

    Raises:
        SubjectDestroyed: the subject was shredded.
    """
    return subjects.encode(subject, f"token {kind}", ident, plain, compress=False)[1]


def decode(subject: Subject, kind: str, ident: bytes, stored: bytes) -> bytes:
    """What `encode` was given for the same subject, kind and ident.

    Raises:
        TokenError: the bytes are not what was encoded.
    """
    codec = RAW if subject.key is None else ENCRYPTED
    try:
        return subjects.decode(subject, f"token {kind}", ident, codec, stored)
    except BlobError as error:
        raise TokenError(str(error)) from error
