"""Architectures of transformers that the zoo does not have, near their published sizes, with random weights.

Kernels were not tuned on these models: they show what a compiler does for a program that it never saw. Encoders and
decoders have six layers, and decoders share one width, so that many can be compared in little time. Pictures are
classified by models as published.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from assay.harness.case import Case, Made, case
from assay.suites.zoo.feeds import Feed

LAYERS = 6
BATCH, LENGTH = 8, 512
FIRST_POSITION = 2
PICTURES, LARGE_SIDE = 32, 300
"""A batch of pictures, which is a quarter of that where their sides are longer than the other number of pixels."""
TOKENS = 20_000
"""Below every vocabulary."""

DECODERS = (
    "bloom", "falcon", "gpt_neo", "gpt_neox", "granite", "mistral", "olmo2", "opt", "phi", "qwen3", "stablelm",
    "starcoder2",
)  # fmt: skip
ENCODERS = ("albert", "deberta-v2", "electra", "modernbert", "mpnet", "roformer", "xlm-roberta")
BOTH = ("bart", "m2m_100", "pegasus")
OF_PICTURES = (
    "beit", "bit", "convnextv2", "deit", "dinov2", "efficientnet", "focalnet", "levit", "mobilevit", "poolformer",
    "pvt_v2", "regnet",
)  # fmt: skip
_WIDTH: dict[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 64, "n_head": 16,
}  # fmt: skip
_PUBLISHED_WIDTH = ("gpt_neo", "opt")
_DEPTH: dict[str, Any] = {
    "num_hidden_layers": LAYERS, "n_layer": LAYERS, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
}  # fmt: skip
_GPT_NEO: dict[str, Any] = {
    "num_layers": LAYERS, "attention_types": [[["global", "local"], LAYERS // 2]], "hidden_size": 768, "num_heads": 12,
}  # fmt: skip


def _settings(name: str, configuration: type) -> dict[str, Any]:
    """What of the common settings the architecture's configuration knows."""
    if name == "gpt_neo":
        return _GPT_NEO
    common = {**_DEPTH, **(_WIDTH if name in DECODERS and name not in _PUBLISHED_WIDTH else {})}
    published = configuration()
    derived = {key for key, value in vars(configuration).items() if isinstance(value, property) and not value.fset}
    return {key: value for key, value in common.items() if hasattr(published, key) and key not in derived}


def _text(config: Any) -> Feed:
    """Full sequences that are their own labels. Some encoders count positions from behind the padding's number."""
    longest = getattr(config, "max_position_embeddings", None) or 2 * LENGTH
    ids = torch.randint(5, TOKENS, (BATCH, min(LENGTH, longest - FIRST_POSITION)))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def _pictures(config: Any) -> Feed:
    side = config.image_size if isinstance(getattr(config, "image_size", None), int) else 224
    batch = PICTURES // 4 if side > LARGE_SIDE else PICTURES
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.randint(config.num_labels, (batch,))}


def _made(name: str, tasks: str, feed: Callable[[Any], Feed]) -> Made:
    configuration = CONFIG_MAPPING[name]
    config = configuration(**_settings(name, configuration))
    config.use_cache = False
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:LAYERS]
    named = getattr(modeling_auto, tasks)[name]
    model = getattr(transformers, named if isinstance(named, str) else named[0])
    return model(config), (), feed(config)


def _cases(names: tuple[str, ...], tasks: str, feed: Callable[[Any], Feed], tags: tuple[str, ...]) -> list[Case]:
    return [
        case(name=name.replace("-", "_"), tags=tags, sizes=("full",))(functools.partial(_made, name, tasks, feed))
        for name in names
    ]


_TASKS: Mapping[tuple[str, ...], str] = {
    DECODERS: "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    ENCODERS: "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    BOTH: "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
}

of_text = [one for names, tasks in _TASKS.items() for one in _cases(names, tasks, _text, ("text",))]
of_pictures = _cases(OF_PICTURES, "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", _pictures, ("image",))
