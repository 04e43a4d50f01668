"""Every launcher explains itself, however it is started and wherever from."""

import configparser
import os
import pathlib
import re
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LAUNCHERS = sorted(
    path.stem
    for path in (REPOSITORY / "launch").glob("*.py")
    if re.search(r"^def main\(", path.read_text(), re.MULTILINE)
)
CONSOLE_SCRIPT = "import sys; from launch.{0} import main; sys.exit(main())"


@pytest.mark.parametrize("name", LAUNCHERS)
def test_help_as_script_as_module_and_as_console_script(name, tmp_path):
    path = {"PYTHONPATH": str(REPOSITORY)}
    starts = {  # run side by side: each imports for a while
        "script": ([str(REPOSITORY / "launch" / f"{name}.py")], {}),
        "module": (["-m", f"launch.{name}"], path),
        "console script": (["-c", CONSOLE_SCRIPT.format(name)], path),
    }
    running = {
        how: subprocess.Popen(
            [sys.executable, "-W", "error", *words, "--help"],
            cwd=tmp_path,  # a foreign folder
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for how, (words, variables) in starts.items()
    }
    for how, process in running.items():
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, f"{how}: {output}"
        assert "usage" in output, f"{how}: {output}"
        assert "--help" in output, f"{how}: {output}"
    assert not list(tmp_path.iterdir())


def test_each_launcher_has_a_console_script():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"].split("\n")
    expected = {f"distrl-{name} = launch.{name}:main" for name in LAUNCHERS}
    assert {script for script in scripts if script} == expected


def test_help_imports_nothing_heavy():
    """The learner's first words must not wait for JAX."""
    code = f"import sys, launch.{', launch.'.join(LAUNCHERS)}; print('jax' in sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert output.stdout == "False\n", output.stderr
