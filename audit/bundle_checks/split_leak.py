"""Nothing of a more held-out split is in a bundle: no copied text, no equal parts, no shared family, wording or names. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_batch import grams_of, more_held_out, pools_of, task_digest, user_text, with_own_text
from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from ledger.canonical import digest

_IDS = ("split.ngram_leak", "split.digest_leak")


@answers(*_IDS)
def split_leak(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether too many n-grams of the users' text are those of one task of a more held-out split, or a digest or pool is shared with one.

    Validation and test are held out from train, test from validation; the less held-out bundle is the one that goes. Measured is the
    largest share of its n-grams that one held-out task holds. A copy with another name or constant keeps most of them.

    Source: Tmax (2606.23321), 13-gram decontamination; audit rule AUD-21.
    """
    draft, batch = subject.draft, subject.batch
    others = more_held_out(draft.split)
    length = int(policy["ngram_words"])
    grams = set(grams_of(user_text(draft), length))
    shared: Counter[str] = Counter()
    for split in others:
        index = batch.grams(split, length)
        shared.update(name for gram in grams for name in index.get(gram, ()) if name != draft.name)
    worst, count = min(shared.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    share = count / len(grams) if grams else 0.0
    copied = [{"held_out_task": worst, "share": round(share, 3)}] if share > policy["ngram_share"] else []
    same = [(name, bundle) for name, found in _same(subject) for bundle in found if bundle.draft.split in others]
    equal = [{"same": name, "held_out_task": bundle.draft.name, "split": bundle.draft.split} for name, bundle in same]
    held_out = sum(bundle.draft.split in others for bundle in batch.bundles)
    remedy = "draw the two splits from other families, wordings and names, or drop the less held-out task"
    return [
        judged(
            _IDS[0], copied, why=f"{share:.2f} of the {length}-grams stand in one held-out task, allowed {policy['ngram_share']}",
            remedy=remedy, measured={"share": round(share, 4), "grams": len(grams), "held_out": held_out},
        ),
        judged(_IDS[1], equal, why="a part is shared with a held-out task", remedy=remedy, measured={"held_out": held_out}),
    ]  # fmt: skip


def _same(subject: BundleSubject) -> list[tuple[str, Sequence[Any]]]:
    draft, batch = subject.draft, subject.batch
    found: list[tuple[str, Sequence[Any]]] = [
        ("request", with_own_text(batch.by_text.get(digest(dict(draft.request), allow_nul=True), ()))),
        ("text and initial state", batch.by_task.get(task_digest(draft), ())),
    ]
    return found + [(f"{kind} {name}", batch.by_pool.get((kind, name), ())) for kind, name in pools_of(draft)]
