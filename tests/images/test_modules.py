"""Modules of attention to images against what their twins in PyTorch made of the same weights; and bad input."""

import numpy as np
import pytest

import fastattn.ops
from fastattn import use_threads, vision
from fastattn.errors import InputError
from tests.images.cases import MODULE_CASES, golden, images_of, state_of
from tests.messages import refused
from tests.weights.containers.safetensors_writer import safetensors_bytes

CASES = pytest.mark.parametrize("case", MODULE_CASES, ids=lambda case: f"{case.name}-{MODULE_CASES.index(case)}")


def module_of(case, **more):
    state = {f"a.b.{name}": array for name, array in state_of(case).items()} | {"other": np.zeros(3)}
    kind = getattr(vision, case.name)
    return kind.from_torch(state, "a.b.", **case.settings, **more)


def near(found, expected, share=1e-5):
    assert found.dtype == np.float32 and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=share * np.abs(expected).max())


# Of which other products choose other places.
CHOOSING = "DynamicCapacity", "SpatialTransformer"


@CASES
def test_is_its_twin_on_each_device_and_in_each_precision(case, monkeypatch, tmp_path):
    monkeypatch.setitem(fastattn.ops.BACKENDS, "reference", ".reference")
    x = images_of(case)
    for device in ("cpu", "reference"):
        module = module_of(case, device=device)
        near(module(x), golden(case))
        for view in case.views:
            near(getattr(module, view)(x), golden(case, view))
    fastattn.ops._backends.pop("reference", None)
    module = module_of(case)
    all_BCYX = module(x)
    for b in range(len(x)):
        np.testing.assert_array_equal(module(x[b : b + 1])[0], all_BCYX[b])
    (tmp_path / "module.safetensors").write_bytes(safetensors_bytes(state_of(case)))
    read = getattr(vision, case.name).from_torch(tmp_path / "module.safetensors", **case.settings)
    np.testing.assert_array_equal(read(x), all_BCYX)
    with use_threads(2):
        np.testing.assert_array_equal(module(x), all_BCYX)
    for precision in () if case.name in CHOOSING else ("bfloat16", "int8"):
        rounded = module_of(case, precision=precision)(x)
        near(rounded, golden(case), 0.05)
        assert (rounded != all_BCYX).any()


def case_of(name):
    return next(case for case in MODULE_CASES if case.name == name)


def test_what_they_look_at():
    x, cbam = images_of(case_of("CBAM")), module_of(case_of("CBAM"))
    channels_BC, places_BYX = cbam.weights(x)
    np.testing.assert_allclose(x * channels_BC[:, :, None, None] * places_BYX[:, None], cbam(x), atol=1e-5)
    case = case_of("SqueezeExcitation")
    weights_BC = module_of(case).weights(images_of(case))
    np.testing.assert_allclose(images_of(case) * weights_BC[:, :, None, None], golden(case), atol=1e-5)
    for case in map(case_of, ("SelectiveKernel", "MultiScaleAttention")):
        np.testing.assert_allclose(module_of(case).weights(images_of(case)).sum(axis=1), 1, atol=1e-5)
    residual = module_of(case_of("ResidualAttention"))
    mask_BYX = residual.mask(images_of(case_of("ResidualAttention")))
    assert mask_BYX.shape == (2, 9, 7) and ((mask_BYX > 0) & (mask_BYX < 1)).all()


def test_patches_look_at_each_other_by_their_weights():
    case = case_of("PatchAttention")
    state, x = state_of(case), images_of(case)
    state["mlp.fc2.weight"] *= 0  # so that nothing follows the attention
    state["mlp.fc2.bias"] *= 0
    block, heads = vision.PatchAttention.from_torch(state, **case.settings), case.settings["heads"]
    weights_BHPP = block.weights(x)
    kernel = state["patch_embed.proj.weight"]
    B, size, D = len(x), kernel.shape[2], len(kernel)
    Y, X = x.shape[2] // size, x.shape[3] // size
    cut = x[:, :, : Y * size, : X * size].reshape(B, -1, Y, size, X, size).transpose(0, 2, 4, 1, 3, 5)
    rows = cut.reshape(B, Y * X, -1) @ kernel.reshape(D, -1).T + state["patch_embed.proj.bias"]
    normed = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-6)
    normed = normed * state["norm1.weight"] + state["norm1.bias"]
    value = normed @ state["attn.qkv.weight"][2 * D :].T + state["attn.qkv.bias"][2 * D :]
    context = np.einsum("bhps,bshk->bphk", weights_BHPP, value.reshape(B, Y * X, heads, -1)).reshape(B, Y * X, D)
    expected = rows + context @ state["attn.proj.weight"].T + state["attn.proj.bias"]
    np.testing.assert_allclose(weights_BHPP.sum(3), 1, atol=1e-5)
    near(block(x), expected.transpose(0, 2, 1).reshape(B, D, Y, X))


