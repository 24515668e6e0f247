r"""``MultiTaskDTCGP`` beside BoTorch's ``MultiTaskGP``."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError, UnsupportedError
from botorch.models import MultiTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean

from botorch_bkb import DTCGP, MultiTaskDTCGP
from tests.models.support import assert_same_posterior, likelihood_of, noise_for


def tasked(n, values=(0, 1, 2), column=1):
    r"""Inputs with a column of tasks, and their outcomes."""
    X = torch.rand(n, 3, dtype=torch.float64)
    X[:, column] = torch.tensor(values)[torch.randint(len(values), (n,))].double()
    Y = torch.sin(4 * X).sum(-1, keepdim=True)
    return X, Y + 0.1 * torch.randn_like(Y)


def with_task(X, task):
    return torch.cat([X[..., :1], torch.full_like(X[..., :1], task), X[..., 1:]], -1)


CASES = {
    "plain": {},
    "one-output": {"output_tasks": [2]},
    "two-outputs": {"output_tasks": [2, 0]},
    "rank-one": {"rank": 1},
    "no-prior": {"task_covar_prior": None},
    "unobserved": {"all_tasks": [0, 1, 2, 3]},
    "matern": {"covar_module": MaternKernel(ard_num_dims=2)},
    "linear-mean": {"mean_module": LinearMean(3)},
    "means": {"mean_module": MultitaskMean(ConstantMean(), 3)},
    "fixed-noise": {"train_Yvar": torch.linspace(0.01, 0.1, 30).double().unsqueeze(-1)},
    "transforms": {
        "input_transform": Normalize(3, indices=[0, 2]),
        "outcome_transform": Standardize(1),
    },
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request):
    r"""BoTorch's model and ours with a full dictionary and the same hyperparameters."""
    X, Y = tasked(30)
    exact, sparse = (
        cls(X, Y, task_feature=1, **request.param) for cls in (MultiTaskGP, MultiTaskDTCGP)
    )
    state = exact.state_dict()
    if "linear-mean" in request.node.name:
        state = {k.replace("mean_module.", "mean_module.mean."): v for k, v in state.items()}
    sparse.load_state_dict(state)
    return exact, sparse


def test_a_full_dictionary_has_the_posterior_of_botorch(pair):
    X = torch.rand(4, 2, dtype=torch.float64)
    for T in (X, X.repeat(3, 1, 1), with_task(X, 2.0), tasked(5)[0]):
        for noisy in (False, True):
            p, q = (m.posterior(T, observation_noise=noisy) for m in pair)
            assert_same_posterior(p, q, tolerance=1e-8)
    assert pair[0].num_outputs == pair[1].num_outputs


def test_a_full_dictionary_has_the_likelihood_of_botorch(pair):
    torch.testing.assert_close(*map(likelihood_of, pair), atol=1e-8, rtol=1e-8)


def test_conditioning_agrees_with_botorch(pair):
    exact, _ = pair
    X, Y = tasked(3)
    T, _ = tasked(4)
    exact.posterior(T)
    conditioned = (m.condition_on_observations(X, Y, **noise_for(m, Y)) for m in pair)
    assert_same_posterior(*(m.posterior(T) for m in conditioned), tolerance=1e-7)


def test_fantasies_agree_with_botorch():
    X, Y = tasked(30)
    exact, sparse = (cls(X, Y, task_feature=1) for cls in (MultiTaskGP, MultiTaskDTCGP))
    sparse.load_state_dict(exact.state_dict())
    new, T = tasked(2)[0], tasked(4)[0]
    exact.posterior(new)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=1)
    fantasies = (m.fantasize(new, sampler) for m in (exact, sparse))
    assert_same_posterior(*(f.posterior(T) for f in fantasies), tolerance=1e-6)


def test_output_indices_choose_the_tasks(pair):
    X = torch.rand(4, 2, dtype=torch.float64)
    posteriors = (m.posterior(X, output_indices=[0, 2]) for m in pair)
    assert_same_posterior(*posteriors, tolerance=1e-8)


def test_tasks_may_have_any_values():
    X, Y = tasked(30, values=(1, 4, 7))
    positions = X.clone()
    positions[:, 1] = (X[:, 1] - 1) / 3
    named = MultiTaskDTCGP(X, Y, task_feature=1)
    numbered = MultiTaskGP(positions, Y, task_feature=1)
    named.load_state_dict(numbered.state_dict())
    T = torch.rand(4, 2, dtype=torch.float64)
    for noisy in (False, True):
        posteriors = (m.posterior(T, observation_noise=noisy) for m in (named, numbered))
        assert_same_posterior(*posteriors, tolerance=1e-8)
    torch.testing.assert_close(likelihood_of(named), likelihood_of(numbered))


