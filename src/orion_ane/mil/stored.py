"""stored: the elements of a weight, from the blob file that its text names."""

from __future__ import annotations

from collections.abc import Mapping

from orion_ane.errors import MilError
from orion_ane.mil.blob import BlobDType, read_blob
from orion_ane.mil.program import Buffer
from orion_ane.ops.leaf import Weight
from orion_ane.types import Array


def stored(weight: Weight, files: Mapping[str, Buffer]) -> Array:
    """The elements of a parsed weight, as a view of its blob file.

    Raises:
        MilError: naming weight and file, where it is missing or damaged, or the blob is of another
            type than the text says.
    """
    at, of, where = weight.at, weight.of, f"weight {weight.label}"
    if at is None:
        raise MilError(where, "lies in no file")
    if at.path not in files:
        raise MilError(where, "no such blob file", got=at.path, want=list(files) or "a file")
    try:
        blob, declared = read_blob(files[at.path], at.offset), BlobDType.of(of.dtype.numpy)
    except MilError as error:
        place = f"{where}: {at.path}: {error.where}"
        raise MilError(place, error.what, got=error.got, want=error.want) from error
    if (blob.dtype, blob.count) != (declared, of.elements):
        what = f"the blob at byte {at.offset} of {at.path} is another"
        raise MilError(where, what, got=f"{blob.count} elements of {blob.dtype}", want=of)
    return blob.array().reshape(of.shape)
