"""Every geometry of every model below plans/, in every layout a family serves: it renders, and lint is content.

That is 450 designs. The suite takes one in thirty; .ci/run takes all:

    .venv/bin/python tests/families/test_every_model.py
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

LAYOUTS = {"rm": "", "b8": "_b8", "pb16i": "_pb16i"}


def check_all(layout: str, share: int) -> dict:
    """Render, run and lint one in `share` designs of a layout; return what is wrong.

    It is done in this process, whose `aie` is the stand-in from then on.
    """
    from elfkiln.design.gemm import Geometry, geometry_of
    from elfkiln.design.iron_sim.__main__ import install_as_aie
    from elfkiln.design.reader import read_design
    from elfkiln.engine.contract import weight_layout
    from elfkiln.engine.legality import rows_for
    from elfkiln.families.family import DesignRequest, render, render_sealed
    from elfkiln.lint import lint
    from elfkiln.models.catalogue import all_models, model_requirements
    from elfkiln.project import Project

    project = Project(CHECKOUT)
    install_as_aie()

    def design_of(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "generator.py", "exec"), {"__name__": "__main__"})
        return read_design(printed.getvalue())

    wanted = [need for model in all_models(project) for need in model_requirements(project, model).requirements]
    geometries = sorted({(need.name.K, need.name.N, need.columns) for need in wanted if need.name is not None})
    lies, tag, wrong = weight_layout(layout), LAYOUTS[layout], []
    turn, designs = list(LAYOUTS).index(layout), 0
    for position, (K, N, columns) in enumerate(geometries):
        for large, M in enumerate((128, 16)):
            if (position + 2 * turn + large) % share:
                continue
            designs += 1
            rows = rows_for(columns, layout, m16=M == 16)
            design = design_of(render(CHECKOUT, DesignRequest(K, N, M, tag, columns, rows)).text)
            found = [finding.line for finding in lint(design)]
            expected = Geometry(M, K, N, lies.weight_bits, lies.contiguous, columns, rows)
            if geometry_of(design.sequences[0], design) != expected:
                found.append(f"geometry: expected {expected}, found {geometry_of(design.sequences[0], design)}")
            wrong += [f"{layout} {M}x{K}x{N} on {columns} columns: {line}" for line in found]
    # A sealed program for each number of columns, of the first geometries that allow it; of a share, the widest.
    every = sorted({columns for _, _, columns in geometries}) if layout == "pb16i" else []
    for columns in every if share == 1 else every[-1:]:
        pairs = [(K, N) for K, N, _ in geometries if N // 128 % columns == 0]
        design = design_of(render_sealed(CHECKOUT, tag, pairs[:6], columns).text)
        wrong += [f"sealed on {columns} columns: {finding.line}" for finding in lint(design)]
    return {"names": len(wanted), "geometries": len(geometries), "designs": designs, "wrong": wrong}


def checked(layout: str, share: int) -> dict:
    """Return what `check_all` says in a child process."""
    program = (
        "import json, sys; sys.path[:0] = sys.argv[3:]; import test_every_model;"
        "print(json.dumps(test_every_model.check_all(sys.argv[1], int(sys.argv[2]))))"
    )
    folders = [str(CHECKOUT / folder) for folder in ("tests/families", "tests/support", "src")]
    arguments = [sys.executable, "-c", program, layout, str(share), *folders]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said["wrong"] == []
    assert said["names"] >= 209
    assert said["geometries"] >= 70
    assert said["designs"] >= 2 * (said["geometries"] // share)
    return said


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_in_thirty_designs_renders_and_is_clean(layout):
    checked(layout, 30)


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        for layout, said in zip(LAYOUTS, pool.map(lambda layout: checked(layout, 1), LAYOUTS), strict=True):
            text = f"{layout}: {said['designs']} designs of {said['names']} names render, and lint is content"
            sys.stdout.write(f"{text}\n")
