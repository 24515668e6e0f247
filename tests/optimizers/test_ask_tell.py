from __future__ import annotations

import itertools

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import BotorchWarning

from botorch_bkb import BBKB, BKB, DTCGP, GPUCB, BatchCompleteError, MiniGPUCB
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Batch
from tests.optimizers.support import NOISE, Problem, kernel, make, play, warm


@pytest.fixture
def problem():
    return Problem()


def snapshot(optimizer):
    r"""Everything that can be seen of an optimizer, as nested lists."""

    def plain(value):
        if isinstance(value, torch.Tensor):
            return value.tolist()
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return plain(optimizer.state_dict())


class TestAsk:
    def test_asking_in_parts_gives_the_same_batch(self, problem):
        whole = warm(Problem()).ask()
        optimizer = warm(Problem())
        parts = [optimizer.ask(at_most=1), optimizer.ask(at_most=2), optimizer.ask()]
        assert torch.cat([p.indices for p in parts]).tolist() == whole.indices.tolist()
        assert torch.equal(torch.cat([p.X for p in parts]), problem.arms[whole.indices])

    @pytest.mark.parametrize("acquisition", ["ucb", "thompson", "greedy"])
    def test_a_complete_batch_says_to_tell_first(self, problem, acquisition):
        optimizer = warm(problem, acquisition=acquisition)
        optimizer.ask()
        before = snapshot(optimizer)
        for _ in range(2):
            with pytest.raises(BatchCompleteError, match="Tell"):
                optimizer.ask()
        assert snapshot(optimizer) == before

    def test_one_at_a_time(self, problem):
        assert len(make(problem, BKB).ask()) == len(make(problem, GPUCB).ask(at_most=5)) == 1

    def test_a_choice_is_held(self, problem):
        optimizer = warm(problem, MiniGPUCB, batch_threshold=2.0)
        tau = optimizer.table.scores()
        asked = optimizer.ask().indices
        assert asked.unique().numel() == 1
        assert len(asked) == max(1, int(3 / tau[asked[0]]))

    @pytest.mark.parametrize("n", [0, -1, 1.5, "all", True])
    def test_a_bad_n_is_refused(self, problem, n):
        with pytest.raises(InputDataError, match="at_most must be"):
            make(problem).ask(at_most=n)
        with pytest.raises(InputDataError, match="n must be"):
            make(problem).ask(n)

    def test_max_batch_size(self, problem):
        optimizer = warm(problem, max_batch_size=2)
        assert len(optimizer.ask()) == 2

    def test_reading_changes_nothing(self, problem):
        quiet, curious = warm(Problem()), warm(Problem())
        for ours, theirs in itertools.islice(
            zip(play(quiet, Problem(), 80), play(curious, Problem(), 80), strict=False), 10
        ):
            curious.best(), curious.effective_dimension, curious.width_now, curious.model
            assert torch.equal(ours.indices, theirs.indices)
        assert torch.equal(quiet.table.mean(), curious.table.mean())


