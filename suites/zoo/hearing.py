"""Models that hear."""

from __future__ import annotations

from transformers import WhisperConfig, WhisperForConditionalGeneration

from assay.suites.zoo.feeds import speech
from assay.suites.zoo.model import Sizes, model

# Two convolutions over a spectrogram, an encoder, and a decoder that attends to it; `full` is the base model.
whisper = model(
    WhisperForConditionalGeneration,
    WhisperConfig,
    speech,
    tags=("audio", "encoder", "decoder"),
    sizes=Sizes(
        always={
            "use_cache": False,
            "decoder_start_token_id": 1,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "begin_suppress_tokens": None,
        },
        tiny={
            "vocab_size": 128,
            "num_mel_bins": 16,
            "max_source_positions": 16,
            "max_target_positions": 16,
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
        },
        small={
            "vocab_size": 2048,
            "max_source_positions": 128,
            "max_target_positions": 96,
            "d_model": 256,
            "encoder_layers": 3,
            "decoder_layers": 3,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 1024,
            "decoder_ffn_dim": 1024,
        },
        full={
            "d_model": 512,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "encoder_ffn_dim": 2048,
            "decoder_ffn_dim": 2048,
        },
    ),
)
