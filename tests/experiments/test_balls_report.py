"""The report, the headline and the verdict on bouncing balls, from runs with known numbers."""

import statistics

import pytest

from nps.experiments import EXPERIMENTS
from nps.experiments.balls import PRESETS, inspect, tables
from nps.experiments.balls.headline import headline
from nps.experiments.balls.report import short_table
from nps.experiments.claims import find
from nps.experiments.learning import curve_of
from nps.experiments.results import by_variant, read_results
from nps.files import write_json
from nps.inspect import figures
from nps.inspect.report import Figure, Table
from nps.training.config import to_json
from tests.experiments.runs import session, write_run
from tests.experiments.test_balls import FLAGS, call

BALLS = EXPERIMENTS["balls"]
TOLD = {
    **{"partner": 0.8, "partner_chance": 0.33, "pair_recall": 0.9, "who_recall": 0.7},
    **{"who_precision": 0.25, "who_precision_chance": 0.06, "who_f1": 0.37},
}
FIRED = {
    **{"firing_collision": 0.9, "firing_elsewhere": 0.1},
    **{"collision_rule_collision": 0.7, "collision_rule_elsewhere": 0.05},
}


def metrics(ari, more=None, transfer=0.0):
    """What a test says of a model with this agreement; on more balls it is `transfer` lower."""
    found = {}
    for prefix, value in {"": ari, "transfer_": ari - transfer}.items():
        for name in ("fg_ari", "ari", "fg_miou", "video_fg_ari"):
            found[prefix + name] = value
        for floor, level in {"grid": 0.7, "colour": 0.6, "copy": 0.5}.items():
            found |= {f"{prefix}{floor}_{m}": level for m in ("fg_ari", "ari", "fg_miou")}
        errors = {"mse": 0.01 * (2 - ari), "copy_mse": 0.02, "rollout_mse": 0.03}
        far = {"position": 0.2, "position_collision": 0.3, "rollout_position": 1.5}
        late = {"rollout_fg_ari": 0.4, "rollout_video_fg_miou": 0.35}
        late |= {"grid_rollout_fg_ari": 0.69, "video_ari": value, "grid_video_ari": 0.03}
        late |= {"copy_position": 0.5, "copy_position_collision": 0.45}
        found |= {prefix + name: x for name, x in {**errors, **far, **late, **(more or {})}.items()}
    return found


def write(root, name, *tests):
    scores = {e: {"ari": 0.05 * e, "mse": 0.02 / e, "copy_mse": 0.02} for e in (2, 4)}
    curve = [{"epoch": e, "validation": score} for e, score in scores.items()]
    for seed, test in enumerate(tests):
        folder = root / name / f"seed-{seed}"
        preset = name if name in PRESETS else "balls"
        config = to_json(PRESETS[preset].config)
        write_run(folder, "balls", preset, seed, config, test, [session(0, 1, 60.0)], curve)


@pytest.fixture
def results(tmp_path):
    write(tmp_path, "balls-none", metrics(0.8, transfer=0.2))
    write(tmp_path, "mine", metrics(0.1))
    write(tmp_path, "balls-attention", metrics(0.85, TOLD, 0.1))
    write(tmp_path, "balls", *(metrics(x, {**TOLD, **FIRED}) for x in (0.9, 0.94, 0.98)))
    return tmp_path


def rows_of(table):
    return {tuple(row[: table.names]): list(row[table.names :]) for row in table.rows}


def tables_of(path):
    return {part.name: part for part in BALLS.report(path).parts if isinstance(part, Table)}


