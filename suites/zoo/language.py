"""Language models: encoders, decoders, encoder with decoder, a mixture of experts, a scan and a recurrence."""

from __future__ import annotations

from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    RwkvConfig,
    RwkvForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from assay.suites.zoo.feeds import prose, sentences, translations, verses
from assay.suites.zoo.model import Sizes, model

_TINY = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_SMALL = {"vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
_TINY_GROUPED = {**_TINY, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128}
_SMALL_GROUPED = {**_SMALL, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 768}

# Post-norm encoder, learned positions, attention written out as matmul and softmax, dropout as published.
bert = model(
    BertForMaskedLM,
    BertConfig,
    sentences,
    tags=("text", "encoder", "dropout"),
    sizes=Sizes(
        always={"attn_implementation": "eager"},
        tiny={**_TINY, "intermediate_size": 128},
        small={**_SMALL, "intermediate_size": 1024},
        full={},
    ),
)

# BERT's layers, half as many, with no token types.
distilbert = model(
    DistilBertForMaskedLM,
    DistilBertConfig,
    sentences,
    tags=("text", "encoder"),
    sizes=Sizes(
        always={"dropout": 0.0, "attention_dropout": 0.0},
        tiny={"vocab_size": 128, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        small={"vocab_size": 2048, "dim": 256, "n_layers": 3, "n_heads": 4, "hidden_dim": 1024},
        full={},
    ),
)

# Positions counted from the padding, by a cumulative sum over the tokens.
roberta = model(
    RobertaForMaskedLM,
    RobertaConfig,
    sentences,
    tags=("text", "encoder"),
    sizes=Sizes(
        always={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        tiny={**_TINY, "intermediate_size": 128},
        small={**_SMALL, "intermediate_size": 1024},
        full={"vocab_size": 50265, "max_position_embeddings": 514},
    ),
)


def _gpt2(config: GPT2Config) -> GPT2LMHeadModel:
    """GPT-2 with its loss named; the class has none to its name and logs that in forward, which breaks the trace."""
    gpt2 = GPT2LMHeadModel(config)
    gpt2.loss_type = "ForCausalLM"
    return gpt2


# Pre-norm decoder, one matrix for query, key and value, dropout inside the fused attention, tanh GELU.
gpt2 = model(
    _gpt2,
    GPT2Config,
    prose,
    tags=("text", "decoder", "dropout"),
    sizes=Sizes(
        always={"use_cache": False},
        tiny={"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0},
        small={"vocab_size": 2048, "n_embd": 256, "n_layer": 4, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0},
        full={},
    ),
)

# RMS norm, rotary positions, gated SiLU, grouped queries; `full` is the one-billion model.
llama = model(
    LlamaForCausalLM,
    LlamaConfig,
    prose,
    tags=("text", "decoder"),
    sizes=Sizes(
        always={"use_cache": False},
        tiny=_TINY_GROUPED,
        small=_SMALL_GROUPED,
        full={
            "vocab_size": 128256,
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "intermediate_size": 8192,
            "tie_word_embeddings": True,
        },
    ),
)

# Llama with biased projections and tied embeddings; `full` is the half-billion model.
qwen2 = model(
    Qwen2ForCausalLM,
    Qwen2Config,
    prose,
    tags=("text", "decoder"),
    sizes=Sizes(
        always={"use_cache": False, "tie_word_embeddings": True},
        tiny={**_TINY, "num_key_value_heads": 2, "intermediate_size": 128},
        small={**_SMALL, "num_key_value_heads": 2, "intermediate_size": 1024},
        full={
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
        },
    ),
)

# Norms on both sides of a block, capped logits, a window on every other layer's attention, written out.
gemma2 = model(
    Gemma2ForCausalLM,
    Gemma2Config,
    prose,
    tags=("text", "decoder"),
    sizes=Sizes(
        always={"use_cache": False, "attn_implementation": "eager"},
        tiny={**_TINY_GROUPED, "sliding_window": 8},
        small={**_SMALL_GROUPED, "sliding_window": 32},
        full={},
    ),
)

# Two of four experts a token. `full` keeps the published widths and 2 of the 32 layers, to fit on one GPU.
mixtral = model(
    MixtralForCausalLM,
    MixtralConfig,
    prose,
    tags=("text", "decoder", "experts"),
    sizes=Sizes(
        always={"use_cache": False},
        tiny={**_TINY_GROUPED, "num_local_experts": 4},
        small={**_SMALL_GROUPED, "num_local_experts": 4},
        full={"num_hidden_layers": 2},
    ),
)

# Encoder with decoder, relative positions in buckets, attention without scaling, dropout as published.
t5 = model(
    T5ForConditionalGeneration,
    T5Config,
    translations,
    tags=("text", "encoder", "decoder", "dropout"),
    sizes=Sizes(
        always={"use_cache": False, "decoder_start_token_id": 0},
        tiny={"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
        small={"vocab_size": 2048, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 3, "num_heads": 4},
        full={},
    ),
)

# A selective state space: a short convolution over time, then a scan, step by step as eager does it.
mamba = model(
    MambaForCausalLM,
    MambaConfig,
    verses,
    tags=("text", "recurrent"),
    sizes=Sizes(
        always={"use_cache": False, "use_associative_scan": False},
        tiny={"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4},
        small={"vocab_size": 2048, "hidden_size": 128, "num_hidden_layers": 2, "time_step_rank": 8},
        full={"num_hidden_layers": 24},
    ),
)

# Attention as a recurrence over time.
rwkv = model(
    RwkvForCausalLM,
    RwkvConfig,
    verses,
    tags=("text", "recurrent"),
    sizes=Sizes(
        always={"use_cache": False},
        tiny={"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2},
        small={"vocab_size": 2048, "hidden_size": 128, "num_hidden_layers": 2},
        full={"num_hidden_layers": 12, "hidden_size": 768},
    ),
)
