"""Linear classifier of words, pairs and triples of neighboring tokens, fitted once and averaged with a network."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fna_lightning.nn.token_table import PAD, check_rows, ngram_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class LinearNGrams(nn.Module):
    """Logistic regression on log-count ratios (Wang and Manning, 2012, "Baselines and bigrams").

    A feature is whether a text contains a word, a pair or a triple; pairs and triples are hashed as in ``TokenTable``.
    It is multiplied by the logarithm of the ratio of its frequencies in the two classes. ``fit`` computes everything
    from the training texts; before it, all logits are 0. Nothing is trained by gradient descent. The logits of the
    training texts are too good, because the model has seen their labels.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        num_classes: number of classes, must be 2.
        pairs: rows of the table of pairs; 0 for none.
        triples: rows of the table of triples; 0 for none.
        strength: inverse strength of the L2 regularization, scikit-learn's ``C``.
        share: weight of these logits in the mean with those of a network, which has the weight 1 - ``share``.
    """

    weights: Tensor  # of each feature, times its ratio
    bias: Tensor
    num_texts: Tensor  # to which it was fitted

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        pairs: int = 4_000_000,
        triples: int = 8_000_000,
        strength: float = 0.1,
        share: float = 0.5,
    ) -> None:
        super().__init__()
        check_rows("pairs", pairs)
        check_rows("triples", triples)
        if num_classes != 2:
            raise ValueError(f"LinearNGrams needs 2 classes, got {num_classes}; leave model.linear out")
        if not strength > 0.0:
            raise ValueError(f"strength must be positive, got {strength}")
        if not 0.0 < share < 1.0:
            raise ValueError(f"share must lie between 0 and 1, got {share}")
        self.sizes = (vocab_size, pairs, triples)
        self.strength, self.share = strength, share
        self.register_buffer("weights", torch.zeros(sum(self.sizes)))
        self.register_buffer("bias", torch.zeros(()))
        self.register_buffer("num_texts", torch.zeros((), dtype=torch.long))

    @property
    def fitted(self) -> bool:
        """Whether ``fit`` was called, now or before the checkpoint was saved."""
        return bool(self.num_texts > 0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, N) token ids to (B, 2) logits."""
        columns = self.columns(tokens).sort(dim=1).values
        # A feature counts once per text, however often it occurs.
        first = columns.diff(dim=1, prepend=columns.new_full((len(columns), 1), -1)) != 0
        half = ((self.weights[columns] * first).sum(dim=1) + self.bias) / 2.0
        return torch.stack([-half, half], dim=1)

    def combine(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return the weighted mean of the (B, 2) logits of a network and those of this classifier."""
        # not lerp, which needs equal dtypes: in mixed precision the network computes in bfloat16
        return (1.0 - self.share) * logits + self.share * self(tokens)

    def columns(self, tokens: Tensor) -> Tensor:
        """Return the (B, 3 N) columns of the words, pairs and triples in the table of all features; 0 for none."""
        columns, start = [tokens], self.sizes[0]
        for order, rows in ((2, self.sizes[1]), (3, self.sizes[2])):
            if rows:
                hashed = ngram_rows(tokens, order, rows)
                columns.append(torch.where(hashed == PAD, PAD, start + hashed))
            start += rows
        return torch.cat(columns, dim=1)

    @torch.no_grad()
    def fit(self, texts: Sequence[NDArray[np.integer]], labels: NDArray[np.integer]) -> None:
        """Fit the weights to the token ids and the labels of all training texts."""
        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"LinearNGrams has {len(labels)} training texts of one class, but needs both classes; use more "
                "training texts, or leave model.linear out"
            )
        from sklearn.linear_model import LogisticRegression

        features = self._features([torch.from_numpy(np.asarray(text, dtype=np.int64))[None] for text in texts])
        ratios = log_count_ratios(features, labels)
        # Most rows of the tables are empty, and the solver would copy them.
        used = np.flatnonzero(np.bincount(features.indices, minlength=len(ratios)))
        inputs = features[:, used].multiply(ratios[used]).tocsr()
        regression = LogisticRegression(C=self.strength, solver="liblinear").fit(inputs, labels)
        self.weights.zero_()
        self.weights[torch.from_numpy(used)] = torch.from_numpy(
            (regression.coef_[0] * ratios[used]).astype(np.float32)
        ).to(self.weights.device)
        self.bias.fill_(float(regression.intercept_[0]))
        self.num_texts.fill_(len(labels))

    def _features(self, rows: list[Tensor]) -> "csr_matrix":
        """Return the (texts, features) matrix of the features that each text contains."""
        from scipy.sparse import csr_matrix

        columns = [np.setdiff1d(self.columns(row).numpy(), [PAD]) for row in rows]
        ends = np.cumsum([0, *map(len, columns)])
        shape = (len(rows), sum(self.sizes))
        return csr_matrix((np.ones(ends[-1], dtype=np.float32), np.concatenate(columns), ends), shape=shape)


def log_count_ratios(features: "csr_matrix", labels: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return the logarithm of the ratio of the frequencies of each feature in class 1 and in class 0, smoothed by 1."""
    counts = [1.0 + np.asarray(features[labels == label].sum(axis=0)).ravel() for label in (0, 1)]
    shares = [np.log(count / count.sum()) for count in counts]
    return (shares[1] - shares[0]).astype(np.float32)
