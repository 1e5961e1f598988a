"""What `import nps` promises: the public names, and nothing heavy beside torch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nps


def test_import_is_light():
    script = (
        "import sys, nps; nps.SequentialNPS;"
        "heavy = {'scipy', 'rich', 'tyro', 'matplotlib', 'safetensors', 'sklearn', "
        "'gymnasium'};"
        "heavy = (heavy | {'nps.worlds'}) & set(sys.modules);"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_public_names_exist():
    for name in nps.__all__:
        assert getattr(nps, name) is not None
    assert nps.interactions.Routing
    with pytest.raises(AttributeError, match="no attribute 'Sequential'"):
        _ = nps.Sequential


# Who may import whom; a package may always import itself and these.
EVERYONE = {"capture", "errors", "files", "kernels", "networks", "version"}
BELOW = {
    "rules": set(),
    "metrics": set(),
    "worlds": set(),
    "kernels": {"rules"},  # whose layers have a fast form, too
    "perception": set(),
    "interactions": {"rules"},
    "models": {"rules", "interactions", "perception"},
    "inspect": {"rules", "metrics"},
    "training": {"rules"},
    "experiments": {
        "rules",
        "interactions",
        "perception",
        "models",
        "worlds",
        "metrics",
        "inspect",
        "training",
    },
    "bench": {"rules", "interactions", "inspect", "training", "experiments"},
    "jobs": {"training", "experiments", "inspect", "cli"},  # a job is a command of its own
}


@pytest.mark.parametrize("package", BELOW)
def test_imports_point_down(package):
    for path in (Path(nps.__file__).parent / package).rglob("*.py"):
        for target in re.findall(r"^\s*from nps\.(\w+)", path.read_text(), re.MULTILINE):
            assert target in BELOW[package] | EVERYONE | {package}, (path.name, target)


def test_rules_need_torch_alone():
    """No module of nps.rules imports anything of nps but itself."""
    for path in (Path(nps.__file__).parent / "rules").rglob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                allowed = ("nps.rules", "torch", "typing", "collections", "__future__")
                allowed += ("abc", "contextlib", "itertools", "json", "math")
                allowed += ("dataclasses", "functools", "importlib")
                if path.name.startswith("kernels"):  # imported on a GPU only
                    allowed += ("triton",)
                assert line.split()[1].startswith(allowed), (path.name, line)
