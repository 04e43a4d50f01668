"""Settings by their dotted names."""

import pytest

from common.errors import ConfigError
from common.models.distribution import SamplingConfig
from learner.build import configure


def test_the_way_of_sampling_is_set_by_name():
    config = configure(
        "quick",
        "distrl",
        {
            "sampling.temperature": "2",
            "sampling.top_k": "40",
            "sampling.top_p": "0.9",
            "sampling.grammar": "true",
        },
    )
    assert config.sampling == SamplingConfig(2.0, 40, 0.9, True)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sampling.temperature", "0", "sampling.temperature must be above 0 to learn, not 0.0"),
        ("sampling.top_p", "2", "sampling.top_p must be above 0 and at most 1, not 2.0"),
        ("sampling.grammar", "1", "sampling.grammar must be bool, not 1"),
        ("sampling.beams", "1", "There is no setting sampling.beams; SamplingConfig has"),
        ("temperature", "1", "There is no setting temperature"),
    ],
)
def test_what_cannot_be_is_refused(name, value, message):
    with pytest.raises(ConfigError, match=message):
        configure("quick", "distrl", {name: value})
