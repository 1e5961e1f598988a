"""Segmentation metrics against scikit-learn, plain loops and brute force."""

import itertools

import pytest
import torch

from nps.metrics.segmentation import adjusted_rand_index, count_table, ious, match, mean_iou

sklearn_metrics = pytest.importorskip("sklearn.metrics")


def random_segmentations(seed, batch=(12,), n=200, objects=5, segments=4):
    """Segments that agree with the objects about half of the time."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.randint(objects, (*batch, n), generator=draw)
    agree = torch.rand(*batch, n, generator=draw) < 0.5
    other = torch.randint(segments, (*batch, n), generator=draw)
    return true, torch.where(agree, true % segments, other)


def test_counts():
    true, predicted = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([1, 1, 0, 0, 1])
    assert count_table(true, predicted, 3, 2).tolist() == [[0, 2], [1, 0], [1, 1]]


@pytest.mark.parametrize("foreground", [True, False])
def test_ari_equals_scikit_learn(foreground):
    true, predicted = random_segmentations(0)
    ours = adjusted_rand_index(count_table(true, predicted, 5, 4), foreground=foreground)
    for a, b, value in zip(true, predicted, ours, strict=True):
        kept = a > 0 if foreground else a >= 0
        theirs = sklearn_metrics.adjusted_rand_score(a[kept], b[kept])
        assert value.item() == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(
    ("true", "predicted"),
    [
        ([1, 1, 2, 2], [3, 3, 0, 0]),
        ([1, 1, 1, 1], [0, 0, 0, 0]),
        ([1, 1, 1, 1], [0, 1, 2, 3]),
        ([1, 1, 2, 2], [0, 0, 0, 0]),
        ([1], [0]),
        ([], []),
    ],
)
def test_trivial_segmentations_as_in_scikit_learn(true, predicted):
    table = count_table(torch.tensor(true).long(), torch.tensor(predicted).long(), 3, 4)
    theirs = sklearn_metrics.adjusted_rand_score(true, predicted)
    assert adjusted_rand_index(table, foreground=True).item() == pytest.approx(theirs)


def test_long_videos_do_not_overflow():
    """The square of 2^33 pixels is beyond int64; ten million times a small table is the same."""
    true, predicted = random_segmentations(1, batch=())
    table = count_table(true, predicted, 5, 4)
    long = adjusted_rand_index(table * 2**25, foreground=False)
    p = table.double() / table.sum()
    rows, columns = p.sum(-1).square().sum(), p.sum(-2).square().sum()
    expected = (p.square().sum() - rows * columns) / ((rows + columns) / 2 - rows * columns)
    assert long.item() == pytest.approx(expected.item(), abs=1e-6)
    clips = [random_segmentations(i, batch=()) for i in range(30)]
    frames = [count_table(*clip, 5, 4) for clip in clips]
    joined = [torch.cat(parts) for parts in zip(*clips, strict=True)]
    assert torch.equal(sum(frames), count_table(*joined, 5, 4))


@pytest.mark.parametrize(("objects", "segments"), [(4, 5), (5, 3), (1, 1)])
def test_matching_is_the_best_of_all(objects, segments):
    true, predicted = random_segmentations(2, objects=objects + 1, segments=segments)
    table = count_table(true, predicted, objects + 1, segments)
    ours = mean_iou(table)
    for a, b, value in zip(true, predicted, ours, strict=True):
        iou = {
            (m, s): ((a == m + 1) & (b == s)).sum() / ((a == m + 1) | (b == s)).sum()
            for m in range(objects)
            for s in range(segments)
        }
        slots = [*range(segments), *[None] * max(0, objects - segments)]
        best = max(
            sum(iou[m, s] for m, s in enumerate(order) if s is not None)
            for order in itertools.permutations(slots, objects)
        )
        assert value.item() == pytest.approx(float(best) / objects, abs=1e-6)
    assigned = match(ious(table))
    assert ((assigned >= 0).sum(-1) == min(objects, segments)).all()


def test_objects_that_are_not_visible_do_not_count():
    true, predicted = torch.tensor([[0, 1, 1, 3]]), torch.tensor([[0, 1, 1, 2]])
    assert mean_iou(count_table(true, predicted, 4, 3)).tolist() == [1.0]
    assert mean_iou(count_table(true * 0, predicted, 4, 3)).isnan().all()
