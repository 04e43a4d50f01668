"""T5's config.json and our config."""

from __future__ import annotations

from typing import Any

from common.errors import ConfigError
from common.models.autoui import AutoUIConfig
from common.types import EOS_ID, PAD_ID

IMAGE_DIM = 1408  # Auto-UI: the pooled output of BLIP-2's ViT-g
PROMPT_LENGTH, ACTION_LENGTH = 512, 128  # DigiRL


def scales(settings: dict[str, Any]) -> bool:
    """Returns whether logits are scaled by d_model^-0.5, as T5 v1.0 does and v1.1 does not.

    transformers 5 ties embeddings always, and keeps the old meaning of tie_word_embeddings in
    scale_decoder_outputs.
    """
    tied = settings.get("tie_word_embeddings") is not False
    return bool(settings.get("scale_decoder_outputs", tied))


def to_config(
    settings: dict[str, Any],
    tied: bool | None = None,
    image_dim: int = IMAGE_DIM,
    prompt_length: int = PROMPT_LENGTH,
    action_length: int = ACTION_LENGTH,
) -> AutoUIConfig:
    """Returns the config of an Auto-UI upon a T5.

    Args:
      settings: What config.json holds.
      tied: Whether the output matrix is the embedding; the tensors know it better than settings.
      image_dim: Features of a screen.
      prompt_length: Tokens of a prompt.
      action_length: Tokens of an action.

    Raises:
      ConfigError: A setting is missing, or out of range, or of another kind of model.
    """
    kind = settings.get("feed_forward_proj", "relu")
    if kind not in ("relu", "gated-gelu"):
        raise ConfigError(f"feed_forward_proj is {kind!r}; known are 'relu' and 'gated-gelu'.")
    try:
        return AutoUIConfig(
            vocab_size=settings["vocab_size"],
            d_model=settings["d_model"],
            num_heads=settings["num_heads"],
            d_kv=settings["d_kv"],
            d_ff=settings["d_ff"],
            encoder_layers=settings["num_layers"],
            decoder_layers=settings.get("num_decoder_layers") or settings["num_layers"],
            gated=kind == "gated-gelu",
            tied=scales(settings) if tied is None else tied,
            relative_buckets=settings.get("relative_attention_num_buckets", 32),
            relative_max_distance=settings.get("relative_attention_max_distance", 128),
            norm_epsilon=settings.get("layer_norm_epsilon", 1e-6),
            image_dim=image_dim,
            image_tokens=1,
            image_grid=None,
            prompt_length=prompt_length,
            action_length=action_length,
        )
    except KeyError as error:
        raise ConfigError(f"config.json does not give {error}: is it a T5's?") from error


def to_settings(config: AutoUIConfig, origin: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns what config.json is to hold: `origin`, if that is where the config came from."""
    if origin is None:
        origin = {
            "architectures": ["T5ForMultimodalGeneration"],  # DigiRL's and Auto-UI's
            "model_type": "t5",
            "is_encoder_decoder": True,
            "vocab_size": config.vocab_size,
            "d_model": config.d_model,
            "d_kv": config.d_kv,
            "d_ff": config.d_ff,
            "num_layers": config.encoder_layers,
            "num_decoder_layers": config.decoder_layers,
            "num_heads": config.num_heads,
            "relative_attention_num_buckets": config.relative_buckets,
            "relative_attention_max_distance": config.relative_max_distance,
            "layer_norm_epsilon": config.norm_epsilon,
            "feed_forward_proj": "gated-gelu" if config.gated else "relu",
            "dropout_rate": 0.0,
            "pad_token_id": PAD_ID,
            "eos_token_id": EOS_ID,
            "decoder_start_token_id": PAD_ID,
        }
    settings = dict(origin)
    # The tensors had the last word when they were read; a reader of these believes the settings.
    if settings.get("tie_word_embeddings", True) != config.tied:
        settings["tie_word_embeddings"] = config.tied
    if settings.get("scale_decoder_outputs", config.tied) != config.tied:
        settings["scale_decoder_outputs"] = config.tied
    return settings
