"""Models of sequences: architectures of transformers beyond the zoo, adapters, attention of many kinds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Case, Made
from assay.suites.libraries.row import library, row

VOCABULARY = 128
_TINY: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_ENCODER: dict[str, Any] = {
    **_TINY, "intermediate_size": 64, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
_DECODER: dict[str, Any] = {
    **_TINY, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64, "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_BOTH: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "use_cache": False, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
_PICTURE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8, "num_labels": 5,
}  # fmt: skip


def tokens(batch: int = 2, length: int = 12) -> Tensor:
    """Token numbers that are no architecture's padding: tokens[batch, length], from 4 on."""
    return torch.randint(4, VOCABULARY, (batch, length))


def _text() -> dict[str, Tensor]:
    ids = tokens()
    return {"input_ids": ids, "labels": ids.clone()}


def _padded() -> dict[str, Tensor]:
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def _pictures(side: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(4, 3, side, side), "labels": torch.randint(5, (4,))}


def _waves() -> dict[str, Tensor]:
    return {"input_values": torch.randn(2, 800), "labels": torch.randint(5, (2,))}


def _series() -> dict[str, Tensor]:
    return {"past_values": torch.randn(2, 32, 3), "future_values": torch.randn(2, 8, 3)}


def _transformer(model: str, config: str, settings: Mapping[str, Any], feed: Callable[[], dict[str, Tensor]]) -> Made:
    import transformers

    made = getattr(transformers, config)(**settings)
    return getattr(transformers, model)(made), (), feed()


_SPEECH: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2), "num_labels": 5,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0,
    "final_dropout": 0.0, "layerdrop": 0.0, "classifier_proj_size": 16,
}  # fmt: skip

TRANSFORMERS: dict[str, tuple[str, str, Mapping[str, Any], Callable[[], dict[str, Tensor]]]] = {
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**_ENCODER, "embedding_size": 16}, _padded),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**_ENCODER, "embedding_size": 16}, _padded),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", _ENCODER, _padded),
    "deberta_v2": ("DebertaV2ForMaskedLM", "DebertaV2Config", {
        **_ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
    }, _padded),
    "convbert": ("ConvBertForMaskedLM", "ConvBertConfig", {**_ENCODER, "embedding_size": 32}, _padded),
    "roformer": ("RoFormerForMaskedLM", "RoFormerConfig", _ENCODER, _padded),
    "fnet": ("FNetForMaskedLM", "FNetConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64,
        "hidden_dropout_prob": 0.0,
    }, _text),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", {
        **_TINY, "intermediate_size": 64, "local_attention": 4, "pad_token_id": 0, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
    }, _padded),
    "longformer": ("LongformerForMaskedLM", "LongformerConfig", {**_ENCODER, "attention_window": 4}, _padded),
    "xlnet": ("XLNetLMHeadModel", "XLNetConfig", {
        "vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "dropout": 0.0,
    }, _text),
    "funnel": ("FunnelForMaskedLM", "FunnelConfig", {
        "vocab_size": VOCABULARY, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32, "n_head": 4,
        "d_head": 8, "d_inner": 64, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    }, _padded),
    "bloom": ("BloomForCausalLM", "BloomConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False,
    }, _padded),
    "opt": ("OPTForCausalLM", "OPTConfig", {
        **_TINY, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64, "dropout": 0.0,
        "use_cache": False,
    }, _padded),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64, "use_cache": False,
    }, _padded),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {
        "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64,
        "use_cache": False,
    }, _text),
    "falcon": ("FalconForCausalLM", "FalconConfig", {**_TINY, "alibi": True, "use_cache": False}, _padded),
    "phi": ("PhiForCausalLM", "PhiConfig", _DECODER, _text),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_DECODER, "head_dim": 8}, _padded),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {
        **_DECODER, "head_dim": 8, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2,
    }, _text),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", {
        **_DECODER, "num_key_value_heads": 4, "kv_lora_rank": 8, "q_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
        "topk_group": 1, "n_shared_experts": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
    }, _text),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_DECODER, "sliding_window": 4, "head_dim": 8}, _padded),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {
        **_DECODER, "head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"],
    }, _text),
    "cohere": ("CohereForCausalLM", "CohereConfig", _DECODER, _text),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _DECODER, _text),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", _DECODER, _text),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", {
        "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_heads": 4, "head_dim": 8,
        "state_size": 8, "n_groups": 1, "chunk_size": 4, "use_cache": False,
    }, _text),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BOTH, _padded),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", _BOTH, _padded),
    "led": ("LEDForConditionalGeneration", "LEDConfig", {
        **{name: value for name, value in _BOTH.items() if name != "max_position_embeddings"},
        "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": 4,
    }, _padded),
    "deit": ("DeiTForImageClassification", "DeiTConfig", _PICTURE, _pictures),
    "beit": ("BeitForImageClassification", "BeitConfig", {
        **_PICTURE, "use_relative_position_bias": True, "drop_path_rate": 0.0,
    }, _pictures),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", {**_PICTURE, "mlp_ratio": 2}, _pictures),
    "regnet": ("RegNetForImageClassification", "RegNetConfig", {
        "embedding_size": 8, "hidden_sizes": [8, 16, 16], "depths": [1, 1, 1], "groups_width": 8, "num_labels": 5,
    }, _pictures),
    "pvt": ("PvtForImageClassification", "PvtConfig", {
        "image_size": 64, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 32], "num_labels": 5,
        "num_attention_heads": [1, 2, 2, 4], "drop_path_rate": 0.0, "hidden_dropout_prob": 0.0,
    }, functools.partial(_pictures, 64)),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", _SPEECH, _waves),
    "wavlm": ("WavLMForSequenceClassification", "WavLMConfig", _SPEECH, _waves),
    "patchtst": ("PatchTSTForPrediction", "PatchTSTConfig", {
        "num_input_channels": 3, "context_length": 32, "prediction_length": 8, "patch_length": 8, "patch_stride": 8,
        "d_model": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "ffn_dim": 32, "loss": "mse",
    }, _series),
}  # fmt: skip
"""Model, configuration, settings and feed of each architecture of transformers."""

