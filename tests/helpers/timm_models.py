"""Small timm models, one of each family of attention layers, with the image size they take."""

import timm
from torch import nn

VIT = {"depth": 1, "embed_dim": 48, "num_heads": 3}
SWIN = {"embed_dim": 24, "depths": (2, 1, 1, 1), "num_heads": (2, 2, 2, 2), "window_size": 4}

# name: (image size, options); the image size is an option too unless the options have None for it
FAMILIES = {
    "vit_tiny_patch16_224": (32, VIT),
    "eva02_tiny_patch14_224": (28, VIT),
    "vit_small_patch16_dinov3": (32, {"depth": 1}),
    "beit_base_patch16_224": (32, VIT),
    "naflexvit_base_patch16_gap": (32, {**VIT, "img_size": None}),
    "vit_base_patch16_siglip_224": (32, VIT),
    "vit_relpos_small_patch16_224": (32, VIT),
    "vit_pwee_patch16_reg1_gap_256": (32, {"depth": 1}),
    "samvit_base_patch16_224": (32, {**VIT, "global_attn_indexes": (0,)}),
    "swin_tiny_patch4_window7_224": (32, SWIN),
    "swinv2_tiny_window8_256": (64, SWIN),
    "swinv2_cr_tiny_224": (64, SWIN),
    "cait_xxs24_224": (32, {"depth": 1}),
    "crossvit_tiny_240": (240, {"img_size": None, "depth": ([1, 1, 0], [1, 1, 0], [1, 1, 0])}),
    "convit_tiny": (32, {"depth": 2, "local_up_to_layer": 1}),
    "volo_d1_224": (64, {}),
    "tnt_s_patch16_224": (32, {"depth": 1}),
    "gcvit_xxtiny": (224, {"img_size": None}),
    "shvit_s1": (128, {"img_size": None, "depth": (1, 1, 1)}),
    "mvitv2_tiny": (64, {}),
    "pvt_v2_b0": (64, {"img_size": None, "depths": (1, 1, 1, 1)}),
    "maxvit_rmlp_pico_rw_256": (64, {}),
    "levit_128s": (64, {}),
    "levit_conv_128s": (64, {}),
    "efficientformer_l1": (224, {"img_size": None}),
    "efficientformerv2_s0": (64, {}),
    "hiera_tiny_224": (64, {"stages": (1, 1, 1, 1)}),
    "nest_tiny": (32, {}),
    "twins_svt_small": (64, {"img_size": None, "depths": (2, 2, 1, 1)}),
    "botnet26t_256": (64, {}),
    "halonet26t": (256, {"img_size": None}),
    "mobilenetv4_hybrid_medium": (64, {"img_size": None}),
    "visformer_tiny": (64, {}),
}


def build(name: str) -> tuple[nn.Module, int]:
    """Return a small model in evaluation mode, and its image size."""
    size, options = FAMILIES[name]
    options = {"img_size": size, **options}
    if options["img_size"] is None:
        del options["img_size"]
    return timm.create_model(name, num_classes=3, **options).eval(), size