def test_each_task_has_its_own_noise_also_with_a_small_dictionary():
    X, Y = tasked(60)
    model = MultiTaskDTCGP(X, Y, task_feature=1, dictionary=torch.arange(15))
    model.likelihood.noise = torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64)
    T = torch.rand(5, 2, dtype=torch.float64)
    noisy, plain = (model.posterior(T, observation_noise=flag).variance for flag in (True, False))
    scale = model.outcome_transform.stdvs.square()
    expected = scale * torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64)
    torch.testing.assert_close(noisy - plain, expected.expand(5, 3), atol=1e-8, rtol=1e-8)


def test_a_task_borrows_from_the_others():
    r"""With little data of its own a task is predicted better beside a correlated one."""
    X, _ = tasked(80, values=(0, 1))
    X[:70, 1], X[70:, 1] = 0, 1
    Y = torch.sin(4 * X[:, [0, 2]]).sum(-1, keepdim=True) + 0.05 * torch.randn(80, 1).double()
    both = MultiTaskDTCGP(X, Y, task_feature=1, output_tasks=[1], dictionary=torch.arange(80))
    both.covar_module.kernels[1].var = torch.full((2,), 1e-3, dtype=torch.float64)
    both.covar_module.kernels[1].covar_factor = torch.ones(2, 2, dtype=torch.float64)
    alone = DTCGP(X[70:][:, [0, 2]], Y[70:])
    T = torch.rand(200, 2, dtype=torch.float64)
    truth = torch.sin(4 * T).sum(-1, keepdim=True)
    errors = [(m.posterior(T).mean - truth).square().mean() for m in (both, alone)]
    assert errors[0] < 0.5 * errors[1]


def test_acquisition_functions_take_inputs_without_tasks():
    X, Y = tasked(30)
    model = MultiTaskDTCGP(X, Y, task_feature=1, dictionary=torch.arange(10))
    weights = ScalarizedPosteriorTransform(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    acqf = qLogExpectedImprovement(model, best_f=0.0, posterior_transform=weights)
    x = torch.rand(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(acqf(x).sum(), x)[0].isfinite().all()


def test_inputs_are_constructed_from_a_dataset():
    X, Y = tasked(12)
    data = SupervisedDataset(X, Y, feature_names=["a", "task", "b"], outcome_names=["y"])
    inputs = MultiTaskDTCGP.construct_inputs(
        data, task_feature=1, output_tasks=[0], rank=2, dictionary=torch.arange(4)
    )
    model = MultiTaskDTCGP(**inputs)
    assert model.dictionary_indices.tolist() == [0, 1, 2, 3] and model.num_outputs == 1
    assert issubclass(MultiTaskDTCGP, MultiTaskGP)  # as Ax asks


class TestRefusals:
    def test_unknown_tasks(self):
        X, Y = tasked(12)
        model = MultiTaskDTCGP(X, Y, task_feature=1)
        with pytest.raises(InputDataError, match=r"among \[0, 1, 2\], got \[5\]"):
            model.posterior(with_task(torch.rand(2, 2).double(), 5.0))

    def test_unknown_tasks_may_stand_for_the_output_task(self):
        X, Y = tasked(12)
        model = MultiTaskDTCGP(X, Y, task_feature=1, output_tasks=[2], validate_task_values=False)
        T = torch.rand(2, 2).double()
        assert_same_posterior(
            model.posterior(with_task(T, 5.0)), model.posterior(with_task(T, 2.0)), 1e-12
        )

    def test_tasks_that_all_tasks_lacks(self):
        X, Y = tasked(12)
        for options in ({"all_tasks": [0, 1]}, {"output_tasks": [4]}):
            with pytest.raises(InputDataError, match=r"all_tasks must include .*: add them"):
                MultiTaskDTCGP(X, Y, task_feature=1, **options)

    def test_batches_and_several_outputs(self):
        X, Y = tasked(12)
        for data in ((X.repeat(2, 1, 1), Y.repeat(2, 1, 1)), (X, Y.repeat(1, 2))):
            with pytest.raises(BotorchTensorDimensionError, match="stack the observations"):
                MultiTaskDTCGP(*data, task_feature=1)

    def test_new_observations_without_a_task(self):
        X, Y = tasked(12)
        model = MultiTaskDTCGP(X, Y, task_feature=1)
        with pytest.raises(BotorchTensorDimensionError, match="name the task"):
            model.condition_on_observations(X[:, [0, 2]], Y)

    def test_subsets_of_outputs_as_in_botorch(self):
        model = MultiTaskDTCGP(*tasked(12), task_feature=1)
        with pytest.raises(UnsupportedError, match="Subsetting"):
            model.subset_output([0])
