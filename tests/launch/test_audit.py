"""How far a judge can be trusted, against the truth that a test knows."""

import functools
import json
import random

import pytest

from actors.agents import RandomAgent, ScriptedExpert
from actors.device import health
from actors.device.adb import AdbDevice
from actors.environment import PhoneEnvironment
from actors.evaluate import Worker, evaluate
from actors.evaluators.combine import Audited
from actors.evaluators.records import Recorded, read_records
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import Status, Verdict
from actors.panel import draw
from common.tasks import load_tasks
from launch import audit
from tests.actors.evaluators import stub as stubs
from tests.actors.evaluators.conftest import client_of, judge_of, request_of


class Says:
    def __init__(self, answer):
        self._answer = answer

    def judge(self, request):
        status = self._answer(int(request.task.goal))
        error = "timeout" if status is Status.UNKNOWN else ""
        return Verdict(status, "why", "model", error=error)


def records(path, name, answer, count):
    judge = Recorded(Says(answer), name, path)
    for i in range(count):
        judge.judge(request_of(str(i), shade=i % 256))
    judge.close()


def truth(i):
    return Status.SUCCESS if i % 5 < 2 else Status.FAILURE


def other(status):
    return Status.FAILURE if status is Status.SUCCESS else Status.SUCCESS


def test_ten_percent_of_wrong_answers_have_the_kappa_that_they_must(tmp_path, capsys):
    count, rng = 1000, random.Random(0)
    wrong = set(rng.sample(range(count), count // 10))
    path = tmp_path / "verdicts.jsonl"
    records(path, "state", truth, count)
    records(path, "gemini", lambda i: other(truth(i)) if i in wrong else truth(i), count)
    assert audit.main([str(path), "--judge=gemini", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == count
    assert found["agreement"]["share"] == 0.9
    # 40 % are successes: the judge calls .9 * .4 + .1 * .6 = .42 so; by chance they agree on
    # .4 * .42 + .6 * .58 = .516, and kappa is (.9 - .516) / (1 - .516) = .793.
    assert found["kappa"] == pytest.approx(0.793, abs=0.01)
    assert found["kappa_interval"][0] < 0.793 < found["kappa_interval"][1]
    assert found["precision"]["share"] == pytest.approx(0.36 / 0.42, abs=0.02)
    assert found["recall"]["share"] == pytest.approx(0.9, abs=0.02)


def test_missing_answers_are_in_the_table_and_in_no_rate(tmp_path, capsys):
    path = tmp_path / "verdicts.jsonl"
    records(path, "state", truth, 10)
    records(path, "human", lambda i: Status.UNKNOWN if i < 4 else truth(i), 10)
    assert audit.main([str(path), "--judge=human"]) == 0
    said = capsys.readouterr().out
    assert "| success | 2 | 0 | 2 |" in said and "| failure | 0 | 4 | 2 |" in said
    assert "agreement: 100.0 %" in said and "kappa: 1.000" in said
    assert "unknown: 40.0 %" in said


def test_no_question_in_common_is_a_sentence(tmp_path, capsys):
    path = tmp_path / "verdicts.jsonl"
    records(path, "state", truth, 3)
    assert audit.main([str(path), "--judge=gemini"]) == 2
    assert "No question was answered by both 'gemini' and 'state'" in capsys.readouterr().err
    assert audit.main([str(tmp_path / "none"), "--judge=gemini"]) == 2


@pytest.mark.slow
def test_a_stubbed_model_that_is_wrong_in_a_tenth_of_its_answers(
    adb_server, phone_server, tmp_path
):
    """From the phone's screens to kappa; the model knows the truth and then errs."""
    rng, path, last = random.Random(1), tmp_path / "verdicts.jsonl", []

    class Told(StateJudge):
        def judge(self, request):
            last.append(super().judge(request).status)
            return super().judge(request)

    def answer(call):
        status = other(last[-1]) if rng.random() < 0.1 else last[-1]
        return stubs.text(f"Seen: something.\nStatus: {status}")

    device = AdbDevice(phone_server.serial, port=adb_server.port)
    horizon = {"general": 8, "webshop": 8}
    panel = draw(load_tasks("all-test"), 30, 0, horizon)
    with stubs.serving() as stub:
        stub.answer = answer
        model = Recorded(judge_of(client_of("openai", stub)), "openai:m", path)
        state = Recorded(Told(), "state", path)
        environment = PhoneEnvironment(device, Audited(state, model), horizon)
        for agent in (ScriptedExpert(device), RandomAgent(0)):
            worker = Worker(environment, agent, functools.partial(health.wait_ready, device))
            assert len(list(evaluate([worker], panel.entries))) == 30
    for judge in (model, state):
        judge.close()
    found = audit.audit(read_records(path), "openai:m", "state")
    assert found["questions"] > 150
    assert found["agreement"]["low"] < 0.9 < found["agreement"]["high"]
    # With p successes: chance agreement is p(.9p+.1(1-p)) + (1-p)(.1p+.9(1-p)).
    p = sum(found["confusion"]["success"].values()) / found["questions"]
    chance = p * (0.1 + 0.8 * p) + (1 - p) * (0.9 - 0.8 * p)
    expected = (0.9 - chance) / (1 - chance)
    assert found["kappa_interval"][0] < expected < found["kappa_interval"][1]
