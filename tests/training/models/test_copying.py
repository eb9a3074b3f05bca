"""Copy-pretraining batches by hand."""

from itertools import islice

import pytest
import torch

from ledger.errors import SettingsError
from training.models.copying import copy_batches


@pytest.mark.parametrize("times", [2, 4])
def test_each_row_is_a_sequence_said_over_and_the_mask_is_on_all_but_the_first_time(times: int) -> None:
    for batch in islice(copy_batches(40, torch.Generator().manual_seed(3), batch_tokens=100, span=(2, 9), times=times, first_id=6), 5):
        assert 60 < len(batch.ids_T) <= 100
        assert batch.row_T.unique_consecutive().tolist() == list(range(int(batch.row_T.max()) + 1))
        for row in range(int(batch.row_T.max()) + 1):
            ids, mask = batch.ids_T[batch.row_T == row], batch.mask_T[batch.row_T == row]
            length = len(ids) // times
            assert 2 <= length <= 9
            assert torch.equal(ids, ids[:length].repeat(times))
            assert mask.tolist() == [False] * length + [True] * length * (times - 1)
            assert ids.min() >= 6 and ids.max() < 40


def test_batches_follow_from_the_generator_alone() -> None:
    one, two, other = (next(copy_batches(40, torch.Generator().manual_seed(seed), batch_tokens=64, span=(2, 9))) for seed in (1, 1, 2))
    assert torch.equal(one.ids_T, two.ids_T)
    assert one.ids_T.tolist() != other.ids_T.tolist()


@pytest.mark.parametrize(
    ("span", "times", "first_id"), [((0, 4), 2, 0), ((5, 4), 2, 0), ((4, 40), 2, 0), ((4, 17), 4, 0), ((2, 4), 1, 0), ((2, 4), 2, 40)]
)
def test_settings_that_make_no_batch_are_refused(span: tuple[int, int], times: int, first_id: int) -> None:
    with pytest.raises(SettingsError, match="allowed: 1 <= shortest"):
        next(copy_batches(40, torch.Generator().manual_seed(0), batch_tokens=64, span=span, times=times, first_id=first_id))
