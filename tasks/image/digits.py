"""Scikit-learn's bundled handwritten digits: 1,797 grey images of 8 x 8, nothing to download."""

from functools import cache

import numpy as np

from fna_lightning.tasks.data.splits import stratified
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.image.data import ImageData, Images

SIZE = 8


class DigitsData(ImageData):
    """Handwritten digits; a fifth is the test split, always the same one, and a part of the rest validates.

    Args:
        validation: share of the images outside the test split that is held out, the same share of each class.
        split_seed: of the choice of what is held out for validation.
        batch_size: images in a batch of one process.
        num_workers: processes that load batches beside the training one; the images are in memory, so 0 is fastest.
        predict_folder: a folder of PNG and JPEG files that ``predict`` reads instead of the test split.
    """

    TEST_SHARE = 0.2

    def __init__(
        self,
        *,
        validation: float = 0.1,
        split_seed: int = 0,
        batch_size: int = 64,
        num_workers: int = 0,
        predict_folder: str | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, predict_folder=predict_folder)
        if not 0.0 < validation < 1.0:
            raise ValueError(f"validation must lie between 0 and 1, got {validation}; 0.1 holds out every tenth image")
        self.validation = validation
        self.split_seed = split_seed

    @property
    def codec(self) -> ImageCodec:
        return ImageCodec([str(digit) for digit in range(10)], 1, SIZE)

    def split(self, name: str) -> Images:
        everything = _digits()
        tested = stratified(everything.labels, self.TEST_SHARE, 0)
        if name == "test":
            return everything.take(np.flatnonzero(tested))
        rest = everything.take(np.flatnonzero(~tested))
        held_out = stratified(rest.labels[rest.rows], self.validation, self.split_seed)
        return rest.take(np.flatnonzero(held_out if name == "val" else ~held_out))


@cache
def _digits() -> Images:
    from sklearn.datasets import load_digits

    found = load_digits()
    # sixteen shades, spread over those of a byte
    pixels = np.rint(found.images * (255 / 16)).astype(np.uint8)[:, None]
    return Images.of(pixels, found.target.astype(np.int64))
