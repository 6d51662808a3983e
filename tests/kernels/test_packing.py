"""The packed form: where each weight lies, what rounding costs, what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.kernels.native import packing
from swiftspec_daemon.kernels.native.shape import NativeShape


@given(out=st.integers(1, 100), width=st.integers(1, 200), seed=st.integers(0, 9))
def test_panels_hold_every_weight(out, width, seed):
    values = np.random.default_rng(seed).integers(-127, 128, (out, width)).astype(np.int8)
    back = packing.from_panels(packing.to_panels(values))
    np.testing.assert_array_equal(back[:out, :width], values)
    assert not back[out:].any()
    assert not back[:, width:].any()


def test_where_a_weight_lies():
    values = np.zeros((64, 128), np.int8)
    values[45, 75] = -100
    panels = packing.to_panels(values)
    assert panels.shape == (2, 32, 2, 16, 4)
    assert panels[1, 18, 0, 13, 3] == 28
    assert (panels == 128).sum() == panels.size - 1


def test_quantisation_is_within_half_a_step():
    weight = np.random.default_rng(0).standard_normal((50, 300)).astype(np.float32)
    weight[7] = 0
    values, scales = packing.quantise(weight)
    restored = values * scales[:, None]
    assert (np.abs(restored - weight) <= scales[:, None] * 0.5001).all()
    assert np.abs(values).max(axis=1).tolist() == [127] * 7 + [0] + [127] * 42


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(bad):
    weight = np.ones((3, 8), np.float32)
    weight[1, 2] = bad
    with pytest.raises(ValueError, match="finite"):
        packing.quantise(weight)


def test_gate_and_up_alternate_by_sixteen():
    gate, up = np.full((20, 4), 1, np.float32), np.full((20, 4), 2, np.float32)
    joined = packing.join_gate_up(gate, up)[:, 0]
    wanted = [1] * 16 + [2] * 16 + [1] * 4 + [0] * 12 + [2] * 4 + [0] * 12
    assert joined.tolist() == wanted


@pytest.mark.parametrize("changes", [{"heads": 3}, {"head_dim": 12}, {"ff": 0}, {"vocab": -1}])
def test_shapes_that_cannot_be(changes):
    values = {
        "hidden": 64,
        "layers": 1,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "ff": 64,
        "vocab": 10,
        "norm_eps": 1e-5,
    }
    NativeShape(**values)
    with pytest.raises(ValueError):
        NativeShape(**{**values, **changes})