class TestTell:
    def test_out_of_order_and_in_parts(self, problem):
        optimizer = warm(problem)
        suggestion = optimizer.ask()
        assert len(suggestion) >= 3
        for i in reversed(range(len(suggestion))):
            assert len(optimizer.pending) == i + 1
            optimizer.tell(suggestion[i], problem.rewards(suggestion[i].indices))
        assert optimizer.num_observations == 30 + len(suggestion)
        assert len(optimizer.pending) == 0

    def test_parts_and_whole_lead_to_the_same_belief(self, problem):
        whole, parts = warm(Problem()), warm(Problem())
        suggestion = whole.ask()
        rewards = problem.rewards(suggestion.indices)
        whole.tell(suggestion, rewards)
        suggestion = parts.ask()
        for i in range(len(suggestion)):
            parts.tell(suggestion[i], rewards[i])
        assert torch.equal(whole.dictionary, parts.dictionary)
        torch.testing.assert_close(whole.table.mean(), parts.table.mean())

    def test_stragglers_count_as_picked(self, problem):
        optimizer = warm(problem, batch_rule="sum")
        first = optimizer.ask()
        optimizer.tell(first[:1], problem.rewards(first[:1].indices))
        second = optimizer.ask()
        assert len(optimizer.pending) == len(first) - 1 + len(second)
        table, late = optimizer.table, first[1:].indices
        imagined = ArmTable.from_log(problem.arms, table.kernel, table.noise_var, table.log)
        imagined.observe(late, torch.zeros(len(late)))

        def upper_bounds(variance):
            return table.mean() + optimizer.width_now * variance.sqrt()

        assert int(upper_bounds(imagined.variance()).argmax()) == second.indices[0]
        assert int(upper_bounds(table.variance()).argmax()) != second.indices[0]
        spent = float(table.scores()[torch.cat([late, second.indices])].sum())
        assert spent > 39.0 >= spent - float(table.scores()[second.indices[-1]])
        optimizer.tell(second, problem.rewards(second.indices))
        optimizer.tell(first[1:], problem.rewards(first[1:].indices))
        assert len(optimizer.pending) == 0

    def test_part_of_the_first_batch_is_a_belief_already(self):
        arms = torch.linspace(0, 10, 50, dtype=torch.float64).unsqueeze(-1)
        optimizer = BBKB(arms, covar_module=kernel(), noise_var=10.0, batch_threshold=3.0, seed=0)
        suggestion = optimizer.ask()
        optimizer.tell(suggestion[11], [5.0])
        assert torch.equal(optimizer.dictionary, suggestion[11].X)
        mean = optimizer.model.posterior(arms).mean.squeeze(-1)
        torch.testing.assert_close(mean, optimizer.table.mean())
        assert optimizer.best().mean == pytest.approx(5 / 11)

    def test_by_indices_by_inputs_and_by_suggestion_are_the_same(self):
        beliefs = []
        for how in ("suggestion", "indices", "list", "X"):
            problem = Problem()
            optimizer = warm(problem)
            s = optimizer.ask()
            points = {"suggestion": s, "indices": s.indices, "list": s.indices.tolist(), "X": s.X}
            optimizer.tell(points[how], problem.rewards(s.indices).unsqueeze(-1))
            assert len(optimizer.pending) == 0
            beliefs.append(optimizer.table.mean())
        for belief in beliefs[1:]:
            assert torch.equal(belief, beliefs[0])

    def test_points_nobody_asked_for_and_points_that_are_no_arms(self, problem):
        optimizer = make(problem)
        elsewhere = torch.tensor([[5.0, 5.0], [0.3, 0.4], [5.0, 5.0]], dtype=torch.float64)
        X = torch.cat([elsewhere, problem.arms[:2]])
        optimizer.tell(X, [1.0, 2.0, 3.0, 4.0, 5.0])
        assert optimizer.num_observations == 5
        assert len(optimizer.history.rows) == 4
        for _ in play(optimizer, problem, 40):
            pass
        optimizer.tell(elsewhere[:1], [2.0])
        model = optimizer.model
        assert (model.train_inputs[0] == 5.0).all(-1).sum() == 1
        assert (optimizer.pending.indices < 60).all() and optimizer.best().index < 60
        mean = model.posterior(problem.arms).mean.squeeze(-1)
        torch.testing.assert_close(mean, optimizer.table.mean()[:60], atol=1e-7, rtol=0)

    def test_a_large_warm_start_is_compressed(self):
        problem = Problem(num_arms=3000, noise=0.5)
        rows = torch.arange(2500)
        optimizer = BBKB(problem.arms, **problem.options())
        optimizer.tell(rows, problem.rewards(rows))
        assert len(optimizer.dictionary) < 600
        assert (problem.f - optimizer.table.mean()).abs().max() < 0.5

    def test_known_noise(self, problem):
        exact, optimizer = make(problem), make(problem)
        optimizer.tell([0, 1], [1.0, 2.0], Yvar=[NOISE / 2, NOISE])
        exact.tell([0, 0, 1], [1.0, 1.0, 2.0])
        torch.testing.assert_close(optimizer.table.mean(), exact.table.mean())
        torch.testing.assert_close(optimizer.table.variance(), exact.table.variance())

    @pytest.mark.parametrize(
        ("points", "Y", "message"),
        [
            ([0], [float("nan")], "finite"),
            ([0], [float("inf")], "finite"),
            ([0, 1], [1.0], "one number for each"),
            ([0, 1], [[1.0, 2.0]], "one number for each"),
            ([60], [1.0], "0..59"),
            ([-1], [1.0], "0..59"),
            ([True], [1.0], "bool"),
            (torch.zeros(2, 3).double(), [1.0, 1.0], "q x 2"),
            (torch.zeros(2).double(), [1.0], "q x 2"),
            (torch.full((1, 2), float("nan")).double(), [1.0], "finite"),
            (torch.zeros(1, 2, dtype=torch.long), [1.0], "Suggestion"),
            ("row", [1.0], "Suggestion"),
            ([0], "high", "numbers"),
        ],
    )
    def test_a_bad_tell_leaves_everything_as_it_was(self, problem, points, Y, message):
        optimizer = warm(problem)
        optimizer.ask(at_most=2)
        before = snapshot(optimizer)
        with pytest.raises((InputDataError, BotorchTensorDimensionError), match=message):
            optimizer.tell(points, Y)
        assert snapshot(optimizer) == before

    @pytest.mark.parametrize("Yvar", [[0.0], [-1.0], [float("inf")], [1.0, 2.0]])
    def test_bad_noise_is_refused(self, problem, Yvar):
        optimizer = warm(problem)
        before = snapshot(optimizer)
        with pytest.raises((InputDataError, BotorchTensorDimensionError), match="Yvar"):
            optimizer.tell([0], [1.0], Yvar=Yvar)
        assert snapshot(optimizer) == before

    def test_a_result_is_told_once(self, problem):
        optimizer = warm(problem)
        suggestion = optimizer.ask(at_most=2)
        optimizer.tell(suggestion[0], [1.0])
        before = snapshot(optimizer)
        with pytest.raises(InputDataError, match="told once"):
            optimizer.tell(suggestion, [1.0, 2.0])
        assert snapshot(optimizer) == before

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    @pytest.mark.parametrize("where", ["observe", "slide"])
    def test_a_tell_that_is_interrupted_has_not_happened(self, monkeypatch, error, where):
        problem = Problem()
        optimizer, undisturbed = warm(Problem()), warm(Problem())
        suggestion = optimizer.ask()
        undisturbed.ask()
        rewards = problem.rewards(suggestion.indices)
        before = snapshot(optimizer)

        def interrupted(*args, **kwargs):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(ArmTable, where, interrupted)
            with pytest.raises(error):
                optimizer.tell(suggestion, rewards)
        assert snapshot(optimizer) == before
        for o in (optimizer, undisturbed):
            o.tell(suggestion, rewards)
        assert torch.equal(optimizer.table.mean(), undisturbed.table.mean())

    def test_an_ask_that_is_interrupted_has_not_happened(self, monkeypatch):
        optimizer, undisturbed = warm(Problem()), warm(Problem())
        optimizer.ask(at_most=1), undisturbed.ask(at_most=1)
        plain, calls = Batch.pick, []

        def interrupted(self):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return plain(self)

        with monkeypatch.context() as patch:
            patch.setattr(Batch, "pick", interrupted)
            with pytest.raises(KeyboardInterrupt):
                optimizer.ask()
        assert torch.equal(optimizer.ask().indices, undisturbed.ask().indices)


