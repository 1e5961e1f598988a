"""What `import nps` promises: the public names, and nothing heavy beside torch."""

import subprocess
import sys

import pytest

import nps


def test_import_is_light():
    script = (
        "import sys, nps; nps.SequentialNPS;"
        "heavy = {'scipy', 'rich', 'tyro', 'matplotlib', 'safetensors'} & set(sys.modules);"
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


def test_rules_need_torch_alone():
    """No module of nps.rules imports anything of nps but itself."""
    from pathlib import Path

    for path in (Path(nps.__file__).parent / "rules").glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                allowed = ("nps.rules", "torch", "typing", "collections", "__future__")
                allowed += ("abc", "contextlib", "itertools", "json", "math")
                assert line.split()[1].startswith(allowed), (path.name, line)
