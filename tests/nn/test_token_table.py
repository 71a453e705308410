"""Token vectors and vectors of token pairs."""

import pytest
import torch

from fna_lightning.nn import Embedding, TokenTable
from fna_lightning.nn.token_table import ngram_rows

TOKENS = torch.tensor([[5, 7, 5, 7, 9], [7, 5, 0, 0, 0]])


def test_pairs_are_ordered_and_padding_has_none() -> None:
    rows = ngram_rows(TOKENS, 2, 1000)
    assert rows[0, 0] == rows[0, 2]
    assert rows[0, 0] != rows[1, 0]
    assert rows[0, 4] == 0
    assert rows[1, 1:].eq(0).all()


def test_rows_lie_in_the_table_and_spread() -> None:
    tokens = torch.randint(1, 30_000, (8, 512), generator=torch.Generator().manual_seed(0))
    rows = ngram_rows(tokens, 2, 5000)
    assert rows.max() < 5000
    # 4088 random pairs occupy 56 % of 4999 rows in expectation.
    assert 0.53 < len(rows.unique()) / 4999 < 0.59


def test_triples_are_three_ordered_tokens() -> None:
    rows = ngram_rows(torch.tensor([[5, 7, 9, 5, 7, 9], [9, 7, 5, 7, 0, 0], [5, 7, 0, 0, 0, 0]]), 3, 100_003)
    assert rows[0, 0] == rows[0, 3] == 1 + (5 * 1_000_003 + 7 * 7_919 + 9 * 15_485_863) % 100_002
    assert len(rows[rows > 0].unique()) == 5
    assert rows.eq(0).tolist() == [[False] * 4 + [True] * 2, [False] * 2 + [True] * 4, [True] * 6]


def test_triples_add_their_vectors() -> None:
    table = TokenTable(10, 4, pairs=20, triples=30)
    without = table.weight[TOKENS] + table.pairs.weight[ngram_rows(TOKENS, 2, 20)]
    assert table(TOKENS).equal(without + table.triples.weight[ngram_rows(TOKENS, 3, 30)])
    assert table(TOKENS[:, :2])[1].allclose(without[1, :2])


def test_word_order_matters_only_with_pairs() -> None:
    forwards, backwards = torch.tensor([[3, 4, 5]]), torch.tensor([[5, 4, 3]])
    for pairs, differs in ((0, False), (50, True)):
        torch.manual_seed(0)
        table = TokenTable(10, 4, pairs=pairs)
        assert table(forwards).sum(1).allclose(table(backwards).sum(1), atol=1e-6) is not differs


def test_padding_vectors_stay_zero() -> None:
    table = TokenTable(10, 4, std=0.1, pairs=20)
    out = table(TOKENS)
    assert out[1, 2:].eq(0).all()
    out.sum().backward()
    assert table.weight.grad[0].eq(0).all()
    assert table.pairs.weight.grad[0].eq(0).all()
    assert table.pairs.weight.grad.any()


def test_initial_standard_deviation() -> None:
    assert TokenTable(5000, 16, std=0.1).weight.std().item() == pytest.approx(0.1, rel=0.02)


def test_whole_tokens_are_dropped_in_training_only() -> None:
    table = TokenTable(10, 64, dropout=0.5)
    tokens = torch.full((1, 2000), 3)
    dropped = table(tokens).eq(0)
    assert dropped.all(dim=-1).equal(dropped.any(dim=-1))
    assert 0.45 < dropped[..., 0].float().mean() < 0.55
    assert table(tokens).mean(dim=1).allclose(table.weight[3], atol=0.25)
    assert table.eval()(tokens)[0, 0].equal(table.weight[3])


def test_embedding_with_a_custom_table() -> None:
    embedding = Embedding(10, 4, positions="none", dropout=0.0, table=lambda size, dim: TokenTable(size, dim, pairs=7))
    assert embedding(TOKENS).equal(embedding.tokens(TOKENS))
    assert embedding.tokens.pairs.num_embeddings == 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"std": 0.0}, "std must be positive, got 0.0"),
        ({"triples": -3}, r"triples must be 0 \(no table\) or at least 2 .*got -3"),
        ({"pairs": 1}, r"pairs must be 0 \(no table\) or at least 2 .*got 1"),
    ],
)
def test_invalid_settings(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        TokenTable(10, 4, **settings)
