"""What statements that resize or sample images mean: as torch says it, or MIL's reference."""

from __future__ import annotations

import numpy as np
import pytest
from ops.sampling import typed
from ops.test_moved import IMAGES, X, meant
from ops.test_reading import counted, read, value_of
from oracles import torch as torch_oracle

from orion_ane.errors import MilError
from orion_ane.ir import Node
from orion_ane.ops import const, input_
from orion_ane.types import DType

FP32, INT32 = DType.FP32, DType.INT32


@pytest.mark.parametrize(("aligned", "scale"), [(True, 2.0), (False, 2.0), (False, 2.5)])
def test_upsampled_images_are_torchs(aligned, scale):
    torch = torch_oracle()
    args = {"scale_factor_height": scale, "scale_factor_width": 3.0, "align_corners": aligned}
    y = read("upsample_bilinear", x=IMAGES, **args)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(counted(IMAGES)),
        scale_factor=(scale, 3.0),
        mode="bilinear",
        align_corners=aligned,
        recompute_scale_factor=True,
    )
    np.testing.assert_allclose(meant(y, IMAGES), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [2.0, 1.5, 0.4])
def test_the_nearest_neighbor_is_torchs(scale):
    torch = torch_oracle()
    sides = {f"scale_factor_{side}": scale for side in ("height", "width")}
    y = read("upsample_nearest_neighbor", x=IMAGES, **sides)
    size = y.type.shape[2:]
    expected = torch.nn.functional.interpolate(torch.from_numpy(counted(IMAGES)), size=size)
    np.testing.assert_array_equal(meant(y, IMAGES), expected.numpy())


@pytest.mark.parametrize("way", ["bilinear", "nearest"])
@pytest.mark.parametrize(
    ("padding", "ours"), [("zeros", "constant"), ("border", "border"), ("reflection", "reflection")]
)
def test_a_resampled_image_is_torchs(way, padding, ours, rng):
    torch = torch_oracle()
    at = input_("at", typed("fp32[4,3,5,2]"))
    fed = {IMAGES: counted(IMAGES), at: rng.uniform(-4, 4, at.type.shape).astype(np.float32)}
    args = {"sampling_mode": way, "padding_mode": ours, "padding_value": 0.0}
    args |= {"coordinates_mode": "normalized_minus_one_to_one", "align_corners": True}
    y = read("resample", x=IMAGES, coordinates=at, **args)
    expected = torch.nn.functional.grid_sample(
        *map(torch.from_numpy, fed.values()), mode=way, padding_mode=padding, align_corners=True
    )
    np.testing.assert_allclose(value_of(y, fed), expected.numpy(), rtol=1e-4, atol=1e-3)


def test_an_affine_image_is_torchs(rng):
    torch = torch_oracle()
    matrix = input_("m", typed("fp32[4,6]"))
    fed = {IMAGES: counted(IMAGES), matrix: rng.uniform(-1, 1, (4, 6)).astype(np.float32)}
    modes = {"sampling": "bilinear", "padding": "constant"}
    modes["coordinates"] = "normalized_minus_one_to_one"
    args = {f"{key}_mode": mode for key, mode in modes.items()}
    size = {"output_height": 3, "output_width": 5, "padding_value": 0.0, "align_corners": True}
    y = read("affine", x=IMAGES, transform_matrix=matrix, **args, **size)
    moves = torch.from_numpy(fed[matrix]).reshape(4, 2, 3)
    grid = torch.nn.functional.affine_grid(moves, (4, 8, 3, 5), align_corners=True)
    images = torch.from_numpy(fed[IMAGES])
    expected = torch.nn.functional.grid_sample(images, grid, align_corners=True)
    np.testing.assert_allclose(value_of(y, fed), expected.numpy(), rtol=1e-4, atol=1e-3)


def test_boxes_of_old_opsets_are_of_every_image_or_of_one():
    box = const([[1, 2, 3, 4]], FP32)
    size = {"target_height": 3, "target_width": 3, "sampling_mode": "ALIGN_CORNERS"}
    expected = counted(IMAGES)[:, :, 1:4, 2:5]
    every = read("crop_resize", x=IMAGES, roi=_roi([1, 2, 3, 4]), **size, opset=15)
    np.testing.assert_array_equal(meant(every, IMAGES), expected[None])
    one = read("crop_resize", x=IMAGES, roi=_roi([2, 1, 2, 3, 4]), **size, opset=15)
    np.testing.assert_array_equal(meant(one, IMAGES), expected[None, 2:3])
    new = read("crop_resize", x=IMAGES, boxes=box, box_indices=const([3], INT32), **size)
    np.testing.assert_array_equal(meant(new, IMAGES), expected[3:])
    half = read(
        "crop_resize", x=IMAGES, boxes=const([[2, 4, 6, 8]], FP32), spatial_scale=0.5, **size
    )
    np.testing.assert_array_equal(meant(half, IMAGES), expected[:1])


def _roi(box: list[float]) -> Node:
    return const(np.array(box, np.float32).reshape(1, 1, -1, 1, 1), FP32)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("DEFAULT", [0, 0.4, 0.8, 1, 1]),
        ("STRICT_ALIGN_CORNERS", [0, 0.25, 0.5, 0.75, 1]),
        ("ALIGN_CORNERS", [0, 0.25, 0.5, 0.75, 1]),
        ("OFFSET_CORNERS", [0.1, 0.3, 0.5, 0.7, 0.9]),
        ("UNALIGN_CORNERS", [0, 0.1, 0.5, 0.9, 1]),
    ],
)
def test_five_places_between_two_elements_are_those_of_the_mil_reference(mode, expected):
    x = input_("x", typed("fp32[1,1,2]"))
    y = read("resize_bilinear", x=x, target_size_width=5, sampling_mode=mode)
    np.testing.assert_allclose(meant(y, x)[0, 0], expected, rtol=1e-6)


def test_resize_takes_sizes_for_the_last_axes_and_0_keeps_one():
    y = read("resize", x=X, shape=(9, 0, 8), resized_dims=2)
    assert y.type.shape == (2, 3, 8)
    x = input_("x", typed("fp32[2,1]"))
    near = {"interpolation_mode": "NEAREST_NEIGHBOR"}
    y = read("resize", x=x, shape=(3, 2), resized_dims=2, **near)
    assert meant(y, x).tolist() == [[0, 0], [1, 1], [1, 1]]
    assert read("resize", x=x, shape=(3,), resized_dims=1).type.shape == (2, 3)
    with pytest.raises(MilError, match="resize: only two axes"):
        read("resize", x=X, shape=(9, 3, 8), resized_dims=3)
