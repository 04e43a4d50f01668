"""kill -9 of what an episode needs: the actor is back, and the account adds up."""

import os
import signal

import pytest

from actors.device.emulator import SimulatedPhone
from actors.retries import Retries
from actors.supervise import Budget
from benchmarks import rig
from common.channel import Mode
from tests.conftest import AdbServer, wait_for

BACK_S = 20.0


@pytest.mark.slow
def test_killed_phones_and_adb_servers_cost_no_episode(tmp_path, monkeypatch):
    server = AdbServer(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    flags = ("--width", "120", "--height", "214")
    phones = [SimulatedPhone(server.port, flags=flags) for _ in range(2)]
    try:
        learner = rig.Learner(len(phones))
        retries = Retries(tmp_path / "retries", patience_s=0.5)
        actors = [
            rig.ThreadActor(i, phone, learner, retries, 0.01, False, Budget(backoff_s=0.05))
            for i, phone in enumerate(phones)
        ]
        for phone in phones:
            phone.recover()
        threads = rig.started(actors, on_error=lambda: None)

        def plays_on(actor) -> None:
            done = actor.counts["done"]
            wait_for(lambda: actor.counts["done"] > done, "the next episode", BACK_S)

        first, second = actors
        plays_on(first)
        killed = phones[0].pid
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: phones[0].starts == 2, "another start", BACK_S)
        plays_on(first)
        plays_on(second)
        assert phones[0].pid != killed
        assert first._supervisor.failures and not second._supervisor.failures

        server._process.send_signal(signal.SIGKILL)
        server._process.wait()
        wait_for(lambda: "no_server" in second._supervisor.failures, "the loss", BACK_S)
        for actor in actors:
            plays_on(actor)
        learner.mode = Mode.STOP
        for thread in threads:
            thread.join(BACK_S)
        assert not any(actor.error for actor in actors)
        counts = first.counts + second.counts
        ends = ("done", "truncated", "unstarted", "skipped", "stopped")
        assert counts["begun"] == sum(counts[end] for end in ends)
        failed = counts["truncated"] + counts["unstarted"]
        assert failed == counts["retried"] + retries.dropped + len(retries) > 0
        assert phones[1].starts == 1
    finally:
        for phone in phones:
            phone.close()
        server.adb(None, "kill-server")