def test_segments_stand_beside_the_papers_and_the_floors(results):
    found = tables_of(results)
    here, more = rows_of(found[""]), rows_of(found["transfer"])
    spread = "0.940 (0.900 to 0.980)"
    errors = [0.01 * (2 - x) / 0.02 for x in (0.9, 0.94, 0.98)]
    ratio = f"{statistics.median(errors):.2f} ({min(errors):.2f} to {max(errors):.2f})"
    assert here["NPS",] == ["0.85", *[spread] * 5, "0.0106 (0.0102 to 0.0110)", ratio]
    assert more["NPS",][0] == "0.36"
    assert here["no interaction",] == ["–", *["0.800"] * 5, "0.0120", "0.60"]
    assert more["no interaction",][1] == "0.600"
    assert here["floor: previous frame",] == ["–", *["0.500"] * 3, "–", "–", "0.0200", "1"]
    assert here["floor: 3 × 3 grid",] == ["–", *["0.700"] * 3, "–", "0.030", "–", "–"]
    # In the order of the paper's table; runs with a name of their own come last.
    names = [name for (name,) in here]
    assert names[:4] == ["SCOFF++ (attention)", "NPS", "no interaction", "mine"]


def test_motion_of_both_kinds_of_scenes(results):
    rows = rows_of(tables_of(results)["motion"])
    assert rows["no interaction", "6–8"] == ["0.20", "0.30", "1.50", "0.400", "0.350", "0.0300"]
    assert rows["floor: previous frame", "4"] == ["0.50", "0.45", "–", "–", "–", "–"]
    assert rows["floor: 3 × 3 grid", "6–8"] == ["–", "–", "–", "0.690", "–", "–"]


def test_who_bumped_whom_stands_beside_chance_and_attention(results):
    found = tables_of(results)
    told = rows_of(found["collisions"])
    assert told["SCOFF++ (attention)", "4"] == ["80%", "33%", "90%", "70%", "25%", "6%", "37%"]
    assert told["NPS", "6–8"][0] == "80% (80% to 80%)"
    assert set(told) == {(m, b) for m in ("SCOFF++ (attention)", "NPS") for b in ("4", "6–8")}
    fired = rows_of(found["firing"])
    assert list(fired) == [("NPS", "4"), ("NPS", "6–8")]
    assert [x.split()[0] for x in fired["NPS", "4"]] == ["90%", "10%", "70%", "5%"]


def test_floors_of_runs_that_have_none_come_from_the_file_beside_them(results):
    near = {"partner": 0.89, "partner_chance": 0.35, "pair_recall": 0.97, "who_f1": 0.48}
    near = {f"nearest_{name}": x for name, x in near.items()}
    drawn = {"random_partner": 0.35, "random_pair_recall": 0.56}
    write_json(results / "floors.json", {**near, **drawn, "grid_rollout_fg_ari": 0.1})
    found = tables_of(results)
    told = rows_of(found["collisions"])
    assert told["floor: nearest ball", "4"] == ["89%", "35%", "97%", "–", "–", "–", "48%"]
    assert told["floor: random ball", "4"] == ["35%", "–", "56%", "–", "–", "–", "–"]
    assert ("floor: nearest ball", "6–8") not in told
    assert rows_of(found["motion"])["floor: 3 × 3 grid", "4"][3] == "0.690"  # the run's own
    write_json(results / "floors.json", {"transfer_nearest_partner": 0.8})
    short = rows_of(tables_of(results)["short"])
    assert short["floor: previous frame",][-1] == "80%"
    assert short["floor: 3 × 3 grid",][-1] == "–"


def test_seeds_in_which_nothing_was_told_are_counted(tmp_path):
    silent = {**TOLD, **FIRED}
    del silent["partner"], silent["partner_chance"]
    write(tmp_path, "balls", metrics(0.9, {**TOLD, **FIRED}), metrics(0.9, silent))
    told = rows_of(tables_of(tmp_path)["collisions"])
    assert told["NPS", "4"][:2] == ["80%, 1 of 2 seeds", "33%, 1 of 2 seeds"]


def test_models_that_tell_nothing_have_no_such_tables(tmp_path):
    write(tmp_path, "balls-none", metrics(0.8))
    assert set(tables_of(tmp_path)) == {"", "transfer", "motion", "short"}


