"""Groups become rows; what is left out says why; works give what the layers give."""

import dataclasses
import itertools

import pytest
import torch

from nps.bench import measure as module
from nps.bench.cases import MODELS, Case, Grid, Group, once, sweep
from nps.bench.goals import goal_groups, goals
from nps.bench.measure import Row, measure
from nps.bench.works import make_task, ready

CPU = torch.device("cpu")


def all_rows(groups, device):
    return list(itertools.chain(*measure(groups, device, 1)))


def group(*models, work="forward", mode="eager", budget=60.0):
    return Group("centre", tuple(Case(m, work, mode, 4, 3, 2) for m in models), budget)


def test_rows_in_order_with_ratios_to_the_gnn():
    models = ("sequential", "gnn-512", "attention")
    rows = all_rows([group(*models), group(*models, work="step")], CPU)
    assert [row.model for row in rows] == [*models, *models]
    for row in rows:
        gnn = next(r for r in rows if (r.model, r.work) == ("gnn-512", row.work))
        assert row.ms_least <= row.ms <= row.ms_most
        assert row.faster == pytest.approx(gnn.ms / row.ms)
        layer = MODELS[row.model].make(2)
        assert row.parameters == sum(p.numel() for p in layer.parameters())


def test_no_gnn_no_ratio():
    assert all_rows([group("sequential")], CPU)[0].faster is None


def test_too_slow_is_left_out_and_reported():
    (row,) = all_rows([group("gnn-512", budget=1e-9)], CPU)
    assert row.ms is None
    assert "s per call, more than allowed (--budget)" in row.skipped


def test_too_large_is_left_out_and_reported(monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda device: 1000)
    (row,) = all_rows([group("gnn-512")], CPU)
    assert row.ms is None
    assert row.skipped == "needs about 0.0 GB, 0.0 GB are free"


def test_what_cannot_be_captured_is_reported_and_the_rest_goes_on(monkeypatch):
    def refuse(task):
        if task.case.model == "parallel":
            raise RuntimeError("operation not permitted\nwhen stream is capturing")
        return task

    monkeypatch.setattr(module, "ready", refuse)
    rows = all_rows([group("parallel", "sequential", mode="captured")], CPU)
    assert rows[0].skipped == "not captured: operation not permitted"
    assert rows[1].ms is not None


def test_free_memory_is_reported():
    assert 2**20 < module.free_bytes(CPU) < 2**50


@pytest.mark.parametrize("model", MODELS)
def test_works_give_what_the_layer_gives(model):
    forward = make_task(Case(model, "forward", "eager", 4, 3, 2), CPU)
    torch.testing.assert_close(forward(), forward.layer(forward.slots), check_stride=False)
    rollout = make_task(Case(model, "rollout", "eager", 4, 3, 2), CPU)
    slots = rollout.slots
    for _ in range(10):
        slots = rollout.layer(slots)
    torch.testing.assert_close(rollout(), slots)
    step = ready(make_task(Case(model, "step", "eager", 4, 3, 2), CPU))
    torch.manual_seed(1)
    grads = step()
    torch.manual_seed(1)
    (step.layer(step.slots) * step.cotangent).sum().backward()
    for grad, p in zip(grads, [step.slots, *step.layer.parameters()], strict=True):
        torch.testing.assert_close(grad, p.grad)


@pytest.mark.slow
def test_compiled_gives_what_eager_gives():
    eager = make_task(Case("gnn-128", "forward", "eager", 4, 3, 2), CPU)
    compiled = ready(make_task(Case("gnn-128", "forward", "compiled", 4, 3, 2), CPU))
    torch.testing.assert_close(compiled(), eager())
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["eager", "captured", "compiled", "compiled+captured"])
@pytest.mark.parametrize("work", ["forward", "step", "rollout"])
def test_every_mode_on_the_gpu(work, mode):
    models = ("sequential", "parallel", "gnn-512", "transformer")
    rows = all_rows([group(*models, work=work, mode=mode)], torch.device("cuda"))
    assert [row.skipped for row in rows] == [None] * len(models)
    assert all(row.ms > 0 and row.peak_bytes > 0 for row in rows)


# -- what stands side by side ----------------------------------------------------------------------


def test_a_grid_keeps_what_is_given_and_fills_the_rest():
    grid = Grid((0, 0, 0), (), (2, 7), (10,)).of("cuda", quick=False)
    assert grid.centre == (1024, 2, 10)
    assert grid.slots == (2, 7)
    assert grid.batch == (64, 256, 1024, 4096, 8192)
    assert Grid((0, 0, 0), (), (), ()).of("cpu", quick=False).centre == (256, 5, 10)


def test_sweeps_share_the_centre():
    grid = Grid((8, 5, 10), (8, 16), (2, 5), (10,))
    sections = [
        sweep(section, grid, ["sequential", "gnn-512"], ["step"], ["eager"], 1.0)
        for section in ("centre", "slots", "rules", "batch")
    ]
    assert [len(groups) for groups in sections] == [1, 2, 1, 2]
    groups = once(g for groups in sections for g in groups)
    sizes = [(g.section, g.cases[0].batch, g.cases[0].slots, g.cases[0].rules) for g in groups]
    assert sizes == [("centre", 8, 5, 10), ("slots", 8, 2, 10), ("batch", 16, 5, 10)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_goals_are_measured_side_by_side(device):
    groups = goal_groups(device)
    for goal in goals(device):
        (home,) = [g for g in groups if goal.case in g.cases]
        assert goal.over is None or goal.over in home.cases
        assert len(set(home.cases)) == len(home.cases)


def test_goals_are_judged():
    def row(case, **values):
        return Row("goals", **dataclasses.asdict(case), **values)

    speed, flat = goals("cpu")[0], goals("cpu")[-1]
    rows = [row(speed.case, ms=2.0), row(speed.over, ms=60.0)]
    assert speed.measured(rows) == (30.0, "")
    best = [row(speed.case, ms=2.0, ms_least=1.0), row(speed.over, ms=60.0, ms_least=50.0)]
    assert speed.measured(best, least=True) == (50.0, "")
    assert speed.met(30.0)
    assert not speed.met(24.9)
    assert flat.met(1.5)
    assert not flat.met(1.6)
    assert flat.measured(rows) == (None, "Parallel: not measured")
    rows[1] = row(speed.over, skipped="out of memory")
    assert speed.measured(rows) == (None, "GNN 512: out of memory")
    (limit, *_) = goals("cuda")
    assert limit.measured([row(limit.case, ms=0.19)]) == (0.19, "")
    assert limit.met(0.19)
