"""GELU with a fast CPU implementation."""

from torch import Tensor, nn

from fna_lightning.attention.kernels.cpu.gelu import gelu


class GELU(nn.GELU):
    """``nn.GELU``, computed by the C library where it supports the input, else (and when traced) by PyTorch."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the parameter name of nn.GELU
        return gelu(input) if self.approximate == "none" else super().forward(input)