def test_the_short_table_fits_its_page(results):
    by_name = by_variant(read_results(results))
    (table,) = short_table(by_name)
    rows = rows_of(table)
    assert rows["NPS",] == [
        *("0.85", "0.940 (0.900 to 0.980)", "0.36", "0.940 (0.900 to 0.980)"),
        *("0.940 (0.900 to 0.980)", "0.30 (0.30 to 0.30)", "80% (80% to 80%)"),
    ]
    assert rows["floor: previous frame",] == ["–", "0.500", "–", "0.500", "0.500", "0.45", "–"]
    assert "mine" not in [name for (name,) in rows]
    assert short_table({"mine": by_name["mine"]}) == []
    everything = dict.fromkeys(tables.LABELS, by_name["balls"])
    assert len(short_table(everything)[0].rows) <= 8


def test_a_learning_curve_may_be_a_ratio(results):
    runs = by_variant(read_results(results))["balls"]
    ratio = curve_of(runs, ("mse", "copy_mse"))
    assert {epoch: values.tolist() for epoch, values in ratio.items()} == {
        2: pytest.approx([0.5] * 3),
        4: pytest.approx([0.25] * 3),
    }
    assert curve_of(runs, ("mse", "fg_ari")) == {}


def test_learning_curves_are_drawn(results, monkeypatch):
    if figures.available():
        drawn = [part for part in BALLS.report(results).parts if isinstance(part, Figure)]
        assert [part.name for part in drawn] == ["learning"]
        assert "Median over seeds" in drawn[0].caption
        assert "range of the seeds" in drawn[0].caption
    monkeypatch.setattr(figures, "available", lambda: False)
    assert not any(isinstance(part, Figure) for part in BALLS.report(results).parts)


@pytest.mark.parametrize(
    ("nps", "attention", "transfer", "verdict"),
    [
        ((0.9, 0.94), (0.8, 0.82), 0.0, "holds"),
        ((0.9, 0.94), (0.8, 0.82), 0.2, "partly"),  # with 4 balls
        ((0.9, 0.94), (0.9, 0.93), 0.0, "does not hold"),  # an advantage of 0.10 is ruled out
        ((0.7, 0.75), (0.8, 0.85), 0.0, "reversed"),
    ],
)
def test_whether_nps_segments_better_than_attention(tmp_path, nps, attention, transfer, verdict):
    write(tmp_path / "runs", "balls", *(metrics(x, transfer=transfer) for x in nps))
    write(tmp_path / "runs", "balls-attention", *map(metrics, attention))
    write(tmp_path / "runs", "balls-none", metrics(0.7))
    found = find(BALLS.claims[0], read_results(tmp_path / "runs"))
    shown = " and ".join(f"{statistics.median(nps) - less:.2f}" for less in (0.0, transfer))
    assert f"sequential NPS {shown}, attention" in found.ours
    assert found.reason.startswith("with nothing between the slots 0.70 and 0.70; ")
    assert found.holds == verdict


def test_what_else_is_ahead_of_scoff_is_said(tmp_path):
    write(tmp_path, "balls", metrics(0.9), metrics(0.94))
    write(tmp_path, "balls-scoff", metrics(0.1), metrics(0.85, transfer=0.05), metrics(0.2))
    write(tmp_path, "balls-none", metrics(0.93))
    (claim,) = [claim for claim in BALLS.claims if claim.says.endswith("than SCOFF")]
    reason = find(claim, read_results(tmp_path)).reason
    assert reason.startswith("slots of SCOFF have no places")
    assert "nothing between the slots 0.93 and 0.93; the best of 3 seeds of SCOFF 0.85" in reason


@pytest.mark.parametrize(
    ("fired", "verdict"), [((0.9, 0.8), "holds"), ((0.9, 0.1), "partly"), ((0.1, 0.1), "no")]
)
def test_whether_rules_fire_mainly_at_collisions(tmp_path, fired, verdict):
    tests = (metrics(0.9, {"firing_collision": at, "firing_elsewhere": 0.2}) for at in fired)
    write(tmp_path, "balls", *tests)
    (claim,) = [claim for claim in BALLS.claims if claim.says.startswith("rules fire")]
    found = find(claim, read_results(tmp_path))
    assert found.holds == ("does not hold" if verdict == "no" else verdict)
    assert (
        f"on {statistics.median(fired):.0%} of balls that collide, on 20% of others" in found.ours
    )