def test_a_map_that_changes_nothing_gives_the_image():
    case = case_of("SpatialTransformer")
    state = state_of(case)
    state["fc_loc.2.weight"] *= 0
    state["fc_loc.2.bias"] = np.float32([1, 0, 0, 0, 1, 0])
    module = vision.SpatialTransformer.from_torch(state)
    np.testing.assert_allclose(module(images_of(case)), images_of(case), atol=1e-5)
    np.testing.assert_array_equal(module.maps(images_of(case))[0], [[1, 0, 0], [0, 1, 0]])


def test_probabilities_are_those_of_the_features():
    case = case_of("DynamicCapacity")
    module, state = vision.DynamicCapacity.from_torch(state_of(case), **case.settings), state_of(case)
    scores = golden(case).max(axis=(2, 3)) @ state["top.weight"].T + state["top.bias"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(module.probabilities(images_of(case)), powers / powers.sum(1, keepdims=True), atol=1e-5)


def test_scales_of_one_size_share_and_one_alone_takes_all():
    """Of two alike each place takes half, whatever the scores; of half a size the features are the half image's."""
    case = case_of("MultiScaleAttention")
    state, x = state_of(case), images_of(case)
    state["attention.2.weight"] *= 0
    state["attention.2.bias"] *= 0
    whole, halved = ([vision.MultiScaleAttention.from_torch(state, scales=(one, one))(x)] for one in (1.0, 0.5))
    np.testing.assert_allclose(sum(whole + halved) / 2, vision.MultiScaleAttention.from_torch(state)(x), atol=1e-5)
    even = x[:, :, :8]  # 8 x 6: a bilinear half is the mean of 2 x 2 pixels
    mean = even.reshape(*even.shape[:2], 4, 2, 3, 2).mean(axis=(3, 5))
    features = vision.MultiScaleAttention.from_torch(state, scales=(1.0, 1.0))(mean)
    found = vision.MultiScaleAttention.from_torch(state, scales=(0.5, 0.5))(even)
    np.testing.assert_allclose(found[:, :, 0, 0], features[:, :, 0, 0], atol=1e-5)  # which lies beyond all middles


# Module, its settings or tensors that are wrong: None takes a tensor away.
BAD_STATES = [
    *(("SqueezeExcitation", bad, {}) for bad in ({"fc2.weight": None}, {"fc3.weight": 1})),
    ("SqueezeExcitation", {"fc2.weight": (5, 3, 1, 1)}, {}),
    *(("SqueezeExcitation", bad, {}) for bad in ({"fc1.bias": (2,)}, {"fc1.weight": (0, 6, 1, 1)})),
    ("SqueezeExcitation", {}, {"precision": "int4"}),
    ("SqueezeExcitation", {"fc1.bias": np.float32([np.nan] * 3)}, {"precision": "int8"}),
    ("CBAM", {"spatial.conv.conv.weight": (1, 2, 3, 3)}, {}),
    *(("SelectiveKernel", bad, {}) for bad in ({"paths.7.conv.weight": (1,)}, {"paths.0.conv.weight": (6, 2, 2, 2)})),
    *(("SelectiveKernel", {}, bad) for bad in ({"groups": 4}, {"stride": 0})),
    ("SpatialTransformer", {"fc_loc.0.weight": (5, 17)}, {}),
    *(("SpatialTransformer", {}, {"size": size}) for size in ((0, 3), 5)),
    ("DynamicCapacity", {"fine.0.weight": (4, 2, 3, 3)}, {}),
    ("DynamicCapacity", {}, {"side": 4}),
    ("ResidualAttention", {"down.1.conv1.weight": (4, 4, 1, 1)}, {}),
    *(("MultiScaleAttention", {}, {"scales": scales}) for scales in ((1.0, 0.0), 0.5)),
    ("PatchAttention", {}, {"heads": 4}),
]


def test_states_and_settings_that_do_not_fit():
    for name, changes, settings in BAD_STATES:
        case, state = case_of(name), state_of(case_of(name))
        for tensor, change in changes.items():
            state[tensor] = change if isinstance(change, np.ndarray) else np.ones(change or 1, np.float32)
            if change is None:
                del state[tensor]
        with refused(InputError):
            getattr(vision, name).from_torch(state, **case.settings | settings)


def test_images_that_do_not_fit():
    for name, shape in (
        *(("CBAM", shape) for shape in ((2, 5, 4, 4), (6, 4, 4), (1, 6, 0, 4), (0, 6, 4, 4))),
        *(("SpatialTransformer", (1, 2, 3, 3)), ("SpatialTransformer", (1, 2, 20, 13))),
        ("PatchAttention", (1, 2, 2, 2)),
    ):
        for dtype in (np.float32, np.float64):
            with refused(InputError):
                module_of(case_of(name))(np.zeros(shape, dtype))
