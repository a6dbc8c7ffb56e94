"""Every geometry of every model below plans/, in every layout a family serves: it renders, and lint is content."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys

import pytest

from projects import CHECKOUT

LAYOUTS = {"rm": "", "b8": "_b8", "pb16i": "_pb16i"}


def check_all(layout: str) -> dict:
    """Render, run and lint all of a layout in this process, whose `aie` is the stand-in; return what is wrong."""
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
    for K, N, columns in geometries:
        for M in (128, 16):
            rows = rows_for(columns, layout, m16=M == 16)
            design = design_of(render(CHECKOUT, DesignRequest(K, N, M, tag, columns, rows)).text)
            found = [finding.line for finding in lint(design)]
            expected = Geometry(M, K, N, lies.weight_bits, lies.contiguous, columns, rows)
            if geometry_of(design.sequences[0], design) != expected:
                found.append(f"geometry: expected {expected}, found {geometry_of(design.sequences[0], design)}")
            wrong += [f"{layout} {M}x{K}x{N} on {columns} columns: {line}" for line in found]
    # A sealed program for each number of columns, of the first geometries that allow it.
    for columns in sorted({columns for _, _, columns in geometries} if layout == "pb16i" else ()):
        pairs = [(K, N) for K, N, _ in geometries if N // 128 % columns == 0]
        design = design_of(render_sealed(CHECKOUT, tag, pairs[:6], columns).text)
        wrong += [f"sealed on {columns} columns: {finding.line}" for finding in lint(design)]
    return {"names": len(wanted), "geometries": len(geometries), "wrong": wrong}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_geometry_renders_and_is_clean(layout):
    """One child process for a layout: in it, `aie` is the stand-in."""
    program = (
        "import json, sys; sys.path[:0] = sys.argv[2:]; import test_every_model;"
        "print(json.dumps(test_every_model.check_all(sys.argv[1])))"
    )
    folders = [str(CHECKOUT / folder) for folder in ("tests/families", "tests/support", "src")]
    arguments = [sys.executable, "-c", program, layout, *folders]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["names"] >= 209
    assert told["geometries"] >= 70