def test_the_headline_names_what_is_reached_and_its_floor():
    config = {"test_scenes": 500, "seen_frames": 10}
    found = headline(metrics(0.95, TOLD, transfer=0.3), config)
    assert found.verdict == (
        "Slots separate 4 balls. The error of the next frame is 0.53 and 0.53 times that of "
        "copying the previous one. In a collision a context that is a ball is the one that was "
        "hit in 80% of cases, by chance in 33%; 90% of collisions are told."
    )
    rows = {row[0]: list(row[1:]) for row in found.table.rows}
    assert rows["Foreground ARI, 4 balls"] == ["0.950", "0.700", "a 3 × 3 grid"]
    assert rows["ARI, 6 to 8 balls"] == ["0.650", "0.500", "the previous frame"]
    assert rows["Partner told, 4 balls"] == ["80%", "33%", "a random other ball"]
    assert "500 scenes" in found.table.caption
    floors = {"nearest_partner": 0.7, "pair_recall_chance": 0.56}
    found = headline(metrics(0.95, {**TOLD, **floors}), config)
    rows = {row[0]: list(row[1:]) for row in found.table.rows}
    assert rows["Partner told, 4 balls"] == ["80%", "70%", "the nearest ball"]
    assert found.verdict.endswith("90% of collisions are told, by chance 56%.")
    lost = headline(metrics(0.4), config)
    assert "do not separate the balls: no better than a 3 × 3 grid" in lost.verdict
    assert len(lost.table.rows) == 6


def test_a_report_of_two_trained_models(tmp_path):
    for name in ("balls", "balls-none"):
        folder = str(tmp_path / name / "seed-0")
        call("train", name, "--out", folder, *FLAGS, "--epochs=1")
        out, _ = call("eval", folder)
        assert "Foreground ARI, 6 to 8 balls" in out
    page = BALLS.report(tmp_path).to_html()
    assert "no interaction" in page
    assert "floor: 3 × 3 grid" in page
    assert "0.85" in page  # the paper's
    document = tmp_path / "balls.md"
    document.write_text("<!-- table: balls short -->\n<!-- end -->\n")
    call("table", str(tmp_path), "--into", str(document))
    assert document.read_text().count("\n| ") == 2 + 4  # head and rule, two models, two floors


def test_inspection_says_whether_rules_fire_at_collisions():
    metrics = {"firing_table": [[0.5, 0.25], [0.0, 1.0]], **TOLD, **FIRED}
    (table,) = inspect.firing_table({"4 balls": metrics, "6 to 8 balls": {}})
    assert table.rows == [["rule 0", "50%", "0%"], ["rule 1", "25%", "100%"]]
    assert list(table.columns) == ["", "4 balls, colliding", "4 balls, others"]
    assert inspect.firing_table({"4 balls": TOLD}) == []
    (text,) = inspect.who_bumped_whom("4 balls", metrics)
    assert "the one it hits in 80% of cases (at random: 33%); 90% of all" in text.text
    floors = {"nearest_partner": 0.7, "pair_recall_chance": 0.56}
    (text,) = inspect.who_bumped_whom("4 balls", {**metrics, **floors})
    assert "in 80% of cases (at random: 33%, the nearest: 70%); 90% of all" in text.text
    assert "collisions are told (at random: 56%)." in text.text
    silent = {"firing_collision": 0.0, "firing_elsewhere": 0.0, "pair_recall": 0.0}
    (text,) = inspect.who_bumped_whom("4 balls", silent)
    assert text.text == "4 balls: no rule fires on a slot that shows a ball."
    assert inspect.who_bumped_whom("4 balls", {"pair_recall": 0.0}) == []
