"""Neural networks with any attention: encoder, decoder, seq2seq, vision Transformer, neural processes."""

from fna_lightning.nn.decoder import Decoder, DecoderLayer, DecoderState
from fna_lightning.nn.dropout import Dropout
from fna_lightning.nn.embedding import Embedding
from fna_lightning.nn.encoder import Encoder, EncoderConfig, EncoderLayer
from fna_lightning.nn.image_tokens import ConvTokens, ImageTokens, Patches
from fna_lightning.nn.layer import FeedForward, LayerConfig
from fna_lightning.nn.linear_cross_entropy import linear_cross_entropy
from fna_lightning.nn.linear_ngrams import LinearNGrams
from fna_lightning.nn.neural_process import AttentiveProcess, NeuralProcess, TransformerProcess
from fna_lightning.nn.patch_whitening import PatchWhitening
from fna_lightning.nn.pooling import Pooling
from fna_lightning.nn.positions import GridPositions, Positions
from fna_lightning.nn.seq2seq import DecoderConfig, Seq2Seq, Seq2SeqConfig
from fna_lightning.nn.token_table import TokenTable
from fna_lightning.nn.vit import ViT, ViTConfig

__all__ = [
    "AttentiveProcess",
    "ConvTokens",
    "Decoder",
    "DecoderConfig",
    "DecoderLayer",
    "DecoderState",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderConfig",
    "EncoderLayer",
    "FeedForward",
    "GridPositions",
    "ImageTokens",
    "LayerConfig",
    "LinearNGrams",
    "NeuralProcess",
    "PatchWhitening",
    "Patches",
    "Pooling",
    "Positions",
    "Seq2Seq",
    "Seq2SeqConfig",
    "TokenTable",
    "TransformerProcess",
    "ViT",
    "ViTConfig",
    "linear_cross_entropy",
]
