r"""``Optimizer``: ask and tell over arms or over a box, the machine all algorithms share.

One observation's way: ``ask`` picks from the table by the width of the present state and records
each pick with the score it had. ``tell`` validates, logs the scores, lets the *old* model's
scores decide the next dictionary, and exchanges observations and dictionary in one pass over the
arms. The state is one frozen value that is replaced at the very end; the table is a cache of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Batch, BatchRule
from botorch_bkb.batches.rules import as_batch_rule
from botorch_bkb.belief import chunks
from botorch_bkb.optimizers.absorbing import Absorbing
from botorch_bkb.optimizers.acquisitions import Factory, check_acquisition
from botorch_bkb.optimizers.arguments import RemembersArguments
from botorch_bkb.optimizers.compression import NO_COMPRESSION, Compression
from botorch_bkb.optimizers.domains import Arms, Box, Domain, Situation, Strategy
from botorch_bkb.optimizers.history import History
from botorch_bkb.optimizers.hyperparameters import Tuning
from botorch_bkb.optimizers.known import Known
from botorch_bkb.optimizers.reading import Told, check_arms, read_rewards, read_variances
from botorch_bkb.optimizers.resampling import (
    OVER_A_BOX,
    OVER_ARMS,
    Resampling,
    as_oversampling,
)
from botorch_bkb.optimizers.settling import Settling
from botorch_bkb.optimizers.state import BatchRecord, Change, Pending, Recipe, State
from botorch_bkb.optimizers.suggestion import (
    BatchCompleteError,
    ConvergedError,
    Convergence,
    Suggestion,
)
from botorch_bkb.optimizers.tables import Tables
from botorch_bkb.optimizers.width import Theorem, Width, Widths, as_width, doubles_norm
from botorch_bkb.validation import (
    check_between,
    check_max_size,
    check_positive_integer,
    warn_of_single_precision,
)

#: Of saved states.
VERSION = 3
#: Results whose information is judged at a time.
BLOCK = 1024
#: Changes of a table beyond which its recipe starts anew, without rows nobody needs.
MOST_CHANGES = 512
#: Points given up that later picks know of.
MOST_LOST = 100


class Optimizer(Known, RemembersArguments):
    r"""Optimisation over a finite set or over a box; use one of the named configurations.

    ========================  ==========  ===========  =========================================
    class                     dictionary  batch rule   ``width="theory"``
    ========================  ==========  ===========  =========================================
    :class:`GPUCB`            everything  one          self-normalised bound of the exact GP
    :class:`MiniGPUCB`        everything  hold         the same
    :class:`GPBUCB`           everything  product      the same times ``sqrt(C)``
    :class:`BKB`              sampled     one          BKB, Theorem 2
    :class:`BBKB`             sampled     sum          BBKB, Theorem 2
    :class:`EpsilonGreedy`    sampled     sum          (picks use no width)
    :class:`CompressedUCB`    threshold   one          compressed GP bandits, Theorem 3.2
    :class:`CompressedEI`     threshold   one          (picks use no width)
    :class:`CompressedMPI`    threshold   one          (picks use no width)
    :class:`AdaBKB`           sampled     one          BKB, Theorem 2, over the cells of a tree
    :class:`AdaBBKB`          sampled     sum          BBKB, Theorem 2, likewise
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
        bounds: A ``2 x d`` tensor, lower and upper corner of a box, in place of ``arms``.
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward (``lambda``), or None to have it fitted.
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"``: start at 1 and double
            whenever an observation falls outside its interval by more than noise explains. None
            is 1.
        delta: Failure probability of the bounds.
        oversampling: ``q̄``: a pull enters the dictionary with probability ``min(1, q̄ tau)``; by
            default 8 over arms and 2 over a box. ``"theory"`` takes the theorem's value for
            ``horizon``. Without effect where the dictionary is everything.
        batch_threshold: ``C~``: how far variances may fall before feedback is needed.
        width: Width of the confidence bounds: ``"heuristic"`` (two standard deviations, over a box
            that is searched by BoTorch's optimizers one and a half), ``"information"``,
            ``"theory"``, a number of posterior standard deviations, or a function of
            :class:`~botorch_bkb.optimizers.width.Progress`. None is information where kernel,
            noise and ``norm_bound`` are given and heuristic otherwise.
        horizon: Expected number of observations ``T``. Outlived, it is doubled, and oversampling
            raised for the doubled horizon (BKB, Section 3.2).
        refit: Whether hyperparameters are fitted, whenever observations are a quarter more than
            at the last fit. By default those not given are; True fits given ones too.
        seed: Seed of all randomness.
        max_dictionary: The most points in the dictionary. The highest scores are kept where more
            were drawn, with one warning: the guarantees do not hold then.
        coupled: Keep each pull's coin from one draw of the dictionary to the next. Each draw has
            the same law and fewer points change; the proofs ask for fresh coins. With fresh ones
            and little oversampling every arm is left out of the dictionary now and then, and its
            bound jumps up however often it was pulled.
        acquisition: ``"ucb"``, ``"ei"`` (over the best reward in the belief), ``"mpi"`` (expected
            improvement over the highest mean), ``"pi"``, ``"thompson"``, ``"greedy"``, a function
            that makes a BoTorch acquisition function of a model (an analytic one, over arms), or,
            over a box, a class of BoTorch's; by default the class's own.
        batch_rule: ``"one"``, ``"sum"``, ``"product"``, ``"hold"`` or a
            :class:`~botorch_bkb.batches.BatchRule`; by default the class's own.
        max_batch_size: The most points in a batch.
        epsilon: Probability of a random arm where the acquisition is greedy.
        noise_bound: ``xi``, a bound on the noise standard deviation in units of the rewards;
            ``sqrt(noise_var)`` by default.
        compression: Which results are informative, and what becomes of others
            (:class:`~botorch_bkb.optimizers.Compression`); by default all are.
        num_initial: Points of the initial design over a box, scrambled Sobol; ``2 d + 2`` by
            default.
        discrete_dims: Coordinates of a box that take only some values, ``{i: values}``, whole
            numbers or the codes of categories.
        acquisition_options: Arguments of BoTorch's ``optimize_acqf`` over a box:
            ``num_restarts``, ``raw_samples``, ``options``; ``inequality_constraints`` and
            ``equality_constraints`` (linear), ``nonlinear_inequality_constraints`` and
            ``fixed_features``, in units of the box.
        keep_coordinates: Keep the ``A x m`` coordinates of all arms. Without them the memory is
            ``O(A)`` and a change of the dictionary costs ``O(A m^2)``.

    Example:
        All configurations are used like this one:

        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import BBKB
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> given = {"covar_module": RBFKernel(), "noise_var": 0.01, "seed": 0}
        >>> optimizer = BBKB(arms, **given)
        >>> while optimizer.num_observations < 20:
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> best = optimizer.best()
        >>> abs(best.X.item() - 0.3) < 0.05, best.lower < best.mean < best.upper
        (True, True)
        >>> saved = optimizer.state_dict()
        >>> another = BBKB(arms, **given)
        >>> another.load_state_dict(saved)
        >>> torch.equal(another.ask().X, optimizer.ask().X)
        True

    Reference:
        The named configurations have theirs.
    """

    #: Whether the dictionary is everything observed.
    exact: ClassVar[bool] = False
    instead: ClassVar[dict[str, str]] = {
        **dict.fromkeys(
            ("minimize", "maximize", "direction", "negate"),
            "rewards are maximised, negate them to minimise.",
        ),
        **dict.fromkeys(
            ("q", "batch_size"),
            "ask(n) gives at most n points, and max_batch_size bounds every batch.",
        ),
        **dict.fromkeys(
            ("num_restarts", "raw_samples"), "it belongs into acquisition_options, a dict."
        ),
        "kernel": "it is called covar_module, as in BoTorch.",
        "lengthscale": "it belongs to covar_module, a gpytorch kernel.",
        "noise": "it is called noise_var, the variance of a reward.",
        "beta": "it is called width, a number of standard deviations.",
        "random_state": "it is called seed.",
        "device": "it is that of arms or bounds.",
        "dtype": "it is that of arms or bounds.",
    }
    default_acquisition: ClassVar[str] = "ucb"
    default_batch_rule: ClassVar[str] = "one"
    theorem: ClassVar[Theorem] = "bkb"

    def __init__(
        self,
        arms: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        norm_bound: float | str | None = None,
        delta: float = 0.1,
        oversampling: float | str | None = None,
        batch_threshold: float = 2.0,
        width: str | float | Width | None = None,
        horizon: int | None = None,
        refit: bool | None = None,
        seed: int | None = None,
        max_dictionary: int | None = None,
        coupled: bool = True,
        acquisition: str | Factory | None = None,
        batch_rule: str | BatchRule | None = None,
        max_batch_size: int = 10_000,
        epsilon: float = 0.1,
        noise_bound: float | None = None,
        compression: Compression | None = None,
        num_initial: int | None = None,
        discrete_dims: Mapping[int, Sequence[float]] | None = None,
        acquisition_options: Mapping[str, Any] | None = None,
        keep_coordinates: bool = True,
    ) -> None:
        check_between("delta", delta, 0, 1)
        check_between("epsilon", epsilon, 0, 1, ends=True)
        check_positive_integer("max_batch_size", max_batch_size)
        check_positive_integer("horizon", horizon)
        check_between("noise_bound", noise_bound, 0, math.inf)
        check_max_size(max_dictionary)
        box: dict[str, Any] = {"num_initial": num_initial, "discrete_dims": discrete_dims}
        box["options"] = acquisition_options
        self.domain = self._make_domain(arms, bounds, box)
        warn_of_single_precision("Inputs", self.domain.extent, stacklevel=2)
        self.delta = delta
        rule = as_batch_rule(batch_rule or self.default_batch_rule, batch_threshold)
        acquisition = acquisition or self.default_acquisition
        check_acquisition(acquisition, over_arms=bool(self.domain.num_arms))
        compression = compression or NO_COMPRESSION
        self.strategy = Strategy(
            acquisition, rule, self.exact, epsilon, max_batch_size, compression
        )
        rows, extent = self.domain.index.X, self.domain.extent
        self.tuning = Tuning(extent, covar_module, noise_var, refit)
        if oversampling is None:
            oversampling = OVER_ARMS if self.domain.num_arms else OVER_A_BOX
        known = not self.tuning.fits and norm_bound is not None
        width_rule = as_width(
            width, known=known, theorem=self.theorem, heuristic=self.domain.heuristic_width
        )
        norm_bound = 1.0 if norm_bound is None else norm_bound
        sides = self.tuning.inputs(extent)
        self.widths = Widths(
            width_rule,
            delta,
            noise_bound,
            rule.inflation,
            doubles_norm(norm_bound, width_rule),
            self.domain.num_arms,
            float((sides.amax(0) - sides.amin(0)).max()),
        )
        self.resampling = Resampling(coupled, max_dictionary)
        self.tables = Tables(self.domain.index, self.tuning, keep_coordinates)
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        elif isinstance(seed, int):
            self._generator.manual_seed(seed)
        else:
            raise InputDataError(f"seed must be a whole number or None, got {seed!r}.")
        history = History.empty(rows.device)
        no_row = torch.zeros(1, dtype=torch.long, device=rows.device)
        self._state = State(
            history=history,
            added=rows[:0],
            coins=history.means,
            hyper=self.tuning.initial,
            recipe=Recipe(history, 0, no_row),
            oversampling=as_oversampling(oversampling, self.theorem, rule.delay, horizon, delta),
            norm_bound=1.0 if isinstance(norm_bound, str) else float(norm_bound),
            horizon=horizon,
            next_fit=self.tuning.first_fit,
            noise_known=noise_var if self.tuning.noise_fixed else None,
            design_seed=int(torch.randint(2**31, (), generator=self._generator)),
            kept=history.rows,
            random=self._generator.get_state(),
        )
        self._cached_table: ArmTable | None = None
        self._cached_batch: Batch | None = None

    def _make_domain(
        self, arms: Tensor | None, bounds: Tensor | None, box: dict[str, Any]
    ) -> Domain:
        if (arms is None) == (bounds is None):
            raise InputDataError(
                "Pass either arms, an A x d tensor of candidates, or bounds, a 2 x d tensor, got "
                f"{'neither' if arms is None else 'both'}."
            )
        if bounds is not None:
            return Box(bounds, **box)
        if any(value is not None for value in box.values()):
            raise InputDataError(
                "num_initial, discrete_dims and acquisition_options go with bounds, not arms."
            )
        assert arms is not None
        domain = Arms(arms)
        if domain.num_arms == 2:
            warnings.warn(
                "There are two arms. If they are the corners of a box, pass them as bounds.",
                InputDataWarning,
                stacklevel=3,
            )
        return domain

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
            ConvergedError: The next point would teach too little, and the optimizer is to stop
                then.
        """
        check_positive_integer("n", n)
        state, batch = self._current_batch()
        assert state.batch is not None
        if batch.complete:
            self._cached_table, self._cached_batch = batch.table, batch
            raise BatchCompleteError(
                f"The batch is complete: {len(state.pending)} points wait for their results. Tell "
                "some of them first (`pending` has them), then ask again."
            )
        start, added = len(batch.picks), len(batch.added)
        while not batch.complete and (n is None or len(batch.picks) < start + n):
            batch.pick()
        state = self.domain.remember(self._with_rows(state, batch.added[added:]), batch)
        self._cached_table = batch.table
        picks = batch.picks[start:]
        skips = self.strategy.compression.ends_batch and not batch.informative[-1]
        if skips and self.strategy.compression.on_uninformative == "stop":
            picks = picks[:-1]
            if not picks:
                self._stop(state)
        return self._handed_out(state, batch, start, picks, skips)

    def _handed_out(
        self, state: State, batch: Batch, start: int, picks: list[int], skips: bool
    ) -> Suggestion:
        r"""The picks as a suggestion, and a state in which their results are awaited."""
        rows = torch.tensor(picks, dtype=torch.long, device=self.tables.arms.device)
        if self.domain.num_arms:
            rows = self.tables.index.first[rows]
        informative = batch.informative[start : start + len(picks)]
        expected = informative if skips else [True] * len(picks)
        ids: list[int] = []
        pending: dict[int, Pending] = {}
        for row, score, awaited in zip(rows.tolist(), batch.scores[start:], expected, strict=False):
            ids.append(state.next_id + len(pending) if awaited else -1)
            if awaited:
                pending[ids[-1]] = Pending(row, score)
        record = state.batch
        assert record is not None
        self._state = replace(
            state,
            pending={**state.pending, **pending},
            next_id=state.next_id + len(pending),
            skipped=state.skipped + ids.count(-1),
            designed=state.designed + (len(picks) if batch.is_design else 0),
            # A point that was skipped ends the batch without feedback: time has moved on.
            batch=None if -1 in ids else record._replace(picks=(*record.picks, *picks)),
        )
        self._cached_batch = None if skips else batch
        marks = torch.tensor(informative, dtype=torch.bool, device=rows.device)
        X, indices = self.domain.points(batch, rows), self.domain.indices(rows)
        return Suggestion(X, indices, tuple(ids), marks)

    def _stop(self, state: State) -> NoReturn:
        r"""Nothing is left to ask: for now, or at all."""
        self._state, self._cached_batch = state, None
        if state.pending:
            raise BatchCompleteError(
                f"Until some of the {len(state.pending)} pending points are told, no further one "
                "would teach enough."
            )
        gap, width = self.gap(), self.width_now
        raise ConvergedError(Convergence(self.strategy.compression.epsilon, gap, width))

    def _with_rows(self, state: State, added: list[Tensor]) -> State:
        r"""Inputs that picks have put into the table."""
        if not added:
            return state
        recipe = state.recipe
        for X in added:
            recipe = recipe.followed_by(Change.of_rows(X))
        return replace(state, added=torch.cat([state.added, *added]), recipe=recipe)

    def _current_batch(self) -> tuple[State, Batch]:
        r"""The batch being asked, and the state that knows of it.

        The caches are emptied: picks may add rows to the table, and an interrupt must not leave
        one behind that the state does not know of.
        """
        if not self._state.settled:
            self._replace(*self._settling.settled(self._state, self._take_table()))
        state = self._state
        if state.batch is None:
            stragglers = tuple(point.row for point in state.pending.values())
            width = self.widths.now(state, self._table())
            self._generator.set_state(state.random)
            seed = int(torch.randint(2**62, (), generator=self._generator))
            record = BatchRecord(
                width, seed, stragglers, state.lost, state.designed, state.num_cells
            )
            state = replace(state, batch=record, random=self._generator.get_state())
            self._state, self._cached_batch = state, None
        batch, self._cached_batch = self._cached_batch, None
        if batch is None:
            batch = self.domain.begin(self.strategy, self._situation(state))
            assert state.batch is not None
            batch.follow(state.batch.picks)
        self._cached_table = None
        return state, batch

    def _situation(self, state: State) -> Situation:
        assert state.batch is not None
        return Situation(state, self._table(), state.batch, self.tables)

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
        state, device = self._state, self.tables.arms.device
        read = self.domain.read(points, state)
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
            state = replace(
                state,
                added=torch.cat([state.added, read.added]),
                recipe=state.recipe.followed_by(Change.of_rows(read.added)),
            )
        if isinstance(points, Suggestion):  # what was evaluated all the same was not skipped
            state = replace(state, skipped=state.skipped - points.ids.count(-1))
        told = Told(read.rows, read.ids, rewards, weights)
        # The threshold compares each result with all before it; elsewhere one block does.
        compression = self.strategy.compression
        size = q if compression.threshold is None else BLOCK
        absorbing = Absorbing(compression, self.widths, self._settling)
        for block in chunks(q, size):
            state, table = absorbing.absorbed(state, table, told.part(block))
        if len(state.recipe.changes) > MOST_CHANGES:
            state = self.tables.compacted(state)
            table = self.tables.follow(state)
        self._replace(state, table)

    @torch.no_grad()
    def give_up(self, suggestion: Suggestion) -> None:
        r"""No result will come of these points: they are pending no longer.

        So that they are not asked again at once, later picks see variances as if the last hundred
        of them had been observed; means stay. A late result may still be told by its inputs.

        Args:
            suggestion: A suggestion or part of one, none of it told.

        Example:
            >>> import torch
            >>> from botorch_bkb import BKB
            >>> optimizer = BKB(torch.eye(9, dtype=torch.float64), seed=0)
            >>> suggestion = optimizer.ask()
            >>> optimizer.give_up(suggestion)
            >>> len(optimizer.pending), optimizer.ask().ids
            (0, (1,))
        """
        if not isinstance(suggestion, Suggestion):
            raise InputDataError(
                "Only a suggestion or a part of one can be given up, got "
                f"{type(suggestion).__name__}: pass what ask() returned, or `pending`."
            )
        state, device = self._state, suggestion.X.device
        expected = [id_ >= 0 for id_ in suggestion.ids]
        asked = suggestion[torch.tensor(expected, dtype=torch.bool, device=device)]
        if not len(asked):
            return
        rows, ids = self.domain.read(asked, state).rows.tolist(), set(asked.ids)
        state = replace(
            state,
            pending={id_: point for id_, point in state.pending.items() if id_ not in ids},
            lost=(*state.lost, *rows)[-MOST_LOST:],
            batch=None,
        )
        table = self._take_table()
        if not (state.pending or state.settled):
            state, table = self._settling.settled(state, table)
        self._replace(state, table)

    def _with_known_noise(self, state: State, variances: Tensor | None) -> State:
        if variances is None or self.tuning.noise_fixed or state.noise_known is not None:
            return state
        if state.num_observations:
            raise InputDataError(
                "Yvar came after results without it, for which the noise is fitted: tell Yvar "
                "from the first results on, or give noise_var."
            )
        known = float(variances.mean())
        hyper = replace(state.hyper, noise_var=known / state.hyper.scale**2)
        return replace(state, hyper=hyper, noise_known=known)

    @property
    def _settling(self) -> Settling:
        keeps = self.exact and not self.strategy.compression.discard
        return Settling(
            self.tables, self.tuning, self.resampling, self.delta, keeps, self._generator
        )

    # ------------------------------------------------------------------ the table

    def _replace(self, state: State, table: ArmTable) -> None:
        r"""Everything at once: whatever is interrupted before this has not happened."""
        self._state = state
        self._cached_table, self._cached_batch = table, None

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
        domain = Arms(arms.to(self.arms.device))
        tables, state = self.tables.with_arms(domain.index, self._state)
        self.widths = replace(self.widths, num_arms=domain.num_arms)
        self.domain, self.tables, self._state = domain, tables, state
        self.arguments = {**self.arguments, "arms": arms}
        self._cached_table, self._cached_batch = None, None

    # ------------------------------------------------------------------ saving

    @property
    def _believes(self) -> str:
        r"""Which results: a state of another kind would be taken for something else."""
        compression = self.strategy.compression
        if compression.threshold is None:
            return "everything"
        return "informative results" if compression.discard else "everything through those kept"

    def state_dict(self) -> dict[str, Any]:
        r"""Everything a run needs to go on, bit for bit, in numbers, strings and tensors.

        Arms or bounds and the arguments of the optimizer are not in it: construct it the same way,
        then load. Safe to store with ``torch.save`` and to load with ``weights_only=True``.
        """
        header = {"version": VERSION, "algorithm": type(self).__name__}
        header |= {"domain": self.domain.checksum, "believes": self._believes}
        header["bounds"] = self.tuning.bounds
        return {**header, **self._state.to_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        r"""Go on where :meth:`state_dict` was taken.

        Args:
            saved: A state of an optimizer that was constructed in the same way.
        """
        expected = {
            "version": VERSION,
            "algorithm": type(self).__name__,
            "domain": self.domain.checksum,
            "believes": self._believes,
        }
        rest = dict(saved)
        for key, value in expected.items():
            if (got := rest.pop(key, None)) != value:
                raise InputDataError(
                    f"The state is of another optimizer: {key} should be {value!r}, got {got!r}. "
                    "Construct the optimizer as the saved one was, over the same arms or bounds."
                )
        try:
            bounds = rest.pop("bounds")
            state = State.from_dict(rest, self.tuning.initial.kernel, self.tables.arms.device)
            bounds = None if bounds is None else bounds.to(self.tables.arms)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise InputDataError(f"The state is damaged or of another kind: {error}") from error
        self._state, self.tuning.bounds = state, bounds
        self._cached_table, self._cached_batch = None, None
