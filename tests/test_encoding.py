from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import (
    AdditiveKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import (
    AllPoints,
    Automatic,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
)
from botorch_bkb.acquisition import (
    EI,
    MPI,
    PI,
    UCB,
    BudgetedUCB,
    FromBoTorch,
    Greedy,
    InTurn,
    NoisyEI,
    PureExploration,
    Thompson,
)
from botorch_bkb.batches import (
    BatchRule,
    Elimination,
    HoldingRule,
    LocalRule,
    OneAtATime,
    ProductRule,
    SumRule,
)
from botorch_bkb.confidence import Confidence, Fixed
from botorch_bkb.domains import Arms, Box, Tree, TrustRegion
from botorch_bkb.encoding import (
    DTYPES,
    VALUES,
    NotWritable,
    decode,
    encode,
    from_text,
    to_text,
)
from botorch_bkb.models import Surrogate

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner)
    ),
)


@given(plain)
def test_plain_values_come_back(value):
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_come_back_bit_for_bit(dtype, shape):
    value = torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(50).to(dtype)
    back = decode(encode([1, {"a": value}, value.mT if value.dim() == 2 else value]))
    assert back[1]["a"].dtype == dtype and torch.equal(back[1]["a"], value)
    assert torch.equal(back[2], value.mT if value.dim() == 2 else value)


def test_infinite_and_missing_numbers_in_tensors():
    value = torch.tensor([float("nan"), float("inf"), -0.0])
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(),
        MaternKernel(nu=1.5, ard_num_dims=3),
        ScaleKernel(RQKernel(ard_num_dims=3)),
        PeriodicKernel(active_dims=[1]),
        AdditiveKernel(RBFKernel(active_dims=[0, 2]), ScaleKernel(LinearKernel())),
        RBFKernel() * PolynomialKernel(power=2) + PeriodicKernel(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_come_back_with_their_values(kernel, dtype):
    kernel = kernel.to(dtype)
    for i, parameter in enumerate(kernel.parameters()):
        parameter.data.add_(0.1 * i - 0.3)
    X = torch.rand(5, 3, dtype=dtype)
    back = decode(encode({"covar_module": kernel}))["covar_module"]
    assert torch.equal(back(X).to_dense(), kernel(X).to_dense())


class OwnKernel(RBFKernel):
    pass


@pytest.mark.parametrize(
    "value",
    [
        lambda x: x,
        object(),
        OwnKernel(),
        RBFKernel(lengthscale_prior=GammaPrior(2.0, 3.0)),
        RBFKernel(lengthscale_constraint=GreaterThan(0.1)),
        ScaleKernel(OwnKernel()),
        {"deep": [1, (2, print)]},
        torch.rand(2).to(torch.complex64),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_written_down_is_refused(value):
    with pytest.raises(NotWritable):
        encode(value)


BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)
#: Parts of optimizers that are equal where all their fields are.
PARTS = [
    OneAtATime(),
    SumRule(3.0),
    LocalRule(3.0, max_size=7),
    ProductRule(3.0, max_size=7),
    HoldingRule(1.5),
    AllPoints(max_size=9),
    RandomlyPivotedCholesky(9),
    Automatic(exact_up_to=7, sampling=RidgeLeverageSampling(3.0)),
    InformationThreshold(0.1, discard=False, on_uninformative="evaluate"),
    RidgeLeverageSampling("theory", horizon=100, coupled=False),
    QuadratureFeatures(9),
    RandomFeatures(30, seed=4),
    Confidence("theory", delta=0.2, norm_bound="double", noise_bound=0.3),
    Fixed(1.5),
    InTurn((UCB(), NoisyEI(8))),
    UCB(),
    EI(),
    MPI(),
    NoisyEI(16),
    PI(),
    Thompson(),
    Greedy(0.3),
    Elimination((9, 5), distinct=False),
    PureExploration(),
    TrustRegion(3, min_length=0.01, failure_tolerance=5),
]
#: Parts that hold tensors.
WITH_TENSORS = [
    Arms(BOUNDS, keep_coordinates=False),
    Box(BOUNDS, num_initial=3, discrete_dims={0: [0.0, 1.0]}),
    Box(BOUNDS, trust_region=TrustRegion(2, length=0.3)),
    Tree(BOUNDS, num_children=2, max_depth=5, radius=(1.0, 0.5)),
    Surrogate(RBFKernel(), 0.1, refit=True, half_life=30.0),
]


@pytest.mark.parametrize("value", PARTS, ids=lambda value: type(value).__name__)
def test_parts_of_optimizers_come_back(value):
    back = decode(encode(value))
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("value", WITH_TENSORS, ids=lambda value: type(value).__name__)
def test_parts_with_tensors_come_back(value):
    back = decode(encode(value))
    assert type(back) is type(value)
    # Encoded again they are the same bytes.
    assert encode(back) == encode(value)
    assert to_text(from_text(to_text(value))) == to_text(value)


def test_every_part_that_can_be_written_is_tested():
    tested = {type(value) for value in [*PARTS, *WITH_TENSORS]} | {FromBoTorch}
    assert tested == set(VALUES.values())


class OwnRule(SumRule):
    pass


@pytest.mark.parametrize(
    "value",
    [
        FromBoTorch(lambda model: BudgetedUCB(model, 2.0)),
        FromBoTorch(BudgetedUCB),
        Confidence(lambda progress: 2.0),
        Tree(BOUNDS, radius=lambda tree, ids, metric: ids.double()),
        Surrogate(OwnKernel()),
        RidgeLeverageSampling(generator=torch.Generator()),
        OwnRule(3.0),
        BatchRule(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parts_of_the_users_own_are_refused(value):
    with pytest.raises(NotWritable):
        encode({"part": value})


def test_damaged_parts_are_no_value():
    good = encode(SumRule(3.0))
    assert decode(good.replace(b"3.0", b"3.1")) == SumRule(3.1)
    for old, new in ((b"3.0", b"0.5"), (b"SumRule", b"NumRule"), (b"threshold", b"treshhold")):
        with pytest.raises(ValueError, match="not an encoded value"):
            decode(good.replace(old, new))


@given(st.binary(max_size=60))
def test_other_bytes_are_no_value(data):
    with pytest.raises(ValueError, match="not an encoded value"):
        decode(data + b"\xff")


@given(st.data())
def test_damaged_bytes_never_do_anything_but_raise_value_error(data):
    good = encode({"kernel": RBFKernel(), "x": torch.arange(4), "y": [1.5, None, (2,)]})
    place = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:place] + bytes([data.draw(st.integers(0, 255))]) + good[place + 1 :]
    with suppress(ValueError):
        decode(damaged)
