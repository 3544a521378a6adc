"""Makes Whisper models with random weights that have the tokens and features of the published ones."""

import json
from pathlib import Path

import numpy as np
from ctranslate2.specs import whisper_spec
from faster_whisper.tokenizer import _LANGUAGE_CODES
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WIDTH, HEADS = 32, 2
LANGUAGES = tuple(
    sorted(_LANGUAGE_CODES, key=lambda code: (code != "en", code == "yue"))
)  # in the order of the published models, from English to Cantonese
TEXT = {True: 50_257, False: 50_256}  # tokens before <|endoftext|>, in a multilingual model and in an English one


def make_model(folder: Path, *, multilingual: bool, languages: int, mels: int, nothing: str) -> None:
    """Write a model that loads like a downloaded one. *nothing* is the name of its token for silence."""
    tokenizer = _tokenizer(LANGUAGES[:languages], nothing, multilingual=multilingual)
    tokenizer.save(str(folder / "tokenizer.json"))
    spec = whisper_spec.WhisperSpec(1, HEADS, 1, HEADS)
    _fill(spec, tokenizer.get_vocab_size(), mels)
    spec.config.suppress_ids = [1, 2, 7]
    spec.config.suppress_ids_begin = [220, tokenizer.token_to_id("<|endoftext|>")]
    spec.config.lang_ids = [tokenizer.token_to_id(f"<|{code}|>") for code in LANGUAGES[:languages]]
    spec.config.alignment_heads = [(0, 0)]
    spec.register_vocabulary([tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())])
    spec.validate()
    spec.optimize(quantization="float16")
    spec.save(str(folder))
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_size": mels}))


def _tokenizer(languages: tuple[str, ...], nothing: str, *, multilingual: bool) -> Tokenizer:
    """Return a tokenizer with all bytes, then words, then the marks, with the ids of the published models."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"Ġw{number}" for number in range(TEXT[multilingual] - len(alphabet) - multilingual)]
    nothing_at_all = [""] * multilingual  # by this token CTranslate2 recognises multilingual models
    vocabulary = {token: number for number, token in enumerate([*alphabet, *words, *nothing_at_all])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev"]
    marks += [nothing, "notimestamps", *(f"{step * 0.02:.2f}" for step in range(1501))]
    tokenizer.add_special_tokens([AddedToken(f"<|{mark}|>", special=True, normalized=False) for mark in marks])
    return tokenizer


def _fill(spec: whisper_spec.WhisperSpec, tokens: int, mels: int) -> None:
    random = np.random.default_rng(1)

    def weights(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def linear(layer: object, out: int, into: int) -> None:
        layer.weight, layer.bias = weights(out, into), np.zeros(out, np.float32)  # type: ignore[attr-defined]  # CTranslate2's specs have no types

    def norm(layer: object) -> None:
        layer.gamma = np.ones(WIDTH, np.float32)  # type: ignore[attr-defined]  # CTranslate2's specs have no types
        layer.beta = np.zeros(WIDTH, np.float32)  # type: ignore[attr-defined]  # CTranslate2's specs have no types

    encoder, decoder = spec.encoder, spec.decoder
    for convolution, into in ((encoder.conv1, mels), (encoder.conv2, WIDTH)):
        convolution.weight, convolution.bias = weights(WIDTH, into, 3), np.zeros(WIDTH, np.float32)
    encoder.position_encodings.encodings, decoder.position_encodings.encodings = (
        weights(1500, WIDTH),
        weights(448, WIDTH),
    )
    decoder.embeddings.weight = decoder.projection.weight = weights(tokens, WIDTH)
    for layer in (*encoder.layer, *decoder.layer):
        linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
        linear(layer.self_attention.linear[1], WIDTH, WIDTH)
        linear(layer.ffn.linear_0, 4 * WIDTH, WIDTH)
        linear(layer.ffn.linear_1, WIDTH, 4 * WIDTH)
        norm(layer.self_attention.layer_norm)
        norm(layer.ffn.layer_norm)
    for layer in decoder.layer:
        linear(layer.attention.linear[0], WIDTH, WIDTH)
        linear(layer.attention.linear[1], 2 * WIDTH, WIDTH)
        linear(layer.attention.linear[2], WIDTH, WIDTH)
        norm(layer.attention.layer_norm)
    norm(encoder.layer_norm)
    norm(decoder.layer_norm)
