r"""Each width against a number worked out by hand from the theorem."""

from __future__ import annotations

import math

import pytest
import torch

from botorch_bkb import confidence
from tests.problems import rbf


def test_bkb_theorem_2():
    # eps = 1/2: alpha = 3. 1 + log(1 + 7 / 0.25) = 4.367296, times 3 d_eff = 6: 26.203775; with
    # log 10 = 2.302585 the root is sqrt(28.506360) = 5.339135; times 2 xi = 1 and plus
    # (1 + sqrt 2) * 0.5 * 4 = 4.828427.
    got = confidence.bkb(2.0, 7, noise_var=0.25, noise_bound=0.5, norm_bound=4.0, delta=0.1)
    assert got == pytest.approx(5.339135 + 4.828427, abs=1e-5)


def test_the_accuracy_of_the_papers():
    # eps = 0.2: alpha = 1.5; 1 + 1/sqrt(0.8) = 2.118034.
    args = {"noise_var": 0.25, "noise_bound": 0.5, "norm_bound": 4.0, "delta": 0.1}
    got = confidence.bkb(2.0, 7, **args, accuracy=0.2)
    assert got == pytest.approx(math.sqrt(3 * 4.367296 + 2.302585) + 2.118034 * 2, abs=1e-5)
    got = confidence.bbkb(6.0, **args, accuracy=0.2)
    assert got == pytest.approx(math.sqrt(6 + 2.302585) + 2.118034 * 2, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_bkb_bounds_a_log_determinant_in_any_units(seed):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(30, 2, generator=generator, dtype=torch.float64)
    for scale in (1e-4, 1e-2, 1.0, 1e2):
        K = scale * torch.exp(-torch.cdist(X, X).square() / 0.1)
        for noise_var in (1e-3 * scale, scale, 10.0):
            exact = float(torch.logdet(K / noise_var + torch.eye(30, dtype=torch.float64)))
            d_eff = float(torch.linalg.solve(K + noise_var * torch.eye(30), K).trace())
            got = confidence.bkb(
                d_eff, 30, noise_var=noise_var, noise_bound=0.5, norm_bound=0.0, delta=math.exp(-1),
                kernel_bound=scale,
            )  # fmt: skip
            assert got**2 >= 3 * exact + 1


def test_bbkb_theorem_2():
    # sqrt(6 + log 20) = sqrt(8.995732) = 2.999289; times 2 * 0.3; plus 2.414214 * sqrt(0.2) * 20.
    got = confidence.bbkb(6.0, noise_var=0.2, noise_bound=0.3, norm_bound=20.0, delta=0.05)
    assert got == pytest.approx(0.6 * 2.999289 + 2.414214 * 0.447214 * 20, abs=1e-4)


def test_information_width():
    # sqrt(2 * 3 + log 10) = sqrt(8.302585) = 2.881421; plus sqrt(0.04) * 5 = 1.
    got = confidence.information(
        3.0, noise_var=0.04, noise_bound=0.2, norm_bound=5.0, delta=0.1, batch_threshold=2.0
    )
    assert got == pytest.approx(0.2 * 2.881421 + 1.0, abs=1e-6)


def test_theorem_3_2_on_a_finite_set():
    # log(1000 * 100 * 9.869604 / 0.6) = log 1644934 = 14.313210.
    assert confidence.finite_set(1000, 10, 0.1) == pytest.approx(math.sqrt(2 * 14.313210), abs=1e-6)


def test_theorem_3_2_on_a_box():
    # log(6579.736) = 8.791750; grid 100 * 2 * 1.5 * sqrt(log 160) = 300 * 2.252829 = 675.8488,
    # its log 6.515969.
    got = confidence.box(2, 10, 0.1, slope=1.5, log_tail=math.log(2))
    assert got == pytest.approx(math.sqrt(2 * 8.791750 + 4 * 6.515969), abs=1e-5)


def test_oversampling_of_the_theorems():
    # 6 * 3 * log(4000) / 0.25 = 72 * 8.294050; 72 * 2 * log(4000).
    assert confidence.bkb_oversampling(100, 0.1) == pytest.approx(72 * 8.294050, abs=1e-3)
    assert confidence.bbkb_oversampling(100, 0.1, 2.0) == pytest.approx(144 * 8.294050, abs=1e-3)


def test_papers_and_botorch_agree_on_the_upper_bound():
    mean, var, noise_var, beta = 0.3, 0.09, 0.04, 1.7
    papers = mean + beta * math.sqrt(var / noise_var)
    ours = mean + confidence.in_standard_deviations(beta, noise_var) * math.sqrt(var)
    assert papers == pytest.approx(ours)


def test_the_width_of_the_exact_posterior():
    # 0.3 * sqrt(5 + 2 * 2.302585) = 0.3 * 3.099221 = 0.929766; plus sqrt(0.25) * 2 = 1.
    got = confidence.exact(5.0, noise_var=0.25, noise_bound=0.3, norm_bound=2.0, delta=0.1)
    assert got == pytest.approx(1.929766, abs=1e-6)


def test_what_noise_exceeds_in_no_step():
    # log(9.869604 * 25 / 0.3) = log 822.467 = 6.712309; 0.5 * sqrt(13.424618).
    assert confidence.noise_over_time(5, 0.5, 0.1) == pytest.approx(1.831981, abs=1e-5)


def test_the_width_of_points_that_do_not_depend_on_the_noise():
    # sqrt(0.25 * 16 + 2 * 0.25 * log(2 * 60 / 0.1)), log 1200 = 7.090077
    given = {"noise_var": 0.25, "noise_bound": 0.5, "norm_bound": 4.0, "delta": 0.1}
    got = confidence.non_adaptive(60, **given)
    assert got == pytest.approx(math.sqrt(4 + 0.5 * 7.090077), abs=1e-6)
    # Vakili et al. add the two terms.
    assert got < 0.5 * 4 + 0.5 * math.sqrt(2 * 7.090077)


def test_the_two_steps_of_its_proof():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        X, x, C = (torch.rand(n, 2, generator=generator).double() for n in (12, 1, 5))
        h = torch.randn(5, generator=generator).double()
        norm, noise = (h @ rbf(C, C) @ h).sqrt(), 0.3
        a = torch.linalg.solve(rbf(X, X) + noise * torch.eye(12).double(), rbf(X, x)).squeeze()
        var = (1 - rbf(x, X) @ a).squeeze()
        bias = (a @ rbf(X, C) @ h - rbf(x, C) @ h).abs().squeeze()
        rest = var - noise * a @ a
        assert bias <= norm * rest.sqrt() + 1e-9
        for level in (0.5, 2.0, 10.0):  # a bound on the noise, in units of sqrt(lambda)
            total = norm * rest.sqrt() + level * noise**0.5 * a.norm()
            assert total <= (norm**2 + level**2).sqrt() * var.sqrt() + 1e-9
