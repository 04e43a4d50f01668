import json

import pytest

from common.errors import ConfigError
from common.models import autoui, hf_config
from tests import t5_folder

FLAN_T5_LARGE = {  # the fields of the published file that shape the model
    "d_ff": 2816,
    "d_kv": 64,
    "d_model": 1024,
    "feed_forward_proj": "gated-gelu",
    "layer_norm_epsilon": 1e-06,
    "num_decoder_layers": 24,
    "num_heads": 16,
    "num_layers": 24,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32128,
}
T5_SMALL = {
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 512,
    "layer_norm_epsilon": 1e-06,
    "num_heads": 8,
    "num_layers": 6,
    "relative_attention_num_buckets": 32,
    "vocab_size": 32128,
}


def test_published_configs_are_understood():
    assert hf_config.to_config(FLAN_T5_LARGE) == autoui.PRESETS["large"]
    small = hf_config.to_config(T5_SMALL)
    assert (small.gated, small.tied) == (False, True)
    assert (small.encoder_layers, small.decoder_layers) == (6, 6)
    assert small.relative_max_distance == 128


def test_transformers_5_says_otherwise_what_is_scaled():
    settings = {**FLAN_T5_LARGE, "tie_word_embeddings": True, "scale_decoder_outputs": False}
    assert hf_config.to_config(settings) == autoui.PRESETS["large"]


def test_settings_come_back_as_they_were():
    for folder in (t5_folder.GATED, t5_folder.TIED):
        settings = json.loads((folder / "config.json").read_text())
        config = hf_config.to_config(settings)
        assert hf_config.to_settings(config, settings) == settings
        assert hf_config.to_config(hf_config.to_settings(config)) == config


def test_settings_that_the_tensors_contradict_are_corrected():
    settings = {**T5_SMALL, "scale_decoder_outputs": True}
    untied = hf_config.to_config(settings, tied=False)
    expected = {**settings, "tie_word_embeddings": False, "scale_decoder_outputs": False}
    assert hf_config.to_settings(untied, settings) == expected
    assert "tie_word_embeddings" not in settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj is 'gated-silu'"),
        ({"d_kv": "64"}, "d_kv is '64'"),
        ({"num_layers": 0}, "encoder_layers is 0"),
    ],
)
def test_another_kind_of_model_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        hf_config.to_config({**FLAN_T5_LARGE, **change})
    with pytest.raises(ConfigError, match=r"config.json does not give 'd_kv': is it a T5's\?"):
        hf_config.to_config({k: v for k, v in FLAN_T5_LARGE.items() if k != "d_kv"})
