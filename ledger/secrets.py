"""Finds what looks like a credential in text that is about to be stored. Pure but for reading the file of further patterns."""

import math
import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from ledger.errors import SecretFound, SettingsError

Policy = Literal["off", "refuse", "encrypt"]
MIN_ENTROPY_BITS = 3.5
"""Bits a character: above words and numbers, below random letters and digits of 20 characters."""


@dataclass(frozen=True)
class Pattern:
    """A kind of secret.

    Attributes:
        name: in results.
        expression: that matches it; group 1, if any, must also look random.
        begins: whether it counts only where a word begins.
        folded: whether it is matched against the text in lower case.
    """

    name: str
    expression: re.Pattern[str]
    begins: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Hit:
    """Where something looks like a secret: the pattern's name, and the bytes from `start` up to `end`."""

    pattern: str
    start: int
    end: int


# Each begins with plain letters, which the engine finds by skipping; what stands before a match is looked at afterwards.
DEFAULT_PATTERNS: tuple[Pattern, ...] = (
    Pattern("private key", re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")),
    Pattern("AWS access key", re.compile(r"A(?:KI|SI)A[0-9A-Z]{16}(?![0-9A-Za-z])"), begins=True),
    Pattern("GCP API key", re.compile(r"AIza[0-9A-Za-z_-]{35}"), begins=True),
    Pattern("GitHub token", re.compile(r"gh[pousr]_[0-9A-Za-z]{36,255}"), begins=True),
    Pattern("GitHub token", re.compile(r"github_pat_[0-9A-Za-z_]{22,255}"), begins=True),
    Pattern("sk- API key", re.compile(r"sk-(?:ant-|proj-|svcacct-|admin-)?([0-9A-Za-z_-]{20,255})"), begins=True),
    Pattern("Hugging Face token", re.compile(r"hf_[0-9A-Za-z]{30,255}"), begins=True),
    Pattern("Slack token", re.compile(r"xox[abeoprs]-[0-9A-Za-z-]{16,255}"), begins=True),
    Pattern("Slack webhook", re.compile(r"hooks\.slack\.com/services/[0-9A-Za-z/]{20,255}")),
    Pattern("JSON Web Token", re.compile(r"eyJ[0-9A-Za-z_-]{8,4096}\.eyJ[0-9A-Za-z_-]{8,8192}\.[0-9A-Za-z_-]{16,1024}"), begins=True),
    Pattern(
        "assigned secret",
        re.compile(
            r"(?:secret|passwd|password|api[_-]?key|access[_-]token|auth[_-]token|private_key)[a-z_]{0,20}"
            r"[\\\"']{0,4}\s{0,4}(?:=|:|=>|:=)\s{0,4}[\\\"']{0,4}([0-9a-z+/_=-]{20,200})"
        ),
        folded=True,
    ),
)  # fmt: skip

# All of the above but the private key hold this many of these characters in a row, a digit among them (97 of 100 random texts of 20
# letters and digits do), and one of the anchors not far before. Most text holds no such run, and of most runs, which are digests and
# ids, only hexadecimal digits are there: looking for runs costs a fiftieth of looking for the patterns.
_RUN = "\1" * 16
_RUN_TABLE = bytes(chr(n).isascii() and (chr(n).isalnum() or chr(n) in "_-+/") for n in range(256))
_HEXADECIMAL, _DIGITS = b"0123456789abcdef-", b"0123456789"
_ESCAPED = ("\\n", "\\r", "\\t")
_LETTERS = frozenset(string.ascii_letters + string.digits)
_BEFORE = 64
_ASSIGNED = (
    "secret", "passw", "api_key", "apikey", "api-key", "access_token", "access-token", "auth_token", "auth-token",
    "private_key",
)  # fmt: skip
_ANCHORS = (
    "akia", "asia", "aiza", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "hf_", "xox", "hooks.slack",
    "eyj", *_ASSIGNED,
)  # fmt: skip


@dataclass(frozen=True)
class Scanner:
    """Patterns, and what is done when a blob's text matches one. Bodies are scanned unless it is off, and always refused.

    Nothing is ever redacted: a call whose text is changed no longer matches the tokens that were sampled, nor its hash.

    Attributes:
        policy: for blobs: `off` looks at nothing, `refuse` stores nothing, `encrypt` puts the blob under a subject of its own, which
            can be shredded without touching anything else.
        patterns: looked for where a long run of letters and digits, or a private key, may be one; some of `DEFAULT_PATTERNS`.
        further: looked for everywhere.
    """

    policy: Policy = "encrypt"
    patterns: tuple[Pattern, ...] = DEFAULT_PATTERNS
    further: tuple[Pattern, ...] = ()

    def scan(self, data: bytes, *, digests: bool = False) -> list[Hit]:
        """All hits, by pattern and place.

        Args:
            data: UTF-8 text.
            digests: whether hexadecimal texts are taken for digests and ids, whatever is said before them, as in bodies they are.
        """
        # One character a byte: Python looks for text in text far faster than for bytes in bytes.
        text, lower = data.decode("latin-1"), data.lower().decode("latin-1")
        tried = (self.patterns if _hinted(data, text, lower, digests) else ()) + self.further
        return [
            Hit(pattern.name, match.start(), match.end())
            for pattern in tried
            for match in pattern.expression.finditer(lower if pattern.folded else text)
            if _counts(pattern, match, text)
        ]

    def check_body(self, kind: str, body: bytes, fields: BaseModel) -> None:
        """Return when a body holds nothing that looks like a secret.

        Args:
            kind: of the event.
            body: canonical bytes.
            fields: the same body, to say which field it is in.
        Raises:
            SecretFound: with pattern and field.
        """
        if self.policy == "off":
            return
        hits = self.scan(body, digests=True)
        if hits:
            place = next(
                (path for path, text in _leaves(fields.model_dump(mode="json"), kind) if self.scan(text.encode("utf-8", "surrogatepass"))),
                kind,
            )
            raise SecretFound(_told(hits[0], place) + "; allowed in a body: ids, codes and numbers")

    def check_blob(self, media: str, data: bytes) -> bool:
        """Whether a blob's text needs a subject of its own.

        Raises:
            SecretFound: it looks like a secret and the policy is to refuse it.
        """
        if self.policy == "off" or not is_text(media):
            return False
        hits = self.scan(data)
        if hits and self.policy == "refuse":
            raise SecretFound(_told(hits[0], f"blob of {media}") + "; TALLY_SECRETS=encrypt stores such a blob under a subject of its own")
        return bool(hits)


OFF = Scanner("off")
SCANNER = Scanner()


def is_text(media: str) -> bool:
    """Whether a blob of this media type is text: token arrays and state snapshots are not."""
    return media.startswith("text/") or media.split(";")[0].strip() in ("application/json", "application/toml", "application/x-ndjson")


def entropy(text: str) -> float:
    """Shannon entropy of the distribution of its characters, in bits a character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def scanner(policy: Policy, patterns_file: Path | None = None) -> Scanner:
    """The scanner of a deployment: the patterns here, and those of a TOML file with a table `patterns` of name to regular expression.

    Raises:
        SettingsError: the file cannot be read, or holds something else.
    """
    if patterns_file is None:
        return Scanner(policy)
    try:
        table = tomllib.loads(patterns_file.read_text(encoding="utf-8"))["patterns"]
        further = tuple(Pattern(str(name), re.compile(expression)) for name, expression in table.items())
    except (OSError, ValueError, KeyError, AttributeError, re.error) as error:
        raise SettingsError(
            f"TALLY_SECRET_PATTERNS_FILE {patterns_file}: {type(error).__name__}: {error}; allowed: [patterns] of name = 'expression'"
        ) from error
    return Scanner(policy, further=further)


def _hinted(data: bytes, text: str, lower: str, digests: bool) -> bool:
    """Whether one of the default patterns may match: False only where none can, or no digit is in it."""
    if "PRIVATE KEY" in text:
        return True
    mask = data.translate(_RUN_TABLE).decode("latin-1")
    start = mask.find(_RUN)
    while start >= 0:
        end = mask.find("\0", start + len(_RUN))
        end = len(mask) if end < 0 else end
        run = data[start:end]
        other = run.translate(None, _HEXADECIMAL)
        if (other or not digests) and len(run.translate(None, _DIGITS)) < len(run):
            near = lower[max(0, start - _BEFORE) : end]
            for anchor in _ANCHORS if other else _ASSIGNED:
                if anchor in near:
                    return True
        start = mask.find(_RUN, end)
    return False


def _counts(pattern: Pattern, match: re.Match[str], text: str) -> bool:
    start = match.start()
    if pattern.begins and start and text[start - 1] in _LETTERS and text[max(0, start - 2) : start] not in _ESCAPED:
        return False
    return not pattern.expression.groups or entropy(text[match.start(1) : match.end(1)]) >= MIN_ENTROPY_BITS


def _told(hit: Hit, place: str) -> str:
    return f"{place}: bytes {hit.start} to {hit.end} look like a secret ({hit.pattern})"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            # A field's name is what makes an assignment of its value.
            if isinstance(item, str):
                yield f"{path}.{name}", f"{name}: {item}"
            else:
                yield from _leaves(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            yield from _leaves(item, f"{path}[{n}]")