transformers_models: list[Case] = [
    row("transformers", name, functools.partial(_transformer, *given), tags=("transformers",))
    for name, given in TRANSFORMERS.items()
]


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_DECODER))


def _adapted(config: Any) -> Made:
    """A tiny Llama with adapters, whose other parameters are frozen."""
    from peft import get_peft_model

    return get_peft_model(_llama(), config), (), _text()


@library("peft", tags=("text",))
def lora() -> Made:
    """Products of low rank beside the projections of the attention."""
    from peft import LoraConfig

    return _adapted(LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, init_lora_weights=False))


@library("peft", tags=("text",))
def dora() -> Made:
    """LoRA with weights split into magnitude and direction."""
    from peft import LoraConfig

    return _adapted(LoraConfig(r=4, target_modules=["q_proj"], use_dora=True, init_lora_weights=False))


@library("peft", tags=("text",))
def ia3() -> Made:
    """Learned scales of keys, values and the feed-forward."""
    from peft import IA3Config

    config = IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM",
    )  # fmt: skip
    return _adapted(config)


@library("peft", tags=("text",))
def oft() -> Made:
    """Weights turned by block-diagonal rotations of a Cayley transform."""
    from peft import OFTConfig

    return _adapted(OFTConfig(oft_block_size=8, target_modules=["q_proj"], init_weights=False))


@library("peft", tags=("text",))
def prefix_tuning() -> Made:
    """Learned keys and values before every layer."""
    from peft import PrefixTuningConfig

    return _adapted(PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"))


@library("loralib", tags=("text",))
def merged() -> Made:
    """One projection for query, key and value, two of them adapted."""
    import loralib

    merged = loralib.MergedLinear(16, 48, r=2, enable_lora=[True, False, True])
    nn.init.normal_(merged.lora_B)
    return nn.Sequential(merged, nn.GELU()), (torch.randn(2, 6, 16, requires_grad=True),), {}


@library("x_transformers", tags=("text",))
def decoder() -> Made:
    """Rotary positions, gated feed-forward, RMS norm, query and key norm."""
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True,
        attn_qk_norm=True,
    )  # fmt: skip
    return TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=32, attn_layers=layers), (tokens(),), {}


@library("x_transformers", tags=("text",))
def encoder_of_many_kinds() -> Made:
    """Talking heads, relative positions, memories, residual attention, shifted tokens."""
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(
        dim=32, depth=2, heads=4, attn_dim_head=8, rel_pos_bias=True, attn_num_mem_kv=2, shift_tokens=1,
        attn_pre_talking_heads=True, residual_attn=True, sandwich_norm=True,
    )  # fmt: skip
    model = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=32, num_memory_tokens=2, attn_layers=layers)
    return model, (tokens(),), {}


