"""pip as ./doit runs it: into this Python and nowhere else, whatever the caller's pip settings say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from elfkiln.io.own_pip import pip_environment
from npu2_standins import make_wheel
from projects import CHECKOUT

OWN_PIP = CHECKOUT / "src" / "elfkiln" / "io" / "own_pip.py"


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A virtual environment with pip, and a folder with one wheel."""
    root = tmp_path_factory.mktemp("own-pip")
    subprocess.run([sys.executable, "-m", "venv", str(root / "venv")], check=True, timeout=300)
    make_wheel(root / "wheels", "tinydep", "1.0", {"tinydep.py": "VALUE = 1\n"})
    return root


VARIABLES = {
    "PIP_USER": "1",
    "PIP_TARGET": "{elsewhere}",
    "PIP_PREFIX": "{elsewhere}",
    "PIP_ROOT": "{elsewhere}",
    "PIP_REQUIRE_HASHES": "1",
    "PIP_DRY_RUN": "1",
    "PYTHONPATH": "{elsewhere}",
    "PYTHONUSERBASE": "{elsewhere}",
}
FILE = (
    "[global]\nno-index = true\ntarget = {elsewhere}\nprefix = {elsewhere}\nroot = {elsewhere}\n"
    "constraint = {elsewhere}/none.txt\n[install]\nuser = true\n"
)
# Each of them alone would install elsewhere or nothing, or end pip with an error: so would one that is not dropped.
SETTINGS = {
    "nothing said": ({}, "[global]\nno-index = true\n"),
    "variables": (VARIABLES, "[global]\nno-index = true\n"),
    "a file": ({}, FILE),
}


@pytest.mark.parametrize("said", SETTINGS)
def test_it_installs_here_whatever_the_settings_say(venv, tmp_path, said):
    elsewhere = tmp_path / "elsewhere"
    variables, text = SETTINGS[said]
    config = tmp_path / "home" / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(text.replace("{elsewhere}", str(elsewhere)))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PIP_FIND_LINKS": str(venv / "wheels"),
        **{name: value.replace("{elsewhere}", str(elsewhere)) for name, value in variables.items()},
    }
    python = str(venv / "venv" / "bin" / "python")
    for words in (["install", "--force-reinstall", "tinydep"], ["uninstall", "-y", "tinydep"]):
        done = subprocess.run(
            [python, "-I", "-S", str(OWN_PIP), "--quiet", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, "")
        found = list(venv.glob("venv/lib/*/site-packages/tinydep.py"))
        assert bool(found) == (words[0] == "install")
        assert not elsewhere.exists()
    assert list((tmp_path / "home").rglob("tinydep*")) == []


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_of_elsewhere_is_dropped(name):
    assert name not in pip_environment({name: "1"}, "")


def test_where_packages_come_from_is_kept():
    configuration = (
        "global.index-url='http://one/simple'\n"
        "global.extra-index-url='\\nhttp://two/simple\\nhttp://three/simple'\n"
        "global.target='/elsewhere'\n"
        "install.index-url='http://four/simple'\n"
        "install.user='true'\n"
        "list.format='columns'\n"
        ":env:.index-url='http://five/simple'\n"
        "global.cert=not a text\n"
    )
    given = {"PIP_PROXY": "http://six", "PIP_USER": "1", "PYTHONPATH": "x", "HOME": "/h", "PIP_CONFIG_FILE": "mine"}
    assert pip_environment(given, configuration) == {
        "HOME": "/h",
        "PIP_INDEX_URL": "http://four/simple",
        "PIP_EXTRA_INDEX_URL": "http://two/simple http://three/simple",
        "PIP_PROXY": "http://six",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def test_a_variable_goes_before_a_file():
    made = pip_environment({"PIP_INDEX_URL": "http://variable"}, "global.index-url='http://file'\n")
    assert made["PIP_INDEX_URL"] == "http://variable"
