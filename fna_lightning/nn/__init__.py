"""Networks built of attention."""

from fna_lightning.nn.conv_tokens import ConvTokens
from fna_lightning.nn.decoder import Decoder, DecoderLayer
from fna_lightning.nn.decoder_state import DecoderState
from fna_lightning.nn.dropout import Dropout
from fna_lightning.nn.embedding import Embedding
from fna_lightning.nn.encoder import Encoder, EncoderLayer
from fna_lightning.nn.feed_forward import FeedForward
from fna_lightning.nn.grid_positions import GridPositions
from fna_lightning.nn.linear_cross_entropy import linear_cross_entropy
from fna_lightning.nn.patches import ImageTokens, Patches
from fna_lightning.nn.pooling import Pooling
from fna_lightning.nn.positions import Positions
from fna_lightning.nn.seq2seq import Seq2Seq
from fna_lightning.nn.token_table import TokenTable
from fna_lightning.nn.vit import ViT

__all__ = [
    "ConvTokens",
    "Decoder",
    "DecoderLayer",
    "DecoderState",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GridPositions",
    "ImageTokens",
    "Patches",
    "Pooling",
    "Positions",
    "Seq2Seq",
    "TokenTable",
    "ViT",
    "linear_cross_entropy",
]
