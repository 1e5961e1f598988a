"""The tracking protocol, against motmetrics and by hand."""

import motmetrics
import numpy as np
import pytest
import torch

from nps.metrics.tracking import LEAST_IOU, MOSTLY, Overlaps, Tracked, overlaps, track


def random_video(seed, frames=12, objects=4, segments=5):
    """Objects that follow a segment, until they swap, vanish, come back or are not found."""
    draw = np.random.default_rng(seed)
    iou = draw.uniform(0, 0.6, (frames, objects, segments))
    visible = draw.random((frames, objects)) < draw.choice([0.3, 0.9, 1.0])
    predicted = draw.random((frames, segments)) < draw.choice([0.3, 0.9, 1.0])
    owner = draw.permutation(segments)[:objects]
    for t in range(frames):
        if draw.random() < 0.3:
            owner = draw.permutation(segments)[:objects]
        iou[t, np.arange(objects), owner] = draw.uniform(0.4, 1.0, objects)
        if draw.random() < 0.1:
            visible[t] = False
        if draw.random() < 0.1:
            predicted[t] = False
    return Overlaps(iou, visible, predicted)


def by_motmetrics(videos):
    """Counts and metrics as the leaderboard's program takes them from motmetrics."""
    accumulator, frame = motmetrics.MOTAccumulator(), 0
    for number, video in enumerate(videos):
        for iou, visible, predicted in zip(*video, strict=True):
            distance = 1.0 - iou[visible][:, predicted]
            distance[distance > 1.0 - LEAST_IOU] = np.nan
            names = [
                [100 * number + i for i in np.flatnonzero(which)] for which in (visible, predicted)
            ]
            accumulator.update(*names, distance, frameid=frame)
            frame += 1
    host = motmetrics.metrics.create()
    wanted = ["num_matches", "num_switches", "num_misses", "num_false_positives", "num_objects"]
    wanted += ["mota", "motp", "num_unique_objects"]
    found = host.compute(accumulator, metrics=wanted).iloc[0]
    events = accumulator.mot_events
    kinds = events[events.Type.isin(["MATCH", "SWITCH", "MISS"])].groupby("OId").Type
    tracked = kinds.apply(lambda x: (x == "MATCH").mean() >= MOSTLY).sum() if len(events) else 0
    detected = kinds.apply(lambda x: (x != "MISS").mean() >= MOSTLY).sum() if len(events) else 0
    return found, int(detected), int(tracked)


@pytest.mark.parametrize("seed", range(12))
def test_as_motmetrics_counts(seed):
    videos = [random_video((seed, i)) for i in range(4)]
    ours = Tracked()
    for video in videos:
        ours = ours.plus(track(video))
    theirs, detected, tracked = by_motmetrics(videos)
    assert ours.objects == theirs["num_objects"]
    assert ours.matches == theirs["num_matches"]
    assert ours.switches == theirs["num_switches"]
    assert ours.misses == theirs["num_misses"]
    assert ours.false_positives == theirs["num_false_positives"]
    assert ours.tracks == theirs["num_unique_objects"]
    assert (ours.mostly_detected, ours.mostly_tracked) == (detected, tracked)
    metrics = ours.metrics()
    assert metrics["mota"] == pytest.approx(100 * theirs["mota"])
    assert metrics["motp"] == pytest.approx(100 * (1 - theirs["motp"]))


def test_random_videos_have_all_kinds_of_events():
    found = [track(random_video((seed, 0))) for seed in range(12)]
    for event in ("matches", "switches", "misses", "false_positives"):
        assert sum(getattr(counts, event) for counts in found) > 12


def test_by_hand():
    """An object is found, lost, found again by the same segment, then by another."""
    iou = np.zeros((4, 1, 2))
    iou[[0, 2], 0, 0], iou[3, 0, 1] = 0.8, 0.6
    counts = track(Overlaps(iou, np.ones((4, 1), bool), np.ones((4, 2), bool)))
    assert counts == Tracked(
        objects=4,
        matches=2,
        switches=1,
        misses=1,
        false_positives=5,
        overlap=pytest.approx(2.2),
        tracks=1,
    )
    assert counts.metrics()["mota"] == pytest.approx(100 * (4 - 1 - 1 - 5) / 4)


def test_an_object_keeps_its_segment_even_if_another_overlaps_more():
    iou = np.array([[[0.9, 0.0]], [[0.5, 1.0]]])
    counts = track(Overlaps(iou, np.ones((2, 1), bool), np.ones((2, 2), bool)))
    assert (counts.matches, counts.switches) == (2, 0)


def test_more_pairs_are_better_than_closer_ones():
    iou = np.array([[[0.99, 0.55], [0.6, 0.0]]])
    counts = track(Overlaps(iou, np.ones((1, 2), bool), np.ones((1, 2), bool)))
    assert counts.matches == 2
    assert counts.overlap == pytest.approx(1.15)


def test_nothing_to_track():
    none = Overlaps(np.zeros((3, 2, 2)), np.zeros((3, 2), bool), np.zeros((3, 2), bool))
    assert track(none) == Tracked()
    assert set(track(none).metrics().values()) == {0.0}


def test_overlaps_of_pictures():
    """Small masks do not count, neither true nor predicted, and the background is no prediction."""
    true = torch.zeros(1, 2, 10, 10, dtype=torch.uint8)
    true[0, 0, :3, :3], true[0, 0, 5, :5] = 1, 2  # 9 and 5 pixels
    segments = torch.zeros_like(true)
    segments[0, 0, :3, :4], segments[0, 1, 9, :5] = 1, 2
    (video,) = overlaps(true, segments, 2, 3)
    assert video.iou[0].tolist() == [[0.0, 9 / 12, 0.0], [5 / 88, 0.0, 0.0]]
    assert video.visible.tolist() == [[True, False], [False, False]]
    assert video.predicted.tolist() == [[False, True, False], [False, False, False]]
    assert track(video) == Tracked(
        1, 1, overlap=0.75, tracks=1, mostly_detected=1, mostly_tracked=1
    )
