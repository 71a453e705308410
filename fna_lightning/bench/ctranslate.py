"""The same Transformer in CTranslate2, a C++ library made for translation.

It runs in a process of its own. CTranslate2 brings another OpenMP runtime, and from its first call on, everything else
in the same process takes a third longer.
"""

import contextlib
import math
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.bench.marian import BEGIN, END, EXCLUDED_TOKENS, PAD, Work
from fna_lightning.nn import Seq2Seq


def save_model(network: Seq2Seq, work: Work, folder: Path) -> None:
    """Write the network in the format of CTranslate2, in float32."""
    from ctranslate2.specs import TransformerSpec, common_spec

    spec = TransformerSpec.from_config(
        (work.depth, work.depth), work.num_heads, pre_norm=False, activation=common_spec.Activation.RELU
    )
    tokens = [str(token) for token in range(work.vocab_size)]
    positions: Any = network.target.positions
    for coder in (spec.encoder, spec.decoder):
        coder.scale_embeddings = math.sqrt(work.dim)
        coder.position_encodings.encodings = _array(positions.table)
    spec.encoder.embeddings[0].weight = _array(network.score_weight)
    spec.decoder.embeddings.weight = _array(network.score_weight)
    spec.decoder.projection.weight = _array(network.score_weight)
    decoder_layers: Any = network.decoder.layers
    for ours, theirs in zip(network.encoder.layers, spec.encoder.layer, strict=True):
        _copy_layer(ours, theirs)
    for ours, theirs in zip(decoder_layers, spec.decoder.layer, strict=True):
        _copy_layer(ours, theirs)
        cross = ours.cross_attn
        _copy_linear([cross.projection.query], theirs.attention.linear[0])
        _copy_linear([cross.projection.key, cross.value], theirs.attention.linear[1])
        _copy_linear([cross.out], theirs.attention.linear[2])
        _copy_norm(ours.cross_attn_norm, theirs.attention.layer_norm)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token, spec.config.eos_token = str(BEGIN), str(END)
    spec.config.unk_token, spec.config.decoder_start_token = str(PAD), str(BEGIN)
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True)
    spec.save(str(folder))


class CTranslate2:
    """CTranslate2 in a process of its own, with as many threads as PyTorch has here.

    Args:
        folder: folder of a model by ``save_model``.
        sources: (S, M) token ids.
        work: sizes of the search.
    """

    def __init__(self, folder: Path, sources: Tensor, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        sentences = [[str(token) for token in source] for source in sources.tolist()]
        self._process = context.Process(
            target=_serve, args=(other, str(folder), sentences, work, torch.get_num_threads()), daemon=True
        )
        self._process.start()
        other.close()

    def translate(self) -> list[list[int]]:
        """Return the translations of the sources.

        Raises:
            RuntimeError: if the other process has ended.
        """
        try:
            self._connection.send("translate")
            translations: list[list[int]] = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError("the process of CTranslate2 has ended; its error is above") from error
        return translations

    def close(self) -> None:
        """End the other process."""
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, folder: str, sentences: list[list[str]], work: Work, threads: int) -> None:
    """Translate the sentences whenever the parent asks, until it closes the connection."""
    import ctranslate2

    translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", intra_threads=threads)
    with contextlib.suppress(EOFError):
        while connection.recv():
            connection.send(_translate(translator, sentences, work))


def _translate(translator: Any, sentences: list[list[str]], work: Work) -> list[list[int]]:
    results = translator.translate_batch(
        sentences,
        beam_size=work.beam,
        length_penalty=1.0,
        min_decoding_length=work.target_tokens,
        max_decoding_length=work.target_tokens,
        suppress_sequences=[[str(token)] for token in EXCLUDED_TOKENS],
    )
    return [[int(token) for token in result.hypotheses[0]] for result in results]


def _copy_layer(ours: Any, theirs: Any) -> None:
    attention, (widen, _, _, narrow) = ours.self_attn, ours.feed_forward
    _copy_linear(
        [attention.projection.query, attention.projection.key, attention.value], theirs.self_attention.linear[0]
    )
    _copy_linear([attention.out], theirs.self_attention.linear[1])
    _copy_norm(ours.self_attn_norm, theirs.self_attention.layer_norm)
    _copy_linear([widen], theirs.ffn.linear_0)
    _copy_linear([narrow], theirs.ffn.linear_1)
    _copy_norm(ours.feed_forward_norm, theirs.ffn.layer_norm)


def _copy_linear(ours: list[nn.Linear], theirs: Any) -> None:
    """Copy linear layers with the same input into one."""
    theirs.weight = _array(torch.cat([linear.weight for linear in ours]))
    theirs.bias = _array(
        torch.cat([torch.zeros(linear.out_features) if linear.bias is None else linear.bias for linear in ours])
    )


def _copy_norm(ours: nn.LayerNorm, theirs: Any) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