@library("x_transformers", tags=("text",))
def autoregressive() -> Made:
    """The loss of a language model with ALiBi and a sparse top-k attention."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, alibi_pos_bias=True, attn_sparse_topk=4)
    wrapped = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=32, attn_layers=layers)
    return AutoregressiveWrapper(wrapped), (tokens(),), {}


@library("x_transformers", tags=("text",))
def encoder_and_decoder() -> Made:
    """A source attended to by a target, with a loss."""
    from x_transformers import XTransformer

    model = XTransformer(
        dim=32, enc_num_tokens=VOCABULARY, enc_depth=1, enc_heads=4, enc_max_seq_len=16, dec_num_tokens=VOCABULARY,
        dec_depth=1, dec_heads=4, dec_max_seq_len=16,
    )  # fmt: skip
    return model, (tokens(), tokens()), {"mask": torch.ones(2, 12, dtype=torch.bool)}


@library("rotary_embedding_torch", tags=("text",))
def rotary() -> Made:
    """Queries and keys rotated with a learned frequency and a decay."""
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(dim=8, use_xpos=True, learned_freq=True)
    del rotary.apply_rotary_emb  # a static method among its attributes, which nothing can copy
    return _Rotated(rotary), (torch.randn(2, 2, 6, 16),), {}


class _Rotated(nn.Module):
    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, states: Tensor) -> Tensor:
        queries, keys = self.rotary.rotate_queries_and_keys(*states.chunk(2, dim=-1))
        return queries @ keys.transpose(-1, -2)


@library("local_attention", tags=("text",))
def windows() -> Made:
    """Attention to the window before, causal, with rotary positions."""
    from local_attention import LocalTransformer

    model = LocalTransformer(
        num_tokens=VOCABULARY, max_seq_len=16, dim=32, depth=2, causal=True, local_attn_window_size=4, heads=2,
        dim_head=8,
    )  # fmt: skip
    return model, (tokens(2, 16),), {}


@library("linformer", tags=("text",))
def low_rank() -> Made:
    """Keys and values projected to fewer positions."""
    from linformer import LinformerLM

    return LinformerLM(num_tokens=VOCABULARY, dim=32, seq_len=12, depth=2, heads=4, k=4), (tokens(),), {}


@library("perceiver_pytorch")
def perceiver() -> Made:
    """Latents that attend to an image with Fourier features, layers tied."""
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3, num_freq_bands=2, max_freq=4.0, depth=2, num_latents=8, latent_dim=16, cross_heads=1,
        latent_heads=2, cross_dim_head=8, latent_dim_head=8, num_classes=5, weight_tie_layers=True,
    )  # fmt: skip
    return model, (torch.randn(2, 8, 8, 3),), {}


@library("tab_transformer_pytorch", tags=("dropout",))
def ft() -> Made:
    """Columns as tokens: categories and numbers."""
    from tab_transformer_pytorch import FTTransformer

    model = FTTransformer(categories=(5, 4, 3), num_continuous=4, dim=16, dim_out=1, depth=2, heads=2, dim_head=8)
    return model, (torch.stack([torch.randint(n, (6,)) for n in (5, 4, 3)], 1), torch.randn(6, 4)), {}


@library("titans_pytorch", tags=("text",))
def memory_as_context() -> Made:
    """A memory that is trained by gradients within the call."""
    from titans_pytorch import NeuralMemory

    return NeuralMemory(dim=16, chunk_size=4, heads=1), (torch.randn(1, 8, 16),), {}


@library("entmax")
def sparse() -> Made:
    """Sparse softmaxes by sorting and by bisection, and their losses."""
    import entmax

    def project(logits: Tensor, labels: Tensor) -> list[Tensor]:
        kinds = [entmax.sparsemax, entmax.entmax15, functools.partial(entmax.entmax_bisect, alpha=1.3)]
        found = [kind(logits, dim=-1) for kind in kinds]
        return [*found, entmax.sparsemax_loss(logits, labels), entmax.entmax15_loss(logits, labels)]

    return project, (torch.randn(4, 8, requires_grad=True), torch.randint(8, (4,))), {}


@library("torchcrf")
def crf() -> Made:
    """The log likelihood of tag sequences of unequal length."""
    from torchcrf import CRF

    mask = torch.ones(6, 3, dtype=torch.bool)
    mask[4:, 1] = False
    return CRF(5), (torch.randn(6, 3, 5, requires_grad=True), torch.randint(5, (6, 3))), {"mask": mask}


@library("sentence_transformers", tags=("text",))
def contrastive() -> Made:
    """Pooled embeddings of pairs and a loss over the batch."""
    from sentence_transformers.util import cos_sim, pairwise_euclidean_sim

    def likeness(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return cos_sim(first, second), pairwise_euclidean_sim(first, second)

    return likeness, (torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)), {}
