"""What `import nps` promises: the public names, nothing heavy besides torch, and the way in which
the packages may import one another (docs and CONTRIBUTING draw the same picture)."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import nps

ROOT = Path(nps.__file__).parent

# Top to bottom. A module may import its own package and whatever stands on a lower line.
LAYERS = [
    {"__main__", "worker"},
    {"cli"},
    {"commands"},
    {"jobs", "bench", "viewer"},
    {"experiments"},
    {"zoo"},
    {"training", "models", "inspect"},
    {"perception", "interactions"},
    {"networks", "rollouts", "recipes"},
    {"kernels"},  # called by whoever has a plain twin; may know the rules whose twin it is
    {"rules", "worlds", "metrics"},
    {"flags"},
    {"reading", "files", "threads", "flag_help", "capture", "allocator"},
    {"errors", "schema", "version"},
]
LEVEL = {package: level for level, packages in enumerate(reversed(LAYERS)) for package in packages}

HOOK = "nps.rules.fast"
"""The one module of nps.rules that may look for an accelerated form in nps.kernels."""


def modules():
    """Dotted name -> file."""
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = ["nps", *path.relative_to(ROOT).with_suffix("").parts]
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


class WithoutTypes(ast.NodeTransformer):
    """Drops what stands under `if TYPE_CHECKING:`, which never runs."""

    def visit_If(self, node):
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)


def targets(tree):
    """Everything that a module imports, at the top or inside functions, by its dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from {member if member in MODULES else node.module for member in members}


def imported(name, types):
    """The modules of nps that a module imports, at the top or inside functions.

    Args:
        name: of the module.
        types: whether imports for type checkers only count too.
    """
    tree = ast.parse(MODULES[name].read_text())
    found = set(targets(tree if types else WithoutTypes().visit(tree)))
    # Importing a.b.c runs a and a.b too, unless the importer is inside them.
    for target in list(found & MODULES.keys()):
        parents = (target.rsplit(".", up)[0] for up in range(1, target.count(".")))
        found |= {parent for parent in parents if not name.startswith(f"{parent}.")}
    found = (found & MODULES.keys()) - {name, "nps"}
    return {each for each in found if package(each) != "kernels"} if name == HOOK else found


def package(name):
    return name.split(".")[1]


NAMES = [name for name in MODULES if name != "nps"]
GRAPH = {name: imported(name, types=True) for name in NAMES}
RUN_TIME = {name: imported(name, types=False) for name in NAMES}


def test_every_package_has_a_layer():
    assert {package(name) for name in GRAPH} == LEVEL.keys()


@pytest.mark.parametrize("name", GRAPH)
def test_imports_point_down(name):
    for target in GRAPH[name]:
        if package(target) != package(name):
            assert LEVEL[package(target)] < LEVEL[package(name)], f"{name} imports {target}"


def test_there_are_no_cycles():
    graphlib.TopologicalSorter(RUN_TIME).prepare()  # raises CycleError, which names the modules


def test_lazy_imports_are_counted():
    assert "nps.cli" in RUN_TIME["nps.worker"]  # inside `if __name__ == "__main__"`
    assert "nps.jobs.processes" in RUN_TIME["nps.commands.run"]  # inside a function
    types_only = ("nps.experiments.mnist.inspect", "nps.experiments.mnist.task")
    assert types_only[1] in GRAPH[types_only[0]] - RUN_TIME[types_only[0]]


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
    assert {*nps.__all__, "interactions"} <= {*dir(nps)}
    with pytest.raises(AttributeError, match="no attribute 'Sequential'"):
        _ = nps.Sequential


def test_type_checkers_may_read_our_types():
    assert (ROOT / "py.typed").is_file()


def test_rules_need_torch_alone():
    """nps.rules imports itself, torch and the standard library, lazily or not.

    The one exception is the hook to the accelerated forms. jaxtyping is for type checkers only.
    """
    found = {}
    for name in (name for name in NAMES if package(name) == "rules"):
        tree = WithoutTypes().visit(ast.parse(MODULES[name].read_text()))
        for target in targets(tree):
            first = target.split(".")[0]
            inside = target == "nps.rules" or target.startswith("nps.rules.")
            if not inside and first != "torch" and first not in sys.stdlib_module_names:
                found.setdefault(name, set()).add(target)
    assert found == {HOOK: {"nps.kernels.rules"}}
