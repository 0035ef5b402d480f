"""The trained model embeds sentences by their meaning, and a compiled one finds the neighbours that eager finds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

trained = pytest.importorskip("assay.suites.zoo.trained", exc_type=ImportError)

BACKENDS = ("assay", "assay_reference", "aot_eager")
NEIGHBOURS = 3


def embedded(backend: str | None, mode: str) -> Tensor:
    module, args, kwargs = trained.minilm.make("small")
    assert isinstance(module, torch.nn.Module)
    module.train(mode == "train")
    torch._dynamo.reset()
    function = torch.compile(module, backend=backend) if backend else module
    with torch.set_grad_enabled(mode == "train"):
        return function(*args, **kwargs).detach()


def test_trained_sentences_are_distinct_and_spread_over_topics() -> None:
    sentences, topics = trained.sentences(24), trained.topics(24)
    assert len(set(sentences)) == 24
    assert all(sentence in trained.SENTENCES[topic] for sentence, topic in zip(sentences, topics, strict=True))


def test_trained_nearest_ranks_by_angle_and_leaves_itself_out() -> None:
    embedding = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]))
    assert trained.nearest(embedding, 2).tolist() == [[1, 3], [0, 3], [3, 1], [2, 1]]


def test_trained_eager_puts_a_sentence_beside_its_topic() -> None:
    embedding, topics = embedded(None, "infer"), trained.topics(24)
    assert embedding.shape == (24, 384) and torch.allclose(embedding.norm(dim=1), torch.ones(24))
    first = trained.nearest(embedding, 1)[:, 0].tolist()
    assert sum(topics[neighbour] == topic for neighbour, topic in zip(first, topics, strict=True)) >= 22


def test_trained_neighbours_are_far_enough_apart_to_be_compared() -> None:
    embedding = embedded(None, "infer")
    likeness = (embedding @ embedding.T).fill_diagonal_(-1).topk(NEIGHBOURS + 1, dim=1).values
    assert (likeness[:, :-1] - likeness[:, 1:]).min() > 1e-3


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_trained_neighbours_are_those_of_eager(backend: str, mode: str) -> None:
    eager, compiled = embedded(None, mode), embedded(backend, mode)
    assert (compiled - eager).abs().max() < 1e-5
    assert torch.equal(trained.nearest(compiled, NEIGHBOURS), trained.nearest(eager, NEIGHBOURS))
