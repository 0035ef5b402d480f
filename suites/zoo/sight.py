"""Models that see: convolutions, vision transformers, segmentation, images beside text."""

from __future__ import annotations

from transformers import (
    CLIPConfig,
    CLIPModel,
    ConvNextConfig,
    ConvNextForImageClassification,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from assay.suites.zoo.feeds import albums, captions, photographs, scenes
from assay.suites.zoo.model import Sizes, model

_TINY = {"image_size": 32, "num_labels": 10}
_SMALL = {"image_size": 96, "num_labels": 100}
_FULL = {"image_size": 224, "num_labels": 1000}

_TINY_TOWER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_SMALL_TOWER = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}

# Patches as tokens, pre-norm encoder.
vit = model(
    ViTForImageClassification,
    ViTConfig,
    photographs,
    tags=("image", "encoder"),
    sizes=Sizes(
        tiny={**_TINY, **_TINY_TOWER, "patch_size": 8},
        small={**_SMALL, **_SMALL_TOWER, "patch_size": 8},
        full=_FULL,
    ),
)

# Depthwise convolutions, layer norm in both layouts, a scale for each layer that is not too small to be seen.
convnext = model(
    ConvNextForImageClassification,
    ConvNextConfig,
    photographs,
    tags=("image", "convolution"),
    sizes=Sizes(
        always={"layer_scale_init_value": 0.1},
        tiny={**_TINY, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
        small={**_SMALL, "hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 4, 2]},
        full=_FULL,
    ),
)

# Bottleneck blocks with batch norm, whose statistics a training step changes.
resnet = model(
    ResNetForImageClassification,
    ResNetConfig,
    albums,
    tags=("image", "convolution", "buffers"),
    sizes=Sizes(
        tiny={**_TINY, "embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
        small={**_SMALL, "embedding_size": 32, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]},
        full=_FULL,
    ),
)

# Inverted residuals, depthwise convolutions under uneven padding, ReLU6, batch norm.
mobilenet_v2 = model(
    MobileNetV2ForImageClassification,
    MobileNetV2Config,
    albums,
    tags=("image", "convolution", "buffers"),
    sizes=Sizes(
        always={"classifier_dropout_prob": 0.0},
        tiny={**_TINY, "depth_multiplier": 0.35},
        small={**_SMALL, "depth_multiplier": 0.75},
        full=_FULL,
    ),
)

# Attention in shifted windows: rolls, partitions and their inverses.
swin = model(
    SwinForImageClassification,
    SwinConfig,
    photographs,
    tags=("image", "encoder"),
    sizes=Sizes(
        always={"drop_path_rate": 0.0},
        tiny={**_TINY, "window_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]},
        small={**_SMALL, "window_size": 6, "embed_dim": 48, "depths": [2, 2, 2], "num_heads": [3, 6, 12]},
        full=_FULL,
    ),
)

# A pyramid of transformers with reduced keys, decoded to a class for every pixel: interpolation, concatenation.
segformer = model(
    SegformerForSemanticSegmentation,
    SegformerConfig,
    scenes,
    tags=("image", "encoder", "buffers"),
    sizes=Sizes(
        always={"drop_path_rate": 0.0, "classifier_dropout_prob": 0.0},
        tiny={
            **_TINY,
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 3, 4],
            "decoder_hidden_size": 32,
        },
        small={"image_size": 128, "num_labels": 20, "depths": [1, 1, 1, 1]},
        full={"image_size": 512, "num_labels": 150},
    ),
)

# Two towers and a contrastive loss over the batch.
clip = model(
    CLIPModel,
    CLIPConfig,
    captions,
    tags=("image", "text", "encoder"),
    sizes=Sizes(
        tiny={
            "text_config": {
                **_TINY_TOWER,
                "vocab_size": 128,
                "max_position_embeddings": 16,
                "bos_token_id": 0,
                "eos_token_id": 127,
            },
            "vision_config": {**_TINY_TOWER, "image_size": 32, "patch_size": 8},
            "projection_dim": 32,
        },
        small={
            "text_config": {
                **_SMALL_TOWER,
                "vocab_size": 2048,
                "max_position_embeddings": 32,
                "bos_token_id": 0,
                "eos_token_id": 2047,
            },
            "vision_config": {**_SMALL_TOWER, "image_size": 96, "patch_size": 16},
            "projection_dim": 128,
        },
        full={},
    ),
)