class TestWhatIsKnown:
    def test_best_has_the_highest_mean_and_an_interval(self, problem):
        optimizer = warm(problem, BKB, pulls=60)
        best = optimizer.best()
        mean, var = optimizer.table.moments()
        assert best.index == int(mean.argmax())
        assert torch.equal(best.X, problem.arms[best.index])
        half = optimizer.width_now * float(var[best.index].sqrt())
        assert best.upper - best.mean == pytest.approx(half) == best.mean - best.lower

    def test_the_model_is_the_belief(self, problem):
        optimizer = warm(problem)
        for _ in play(optimizer, problem, 90):
            pass
        model = optimizer.model
        assert isinstance(model, DTCGP)
        posterior = model.posterior(problem.arms)
        mean, var = optimizer.table.moments()
        torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-7, rtol=0)
        torch.testing.assert_close(posterior.variance.squeeze(-1), var, atol=1e-7, rtol=0)

    def test_before_the_first_result(self, problem):
        optimizer = make(problem)
        assert optimizer.num_observations == 0 and len(optimizer.dictionary) == 0
        assert optimizer.effective_dimension == optimizer.information_gain == 0.0
        for ask in (optimizer.best, lambda: optimizer.model):
            with pytest.raises(InputDataError, match="tell one first"):
                ask()

    def test_information_gain_of_the_exact_posterior_is_the_log_determinant(self, problem):
        optimizer = make(problem, GPUCB)
        rows = []
        for suggestion in play(optimizer, problem, 40):
            rows += suggestion.indices.tolist()
        K = problem.K[rows][:, rows]
        expected = 0.5 * torch.logdet(torch.eye(40).double() + K / NOISE)
        assert optimizer.information_gain == pytest.approx(float(expected))
        assert optimizer.table.log_determinant == pytest.approx(2 * float(expected))

    def test_the_cap_warns_once(self, problem):
        optimizer = make(problem, max_dictionary=5)
        with pytest.warns(BotorchWarning, match="max_dictionary") as caught:
            list(play(optimizer, problem, 120))
        assert sum("max_dictionary" in str(w.message) for w in caught) == 1
        assert len(optimizer.dictionary) == 5

    def test_a_width_of_the_users_own(self, problem):
        seen = []

        def width(progress):
            seen.append(progress)
            return 1.0 + 0.1 * progress.num_observations

        optimizer = warm(problem, width=width)
        assert optimizer.width_now == pytest.approx(4.0)
        assert seen[-1].num_arms == 60 and seen[-1].noise_var == NOISE
        optimizer = warm(problem, width=lambda progress: float("nan"))
        with pytest.raises(InputDataError, match="width"):
            optimizer.ask()


