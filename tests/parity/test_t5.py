"""T5 against transformers on random weights, and what we write as transformers reads it."""

import dataclasses

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from common.models import hf_tokenizer, pretrained, t5  # noqa: E402
from tests import t5_folder  # noqa: E402

FORMS = {"gated untied": ("gated-gelu", False), "relu tied": ("relu", True)}
VOCAB, WIDTH = 96, 48


def _random_t5(form):
    """A T5 of torch's, whose logits are of the size of trained ones."""
    kind, tied = FORMS[form]
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=VOCAB,
        d_model=WIDTH,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=6,
        feed_forward_proj=kind,
        tie_word_embeddings=tied,
        dropout_rate=0.0,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    if not tied:  # transformers 5 ties what it makes
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, WIDTH) * 0.3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name:
                weight.uniform_(0.5, 1.5)
            elif "relative_attention_bias" in name:
                weight.normal_()
    return model


def _inputs(rows, prompt, action, seed=0):
    """Ids [rows, prompt] and [rows, action] of ragged lengths."""
    rng = np.random.default_rng(seed)
    found = []
    for longest in (prompt, action):
        ids = rng.integers(2, VOCAB, (rows, longest))
        lengths = rng.integers(1, longest + 1, rows)
        lengths[0] = longest
        found.append(np.where(np.arange(longest) < lengths[:, None], ids, 0))
    return found


def _theirs(model, prompt_ids, action_ids):
    previous = np.pad(action_ids[:, :-1], ((0, 0), (1, 0)))
    with torch.no_grad():
        return (
            model(
                input_ids=torch.tensor(prompt_ids),
                attention_mask=torch.tensor(prompt_ids != 0).long(),
                decoder_input_ids=torch.tensor(previous),
            )
            .logits.float()
            .numpy()
        )


def _ours(config, params, prompt_ids, action_ids):
    """The logits of the T5 alone, which AutoUI only calls with the fusion between."""

    @jax.jit
    def run(params, *ids):
        return t5.T5(config).apply({"params": params}, *ids, method=logits)

    def logits(module, prompt_ids, previous):
        memory = module.memory(module.encode(prompt_ids))
        bias = module.causal_bias(previous.shape[1])
        return module.decode(previous, bias, memory, t5.padding_bias(prompt_ids))[0]

    previous = np.pad(action_ids[:, :-1], ((0, 0), (1, 0)))
    return np.asarray(run(params["t5"], prompt_ids, previous))


@pytest.mark.parametrize("form", FORMS)
def test_logits_agree_at_ragged_lengths_and_past_128_positions(form, tmp_path):
    model = _random_t5(form)
    model.save_pretrained(tmp_path)
    loaded = pretrained.load(tmp_path)
    assert loaded.text_only
    assert (loaded.config.gated, loaded.config.tied) == (form[0] == "g", form[0] == "r")
    for rows, prompt, action in ((5, 9, 7), (2, 300, 160)):
        inputs = _inputs(rows, prompt, action)
        expected = _theirs(model, *inputs)
        assert 0.5 < expected.std() < 50
        np.testing.assert_allclose(_ours(*loaded[:2], *inputs), expected, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_bfloat16_is_as_close_to_float32_as_torch_s(form, tmp_path):
    model = _random_t5(form)
    model.save_pretrained(tmp_path)
    config, params, _, _ = pretrained.load(tmp_path)
    inputs = _inputs(4, 150, 20)
    exact = _theirs(model, *inputs)
    theirs = _theirs(model.to(torch.bfloat16), *inputs)
    ours = _ours(dataclasses.replace(config, dtype="bfloat16"), params, *inputs)
    distance = np.abs(ours - exact).max()
    assert 0 < distance <= 0.06 * exact.std()  # found: 0.044 gated, 0.029 relu
    assert distance <= 1.2 * np.abs(theirs - exact).max()


class Multimodal(transformers.T5ForConditionalGeneration):
    """Auto-UI as its paper and DigiRL's class have it, for one image token."""

    def __init__(self, config):
        super().__init__(config)
        width = config.d_model
        self.image_dense = torch.nn.Linear(1408, width)
        self.mha_layer = torch.nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.gate_dense = torch.nn.Linear(2 * width, width)

    def fused(self, input_ids, attention_mask, features):
        text = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        image = self.image_dense(features)
        seen, _ = self.mha_layer(text, image, image)
        gate = torch.sigmoid(self.gate_dense(torch.cat([text, seen], dim=-1)))
        return (1 - gate) * text + gate * seen


@pytest.mark.parametrize("source", [t5_folder.GATED, t5_folder.TIED])
def test_what_we_write_loads_whole_in_torch_s_class(source, tmp_path):
    config, params, origin, _ = pretrained.load(source)
    pretrained.save(tmp_path, config, params, origin, max_shard_bytes=300_000)
    model, report = Multimodal.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    reference = {name: torch.tensor(x) for name, x in np.load(source / "reference.npz").items()}
    mask = reference["attention_mask"].long()
    previous = torch.nn.functional.pad(reference["labels"][:, :-1], (1, 0)).long()
    with torch.no_grad():
        states = model.eval().fused(
            reference["input_ids"].long(), mask, reference["image_features"][:, None]
        )
        output = transformers.modeling_outputs.BaseModelOutput(states)
        logits = model(
            encoder_outputs=output, attention_mask=mask, decoder_input_ids=previous
        ).logits
    np.testing.assert_allclose(logits.numpy(), reference["logits"].numpy(), atol=1e-4)


@pytest.mark.parametrize("source", [t5_folder.GATED, t5_folder.TIED])
def test_transformers_t5_loads_the_text_part_of_what_we_write(source, tmp_path):
    config, params, origin, _ = pretrained.load(source)
    pretrained.save(tmp_path, config, params, origin)
    model, report = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["mismatched_keys"]
    inputs = _inputs(3, 40, 12)
    expected = _theirs(model.eval(), *inputs)
    np.testing.assert_allclose(_ours(config, params, *inputs), expected, atol=1e-4)


def test_a_fresh_model_s_settings_mean_the_same_to_transformers(tmp_path):
    for tied in (False, True):
        config = dataclasses.replace(pretrained.load(t5_folder.GATED).config, tied=tied)
        params = dict(pretrained.load(t5_folder.GATED).params)
        if tied:
            params["t5"] = {name: leaf for name, leaf in params["t5"].items() if name != "head"}
        pretrained.save(tmp_path / str(tied), config, params)
        model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / str(tied))
        inputs = _inputs(2, 20, 5)
        expected = _theirs(model.eval(), *inputs)
        np.testing.assert_allclose(_ours(config, params, *inputs), expected, atol=1e-4)


def test_auto_tokenizer_reads_what_we_write(tmp_path):
    tokenizer = t5_folder.tokenizer()
    hf_tokenizer.save(tmp_path, tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id) == (0, 1, 2)
    for text in ("Open the Clock app", *t5_folder.CORPUS, "  two  blanks {x}\n"):
        ids = [*theirs(text).input_ids, 1]  # ours adds the end token itself
        assert tokenizer.encode_prompt(text, len(ids)).tolist() == ids
