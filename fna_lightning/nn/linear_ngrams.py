"""Linear classifier of words, pairs and triples of neighboring tokens, fitted once and added to a network's logits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fna_lightning.nn.token_table import PAD, check_rows, ngram_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Odd, so that the powers of it never vanish in 64-bit integers.
KEY_FACTOR = 6_364_136_223_846_793_005


class LinearNGrams(nn.Module):
    """Logistic regression on log-count ratios (Wang and Manning, 2012, "Baselines and bigrams").

    A feature is whether a text contains a word, a pair or a triple; pairs and triples are hashed as in ``TokenTable``.
    It is multiplied by the logarithm of the ratio of its frequencies in the two classes. ``fit`` computes everything
    from the training texts; before it, all logits are 0. Nothing is trained by gradient descent.

    A model has seen the labels of its training texts, so its logits for them are too good. In training mode, the logit
    of a training text is therefore that of a model fitted without its fold (out-of-fold).

    Args:
        vocab_size: number of token ids; id 0 is padding.
        num_classes: number of classes, must be 2.
        pairs: rows of the table of pairs; 0 for none.
        triples: rows of the table of triples; 0 for none.
        strength: inverse strength of the L2 regularization, scikit-learn's ``C``.
        folds: number of folds of the training texts.
    """

    weights: Tensor  # of each feature, times its ratio
    bias: Tensor
    keys: Tensor  # of the training texts, sorted
    held_out: Tensor  # their out-of-fold logits

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        pairs: int = 4_000_000,
        triples: int = 8_000_000,
        strength: float = 0.1,
        folds: int = 5,
    ) -> None:
        super().__init__()
        check_rows("pairs", pairs)
        check_rows("triples", triples)
        if num_classes != 2:
            raise ValueError(f"LinearNGrams needs 2 classes, got {num_classes}; leave model.linear out")
        if not strength > 0.0:
            raise ValueError(f"strength must be positive, got {strength}")
        if folds < 2:
            raise ValueError(f"folds must be at least 2, got {folds}")
        self.sizes = (vocab_size, pairs, triples)
        self.strength, self.folds = strength, folds
        self.register_buffer("weights", torch.zeros(sum(self.sizes)))
        self.register_buffer("bias", torch.zeros(()))
        self.register_buffer("keys", torch.zeros(0, dtype=torch.long))
        self.register_buffer("held_out", torch.zeros(0))

    @property
    def fitted(self) -> bool:
        """Whether ``fit`` was called, now or before the checkpoint was saved."""
        return len(self.keys) > 0

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, N) token ids to (B, 2) logits."""
        columns = self.columns(tokens).sort(dim=1).values
        # A feature counts once per text, however often it occurs.
        first = columns.diff(dim=1, prepend=columns.new_full((len(columns), 1), -1)) != 0
        logits = (self.weights[columns] * first).sum(dim=1) + self.bias
        if self.training and self.fitted:
            keys = text_keys(tokens)
            places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
            logits = torch.where(self.keys[places] == keys, self.held_out[places], logits)
        return torch.stack([-logits / 2, logits / 2], dim=1)

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
        """Fit the weights to the token ids and the labels of all training texts, and once without each fold."""
        rows = [torch.from_numpy(np.asarray(text, dtype=np.int64))[None] for text in texts]
        features, keys = self._features(rows), np.array([text_keys(row).item() for row in rows])
        self.weights, self.bias = self._regression(features, labels)
        # Equal texts have the same key, and so they are in the same fold.
        fold_of_text = (keys >> 32) % self.folds
        logits = np.zeros(len(keys), dtype=np.float32)
        for fold in np.unique(fold_of_text):
            out = fold_of_text == fold
            weights, bias = self._regression(features[~out], labels[~out])
            logits[out] = features[out] @ weights.cpu().numpy() + bias.item()
        order = np.argsort(keys, kind="stable")
        self.keys = torch.from_numpy(keys[order]).to(self.weights.device)
        self.held_out = torch.from_numpy(logits[order]).to(self.weights.device)

    def _features(self, rows: list[Tensor]) -> "csr_matrix":
        """Return the (texts, features) matrix of the features that each text contains."""
        from scipy.sparse import csr_matrix

        columns = [np.setdiff1d(self.columns(row).numpy(), [PAD]) for row in rows]
        ends = np.cumsum([0, *map(len, columns)])
        shape = (len(rows), sum(self.sizes))
        return csr_matrix((np.ones(ends[-1], dtype=np.float32), np.concatenate(columns), ends), shape=shape)

    def _regression(self, features: "csr_matrix", labels: NDArray[np.integer]) -> tuple[Tensor, Tensor]:
        """Return the weight of each feature, times its ratio, and the bias of a regression."""
        from sklearn.linear_model import LogisticRegression

        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"LinearNGrams has {len(labels)} texts of one class outside a fold, but needs both classes; use more "
                "training texts, or leave model.linear out"
            )
        ratios = log_count_ratios(features, labels)
        # Most rows of the tables are empty, and the solver would copy them.
        used = np.flatnonzero(np.bincount(features.indices, minlength=len(ratios)))
        inputs = features[:, used].multiply(ratios[used]).tocsr()
        fitted = LogisticRegression(C=self.strength, solver="liblinear").fit(inputs, labels)
        weights = torch.zeros_like(self.weights, device="cpu")
        weights[torch.from_numpy(used)] = torch.from_numpy((fitted.coef_[0] * ratios[used]).astype(np.float32))
        bias = torch.tensor(float(fitted.intercept_[0]))
        return weights.to(self.weights.device), bias.to(self.weights.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The number of training texts is known only to the checkpoint.
        for name in ("keys", "held_out"):
            saved = state_dict.get(prefix + name)
            if isinstance(saved, Tensor):
                setattr(self, name, torch.zeros_like(saved, device=self.weights.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def log_count_ratios(features: "csr_matrix", labels: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return the logarithm of the ratio of the frequencies of each feature in class 1 and in class 0, smoothed by 1."""
    counts = [1.0 + np.asarray(features[labels == label].sum(axis=0)).ravel() for label in (0, 1)]
    shares = [np.log(count / count.sum()) for count in counts]
    return (shares[1] - shares[0]).astype(np.float32)


def text_keys(tokens: Tensor) -> Tensor:
    """Return a 64-bit hash of each of the (B, N) texts; padding at the end does not change it."""
    powers = torch.full_like(tokens[0], KEY_FACTOR).cumprod(dim=0)
    return (tokens * powers).sum(dim=1)