class TestArms:
    def test_the_set_may_change(self, problem):
        optimizer = warm(problem)
        pending = optimizer.ask()
        mean = optimizer.table.mean()
        new = torch.cat([problem.arms[10:40], torch.rand(20, 2, dtype=torch.float64)])
        optimizer.set_arms(new)
        torch.testing.assert_close(optimizer.table.mean()[:30], mean[10:40])
        assert optimizer.num_observations == 30
        assert torch.equal(optimizer.pending.X, pending.X)
        optimizer.tell(pending, problem.rewards(pending.indices))
        present = {*range(10, 40), *range(60, 80)}
        assert set(optimizer.ask().indices.tolist()) <= present
        assert optimizer.best().index in present

    def test_other_dimensions_are_refused(self, problem):
        optimizer = warm(problem)
        before = snapshot(optimizer)
        with pytest.raises(InputDataError, match="A x 2"):
            optimizer.set_arms(torch.rand(5, 3, dtype=torch.float64))
        assert snapshot(optimizer) == before

    @pytest.mark.parametrize(
        "arms", [torch.zeros(3), torch.zeros(0, 2), torch.zeros(3, 2).long(), [[0.0]]]
    )
    def test_bad_arms_are_refused(self, arms):
        with pytest.raises((InputDataError, BotorchTensorDimensionError), match="arms"):
            BBKB(arms)

    @pytest.mark.parametrize(
        "options",
        [
            {"delta": 0.0}, {"delta": 1.0}, {"noise_var": 0.0}, {"noise_var": -1.0},
            {"norm_bound": -1.0}, {"norm_bound": "triple"}, {"oversampling": 0.0},
            {"oversampling": float("inf")}, {"oversampling": "theory"}, {"oversampling": "much"},
            {"batch_threshold": 0.5}, {"width": "wide"}, {"width": -1.0}, {"width": float("nan")},
            {"horizon": 0}, {"acquisition": "best"}, {"batch_rule": "all"},
            {"max_batch_size": 0}, {"norm_bound": "double", "width": 2.0},
        ],
        ids=str,
    )  # fmt: skip
    def test_bad_options_are_refused(self, problem, options):
        with pytest.raises(InputDataError, match=next(iter(options))):
            BBKB(problem.arms, **{**problem.options(), **options})

    def test_an_empty_dictionary_is_refused(self, problem):
        with pytest.raises(InputDataError, match="at least one point, got a size of 0"):
            BBKB(problem.arms, **problem.options(max_dictionary=0))


def test_the_default_kernel_is_the_users_own_copy():
    problem, own = Problem(), kernel()
    optimizer = BBKB(problem.arms, covar_module=own, noise_var=NOISE, seed=0)
    rows = torch.arange(20)
    optimizer.tell(rows, problem.rewards(rows))
    before = optimizer.table.mean().clone()
    own.lengthscale = 5.0
    optimizer.tell([0], [0.0])
    assert own.raw_lengthscale.requires_grad
    assert (optimizer.table.mean() - before).abs().max() < 1.0
