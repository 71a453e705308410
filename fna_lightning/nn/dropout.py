"""Dropout with a fast CPU implementation."""

from torch import Tensor, nn

from fna_lightning.attention.kernels.cpu import dropout as cpu_dropout


class Dropout(nn.Dropout):
    """``nn.Dropout``, computed by the C library where it supports the input, else (and when traced) by PyTorch."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the parameter name of nn.Dropout
        if self.training and 0.0 < self.p < 1.0 and not self.inplace and cpu_dropout.usable(input):
            return cpu_dropout.dropout(input, self.p)
        return super().forward(input)
