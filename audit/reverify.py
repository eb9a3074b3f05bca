"""Stored ends and calls judged again by another verifier, or by the same one, without any policy. Reads the ledger; `append` writes it."""

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from audit.results import CheckResult
from audit.verifier_trials import Artefact, run_of
from ledger.blobs import PUBLIC
from ledger.bundle import Bundle
from ledger.errors import MethodError
from ledger.events import Rejudged, VerifierRegistered
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.methods import Bound, MethodRef
from ledger.queries import Filter, RolloutLine, VerdictLine, rollouts, verdicts
from ledger.store import New
from ledger.verdict_pairs import registered_verifiers
from training.bundles import load
from training.rollout.judge import JUDGED_ENDS, Judging, evidence, verdict_event
from training.verifiers import Judge, Verdict, verifiers
from training.worlds import World

_PAGE = 50


@dataclass(frozen=True)
class Again:
    """A rollout that was judged again.

    Attributes:
        line: the rollout with the verdict that counts now.
        old: the verdict that it is compared with: the one that counts, or the newest of the same version; None where there is none.
        new: what the verifier says now.
        state_end: digest of the state that it looked at.
    """

    line: RolloutLine
    old: VerdictLine | None
    new: Verdict
    state_end: str

    @property
    def flip(self) -> str | None:
        """`failed to passed`, `passed to failed` or with `undecided`; None where both say the same, or nothing was said before."""
        if self.old is None or self.old.passed is self.new.passed:
            return None
        return f"{_word(self.old.passed)} to {_word(self.new.passed)}"


@dataclass(frozen=True)
class Reverified:
    """What came of judging again.

    Attributes:
        verifier: the version.
        again: every rollout that was judged.
        left_out: reason to number of rollouts that could not be judged.
        total: rollouts that the filter asks for, before any limit.
    """

    verifier: Bound[Judge]
    again: tuple[Again, ...]
    left_out: Mapping[str, int]
    total: int

    @property
    def flips(self) -> list[Again]:
        """Those where the two verdicts differ."""
        return [item for item in self.again if item.flip is not None]

    @property
    def compared(self) -> int:
        """Rollouts with a verdict before."""
        return sum(item.old is not None for item in self.again)

    @property
    def agreement(self) -> float | None:
        """Share of the compared on which both verdicts are the same; None without any."""
        return 1 - len(self.flips) / self.compared if self.compared else None

    def result(self) -> CheckResult:
        """Whether judging again gives what was recorded (`reverify_agreement`).

        Source: reports I5; https://github.com/OpenHands/benchmarks/issues/140 (30 of 50 against 39 of 50 on re-evaluation).
        """
        if self.agreement is None:
            return CheckResult("reverify_agreement", "skip", "no rollout has both verdicts")
        kinds = Counter(str(item.flip) for item in self.flips)
        before = sum(item.old is not None and item.old.passed is True for item in self.again)
        after = sum(item.old is not None and item.new.passed is True for item in self.again)
        measured = {
            "agreement": round(self.agreement, 4), "compared": self.compared, "passed_before": before, "passed_after": after,
            "flips": dict(kinds),
        }  # fmt: skip
        if not kinds:
            return CheckResult("reverify_agreement", "pass", measured=measured)
        reason = f"{len(self.flips)} of {self.compared} verdicts differ: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        shown = [{"rollout_id": item.line.rollout_id, "flip": item.flip} for item in self.flips[:20]]
        same = all(item.old is not None and item.old.verifier_id == self.verifier.ref.method_id for item in self.flips)
        return CheckResult(
            "reverify_agreement", "fail", reason, measured, shown, "settle the flips; both verdicts are kept",
            fault="verifier_nondeterministic" if same else None,
        )  # fmt: skip


