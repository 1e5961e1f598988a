"""The frozen page: one file that holds the page and its answers, and asks nobody for anything."""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess

import pytest

from nps.viewer import bundle, freeze
from nps.viewer.freeze import Frozen, frozen_page
from nps.viewer.routes import ROUTES, answer
from nps.viewer.session import Session
from tests.viewer.browser import needs_browser, opened, seek
from tests.viewer.browser import state as state_of
from tests.viewer.fake import FakeRun, FakeWorkbench

EDITS = {"scaled": [{"rule": 1, "factor": 0.5}], "disabled": [2]}


@pytest.fixture(scope="module")
def session() -> Session:
    other = FakeRun(FakeWorkbench(rules=12, stages=2), seed=1)
    return Session(
        [FakeRun(FakeWorkbench(with_rules=False), seed=2), FakeRun(FakeWorkbench()), other]
    )


@pytest.fixture(scope="module")
def page(session) -> str:
    """Model 1 under edits beside model 2."""
    return frozen_page(session, 1, 3, EDITS, compare=2)


class Tags(html.parser.HTMLParser):
    """All tags with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.texts.append((*self.tags[-1], data))
            self.tags.append(("", {}))


def stored(text: str):
    """The JSON of a page."""
    (data,) = [data for _, attributes, data in Tags(text).texts if attributes.get("id") == "frozen"]
    return json.loads(data)


def found(answers, route: str, body):
    """As the page looks an answer up."""
    at = answers[f"{route}\n{json.dumps(body, sort_keys=True, separators=(',', ':'))}"]
    return answers[at["as"]] if "as" in at else at


# -- the file -------------------------------------------------------------------------------------


def test_nothing_is_outside_the_file(page):
    tags = Tags(page).tags
    for tag, attributes in tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            assert re.match(r"data:|#|$", attributes.get(name) or ""), (tag, attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    assert [tag for tag, _ in tags].count("script") == 2
    style = next(data for tag, _, data in Tags(page).texts if tag == "style")
    assert "@import" not in style
    assert all(address.startswith("data:") for address in re.findall(r"url\(['\"]?([^)]*)", style))


def test_the_policy_allows_this_script_and_style_alone(page):
    parsed = Tags(page)
    (policy,) = [each["content"] for tag, each in parsed.tags if tag == "meta" and "content" in each
                 and each.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    rules = {name: values for name, *values in (part.split() for part in policy.split("; "))}
    assert rules["default-src"] == ["'none'"]
    for tag in ("script", "style"):
        (text,) = [data for each, attributes, data in parsed.texts
                   if each == tag and attributes.get("type") != "application/json"]  # fmt: skip
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == [f"'sha256-{digest}'"]
    head = page.partition("<script")[0]
    assert "Content-Security-Policy" in head


def test_names_from_outside_stay_text(session, monkeypatch):
    """A rule may be called anything; in the page it is a text and no markup."""
    evil = "</script><script>alert(1)</script><!--"
    rules = session.models[1].workbench.layer.rules
    old = list(rules.names)
    rules.names = [evil, *old[1:]]
    monkeypatch.setattr(type(session.models[1]), "title", evil)
    try:
        text = frozen_page(session, 1, 0)
    finally:
        rules.names = old
    assert stored(text)["answers"]["/api/models\n{}"]["models"][0]["rules"][0] == evil
    assert [tag for tag, _ in Tags(text).tags].count("script") == 2
    assert "<!--" not in text


def test_the_joined_modules_are_a_module():
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine: the joined modules are only run in the browser")
    command = [node, "--input-type=module", "--check"]
    done = subprocess.run(command, input=bundle.bundle(), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"main.js": 'import { a } from "./a.js";\nconst b = 1;', "a.js": "export const b = 2;"},
         "main.js: declares b, as does a.js"),
        ({"main.js": 'import { c } from "./a.js";\nfunction b() {}',
          "a.js": "export let { b, c } = {};"}, "main.js: declares b, as does a.js"),
        ({"main.js": 'import a from "./a.js";'}, "main.js: cannot join 'import a"),
        ({"main.js": 'import * as a from "./a.js";'}, "cannot join 'import "),
        ({"main.js": "const a = 1;\nexport { a };"}, "cannot join 'export { a }"),
        ({"main.js": "export default 1;"}, "cannot join 'export default"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_joined_are_named(tmp_path, monkeypatch, modules, message):
    for name, source in modules.items():
        (tmp_path / name).write_text(source)
    monkeypatch.setattr(bundle, "STATIC", tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        bundle.bundle()


def test_modules_are_joined_in_their_order(tmp_path, monkeypatch):
    sources = {
        "main.js": 'import { b } from "./b.js";\nimport {\n  a,\n} from "./a.js";\nsay(a + b());',
        "a.js": 'import { say as tell } from "./c.js";\nexport const a = 1;\ntell(a);',
        "b.js": 'import { a } from "./a.js";\nexport function b() {\n  return a;\n}',
        "c.js": 'import { b } from "./b.js";\nexport function say(x) { console.log(x, b); }',
    }
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    monkeypatch.setattr(bundle, "STATIC", tmp_path)
    joined = bundle.bundle()
    assert re.findall(r"^// (.*)", joined, re.MULTILINE) == ["c.js", "a.js", "b.js", "main.js"]
    assert not re.search(r"^(import|export)", joined, re.MULTILINE)
    node = shutil.which("node")
    if node is not None:
        done = subprocess.run([node, "-"], input=joined, text=True, capture_output=True)
        assert done.stdout.splitlines() == ["1 [Function: b]", "2 [Function: b]"]


# -- the answers ----------------------------------------------------------------------------------


def test_it_starts_with_what_was_shown(page):
    start = stored(page)["start"]
    assert start == {"model": 0, "episode": 3, "edits": EDITS, "with": 1}
    models = stored(page)["answers"]["/api/models\n{}"]["models"]
    assert [(model["id"], model["seed"]) for model in models] == [(0, 0), (1, 1)]


def test_the_answers_are_those_of_the_server(session, page):
    """The same requests to a live session with the same two models."""
    live, answers = session.subset([1, 2]), stored(page)["answers"]
    shown = {"model": 0, "episode": 3, "edits": EDITS}
    for key in answers:
        route, body = key.split("\n")
        theirs = answer(live, route, json.loads(body))
        ours = found(answers, route, json.loads(body))
        if route == "/api/frames":
            assert base64.b64decode(ours["image"].partition(",")[2]) == theirs.data
        else:
            assert ours == json.loads(json.dumps(theirs))
    assert found(answers, "/api/play", shown)["base"]["play"]


def test_every_firing_has_its_reason_and_every_rule_its_absence(session, page):
    answers = stored(page)["answers"]
    bench = session.models[1].workbench
    for edits in ({}, EDITS):
        play = found(answers, "/api/play", {"model": 0, "episode": 3, "edits": edits})
        record = session.playback(session.asked({"model": 1, "episode": 3, "edits": edits})).record
        for step, stage, slot in zip(*(record.rule >= 0).nonzero(), strict=True):
            where = {"step": int(step), "stage": int(stage), "slot": int(slot)}
            why = found(answers, "/api/why", {"play": play["play"], **where})
            assert why["rule"] == record.rule[step, stage, slot]
            assert why["fired"]
    for rule in range(len(bench.rule_names)):
        off = sorted({2} ^ {rule})
        edits = {**EDITS, "disabled": off} if off else {"scaled": EDITS["scaled"]}
        play = found(answers, "/api/play", {"model": 0, "episode": 3, "edits": edits})
        sheet = {"play": play["play"], "kind": "predicted", "sheet": 0}
        assert found(answers, "/api/frames", sheet)["image"].startswith("data:image/png;base64,")
    assert found(answers, "/api/play", {"model": 1, "episode": 3, "edits": {}})["stages"] == 2


def test_rules_are_described(page):
    answers = stored(page)["answers"]
    assert len(found(answers, "/api/rules", {"model": 0})["rules"]) == 6


def test_equal_answers_are_stored_once(page):
    """The true frames are the same whatever the model is told."""
    answers = stored(page)["answers"]
    frames = [value for key, value in answers.items() if '"kind":"true"' in key]
    assert len(frames) == 2 + 6 + 1  # without and with edits, each rule toggled, the other model
    assert sum("image" in value for value in frames) == 1


def test_a_model_without_rules(session):
    answers = stored(frozen_page(session, 0, 1))["answers"]
    routes = {key.split("\n")[0] for key in answers}
    assert routes == {"/api/models", "/api/play", "/api/frames"}


def test_what_does_not_fit_is_left_out(session, monkeypatch):
    whole = stored(frozen_page(session, 1, 0))["answers"]
    monkeypatch.setattr(freeze, "WHY_BYTES", 4_000)
    monkeypatch.setattr(freeze, "WHAT_IF_BYTES", 4_000)
    some = stored(frozen_page(session, 1, 0))["answers"]
    for route in ("/api/why", "/api/play"):
        counts = [sum(key.startswith(route) for key in answers) for answers in (some, whole)]
        assert 1 <= counts[0] < counts[1]
    steps = [json.loads(key.split("\n")[1])["step"] for key in some if key.startswith("/api/why")]
    assert steps == sorted(steps)
    assert steps[0] == 0  # the earliest


def test_only_the_page_is_answered_for():
    """Nothing in a frozen page can change a run."""
    frozen = Frozen(Session([FakeRun(FakeWorkbench())]))
    frozen.episode({"model": 0, "episode": 0, "edits": {}})
    routes = {key.split("\n")[0] for key in frozen.answers}
    assert routes <= set(ROUTES) - {"/api/rename", "/api/save", "/api/html"}


def test_it_is_small(page):
    assert len(page) < 500_000


# -- in a browser ---------------------------------------------------------------------------------


@needs_browser
def test_it_plays_from_a_file_without_a_network(browser, tmp_path, page):
    path = tmp_path / "page.html"
    path.write_text(page)
    with opened(browser, path.as_uri(), offline=True) as shown:
        assert state_of(shown)["edits"] == EDITS
        seek(shown, 5)
        assert state_of(shown)["t"] == 5
        canvas = shown.locator("#stage canvas.pixels").first
        lit = canvas.evaluate(
            "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x > 100)"
        )
        assert lit
