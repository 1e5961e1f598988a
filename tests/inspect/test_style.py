"""The style of figures: colours that stay apart for colour-blind readers, one look a model."""

import itertools
import statistics

import numpy as np
import pytest

from nps.inspect import figures, style

# Full dichromacy on linear RGB (Machado, Oliveira and Fernandes 2009).
VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = TO_XYZ.sum(1)


def seen(colour: str, vision: str) -> np.ndarray:
    """The colour as such an eye sees it, in CIELAB."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def least_distance(colours: list[str], vision: str) -> float:
    pairs = itertools.combinations(colours, 2)
    return min(float(np.linalg.norm(seen(a, vision) - seen(b, vision))) for a, b in pairs)


def test_the_measure_knows_white_and_the_pair_that_deuteranopes_confuse():
    assert seen("#FFFFFF", "normal") == pytest.approx([100, 0, 0], abs=0.01)
    red_and_green = ["#d62728", "#2ca02c"]  # matplotlib's own, which stood in our figures
    assert least_distance(red_and_green, "normal") > 100
    assert least_distance(red_and_green, "deuteranopia") < 40


@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart(vision):
    models = [look.colour for look in (*style.MODELS.values(), style.FLOOR, style.PAPER)]
    assert least_distance(models, vision) > 20
    assert least_distance(list(style.RULES), vision) > 20


def test_no_two_models_share_a_marker():
    markers = [look.marker for look in (*style.MODELS.values(), style.PAPER)]
    assert len(set(markers)) == len(markers)


@pytest.mark.parametrize(
    ("label", "model"),
    [
        ("NPS", "NPS"),
        ("NPS, aligned negatives", "NPS"),
        ("NPS, balanced (ours)", "NPS"),
        ("Fixed palette: NPS", "NPS"),
        ("parallel NPS, 3 stages", "parallel NPS"),
        ("fixed palette: parallel NPS", "parallel NPS"),
        ("GNN, 128 wide", "GNN"),
        ("2D shapes: C-SWM", "GNN"),
        ("transformer layer", "attention"),
        ("One MLP, no rules", "other"),
        ("Routing MLP", "other"),
    ],
)
def test_every_label_finds_its_model(label, model):
    assert style.model_of(label) == model
    look = style.MODELS[model]
    assert (style.line(label)["color"], style.line(label)["marker"]) == (look.colour, look.marker)


def test_variants_of_a_model_differ_in_line_and_fill_and_not_in_colour():
    labels = ["NPS", "GNN", "NPS, 2 stages", "NPS, 3 stages"]
    numbered = style.variants(labels)
    assert numbered == {"NPS": 0, "GNN": 0, "NPS, 2 stages": 1, "NPS, 3 stages": 2}
    drawn = [style.line(label, numbered[label]) for label in labels if label != "GNN"]
    assert len({line["color"] for line in drawn}) == 1
    assert len({str(line["linestyle"]) for line in drawn}) == 3
    assert len({line["fillstyle"] for line in drawn}) == 3


needs_matplotlib = pytest.mark.skipif(not figures.available(), reason="needs matplotlib")


@needs_matplotlib
@pytest.mark.parametrize(("low", "high"), [(0.12, 0.9), (0.3, 5.0), (3.0, 700.0), (1e-4, 0.05)])
def test_a_logarithmic_axis_has_at_least_two_plain_numbers(low, high):
    with style.settings():
        figure = style.new_figure(3.0)
        axis = figure.subplots()
        axis.plot([1, 2], [low, high])
        axis.set_yscale("log")
        style.plain_log_ticks(axis.yaxis)
        figure.canvas.draw()
        bottom, top = axis.get_ylim()
        inside = [
            label.get_text()
            for place, label in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
            if bottom <= place <= top and label.get_text()
        ]
    assert len(inside) >= 2
    assert all(float(text) > 0 for text in inside)


@needs_matplotlib
def test_a_band_on_a_logarithmic_axis_never_reaches_zero():
    values = [np.array([0.001, 0.01, 2.0])]
    low, high = figures.spread(values, ranges=True)
    assert (low[0], high[0]) == (0.001, 2.0)
    low, high = figures.spread(values, ranges=False)
    mean, deviation = statistics.mean([0.001, 0.01, 2.0]), statistics.stdev([0.001, 0.01, 2.0])
    assert (low[0], high[0]) == pytest.approx((mean - deviation, mean + deviation))
    assert low[0] < 0


@needs_matplotlib
def test_a_figure_is_the_same_bytes_every_time():
    panels = {"a": {"NPS": {1: np.ones(2), 2: np.ones(2)}}}
    assert figures.means_over(panels, "x", "y") == figures.means_over(panels, "x", "y")