def verifier_from(name_or_file: str) -> Bound[Judge]:
    """The verifier of that name, or the function named as its file in a Python file, which is run.

    Raises:
        MethodError: there is neither.
    """
    path = Path(name_or_file)
    if name_or_file in verifiers.names():
        return verifiers.bind(name_or_file)
    if path.suffix != ".py" or not path.is_file():
        raise MethodError(f"no verifier and no Python file {name_or_file!r}; verifiers are {', '.join(verifiers.names())}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judge = getattr(module, path.stem, None)
    if not callable(judge):
        raise MethodError(f"{path} has no function {path.stem}; allowed: one named as the file")
    source = path.read_text(encoding="utf-8")
    return Bound(cast(Judge, judge), MethodRef("file", path.stem, {}, hashlib.sha256(source.encode()).hexdigest()), source)


def reverify(
    ledger: LedgerHandle, verifier: Bound[Judge], world_of: Callable[[str], World[Any]], where: Filter, *, limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Reverified:  # fmt: skip
    """What a verifier says of stored rollouts, beside what counts for them now. Nothing is written.

    Args:
        world_of: world of a name, open; its version may be newer than the one of the rollouts, which is counted.
        where: which rollouts.
        limit: most rollouts, the oldest first.
        progress: called with the number of rollouts looked at since the last call.
    """
    asked = 1_000_000 if limit is None else limit
    page = rollouts(ledger, where, limit=asked, newest=False)
    left_out: Counter[str] = Counter()
    bundles: dict[str, Bundle] = {}
    again: list[Again] = []
    lines = [line for line in page.lines if _can_be_judged(line, left_out)]
    for start in range(0, len(lines), _PAGE):
        part = lines[start : start + _PAGE]
        seen = evidence(ledger, [line.rollout_id for line in part])
        said = verdicts(ledger, [line.rollout_id for line in part])
        for line in part:
            if line.rollout_id not in seen:
                left_out["rollouts without a recorded state"] += 1
                continue
            if line.bundle_id not in bundles:
                bundles[line.bundle_id] = load(ledger, line.bundle_id)
            bundle, found = bundles[line.bundle_id], seen[line.rollout_id]
            world = world_of(bundle.draft.world)
            left_out["of another world version, judged all the same"] += world.version != bundle.world_id
            verdict = run_of(verifier.call, world.material)(Artefact(found.s0, found.s_end, found.trace, bundle.draft))
            again.append(Again(line, _before(said[line.rollout_id], verifier.ref.method_id), verdict, found.state_end))
        progress(len(part))
    return Reverified(verifier, tuple(again), {name: count for name, count in left_out.items() if count}, page.total)


def append(ledger: LedgerHandle, found: Reverified, judging: Judging, *, recall_id: str | None = None) -> int:
    """How many events were new: the new verdicts, and for each that stands beside an old one that the rollout was judged again.

    The same verdict by the same version is not given twice; one that differs from it is, under an id of its own.

    Args:
        judging: the verifier with its kind; role `bundle` lets the new verdicts count, `second_opinion` only shows them.
        recall_id: the recall because of which the rollouts are judged again.
    """
    known = judging.verifier.ref.method_id in registered_verifiers(ledger)
    created = 0 if known else sum(item.created for item in ledger.append([_registration(ledger, judging)]).events)
    for start in range(0, len(found.again), _PAGE):
        events = []
        for item in found.again[start : start + _PAGE]:
            same_version = item.old is not None and item.old.verifier_id == judging.verifier.ref.method_id
            comes_to_count = judging.role == "bundle" and item.old is not None and item.old.role != "bundle"
            if same_version and item.flip is None and not comes_to_count:
                continue
            verdict_id = judging.verdict_id(item.line.rollout_id)
            if same_version and item.flip is not None:
                conditions = [[c.name, c.status] for c in item.new.conditions]
                verdict_id = derived_id("verdict", verdict_id, "again", conditions, item.new.error is None)
            events.append(verdict_event(ledger, item.line.rollout_id, judging, item.new, item.state_end, verdict_id=verdict_id))
            if item.old is not None and item.old.role != "review":
                body = Rejudged(
                    rejudgement_id=derived_id("rejudgement", item.old.verdict_id, verdict_id), rollout_id=item.line.rollout_id,
                    old_verdict_id=item.old.verdict_id, new_verdict_id=verdict_id, recall_id=recall_id,
                )  # fmt: skip
                events.append(ledger.new(body, correlation_id=item.line.rollout_id))
        created += sum(item.created for item in ledger.append(events).events) if events else 0
    return created


def _registration(ledger: LedgerHandle, judging: Judging) -> New:
    bound = judging.verifier
    source = ledger.pending(bound.source, media="text/x-python", subject_id=PUBLIC)
    method = ledger.pending_json(bound.ref.as_json(), subject_id=PUBLIC)
    planted = bound.ref.name in verifiers.names() and hasattr(verifiers[bound.ref.name], "planted_gap")
    body = VerifierRegistered(
        verifier_id=bound.ref.method_id, name=bound.ref.name, verifier_kind=judging.kind, source=source.ref, method=method.ref,
        planted=planted,
    )  # fmt: skip
    return ledger.new(body, source, method)


def _can_be_judged(line: RolloutLine, left_out: Counter[str]) -> bool:
    if line.ended_by in JUDGED_ENDS and not line.superseded and line.bundle is not None:
        return True
    reason = "superseded attempts" if line.superseded else "rollouts that have not ended" if line.ended_by is None else (
        "rollouts of a task that is not sealed here" if line.bundle is None else f"rollouts ended by {line.ended_by}"
    )  # fmt: skip
    left_out[reason] += 1
    return False


def _before(said: Sequence[VerdictLine], verifier_id: str) -> VerdictLine | None:
    """The newest verdict of the same version, which judging again must repeat; else the one that counts."""
    mine = [verdict for verdict in said if verdict.verifier_id == verifier_id]
    return mine[-1] if mine else next((verdict for verdict in said if verdict.counts), None)


def _word(passed: bool | None) -> str:
    return "undecided" if passed is None else "passed" if passed else "failed"
