"""What the zoo's models are fed: random inputs in the shapes that a model's configuration asks for, with labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BATCH = {"tiny": 2, "small": 4, "full": 8}
LENGTH = {"tiny": 16, "small": 96, "full": 512}
LENGTH_OF_VERSE = {"tiny": 6, "small": 16, "full": 64}

Feed = dict[str, Any]


def ids(vocabulary: int, batch: int, length: int) -> Tensor:
    """Token numbers that are no architecture's padding: ids[batch, length], from 4 on."""
    return torch.randint(4, vocabulary, (batch, length))


def sentences(config: Any, size: str) -> Feed:
    """Sentences of unequal length, padded on the right, and a label for every token; padding is labelled -100."""
    batch, length = BATCH[size], LENGTH[size]
    lengths = torch.linspace(length, length // 2, batch).long()
    mask = (torch.arange(length) < lengths[:, None]).long()
    tokens = ids(config.vocab_size, batch, length) * mask + (1 - mask) * (config.pad_token_id or 0)
    labels = ids(config.vocab_size, batch, length).masked_fill(mask == 0, -100)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def prose(config: Any, size: str) -> Feed:
    """Full sequences that are their own labels, as a language model is trained."""
    tokens = ids(config.vocab_size, BATCH[size], LENGTH[size])
    return {"input_ids": tokens, "labels": tokens.clone()}


def verses(config: Any, size: str) -> Feed:
    """Short sequences for models whose trace grows with every step in time."""
    tokens = ids(config.vocab_size, 4 * BATCH[size], LENGTH_OF_VERSE[size])
    return {"input_ids": tokens, "labels": tokens.clone()}


def translations(config: Any, size: str) -> Feed:
    """A source sentence, padded, and a shorter target sentence."""
    source = sentences(config, size)
    target = ids(config.vocab_size, BATCH[size], LENGTH[size] // 2)
    return {"input_ids": source["input_ids"], "attention_mask": source["attention_mask"], "labels": target}


def photographs(config: Any, size: str) -> Feed:
    """Images with one class each: pixel_values[batch, channels, height, width]."""
    side, batch = config.image_size, BATCH[size]
    labels = torch.randint(config.num_labels, (batch,))
    return {"pixel_values": torch.randn(batch, config.num_channels, side, side), "labels": labels}


def albums(config: Any, size: str) -> Feed:
    """Photographs for models with batch norm: enough that the statistics of the last, smallest images mean something.

    Over two values a batch norm is their sign: its gradient is rounding error, and eager is no oracle of it.
    """
    side, batch = config.image_size, 4 * BATCH[size] if size == "tiny" else BATCH[size]
    labels = torch.randint(config.num_labels, (batch,))
    return {"pixel_values": torch.randn(batch, config.num_channels, side, side), "labels": labels}


def scenes(config: Any, size: str) -> Feed:
    """Images with a class for every pixel, some of them marked as void."""
    side, batch = config.image_size, BATCH[size]
    labels = torch.randint(config.num_labels, (batch, side, side))
    labels[:, : side // 8] = config.semantic_loss_ignore_index
    return {"pixel_values": torch.randn(batch, config.num_channels, side, side), "labels": labels}


def captions(config: Any, size: str) -> Feed:
    """Images beside one sentence each, for a contrastive loss."""
    text, vision, batch = config.text_config, config.vision_config, BATCH[size]
    length = text.max_position_embeddings
    tokens = ids(text.vocab_size - 1, batch, length)
    tokens[:, -1] = text.eos_token_id
    images = torch.randn(batch, vision.num_channels, vision.image_size, vision.image_size)
    return {"input_ids": tokens, "pixel_values": images, "return_loss": True}


def speech(config: Any, size: str) -> Feed:
    """Spectrograms with their transcripts; the encoder halves the number of frames."""
    batch, frames = BATCH[size], 2 * config.max_source_positions
    spectrogram = torch.randn(batch, config.num_mel_bins, frames)
    transcript = ids(config.vocab_size, batch, min(config.max_target_positions, LENGTH[size]) // 2)
    return {"input_features": spectrogram, "labels": transcript}
