"""Finding the pinned Python: the variable, PATH with stubs that do not start, and none at all."""

import sys

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.targets.npu2.interpreter import find_python, variable_name
from npu2_standins import PYTHON

VARIABLE = variable_name(PYTHON)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def answering(version, *, name="cpython", wide="true"):
    """A stand-in interpreter that answers the question with another version."""
    return f'#!/bin/sh\necho \'["{name}", {version}, {wide}, "/nowhere/python"]\'\n'


def test_the_variable_is_called_after_the_version():
    assert variable_name("3.12") == "ELFKILN_PYTHON312"


def test_the_variable_comes_first():
    found = find_python(PYTHON, {VARIABLE: sys.executable, "PATH": ""})
    assert found.version == ".".join(map(str, sys.version_info[:3]))


def test_a_variable_that_names_another_version_is_refused_and_nothing_else_tried(tmp_path):
    other = script(tmp_path / "python", answering("[3, 9, 18]"))
    with pytest.raises(Refused) as refused:
        find_python(PYTHON, {VARIABLE: str(other), "PATH": str(tmp_path)})
    assert f"{VARIABLE}={other}: expected a CPython {PYTHON}, found Python 3.9.18" in str(refused.value)


@pytest.mark.parametrize("named", ["/nowhere/python3.12", "/etc/passwd"])
def test_a_variable_that_names_no_interpreter_is_refused(named):
    with pytest.raises(Refused, match="found no 64-bit CPython that starts"):
        find_python(PYTHON, {VARIABLE: named})


def test_a_stub_that_does_not_start_is_passed_over(tmp_path):
    script(tmp_path / "shims" / f"python{PYTHON}", "#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    version = f"[{sys.version_info.major}, {sys.version_info.minor}, 99]"
    script(tmp_path / "bin" / f"python{PYTHON}", answering(version))
    found = find_python(PYTHON, {"PATH": f"{tmp_path / 'shims'}:{tmp_path / 'bin'}"})
    assert found.version == f"{PYTHON}.99"


@pytest.mark.parametrize(
    "text",
    [
        answering("[2, 6, 0]"),
        answering("[2, 7, 1]", name="pypy"),
        answering("[2, 7, 1]", wide="false"),
        "#!/bin/sh\necho not json\n",
        "#!/bin/sh\necho '[]'\n",
        "#!/bin/sh\nexit 0\n",
    ],
)
def test_none_is_one_line_that_says_what_to_do(tmp_path, text):
    script(tmp_path / "python2.7", text)
    with pytest.raises(Differs) as missing:
        find_python("2.7", {"PATH": str(tmp_path)})
    assert str(missing.value) == (
        "Python 2.7 is missing: no python2.7 on PATH starts; install it, or name one with ELFKILN_PYTHON27=PATH"
    )
