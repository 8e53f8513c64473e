"""Imports point one way, and the core knows no environment, file or clock.

types, checks, figures, atomic, files < core < linear, policies < simulators < envs < diagnosis
< adapt < agents < studies < bench < cli. A module may import from layers before its own and from
its own part; linear and policies do not know each other. Within studies it is
stats, text < report < plots, spec < runs < run, compare < evaluation < paper < extra < diagnosis,
recovery.
The top-level ``windward/__init__.py`` gathers public names and is exempt; to import it is to import
all that it gathers, so only layers after those may.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "windward"
LAYERS = [
    {"types", "checks", "figures", "atomic", "files"},
    {"core"},
    {"linear", "policies"},
    {"simulators"},
    {"envs"},
    {"diagnosis"},
    {"adapt"},
    {"agents"},
    {"studies"},
    {"bench"},
    {"cli", "__main__"},
]
STUDIES = [
    {"stats", "text"},
    {"report"},
    {"plots", "spec"},
    {"runs"},
    {"run", "compare"},
    {"summary_page"},
    {"evaluation"},
    {"paper"},
    {"extra"},
    {"diagnosis", "recovery"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
RANK_OF_STUDIES = {part: rank for rank, layer in enumerate(STUDIES) for part in layer}
NOT_IN_CORE = {"gymnasium", "gym", "os", "io", "time", "datetime", "pathlib", "shutil", "tempfile"}


def part_of(module):
    """The part of windward a dotted module belongs to; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports(source, module, is_package):
    """Dotted names of all that a module imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                here = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join(here[: len(here) - node.level + 1])
                base = f"{base}.{node.module}" if node.module else base
            else:
                base = node.module
            # `from windward import checks` imports windward.checks.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def wrong_arrows(module, names):
    """The imports of a module that its layer does not allow."""
    here = part_of(module)
    for name in names:
        if name.split(".")[0] != "windward":
            if here == "core" and name.split(".")[0] in NOT_IN_CORE:
                yield f"{module} imports {name}: the core has no environment, file or clock"
            continue
        there = part_of(name)
        if there not in RANK:  # the package itself, or one of its public names
            if RANK[here] <= GATHERED:
                yield f"{module} imports {name} from the top: import the part it means"
        elif here == there == "studies":
            own, other = (each.split(".")[2] for each in (module, name))
            if other != own and RANK_OF_STUDIES[other] >= RANK_OF_STUDIES[own]:
                yield f"{module} imports {name}: {own} may not know {other}"
        elif there != here and RANK[there] >= RANK[here] and not {here, there} <= LAYERS[0]:
            yield f"{module} imports {name}: {here} may not know {there}"


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
GATHERED = max(
    RANK.get(part_of(name), -1)
    for name in imports(MODULES["windward"].read_text(), "windward", True)
)


def test_every_module_has_a_layer():
    assert "windward.core.algorithm" in MODULES
    assert {part_of(module) for module in MODULES} - {""} <= set(RANK)
    assert RANK["linear"] <= GATHERED < RANK["studies"]


@pytest.mark.parametrize("module", [name for name in MODULES if name != "windward"])
def test_imports_point_one_way(module):
    path = MODULES[module]
    names = list(imports(path.read_text(), module, path.name == "__init__.py"))
    assert list(wrong_arrows(module, names)) == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("windward.types", "from windward import core", True),
        ("windward.checks", "import windward.linear", True),
        ("windward.core.algorithm", "from windward.types import Array", False),
        ("windward.core.algorithm", "from windward import checks", False),
        ("windward.core.algorithm", "from windward.core import history", False),
        ("windward.core.algorithm", "from . import history", False),
        ("windward.core.algorithm", "from ..linear import simulate", True),
        ("windward.core.algorithm", "def f():\n    from windward.linear import gpc", True),
        ("windward.core.algorithm", "import windward as ww", True),
        ("windward.core.algorithm", "import os.path", True),
        ("windward.core.algorithm", "from time import perf_counter", True),
        ("windward.core.algorithm", "import gymnasium as gym", True),
        ("windward.core.algorithm", "from pathlib import Path", True),
        ("windward.linear.runs", "from pathlib import Path", False),
        ("windward.linear.runs", "from windward.envs import x", True),
        ("windward.linear.runs", "from windward.policies import x", True),
        ("windward.policies.x", "from windward.simulators import y", True),
        ("windward.simulators.x", "from windward.policies import y", False),
        ("windward.simulators.x", "from windward.envs import y", True),
        ("windward.envs.x", "from windward.simulators import y", False),
        ("windward.adapt.x", "from windward.envs import y", False),
        ("windward.adapt.x", "from windward.agents import y", True),
        ("windward.studies.runs.x", "from windward.bench import y", True),
        ("windward.studies.plots", "from windward.studies.report import y", False),
        ("windward.studies.runs.x", "from windward.studies.run import z", True),
        ("windward.studies.paper.x", "from windward.studies.extra import y", True),
        ("windward.cli", "from windward.studies import y", False),
        ("windward.studies.x", "from windward import cli", True),
        ("windward.studies.x", "import windward as ww", False),
        ("windward.linear.x", "import windward as ww", True),
        ("windward.linear.x", "from windward import mf_gpc", True),
    ],
)
def test_the_reader_itself(module, source, wrong):
    assert bool(list(wrong_arrows(module, imports(source, module, False)))) == wrong
