"""A model's weights as int8 codes in files: the blocks of a Q8_0 file as they are, others made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orion_ane.generate.packing import Packed, packed_weights
from orion_ane.mil import WeightFile
from orion_ane.models.decoder import Decoder, Rows, vocabulary
from orion_ane.models.weights import Checkpoint
from orion_ane.models.weights.quantised import Quantised, block_of, by_block, by_channel
from orion_ane.nn.blocks import Precision, scale_of
from orion_ane.types import Array, DType, TensorType


def quantised(decoder: Decoder, checkpoint: Checkpoint, precision: Precision) -> Packed:
    """A checkpoint's weights, every matrix of the programs as codes; see `Precision.block`.

    Codes and scales of a file are copied once, from where they lie; no matrix is unpacked that
    need not be quantised otherwise.

    Raises:
        CheckpointError: a matrix has no codes, since a number is not finite or is too large.
    """
    weights: dict[str, Array] = {}
    for name in checkpoint.tensors:
        if name in checkpoint.blocks and precision.block is not None:
            weights |= _as_stored(decoder, name, checkpoint.blocks[name], precision)
        else:
            weights |= _made(decoder, name, checkpoint.tensors[name], precision)
    found = packed_weights(decoder, weights)
    bodies = {start: _matrices(file) for start, file in found.bodies.items()}
    head = _matrices(found.head)
    host = {name: _looked_up(decoder, name, checkpoint, head) for name in decoder.host_names}
    return replace(found, bodies=bodies, head=head, host=host)


def _as_stored(
    decoder: Decoder, name: str, blocks: Quantised, precision: Precision
) -> dict[str, Array]:
    """A matrix of the file as codes and scales of the programs, ordered as they want it."""
    found = blocks.finer(block_of(blocks.shape[1], decoder.unit(name)))
    codes = decoder.weights({name: found.codes}, precision)
    scales = decoder.weights({name: found.scale}, Precision(precision.compute, DType.FP16))
    return codes | {scale_of(label): scale for label, scale in scales.items()}


def _made(decoder: Decoder, name: str, tensor: Array, precision: Precision) -> dict[str, Array]:
    """A tensor as weights: a matrix as codes and scales, a vector as it is."""
    wide = decoder.weights({name: tensor}, Precision(precision.compute, DType.FP32))
    if tensor.ndim == 1:
        return wide
    found: dict[str, Array] = {}
    for label, array in wide.items():
        rows, columns = array.shape[:2]
        matrix = array.reshape(rows, columns)
        if precision.block is None:
            one = by_channel(name, matrix)
            scale = one.scale[:, 0].astype(precision.compute.numpy)
        else:
            one = by_block(name, matrix, block_of(columns, decoder.unit(name)))
            scale = one.scale[..., None, None]
        found |= {label: one.codes[..., None, None], scale_of(label): scale}
    return found


def _matrices(file: WeightFile) -> WeightFile:
    """The file with its codes [O, blocks, block, 1, 1] as the matrices that programs declare."""
    types = {
        label: TensorType(of.dtype, (of.shape[0], of.shape[1] * of.shape[2], 1, 1))
        if of.dtype is DType.INT8
        else of
        for label, of in file.types.items()
    }
    return replace(file, types=types)


def _looked_up(decoder: Decoder, name: str, checkpoint: Checkpoint, head: WeightFile) -> Rows:
    """A table of vectors: the head's own codes, or else as the file has it."""
    if name in checkpoint.blocks:
        return checkpoint.blocks[name]
    if name not in head.types or len(vocabulary(decoder.config.vocab)) > 1:
        return checkpoint.tensors[name]
    codes, scale = head.array(name), head.array(scale_of(name))
    scale = scale.reshape(len(codes), -1)
    return Quantised(codes.reshape(len(codes), scale.shape[1], -1), np.asarray(scale))
