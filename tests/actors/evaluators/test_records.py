"""Verdicts on disk: written, read back, replayed, and not asked for again."""

import json
import threading

import pytest

from actors.evaluators.records import Cache, Recorded, ReplayJudge, read_records
from actors.evaluators.verdict import Status
from common.errors import ConfigError
from tests.actors.evaluators.conftest import client_of, judge_of, request_of
from tests.actors.evaluators.stub import failure, text


@pytest.fixture
def openai(stub):
    return client_of("openai", stub)


def test_a_line_for_each_verdict_of_every_thread(tmp_path, openai, stub):
    path = tmp_path / "folder" / "verdicts.jsonl"
    judge = Recorded(judge_of(openai), "openai:x", path)
    threads = [
        threading.Thread(target=lambda i=i: judge.judge(request_of(shade=i))) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stub.answer = failure(500)
    judge.judge(request_of(shade=100))
    judge.close()
    records = list(read_records(path))
    assert len(records) == 9
    assert {record.judge for record in records} == {"openai:x"}
    last = records[-1]
    assert (last.task_id, last.goal, last.step) == ("t", "Open the clock", 3)
    assert (last.verdict.status, last.verdict.error) == (Status.UNKNOWN, "http_500")
    assert records[0].verdict.raw == "Status: success"
    assert records[0].verdict.image_hashes and records[0].verdict.prompt_hash


def test_what_was_recorded_is_replayed_and_nothing_else(tmp_path, openai, stub):
    path = tmp_path / "verdicts.jsonl"
    judge = Recorded(judge_of(openai), "openai:x", path)
    said = [judge.judge(request_of()), judge.judge(request_of(shade=2))]
    stub.answer = failure(500)
    judge.judge(request_of(shade=3))
    judge.close()
    replay = ReplayJudge(path)
    assert [replay.judge(request_of()), replay.judge(request_of(shade=2))] == said
    for other in (request_of(shade=3), request_of("Another"), request_of(decisions=("x",))):
        verdict = replay.judge(other)
        assert (verdict.status, verdict.error) == (Status.UNKNOWN, "not_recorded")


def test_of_several_judges_one_is_replayed(tmp_path, openai, stub):
    path = tmp_path / "verdicts.jsonl"
    for name, said in (("openai:x", "Status: success"), ("state", "Status: failure")):
        stub.answer = text(said)
        judge = Recorded(judge_of(openai), name, path)
        judge.judge(request_of())
        judge.close()
    with pytest.raises(ConfigError, match="verdicts of openai:x, state: name one"):
        ReplayJudge(path)
    assert ReplayJudge(path, "openai:x").judge(request_of()).status is Status.SUCCESS
    assert ReplayJudge(path, "state").judge(request_of()).status is Status.FAILURE
    with pytest.raises(ConfigError, match="no verdict of human"):
        ReplayJudge(path, "human")


def test_a_cache_can_start_from_a_file(tmp_path, openai, stub):
    path = tmp_path / "verdicts.jsonl"
    judge = Recorded(judge_of(openai), "openai:x", path)
    judge.judge(request_of())
    judge.close()
    with path.open("a") as file:
        file.write('{"cut": ')  # of a process that was killed
    cache = Cache()
    cache.load(path)
    assert judge_of(openai, cache).judge(request_of()).cached
    assert len(stub.calls) == 1


def test_a_cache_forgets_the_oldest(openai, stub):
    stub.answer = text("Status: failure")
    judge = judge_of(openai, Cache(2))
    for shade in (1, 2, 1, 3, 1, 2):
        judge.judge(request_of(shade=shade))
    assert len(stub.calls) == 4  # 1 was used again before 3 came; 2 had to go


def test_files_that_are_no_verdicts_are_named(tmp_path):
    path = tmp_path / "x.jsonl"
    with pytest.raises(ConfigError, match="can't be read"):
        ReplayJudge(path)
    path.write_text("{}\n{}\n")
    with pytest.raises(ConfigError, match="line 1 is no verdict"):
        ReplayJudge(path)
    path.write_text(json.dumps({"verdict": {}})[:5])
    with pytest.raises(ConfigError, match="holds no verdict"):
        ReplayJudge(path)
    with pytest.raises(ConfigError, match="can't be written"):
        Recorded(None, "x", path / "below")
