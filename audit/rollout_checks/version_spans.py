"""Every sampled token says which weights sampled it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped

_COVER, _PRESENT = "version_spans_cover_tokens", "version_present"


@answers(_COVER, _PRESENT)
def version_spans(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the spans of each sample are in order, without a gap, up to its last token; whether a sample has a version at all.

    Several versions in one sample are legal: the oldest is the one that age is counted from.

    Source: cases F1, F2.
    """
    looked = [(call, body) for call, body in completed(subject) if body.sampled_ids is not None and body.sampled_ids.count]
    if not looked:
        return [result for name in (_COVER, _PRESENT) for result in skipped(name, "no call of the rollout has sampled tokens")]
    gaps, absent = [], []
    for call, body in looked:
        assert body.sampled_ids is not None
        spans = [(span.model_version, span.start, span.end) for span in body.version_spans]
        if not spans or any(not version.strip() for version, _, _ in spans):
            absent.append(Fault({"call": body.index, "spans": spans}, (call.answered_id,)))
            continue
        starts = [0, *(end for _, _, end in spans)]
        held = [start for _, start, _ in spans] == starts[:-1] and all(end >= start for _, start, end in spans)
        if not held or starts[-1] != body.sampled_ids.count:
            gaps.append(Fault({"call": body.index, "spans": spans, "tokens": body.sampled_ids.count}, (call.answered_id,)))
    versions = len({span.model_version for _, body in looked for span in body.version_spans})
    return [
        found(
            _COVER, gaps, why="the spans of versions do not cover the sampled tokens", kind="version_unstated",
            remedy="record ordered spans where tokens are sampled", measured={"samples": len(looked), "versions": versions},
        ),
        found(
            _PRESENT, absent, why="a sample names no version", kind="version_unstated", measured={"samples": len(looked)},
            remedy="stamp the version at generation, and never again",
        ),
    ]  # fmt: skip
