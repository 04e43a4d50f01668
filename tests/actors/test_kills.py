"""kill -9 of what an episode needs: the actor is back, and the account adds up."""

import os
import signal

import pytest

from actors.device.emulator import SimulatedPhone
from actors.retries import Retries
from actors.supervise import Budget
from benchmarks import rig
from common.channel import Mode
from tests.actors.stand_in import StandIn
from tests.conftest import AdbServer, listens, wait_for

BACK_S = 20.0


@pytest.mark.slow
def test_killed_phones_emulators_and_adb_servers_cost_no_episode(tmp_path, monkeypatch):
    server = AdbServer(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    phones = [
        SimulatedPhone(server.port, flags=("--width", "120", "--height", "214")),
        StandIn(tmp_path, server.port, monkeypatch).avd(),
    ]
    learner = rig.Learner(len(phones))
    retries = Retries(tmp_path / "retries", patience_s=0.5)
    actors = [
        rig.ThreadActor(i, phone, learner, retries, 0.01, False, Budget(backoff_s=0.05))
        for i, phone in enumerate(phones)
    ]
    threads = []

    def play_on() -> None:
        done = [actor.counts["done"] for actor in actors]
        for actor, before in zip(actors, done, strict=True):
            wait_for(lambda: actor.counts["done"] > before, "the next episode", BACK_S)  # noqa: B023

    def stop() -> None:
        learner.mode = Mode.STOP
        for thread in threads:
            thread.join(BACK_S)

    try:
        for phone in phones:
            phone.recover()
        threads += rig.started(actors, on_error=lambda: None)
        play_on()
        for phone, actor, other in zip(phones, actors, reversed(actors), strict=True):
            killed, failures = phone.pid, other._supervisor.failures.total()
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: phone.starts == 2, "another start", BACK_S)  # noqa: B023
            play_on()
            assert phone.pid != killed
            assert actor._supervisor.failures
            assert other._supervisor.failures.total() == failures

        server._process.send_signal(signal.SIGKILL)
        server._process.wait()
        wait_for(lambda: listens(server.port), "another server", BACK_S)
        play_on()
        stop()
        assert not any(actor.error for actor in actors)
        counts = actors[0].counts + actors[1].counts
        ends = ("done", "truncated", "unstarted", "skipped", "stopped")
        assert counts["begun"] == sum(counts[end] for end in ends)
        failed = counts["truncated"] + counts["unstarted"]
        assert failed == counts["retried"] + counts["given_up"] + len(retries) > 0
        assert [phone.starts for phone in phones] == [2, 2]
    finally:
        stop()
        for phone in phones:
            phone.close()
        server.adb(None, "kill-server")
        server._process.wait()
