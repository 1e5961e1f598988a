"""The picture of what fired: its cells are those of the choices, drawn again from the SVG."""

import random
import re
import xml.etree.ElementTree as ElementTree

from nps.rules.raster import CELL, LABEL, NOTHING, colour, raster

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg, columns, slots):
    """The rule of each cell, read from the paths."""
    root = ElementTree.fromstring(svg)
    rules = {colour(i): i for i in range(32)}
    found = [[-1] * slots for _ in range(columns)]
    for path in root.iter(f"{SVG}path"):
        for x, y, width in re.findall(r"M([\d.]+) (\d+)h([\d.]+)v", path.get("d")):
            begin, count = (float(x) - LABEL) / CELL, float(width) / CELL
            for column in range(round(begin), round(begin + count)):
                assert found[column][int(y) // CELL] == -1
                found[column][int(y) // CELL] = rules[path.get("fill")]
    return found


def test_every_cell_is_drawn():
    for seed in range(5):
        pick = random.Random(seed)
        columns = [[pick.randrange(-1, 12) for _ in range(4)] for _ in range(30)]
        svg = raster(columns, [f"rule {i}" for i in range(12)], list("abcd"))
        assert drawn(svg, 30, 4) == columns


def test_colours_are_all_different():
    assert len({colour(i) for i in range(32)} | {NOTHING}) == 33
    assert colour(-1) == NOTHING
    assert colour(0) == "#0072b2"
    assert colour(32) == colour(0)


def test_names_are_escaped_and_short():
    svg = raster([[0]], ["<b>" + "x" * 50], ["<i>"])
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert "x" * 20 not in svg
    ElementTree.fromstring(svg)


def test_only_so_many_cells():
    columns = [[t % 3, -1] for t in range(1_000)]
    svg = raster(columns, list("abc"), ["one", "two"], most=100)
    assert "the first 50 of 1000" in svg
    assert len(svg) < 6_000


def test_nothing_fired_and_numbers_of_steps():
    svg = raster([[-1, -1]] * 6, ["a"], ["one", "two"], every=2)
    assert "<path" not in svg
    numbers = re.findall(r">(\d+)</text>", svg)
    assert numbers == ["0", "1", "2"]
