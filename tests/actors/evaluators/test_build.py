"""From flags to a judge."""

import pytest

from actors.evaluators import build
from actors.evaluators.background import Background
from actors.evaluators.config import JudgeConfig
from actors.evaluators.records import read_records
from actors.evaluators.verdict import Status
from common.errors import ConfigError
from tests.actors.evaluators import stub as stubs
from tests.actors.evaluators.conftest import request_of
from tests.actors.evaluators.stub import failure, text

KEYS = {"GEMINI_API_KEY": "secret", "OPENAI_API_KEY": "secret"}


def config_of(stub, judge, **more):
    url = stub.url + ("/v1" if "openai" in judge else "")
    return JudgeConfig(judge=judge, judge_endpoint=url, **more)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"judge": "god"}, "There is no judge 'god': give state, gemini"),
        ({"judge": "state:x"}, "There is no judge"),
        ({"judge": "openai"}, "There is no judge"),
        ({"judge": "cascade:"}, "There is no judge"),
        ({"judge": "cascade:state,nobody"}, "There is no judge 'nobody'"),
        ({"judge": "gemini"}, "set GEMINI_API_KEY"),
        ({"judge": "openai:x"}, "set OPENAI_API_KEY"),
        ({"judge": "replay:/nowhere"}, "Verdicts can't be read from /nowhere"),
        ({"judge_endpoint": "127.0.0.1:8000"}, "--judge-endpoint must begin with http:// or"),
        ({"judge_rate": 0}, "--judge-rate must be in 0.001..1000, not 0."),
        ({"judge_unknown_limit": float("nan")}, "--judge-unknown-limit must be in 0..1"),
        ({"judge_calls": 0}, "--judge-calls must be above 0, not 0."),
        ({"judge_usd": 5.0}, "--judge-usd needs what a million tokens cost"),
    ],
)
def test_what_can_t_be_is_a_sentence(values, sentence):
    with pytest.raises(ConfigError) as raised, build.opened(JudgeConfig(**values), {}):
        pass
    assert sentence in str(raised.value)


@pytest.mark.parametrize("name", ["google-generativeai", "google-genai"])
def test_gemini_through_either_client(stub, name):
    pytest.importorskip({"google-generativeai": "google.generativeai"}.get(name, "google.genai"))
    config = config_of(stub, f"gemini:{stubs.MODEL}", judge_client=name, judge_temperature=0.5)
    with build.opened(config, KEYS) as built:
        assert len(stub.calls) == 1  # a first question, to see that it is taken
        stub.answer = text("Status: failure")
        assert built.judge.judge(request_of()).status is Status.FAILURE
        assert built.budget.spent.calls == 2
    assert stub.calls[-1].body["generationConfig"]["temperature"] == 0.5
    assert sum(not isinstance(part, str) for part in stub.calls[-1].parts) == 5


def test_a_refusal_of_the_first_question_stops_the_start(stub):
    stub.answer = failure(400, message="no such field")
    with (
        pytest.raises(ConfigError, match="no such field"),
        build.opened(config_of(stub, "openai:x"), {}),
    ):
        pass


def test_a_cascade_reads_the_phone_first_and_the_rest_runs_in_the_background(stub, tmp_path):
    records = tmp_path / "verdicts.jsonl"
    config = config_of(stub, "cascade:state,openai:a,openai:b", judge_records=records)
    with build.opened(config, {}) as built:
        assert isinstance(built.judge, Background)
        state = [" \n__end_of_check__\n"]
        asked = request_of()
        object.__setattr__(asked, "shell", lambda command: (state[0], "", 0))
        answer = built.judge.submit(asked)
        assert answer.result(5).source == "state"
        state[0] = "gone"
        assert answer.result(5).status is Status.SUCCESS  # as it was when it was asked
        answer = built.judge.submit(asked)
        assert (answer.result(5).source, answer.result(5).status) == ("model", Status.SUCCESS)
    assert len(stub.calls) == 2 + 2
    assert [record.verdict.source for record in read_records(records)] == ["state", "model"]


def test_the_state_alone_needs_no_thread():
    with build.opened(JudgeConfig(), {}) as built:
        assert not isinstance(built.judge, Background)
