"""Networks of PyTorch, transformers and timm in the place of ours, with the same sizes and the same work.

``VARIANTS`` are the same network computed in another way.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.errors import UsageError
from fna_lightning.nn import Encoder, Patches, ViT
from fna_lightning.task import Task


@dataclass(frozen=True)
class Sizes:
    """Sizes of an encoder."""

    dim: int
    depth: int
    num_heads: int
    ffn_dim: int
    activation: str
    dropout: float
    pre_norm: bool

    @classmethod
    def of(cls, encoder: Encoder) -> "Sizes":
        """Return the sizes of one of our encoders."""
        layer: Any = encoder.layers[0]
        return cls(
            dim=encoder.dim,
            depth=len(encoder.layers),
            num_heads=layer.self_attn.num_heads,
            ffn_dim=layer.feed_forward[0].out_features,
            activation="gelu" if isinstance(layer.feed_forward[1], nn.GELU) else "relu",
            dropout=layer.dropout.p,
            pre_norm=layer.pre_norm,
        )


class TorchEncoder(nn.Module):
    """``torch.nn.TransformerEncoder``, which attends by PyTorch's fused dot-product attention."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            sizes.dim,
            sizes.num_heads,
            sizes.ffn_dim,
            sizes.dropout,
            sizes.activation,
            batch_first=True,
            norm_first=sizes.pre_norm,
        )
        # Ours has no dropout of attention weights.
        layer.self_attn.dropout = 0.0
        norm = nn.LayerNorm(sizes.dim) if sizes.pre_norm else None
        self.encoder = nn.TransformerEncoder(layer, sizes.depth, norm, enable_nested_tensor=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D) tokens; ``mask`` is (B, 1, 1, N), True at real tokens."""
        return self.encoder(x, src_key_padding_mask=None if mask is None else ~mask[:, 0, 0])


class BertLayers(nn.Module):
    """The encoder of a BERT of transformers, with its SDPA attention and without its embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertEncoder

        if sizes.pre_norm:
            raise UsageError(
                "transformers' BERT is post-LN, but the configuration has pre_norm: true; compare with torch"
            )
        settings: dict[str, Any] = {
            "hidden_size": sizes.dim,
            "num_hidden_layers": sizes.depth,
            "num_attention_heads": sizes.num_heads,
            "intermediate_size": sizes.ffn_dim,
            "hidden_act": sizes.activation,
            "hidden_dropout_prob": sizes.dropout,
            "attention_probs_dropout_prob": 0.0,
            "attn_implementation": "sdpa",
        }
        self.encoder = BertEncoder(BertConfig(**settings))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D) tokens; ``mask`` is (B, 1, 1, N), True at real tokens."""
        return self.encoder(x, attention_mask=mask).last_hidden_state


def torch_peer(task: Any) -> int:
    """Put ``nn.TransformerEncoder`` into a task; return the number of its further parameters."""
    owner = _owner(task)
    sizes = Sizes.of(owner.encoder)
    owner.encoder = TorchEncoder(sizes)
    # biases of queries, keys and values
    return 3 * sizes.dim * sizes.depth


def transformers_peer(task: Any) -> int:
    """Put the encoder of a BERT into a task; return the number of its further parameters."""
    owner = _owner(task)
    sizes = Sizes.of(owner.encoder)
    owner.encoder = BertLayers(sizes)
    return 3 * sizes.dim * sizes.depth


def timm_peer(task: Any) -> int:
    """Put timm's vision Transformer into a task; return the number of its further parameters."""
    from timm.models.vision_transformer import VisionTransformer

    vit = getattr(task, "vit", None)
    if not isinstance(vit, ViT) or not isinstance(vit.tokens, Patches) or vit.cls is None:
        raise UsageError(
            f"timm's vision Transformer has patches and a CLS token, the network of {type(task).__name__} has not; use "
            "cifar10_fna.yaml, or compare with torch"
        )
    sizes = Sizes.of(vit.encoder)
    task.vit = VisionTransformer(
        img_size=vit.image_size,
        patch_size=vit.tokens.patch,
        in_chans=vit.tokens.map.in_features // vit.tokens.patch**2,
        num_classes=vit.head.out_features,
        embed_dim=sizes.dim,
        depth=sizes.depth,
        num_heads=sizes.num_heads,
        mlp_ratio=sizes.ffn_dim / sizes.dim,
        qkv_bias=False,
        proj_drop_rate=sizes.dropout,
        act_layer=sizes.activation,
    )
    return 0


# name on the command line: (puts the network into a task and returns the number of further parameters, package)
PEERS: dict[str, tuple[Callable[[Any], int], str]] = {
    "torch": (torch_peer, "torch"),
    "transformers": (transformers_peer, "transformers"),
    "timm": (timm_peer, "timm"),
}


# names on the command line of our own network, compiled by torch.compile or in bfloat16 by autocast
VARIANTS = ("compile", "bf16")


def with_peer(name: str, task: Task) -> Task:
    """Return a copy of a task with the network of a peer.

    Raises:
        UsageError: if the package is not installed, or has no such network.
        RuntimeError: if the numbers of parameters differ by more than the biases that ours does not have.
    """
    put, package = PEERS[name]
    other = copy.deepcopy(task)
    try:
        further = put(other)
    except ImportError as error:
        raise UsageError(f"--against {name} needs {package}: pip install {package} ({error})") from error
    ours, theirs = (sum(p.numel() for p in module.parameters()) for module in (task, other))
    if theirs - ours != further:
        raise RuntimeError(f"{name} has {theirs:,} parameters and ours {ours:,}; the difference should be {further:,}")
    return other


def compiled_variant(task: Task) -> Task:
    """Return a copy of a task whose networks are compiled by ``torch.compile``."""
    other = copy.deepcopy(task)
    other.compile_networks()
    return other


def check_bfloat16() -> None:
    """Raise UsageError unless this processor computes in bfloat16."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise UsageError(
            "--against bf16 needs a processor with bfloat16 instructions (AVX512_BF16, AMX), this has none"
        )


def check_same_loss(ours: Task, theirs: Task, batch: Any) -> None:
    """Raise unless both tasks have a loss of the same shape, and gradients for all their parameters."""
    shapes = []
    for original in (ours, theirs):
        task: Any = copy.deepcopy(original)
        task.log = lambda *_, **__: None
        loss = task.loss(batch, "train")
        loss.backward()
        missing = [name for name, param in task.named_parameters() if param.requires_grad and param.grad is None]
        if missing:
            raise RuntimeError(f"no gradient reaches {', '.join(missing)}")
        shapes.append(loss.shape)
    if shapes[0] != shapes[1]:
        raise RuntimeError(f"the losses have the shapes {tuple(shapes[0])} and {tuple(shapes[1])}")


def _owner(task: Any) -> Any:
    """Return the module of a task whose ``encoder`` is an ``Encoder``."""
    for owner in (task, getattr(task, "vit", None)):
        if isinstance(getattr(owner, "encoder", None), Encoder):
            return owner
    raise UsageError(
        f"{type(task).__name__} has no encoder that a peer could replace; use a text or image configuration"
    )
