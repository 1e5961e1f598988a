"""The report on bouncing balls."""


def test_a_report_of_two_models(tmp_path):
    for name in ("balls", "balls-none"):
        folder = str(tmp_path / name / "seed-0")
        call("train", name, "--out", folder, *FLAGS, "--epochs=1")
        call("eval", folder)
    from nps.experiments import EXPERIMENTS

    report = EXPERIMENTS["balls"].report(tmp_path)
    page = report.to_html()
    assert "no interaction" in page
    assert "floor: 3 × 3 grid" in page
    assert "0.85" in page  # the paper's
