r"""``ArmOptimizer``: ask and tell over a finite set of arms, the machine all algorithms share.

One observation's way: ``ask`` picks from the table by the width of the present state and records
each pick with the score it had. ``tell`` validates, logs the scores, lets the *old* model's
scores decide the next dictionary, and exchanges observations and dictionary in one pass over the
arms. The state is one frozen value that is replaced at the very end; the table is a cache of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Batch, BatchRule, ExactBatch, GreedyBatch, LazyBatch, ThompsonBatch
from botorch_bkb.batches.rules import as_batch_rule
from botorch_bkb.models import DTCGP
from botorch_bkb.optimizers.history import History
from botorch_bkb.optimizers.hyperparameters import Tuning
from botorch_bkb.optimizers.reading import (
    check_arms,
    check_suggestion,
    read_points,
    read_rewards,
    read_variances,
)
from botorch_bkb.optimizers.resampling import Resampling, as_oversampling
from botorch_bkb.optimizers.settling import Settling
from botorch_bkb.optimizers.state import BatchRecord, Change, Pending, Recipe, State
from botorch_bkb.optimizers.suggestion import BatchCompleteError, Best, Suggestion
from botorch_bkb.optimizers.tables import Tables
from botorch_bkb.optimizers.width import Theorem, Width, Widths, as_width, doubles_norm
from botorch_bkb.validation import check_between, check_max_size, check_positive_integer

#: Of saved states.
VERSION = 1


class ArmOptimizer:
    r"""Optimisation over a finite set of arms; use one of the named configurations.

    ========================  ==========  ===========  =========================================
    class                     dictionary  batch rule   ``width="theory"``
    ========================  ==========  ===========  =========================================
    :class:`GPUCB`            everything  one          self-normalised bound of the exact GP
    :class:`MiniGPUCB`        everything  hold         the same
    :class:`GPBUCB`           everything  product      the same times ``sqrt(C)``
    :class:`BKB`              sampled     one          BKB, Theorem 2
    :class:`BBKB`             sampled     sum          BBKB, Theorem 2
    :class:`EpsilonGreedy`    sampled     sum          (picks use no width)
    ========================  ==========  ===========  =========================================

    Units: rewards, ``noise_var``, ``Yvar`` and :meth:`best` are in units of the rewards. If kernel
    and noise are both given, these are the model's units too, and inputs are taken as they are.
    Otherwise rewards are standardised; ``norm_bound`` and a given ``covar_module`` refer to
    standardised rewards, and BoTorch's default kernel to inputs scaled to the unit cube.

    What is proved: with ``width="theory"``, given kernel and noise, ``norm_bound`` a bound on the
    norm of the function, ``oversampling="theory"`` and ``coupled=False``, all bounds hold at all
    arms and steps with probability ``1 - delta`` and the regret is sublinear (the theorem in the
    table). Everything else, the defaults included, is heuristic: the theorems' widths and
    oversampling are far larger than what works best.

    Args:
        arms: An ``A x d`` tensor. Its dtype and device are used throughout; everything
            ``m x m`` is float64.
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward (``lambda``), or None to have it fitted.
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"``: start at 1 and double
            whenever an observation falls outside its interval by more than noise explains.
        delta: Failure probability of the bounds.
        oversampling: ``q̄``: a pull enters the dictionary with probability ``min(1, q̄ tau)``.
            ``"theory"`` takes the theorem's value for ``horizon``. Without effect where the
            dictionary is everything.
        batch_threshold: ``C~``: how far variances may fall before feedback is needed.
        width: Width of the confidence bounds: ``"heuristic"`` (two standard deviations),
            ``"information"``, ``"theory"``, a number of posterior standard deviations, or a
            function of :class:`~botorch_bkb.optimizers.width.Progress`. None is heuristic where
            hyperparameters are fitted and information where they are given.
        horizon: Expected number of observations ``T``. Outlived, it is doubled, and oversampling
            raised for the doubled horizon (BKB, Section 3.2).
        refit: Whether hyperparameters are fitted, at doubling numbers of observations. By default
            those not given are; True fits given ones too.
        seed: Seed of all randomness.
        max_dictionary: The most points in the dictionary. The highest scores are kept where more
            were drawn, with one warning: the guarantees do not hold then.
        coupled: Keep each pull's coin from one draw of the dictionary to the next. Each draw has
            the same law and fewer points change; the proofs ask for fresh coins. With fresh ones
            and little oversampling every arm is left out of the dictionary now and then, and its
            bound jumps up however often it was pulled: 8 and more is advisable then.
        acquisition: ``"ucb"``, ``"thompson"`` or ``"greedy"``; by default the class's own.
        batch_rule: ``"one"``, ``"sum"``, ``"product"``, ``"hold"`` or a
            :class:`~botorch_bkb.batches.BatchRule`; by default the class's own.
        max_batch_size: The most points in a batch.
        epsilon: Probability of a random arm where the acquisition is greedy.
        noise_bound: ``xi``, a bound on the noise standard deviation in units of the rewards;
            ``sqrt(noise_var)`` by default.
        keep_coordinates: Keep the ``A x m`` coordinates of all arms. Without them the memory is
            ``O(A)`` and a change of the dictionary costs ``O(A m^2)``.
    """

    #: Whether the dictionary is everything observed.
    exact: ClassVar[bool] = False
    default_acquisition: ClassVar[str] = "ucb"
    default_batch_rule: ClassVar[str] = "one"
    theorem: ClassVar[Theorem] = "bkb"

    def __init__(
        self,
        arms: Tensor,
        *,
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        norm_bound: float | str = 1.0,
        delta: float = 0.1,
        oversampling: float | str = 2.0,
        batch_threshold: float = 2.0,
        width: str | float | Width | None = None,
        horizon: int | None = None,
        refit: bool | None = None,
        seed: int | None = None,
        max_dictionary: int | None = None,
        coupled: bool = True,
        acquisition: str | None = None,
        batch_rule: str | BatchRule | None = None,
        max_batch_size: int = 10_000,
        epsilon: float = 0.1,
        noise_bound: float | None = None,
        keep_coordinates: bool = True,
    ) -> None:
        check_arms(arms)
        check_between("delta", delta, 0, 1)
        check_between("epsilon", epsilon, 0, 1, ends=True)
        check_positive_integer("max_batch_size", max_batch_size)
        check_positive_integer("horizon", horizon)
        check_between("noise_bound", noise_bound, 0, math.inf)
        check_max_size(max_dictionary)
        arms = arms.detach().clone()  # what the user does to it later is nobody's business
        self.delta, self.epsilon, self.max_batch_size = delta, epsilon, max_batch_size
        self.batch_rule = as_batch_rule(batch_rule or self.default_batch_rule, batch_threshold)
        self.acquisition = acquisition or self.default_acquisition
        if self.acquisition not in ("ucb", "thompson", "greedy"):
            raise InputDataError(
                f'acquisition must be "ucb", "thompson" or "greedy", got {acquisition!r}.'
            )
        self.tuning = Tuning(arms, covar_module, noise_var, refit)
        rule = as_width(width, fitted=self.tuning.fits, theorem=self.theorem)
        doubles = doubles_norm(norm_bound, rule)
        self.widths = Widths(rule, delta, noise_bound, self.batch_rule.inflation, doubles)
        self.resampling = Resampling(coupled, max_dictionary)
        self.tables = Tables(arms, self.tuning, keep_coordinates)
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)
        history = History.empty(arms.device)
        no_row = torch.zeros(1, dtype=torch.long, device=arms.device)
        self._state = State(
            history=history,
            added=arms[:0],
            coins=history.means,
            hyper=self.tuning.initial,
            recipe=Recipe(history, 0, no_row),
            oversampling=as_oversampling(
                oversampling, self.theorem, self.batch_rule.delay, horizon, delta
            ),
            norm_bound=1.0 if isinstance(norm_bound, str) else float(norm_bound),
            horizon=horizon,
            next_fit=self.tuning.first_fit,
            noise_known=noise_var if self.tuning.noise_fixed else None,
            random=self._generator.get_state(),
        )
        self._cached_table: ArmTable | None = None
        self._cached_batch: Batch | None = None

    # ------------------------------------------------------------------ ask

    @torch.no_grad()
    def ask(self, n: int | None = None) -> Suggestion:
        r"""The next points of the batch.

        Asking again without telling goes on with the same batch. After a tell a new batch begins,
        in which points still pending count as picked.

        Args:
            n: How many; the rest of the batch by default. The batch rule may allow fewer.

        Raises:
            BatchCompleteError: The batch is complete: tell results first.
        """
        check_positive_integer("n", n)
        state, batch = self._current_batch()
        assert state.batch is not None
        if batch.complete:
            self._cached_batch = batch
            raise BatchCompleteError(
                f"The batch is complete: {len(state.pending)} points wait for their results. Tell "
                "some of them first (`pending` has them), then ask again."
            )
        start = len(batch.picks)
        while not batch.complete and (n is None or len(batch.picks) < start + n):
            batch.pick()
        rows = self.tables.index.first[torch.tensor(batch.picks[start:], device=self.arms.device)]
        ids = range(state.next_id, state.next_id + len(rows))
        asked = map(Pending, rows.tolist(), batch.scores[start:])
        pending = dict(zip(ids, asked, strict=True))
        self._state = replace(
            state,
            pending={**state.pending, **pending},
            next_id=ids.stop,
            batch=state.batch._replace(picks=len(batch.picks)),
        )
        self._cached_batch = batch
        return Suggestion(self.arms[rows], rows, tuple(ids))

    def _current_batch(self) -> tuple[State, Batch]:
        r"""The batch being asked, and the state that knows of it. The cache is emptied."""
        if not self._state.settled:
            self._replace(*self._settled(self._state, self._take_table()))
        state = self._state
        if state.batch is None:
            stragglers = tuple(point.row for point in state.pending.values())
            width = self.widths.now(state, self._table())
            self._generator.set_state(state.random)
            seed = int(torch.randint(2**62, (), generator=self._generator))
            record = BatchRecord(width, seed, stragglers, 0)
            state = replace(state, batch=record, random=self._generator.get_state())
            self._state, self._cached_batch = state, None
        batch, self._cached_batch = self._cached_batch, None
        assert state.batch is not None
        if batch is None:
            batch = self._make_batch(state.batch)
            for _ in range(state.batch.picks):
                batch.pick()
        return state, batch

    def _make_batch(self, record: BatchRecord) -> Batch:
        table, rule = self._table(), self.batch_rule
        options: dict[str, Any] = {
            "num_arms": len(self.arms),
            "stragglers": record.stragglers,
            "max_size": self.max_batch_size,
        }
        if self.acquisition == "ucb":
            if self.exact:
                return ExactBatch(table, rule, record.width, **options)
            return LazyBatch(table, rule, record.width, **options)
        generator = torch.Generator().manual_seed(record.seed)
        if self.acquisition == "thompson":
            return ThompsonBatch(table, rule, generator, **options)
        return GreedyBatch(table, rule, self.epsilon, generator, **options)

    # ------------------------------------------------------------------ tell

    @torch.no_grad()
    def tell(self, points: Suggestion | Tensor | Sequence, Y: Any, Yvar: Any = None) -> None:
        r"""Results of some points, in any order, asked or not.

        The dictionary is drawn anew when nothing is pending any more, or with the next ask.

        Args:
            points: A suggestion or part of one, ``q`` rows of the arms, or ``q x d`` inputs, which
                need not be arms.
            Y: ``q`` or ``q x 1`` rewards.
            Yvar: ``q`` or ``q x 1`` noise variances, where they are known. If ``noise_var`` is
                fitted, they must come with the first results; their mean is ``noise_var`` then.

        Raises:
            InputDataError: Anything is wrong with the arguments. Nothing has changed then.
        """
        state, device = self._state, self.arms.device
        read = read_points(points, self.tables.index, state.added, state.pending)
        if isinstance(points, Suggestion):
            check_suggestion(points, self.tables.points(state, read.rows))
        q = len(read.rows)
        rewards = read_rewards("Y", Y, q, device)
        variances = None if Yvar is None else read_variances(Yvar, q, device)
        if q == 0:
            return
        state = self._with_known_noise(state, variances)
        weights = torch.ones_like(rewards)
        if variances is not None:
            weights = state.hyper.noise_var * state.hyper.scale**2 / variances
        table = self._take_table()
        if state.hyper is not self._state.hyper:
            table = self.tables.follow(state)
        if len(read.added):
            table.extend(self.tuning.inputs(read.added))
        state = self._logged(state, table, read.rows, read.ids, rewards, weights)
        table.observe(read.rows, state.hyper.to_model(rewards), weights)
        state = self._with_pulls(
            state, Change(read.added, read.rows, rewards, weights, read.rows[:0])
        )
        unasked = sum(id_ is None for id_ in read.ids)
        state = replace(state, unasked=state.unasked + unasked)
        # The first results are settled at once: until then there is no dictionary.
        if not state.pending or not self.num_observations:
            state, table = self._settled(state, table)
        self._replace(state, table)

    def _with_known_noise(self, state: State, variances: Tensor | None) -> State:
        if variances is None or self.tuning.noise_fixed or state.noise_known is not None:
            return state
        if state.history.num_observations:
            raise InputDataError(
                "Yvar came after results without it, for which the noise is fitted: tell Yvar "
                "from the first results on, or give noise_var."
            )
        known = float(variances.mean())
        hyper = replace(state.hyper, noise_var=known / state.hyper.scale**2)
        return replace(state, hyper=hyper, noise_known=known)

    def _logged(
        self,
        state: State,
        table: ArmTable,
        rows: Tensor,
        ids: Sequence[int | None],
        rewards: Tensor,
        weights: Tensor,
    ) -> State:
        r"""Scores under the model that chose each point; ``F`` doubled where it must be."""
        scores, pending = [0.0] * len(ids), dict(state.pending)
        if self.widths.doubles_norm or None in ids:
            mean, var = table.moments_at(rows)
            gap = (state.hyper.to_model(rewards) - mean).abs()
            state = self.widths.with_norm_doubled(state, table, gap, var.sqrt(), weights)
            scores = (var / table.noise_var).tolist()
        for i, id_ in enumerate(ids):
            if id_ is not None:
                scores[i] = pending.pop(id_).score
        logged = torch.tensor(scores, dtype=torch.float64, device=weights.device) * weights
        return replace(
            state,
            pending=pending,
            log_sum=state.log_sum + float(logged.log1p().sum()),
            log_sum_3=state.log_sum_3 + float((3 * logged).log1p().sum()),
        )

    def _with_pulls(self, state: State, change: Change) -> State:
        history = state.history.with_pulls(change.rows, change.rewards, change.weights)
        self._generator.set_state(state.random)
        coins = self.resampling.coins(state.history, state.coins, history, self._generator)
        return replace(
            state,
            history=history,
            added=torch.cat([state.added, change.added]),
            coins=coins,
            recipe=state.recipe.followed_by(change),
            random=self._generator.get_state(),
            newest=int(change.rows[-1]),
            settled=False,
            batch=None,
        )

    def _settled(self, state: State, table: ArmTable) -> tuple[State, ArmTable]:
        settling = Settling(self.tables, self.tuning, self.resampling, self.delta)
        return settling.settled(state, table, self._generator)

    # ------------------------------------------------------------------ the table

    def _replace(self, state: State, table: ArmTable) -> None:
        r"""Everything at once: whatever is interrupted before this has not happened."""
        self._state = state
        self._cached_table, self._cached_batch = table, None

    def _table(self) -> ArmTable:
        self._cached_table = table = self._take_table()
        return table

    def _take_table(self) -> ArmTable:
        r"""The table of the present state; the cache is emptied until it is put back."""
        table, self._cached_table = self._cached_table, None
        if table is None:
            table = self.tables.follow(self._state)
        return table

    # ------------------------------------------------------------------ what is known

    @property
    def arms(self) -> Tensor:
        r"""``A x d``."""
        return self.tables.arms

    def best(self) -> Best:
        r"""The arm of highest posterior mean, with its confidence interval.

        Example:
            >>> import torch
            >>> from botorch_bkb import GPUCB
            >>> optimizer = GPUCB(torch.rand(9, 2, dtype=torch.float64), seed=0)
            >>> optimizer.tell([3, 4], [1.0, 2.0])
            >>> optimizer.best().index
            4
        """
        state, table = self._state, self._table()
        mean, var = (t[: len(self.arms)] for t in table.moments())
        index = int(mean.argmax())
        half = self.width_now * var[index].sqrt()
        ends = torch.stack([mean[index], mean[index] - half, mean[index] + half])
        middle, lower, upper = state.hyper.to_rewards(ends).tolist()
        return Best(index, self.arms[index], middle, lower, upper)

    @property
    def model(self) -> DTCGP:
        r"""The belief as a BoTorch model: distinct inputs, mean rewards, their noise variances."""
        state = self._state
        history = state.history
        if not history.num_observations:
            raise InputDataError("There is no model before the first result: tell one first.")
        positions = torch.searchsorted(history.rows, state.recipe.final_dictionary)
        X = self.tables.points(state, history.rows)
        return self.tuning.model(X, history, state.hyper, positions)

    @property
    def pending(self) -> Suggestion:
        r"""Points asked and not told."""
        points = self._state.pending
        rows = torch.tensor(
            [point.row for point in points.values()], dtype=torch.long, device=self.arms.device
        )
        return Suggestion(self.tables.points(self._state, rows), rows, tuple(points))

    @property
    def num_observations(self) -> int:
        r"""Results told so far."""
        return self._state.history.num_observations

    @property
    def dictionary(self) -> Tensor:
        r"""``m x d`` points that the belief stands on; none before the first result."""
        if not self.num_observations:
            return self.arms[:0]
        return self.tables.points(self._state, self._state.recipe.final_dictionary)

    @property
    def effective_dimension(self) -> float:
        r"""``d_eff = sum_s tau(x_s)`` over the pulls, under the present belief."""
        return self._table().effective_dimension

    @property
    def information_gain(self) -> float:
        r"""``1/2 sum_s log(1 + tau(x_s))``, each score the one its point had when chosen."""
        return self._state.log_sum / 2

    @property
    def width_now(self) -> float:
        r"""Width of the bounds in posterior standard deviations: of the batch, or of the next."""
        if self._state.batch is not None:
            return self._state.batch.width
        return self.widths.now(self._state, self._table())

    @property
    def norm_bound(self) -> float:
        r"""``F``, as doubled so far, in the model's units."""
        return self._state.norm_bound

    @property
    def oversampling(self) -> float:
        r"""``q̄``, as raised so far."""
        return self._state.oversampling

    # ------------------------------------------------------------------ a changing set of arms

    @torch.no_grad()
    def set_arms(self, arms: Tensor) -> None:
        r"""Exchange the arms; history and pending points stay (BKB, Appendix A).

        Args:
            arms: ``A' x d``, of the same dtype. Inputs are scaled as for the first arms.
        """
        check_arms(arms)
        if arms.shape[-1] != self.arms.shape[-1] or arms.dtype != self.arms.dtype:
            raise InputDataError(
                f"arms must be A x {self.arms.shape[-1]} of {self.arms.dtype}, as before, got "
                f"{tuple(arms.shape)} of {arms.dtype}."
            )
        arms = arms.detach().to(self.arms.device, copy=True)
        self.tables, self._state = self.tables.with_arms(arms, self._state)
        self._cached_table, self._cached_batch = None, None

    # ------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        r"""Everything a run needs to go on, bit for bit, in numbers, strings and tensors.

        The arms and the arguments of the optimizer are not in it: construct it the same way, then
        load. Safe to store with ``torch.save`` and to load with ``weights_only=True``.
        """
        header = {"version": VERSION, "algorithm": type(self).__name__}
        header |= {"arms": self.tables.index.checksum, "bounds": self.tuning.bounds}
        return {**header, **self._state.to_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        r"""Go on where :meth:`state_dict` was taken.

        Args:
            saved: A state of an optimizer that was constructed in the same way.
        """
        expected = {
            "version": VERSION,
            "algorithm": type(self).__name__,
            "arms": self.tables.index.checksum,
        }
        rest = dict(saved)
        for key, value in expected.items():
            if (got := rest.pop(key, None)) != value:
                raise InputDataError(
                    f"The state is of another optimizer: {key} should be {value!r}, got {got!r}. "
                    "Construct the optimizer as the saved one was, with the same arms."
                )
        try:
            bounds = rest.pop("bounds")
            state = State.from_dict(rest, self.tuning.initial.kernel, self.arms.device)
            bounds = None if bounds is None else bounds.to(self.arms)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise InputDataError(f"The state is damaged or of another kind: {error}") from error
        self._state, self.tuning.bounds = state, bounds
        self._cached_table, self._cached_batch = None, None
