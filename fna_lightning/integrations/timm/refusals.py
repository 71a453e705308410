"""Layers of timm in which FNA cannot replace the attention, with the reason, by the name of their class."""

_CHANNELS = "mixes channels rather than tokens, so there are no distances between tokens"
_LINEAR = "is linear attention, which has no weight for each pair of tokens"
_TALKING_HEADS = "mixes the logits of different heads (talking heads), so its weights are not a kernel of one head"
_DIFFERENTIAL = "subtracts two attention matrices (differential attention), so its weights are not a positive kernel"

REFUSED = {
    "timm.layers.diff_attention.DiffAttention": _DIFFERENTIAL,
    "timm.layers.lambda_layer.LambdaLayer": _LINEAR,
    "timm.layers.non_local_attn.BatNonLocalAttn": "multiplies maps by predicted matrices, without queries and keys",
    "timm.models.cait.TalkingHeadAttn": _TALKING_HEADS,
    "timm.models.coat.FactorAttnConvRelPosEnc": _LINEAR,
    "timm.models.convit.GPSA": "adds a softmax of positions to the weights (gated positional attention)",
    "timm.models.csatv2.SpatialTransformerBlock": "compares the images of a batch rather than tokens",
    "timm.models.davit.ChannelAttention": _CHANNELS,
    "timm.models.davit.ChannelAttentionV2": _CHANNELS,
    "timm.models.edgenext.CrossCovarianceAttn": _CHANNELS,
    "timm.models.efficientformer_v2.Attention2d": _TALKING_HEADS,
    "timm.models.efficientvit_mit.LiteMLA": _LINEAR,
    "timm.models.efficientvit_msra.CascadedGroupAttention": "feeds the output of each head to the next one (cascade)",
    "timm.models.mobilevit.LinearSelfAttention": _LINEAR,
    "timm.models.swiftformer.EfficientAdditiveAttention": _LINEAR,
    "timm.models.vision_transformer.DiffParallelScalingBlock": _DIFFERENTIAL,
    "timm.models.volo.OutlookAttention": "predicts its weights from the query alone, without keys",
    "timm.models.xcit.XCA": _CHANNELS,
}

# The reason for a class that computes a softmax and is in none of the tables.
UNKNOWN = "computes a softmax in code that this version does not know"

# Softmaxes that are not attention between tokens: gates of channels, pooling weights and state-space models.
NO_ATTENTION = frozenset(
    {
        "timm.layers.global_context.GlobalContext",
        "timm.layers.selective_kernel.SelectiveKernelAttn",
        "timm.layers.split_attn.RadixSoftmax",
        "timm.layers.split_attn.SplitAttn",
        "timm.models.efficientvim.EfficientViM",
        "timm.models.efficientvim.EfficientViMDistilled",
        "timm.models.efficientvim.HSMSSD",
    }
)
