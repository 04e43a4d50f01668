"""A person answers on the page."""

import threading

import pytest
import requests

from actors.evaluators.human import HumanJudge
from actors.evaluators.verdict import Status
from common.errors import ConfigError
from tests.actors.evaluators.conftest import request_of
from tests.conftest import wait_for


@pytest.fixture
def human():
    with HumanJudge(timeout_s=5.0) as judge:
        yield judge


def asked(judge, request):
    """Asks in a thread; returns it and where the verdict will be."""
    said = []
    thread = threading.Thread(target=lambda: said.append(judge.judge(request)))
    thread.start()
    return thread, said


@pytest.mark.parametrize("status", list(Status))
def test_the_page_shows_the_question_and_takes_the_answer(human, status):
    assert "Nothing is to be judged" in requests.get(human.url, timeout=5).text
    goal = "Open <b>the</b> clock & stop"
    thread, said = asked(human, request_of(goal))
    wait_for(lambda: "Done" in requests.get(human.url, timeout=5).text, "the question")
    page = requests.get(human.url, timeout=5).text
    assert "Open &lt;b&gt;the&lt;/b&gt; clock &amp; stop" in page
    assert "data:image/jpeg;base64," in page
    number = page.partition('name="number" value="')[2].partition('"')[0]
    wrong = requests.post(human.url, {"number": number, "status": "great"}, timeout=5)
    assert wrong.status_code == 400
    after = requests.post(human.url, {"number": number, "status": str(status)}, timeout=5)
    assert "Nothing is to be judged" in after.text
    thread.join()
    (verdict,) = said
    assert (verdict.status, verdict.source) == (status, "human")
    assert bool(verdict.error) == (status is Status.UNKNOWN)


def test_nobody_else_s_page_can_answer(human):
    thread, said = asked(human, request_of())
    base = human.url.rpartition("/")[0]
    for path in ("/", "/guess"):
        assert requests.get(base + path, timeout=5).status_code == 404
        form = {"number": "1", "status": "success"}
        assert requests.post(base + path, form, timeout=5).status_code == 400
    assert not said
    human.answer(1, Status.FAILURE)
    thread.join()
    assert said[0].status is Status.FAILURE


def test_no_answer_is_unknown():
    with HumanJudge(timeout_s=0.05) as judge:
        verdict = judge.judge(request_of())
        assert (verdict.status, verdict.error) == (Status.UNKNOWN, "no_answer")
        judge.answer(1, Status.SUCCESS)  # too late, and no harm


def test_a_taken_port_is_named(human):
    port = int(human.url.split(":")[2].split("/")[0])
    with pytest.raises(ConfigError, match=f"port {port}"):
        HumanJudge(port)
