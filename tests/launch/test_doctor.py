"""The doctor on a set-up that is well and on one that is not."""

import json
import time

import pytest

from common import ports
from launch import checks, doctor
from launch.checks import Answer, Status


def diagnose(capsys, *words: str) -> tuple[int, dict[str, dict]]:
    code = doctor.main(["--json", *words])
    report = json.loads(capsys.readouterr().out)
    return code, {row["name"]: row for row in report["checks"]}


@pytest.fixture(autouse=True)
def no_jax(monkeypatch):
    """JAX itself takes seconds."""
    monkeypatch.setattr(checks, "jax", lambda limit_s: Answer(Status.PASS, "0.10 on cpu"))


def test_a_set_up_that_is_well_passes(adb_server, phone_server, capsys):
    code, rows = diagnose(
        capsys, f"--adb-port={adb_server.port}", f"--emulator={phone_server.serial}"
    )
    assert code == 0
    assert rows["adb server"]["status"] == "pass"
    phone = rows[f"phone {phone_server.serial}"]
    assert phone["status"] == "pass" and "360x640, takes input" in phone["said"]
    assert rows["judge"]["status"] == rows["python"]["status"] == "pass"


def test_a_broken_set_up_fails_and_says_what_to_do(capsys, monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    code, rows = diagnose(
        capsys,
        f"--adb-port={ports.free_port()}",
        "--emulator=nope",
        "--emulator=avd:none",
        "--avd-program=/nowhere/emulator",
        f"--learner=tcp://127.0.0.1:{ports.free_port()}",
        "--judge=gemini",
    )
    assert code == 1
    assert rows["adb server"]["status"] == "warn"
    assert {n for n, row in rows.items() if row["status"] == "fail"} >= {
        "phone nope",
        "emulator",
        "avds",
        "learner",
        "judge",
    }
    assert "launch/learner.py" in rows["learner"]["hint"]
    assert "export" in rows["judge"]["hint"]


def test_a_phone_in_a_bad_state_gets_a_hint(adb_server, phone_server, capsys):
    phone_server.android.switch("slow_boot")
    code, rows = diagnose(
        capsys, f"--adb-port={adb_server.port}", f"--emulator={phone_server.serial}"
    )
    assert code == 1
    assert "still booting" in rows[f"phone {phone_server.serial}"]["said"]


def test_lines_are_for_people(adb_server, capsys):
    doctor.main([f"--adb-port={adb_server.port}", "--emulator=nope"])
    said = capsys.readouterr().out
    assert "FAIL phone nope: its state is not attached\n     -> Plug it in" in said


def test_a_check_that_hangs_is_left_behind():
    began = time.monotonic()
    finding = checks.run("slow", lambda: time.sleep(2.0), 0.2)
    assert time.monotonic() - began < 1.0
    assert finding.status is Status.FAIL and "no answer in 0.2 s" in finding.said


def test_bad_flags_are_answered_with_a_sentence(capsys):
    assert doctor.main(["--adb-port=0"]) == 2
    assert doctor.main(["--limit-s=0"]) == 2
    assert "doctor: --limit-s must be" in capsys.readouterr().err
