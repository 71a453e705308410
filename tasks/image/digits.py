"""Handwritten digits bundled with scikit-learn: 1,797 gray images of 8 x 8 pixels; nothing is downloaded."""

from functools import cache

import numpy as np

from fna_lightning.tasks.data.splits import check_validation_share, stratified, train_or_val_rows
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.image.data import ImageData, Images

SIZE = 8


class DigitsData(ImageData):
    """Handwritten digits. A fixed fifth is the test split; a share of the other images is held out for validation.

    Args:
        validation: share of the images outside the test split that is held out, equal for each class.
        split_seed: random seed of the held-out images.
        batch_size: images per batch and process.
        num_workers: number of worker processes that load batches; the images are in memory, so 0 is fastest.
        predict_folder: a folder of images without labels that ``predict`` reads instead of the test split.
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
        check_validation_share(validation)
        self.validation = validation
        self.split_seed = split_seed

    @property
    def codec(self) -> ImageCodec:
        return ImageCodec([str(digit) for digit in range(10)], 1, SIZE)

    def split(self, name: str) -> Images:
        images = _digits()
        is_test = stratified(images.labels, self.TEST_SHARE, 0)
        if name == "test":
            return images.take(np.flatnonzero(is_test))
        others = images.take(np.flatnonzero(~is_test))
        return others.take(train_or_val_rows(others.labels[others.rows], name, self.validation, self.split_seed))


@cache
def _digits() -> Images:
    from sklearn.datasets import load_digits

    digits = load_digits()
    # the data set has gray levels from 0 to 16
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    return Images.of(pixels, digits.target.astype(np.int64))
