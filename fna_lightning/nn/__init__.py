"""Networks built of attention."""

from fna_lightning.nn.embedding import Embedding
from fna_lightning.nn.encoder import Encoder, EncoderLayer
from fna_lightning.nn.feed_forward import FeedForward
from fna_lightning.nn.pooling import Pooling
from fna_lightning.nn.positions import Positions
from fna_lightning.nn.token_table import TokenTable

__all__ = ["Embedding", "Encoder", "EncoderLayer", "FeedForward", "Pooling", "Positions", "TokenTable"]
