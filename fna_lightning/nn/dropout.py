"""Dropout with a fast CPU implementation."""

from torch import Tensor, nn

from fna_lightning.attention.kernels.cpu.dropout import dropout
from fna_lightning.attention.kernels.cpu.elementwise import usable


class Dropout(nn.Dropout):
    """``nn.Dropout``, computed by the C library where it supports the input, else (and when traced) by PyTorch."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the parameter name of nn.Dropout
        if self.training and 0.0 < self.p < 1.0 and not self.inplace and usable(input):
            return dropout(input, self.p)
        return super().forward(input)
