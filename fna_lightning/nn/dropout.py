"""Dropout as PyTorch's, without what it costs on a processor."""

from torch import Tensor, nn

from fna_lightning.attention.kernels.cpu import dropout as cpu_dropout


class Dropout(nn.Dropout):
    """``nn.Dropout``, computed by our C code where it can be; elsewhere, and when traced, by PyTorch."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name nn.Dropout gave it
        if self.training and 0.0 < self.p < 1.0 and not self.inplace and cpu_dropout.usable(input):
            return cpu_dropout.dropout(input, self.p)
        return super().forward(input)
