"""setup.cfg lists the packages by hand; nothing may be missing from an installation."""

import configparser
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def test_every_package_is_listed():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    listed = setup["options"]["packages"].split()
    folders = {
        str(path.parent.relative_to(REPOSITORY)).replace("/", ".")
        for top in ("common", "learner", "actors", "launch")
        for path in (REPOSITORY / top).rglob("*.py")
    }
    assert sorted(listed) == sorted(folders)


def test_the_lock_names_no_index_and_no_path():
    lines = (REPOSITORY / "requirements.txt").read_text().splitlines()
    names = [line.split("==")[0] for line in lines if not line.startswith("#")]
    assert not [line for line in lines if line.startswith("-") or "://" in line]
    assert not {"torch", "jax-cuda12-plugin", "tensorflow"} & set(names)
