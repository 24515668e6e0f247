r"""``Optimizer``: ask and tell, composed of parts.

One observation's way: ``ask`` picks from the table with bounds of the present width and records
each pick with its score. ``tell`` validates the results and logs the scores. The *old* model's
scores decide the next dictionary. Observations and dictionary are exchanged in one pass over the
arms. The state is one frozen value that is replaced at the very end. The table is a cache of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_bkb.acquisition import Acquisition, as_acquisition
from botorch_bkb.batches import Batch, BatchRule, OneAtATime, Request
from botorch_bkb.batches.begin import begin_batch, highest_bound
from botorch_bkb.belief import chunks
from botorch_bkb.confidence import Confidence
from botorch_bkb.dictionaries import DictionaryRule, RidgeLeverageSampling
from botorch_bkb.domains import Arms, Domain, Suggestion
from botorch_bkb.domains.reading import check_arms, check_ratio, read_rewards, read_variances
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.arguments import explains_unknown_arguments
from botorch_bkb.optimizers.asking import (
    check_enough,
    read_request,
    suggest,
    with_new_rows,
)
from botorch_bkb.optimizers.base import OptimizerBase
from botorch_bkb.optimizers.elimination import (
    best_survivor,
    check_unfinished,
    gap_of_survivors,
    with_stage_completed,
)
from botorch_bkb.optimizers.exclusive import exclusive, transaction
from botorch_bkb.optimizers.parts import Parts, default_acquisition
from botorch_bkb.optimizers.recommending import recommended
from botorch_bkb.optimizers.regions import check_searches_everywhere, with_regions_updated
from botorch_bkb.optimizers.results import BatchCompleteError, Best, ConvergedError, Convergence
from botorch_bkb.optimizers.saving import load, save
from botorch_bkb.optimizers.tables import build_table, compacted, moved
from botorch_bkb.optimizers.telling import absorb, with_known_noise
from botorch_bkb.state.observations import Results
from botorch_bkb.state.state import State

#: Results whose information is judged at a time.
BLOCK = 1024
#: Changes of a table beyond which it is rebuilt with a short log.
MOST_CHANGES = 512
#: Rows of a table for each change of a longer log, since a rebuild passes over all rows.
ROWS_PER_CHANGE = 32


class Optimizer(OptimizerBase):
    r"""Optimisation over a finite set, a box or a tree, composed of six parts.

    The algorithms of the papers are combinations of parts, with flat keyword arguments:

    ===========================  ==========  ===========  =========================================
    class                        dictionary  batch rule   ``width="theory"`` (and ``"paper"``)
    ===========================  ==========  ===========  =========================================
    :class:`GPUCB`               everything  one          anytime bound (Abbasi-Yadkori's)
    :class:`MiniGPUCB`           everything  hold         the same
    :class:`GPBUCB`              everything  product      the same times ``sqrt(C)``
    :class:`BKB`                 sampled     one          anytime bound (BKB, Theorem 2)
    :class:`BBKB`                sampled     local        times ``sqrt(C)`` (BBKB, Theorem 2)
    :class:`EpsilonGreedy`       sampled     sum          (picks use no width)
    :class:`BatchedElimination`  everything  elimination  points independent of the noise
    :class:`CompressedUCB`       threshold   one          as GP-UCB (compressed GP, Theorem 3.2)
    :class:`CompressedEI`        threshold   one          the same (picks use no width)
    :class:`CompressedMPI`       threshold   one          the same (picks use no width)
    :class:`AdaBKB`              sampled     one          as BKB, over the cells of a tree
    :class:`AdaBBKB`             sampled     sum          as BBKB, likewise
    :class:`AdaGPUCB`            everything  one          as GP-UCB, likewise
    ===========================  ==========  ===========  =========================================

    Units: rewards, ``noise_var``, ``Yvar`` and :meth:`best` are in units of the rewards. If kernel
    and noise are both given, these are the model's units, too, and inputs are taken as they are.
    Otherwise rewards are standardised. Then ``norm_bound`` and a given ``covar_module`` refer to
    standardised rewards, and BoTorch's default kernel to inputs scaled to the unit cube.

    A call that raises, or is interrupted, changes nothing. Only :class:`BatchCompleteError` and
    :class:`ConvergedError` are answers, whose work is kept. Threads that call at the same time take
    turns. Optimizers can be pickled and copied at any time, and their copies pick the same points.

    What is proved: with ``width="theory"``, given kernel and noise and ``norm_bound`` a bound on
    the norm of the function, all bounds hold at all points and steps with probability ``1 -
    delta``. This is true for every dictionary of points
    (:mod:`botorch_bkb.confidence.self_normalised`). Theorem 3.2 of the compressed GP paper is about
    draws from the prior instead, over arms and boxes. It is the width of ``"paper"`` for thresholds
    that discard, and of ``"theory"``, with a warning, where no ``norm_bound`` is given. The papers
    also prove that the regret is sublinear, for sampled dictionaries with
    ``oversampling="theory"``, ``coupled=False`` and ``batch_rule="sum"``. Everything else, the
    defaults included, is heuristic.

    Args:
        domain: An :class:`~botorch_bkb.domains.Arms`, :class:`~botorch_bkb.domains.Box` or
            :class:`~botorch_bkb.domains.Tree`.
        model: Kernel and noise (:class:`~botorch_bkb.models.Surrogate`); fitted by default.
        dictionary: A dictionary rule; ridge leverage sampling by default.
        confidence: The width of the bounds (:class:`~botorch_bkb.confidence.Confidence`).
        batch: When a batch is complete; one point at a time by default.
        acquisition: What is maximised: an :class:`~botorch_bkb.acquisition.Acquisition`, a name, a
            function that makes a BoTorch acquisition function of a model, or, over a box, a class
            of BoTorch's. By default upper confidence bounds; over a box with the heuristic width,
            wide and narrow ones in turn.
        seed: Seed of all randomness.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import AllPoints
        >>> from botorch_bkb.acquisition import Thompson
        >>> from botorch_bkb.batches import ProductRule
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.models import Surrogate
        >>> from botorch_bkb.optimizers import Optimizer
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> def make():
        ...     return Optimizer(
        ...         Arms(arms),
        ...         model=Surrogate(RBFKernel(), noise_var=0.01),
        ...         dictionary=AllPoints(),
        ...         batch=ProductRule(4.0),
        ...         acquisition=Thompson(),
        ...         seed=0,
        ...     )
        >>> optimizer = make()
        >>> while optimizer.num_observations < 20:
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> best = optimizer.best()
        >>> abs(best.X.item() - 0.3) < 0.05, best.lower < best.mean < best.upper
        (True, True)
        >>> another = make()
        >>> another.load_state_dict(optimizer.state_dict())
        >>> torch.equal(another.ask().X, optimizer.ask().X)
        True

    Reference:
        The named algorithms have theirs.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = explains_unknown_arguments(cls.__init__)  # type: ignore[method-assign]

    @explains_unknown_arguments
    def __init__(
        self,
        domain: Domain,
        *,
        model: Surrogate | None = None,
        dictionary: DictionaryRule | None = None,
        confidence: Confidence | None = None,
        batch: BatchRule | None = None,
        acquisition: Acquisition | str | Any | None = None,
        seed: int | None = None,
    ) -> None:
        if dictionary is None and isinstance(domain, Domain):
            dictionary = RidgeLeverageSampling(
                domain.default_oversampling, domain.default_max_dictionary
            )
        model = Surrogate() if model is None else model
        confidence = Confidence() if confidence is None else confidence
        if acquisition is None:
            acquisition = default_acquisition(domain, confidence)
        parts = Parts(
            domain=domain,
            model=model,
            dictionary=dictionary,  # type: ignore[arg-type]  # checked there
            confidence=confidence,
            batch=OneAtATime() if batch is None else batch,
            acquisition=as_acquisition(acquisition),
        )
        self._begin(parts, seed)

    # ------------------------------------------------------------------ ask

    @transaction
    @torch.no_grad()
    def ask(
        self,
        n: int | None = None,
        *,
        at_most: int | None = None,
        distinct: bool | None = None,
        exclude: Tensor | Sequence[int] = (),
        context: Mapping[int, float] | None = None,
    ) -> Suggestion:
        r"""Return the next points: as many as the batch rule allows, or exactly ``n``.

        Without arguments, asking again without telling continues the same batch. After a tell a new
        batch begins, in which points still pending count as picked. With any argument but
        ``at_most`` the points are a batch of their own, in which pending points count as picked.

        Points beyond the batch rule are marked in ``suggestion.beyond``. Confidence bounds with a
        guarantee lose it there. Over arms, and over a box in any case, a batch of ``n`` points is
        conditioned exactly: a pick lowers all variances as its result will, also where the
        dictionary explains nothing. Points that teach less than an information threshold are asked
        all the same, and marked in ``suggestion.informative``.

        Args:
            n: The number of points, whatever the batch rule says. Before the first result, they are
                the initial design.
            at_most: The largest number of points, where the batch rule decides.
            distinct: Whether no candidate is asked twice, or while it is pending. By default where
                ``n`` is given.
            exclude: Rows of the arms, or inputs, that are left out of this ask.
            context: Coordinates of a box that are fixed for this ask, ``{i: value}``, in units of
                the box.

        Raises:
            BatchCompleteError: The batch is complete: tell results first, or pass ``n``.
            OutOfCandidatesError: There are fewer candidates than ``n``, or none.
            ConvergedError: The next point would teach too little
                (``on_uninformative="stop"``).
            FinishedError: All batches are complete (:class:`BatchedElimination`).

        Example:
            >>> import torch
            >>> from botorch_bkb import BBKB
            >>> optimizer = BBKB(torch.rand(500, 3, dtype=torch.float64), seed=0)
            >>> plate = optimizer.ask(96)
            >>> len(plate), len(plate.indices.unique())
            (96, 96)
            >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
            >>> BBKB(bounds=box, seed=0).ask(3, context={1: 0.25}).X[:, 1].tolist()
            [0.25, 0.25, 0.25]
        """
        request = read_request(self.parts, n, at_most, distinct, exclude, context)
        check_unfinished(self.parts, self._state)
        if request.n is None:
            return self._ask(request)
        parts: list[Suggestion] = []
        while request.n:
            parts.append(self._ask(request))
            request = replace(request, n=request.n - len(parts[-1]))
        return parts[0] if len(parts) == 1 else Suggestion.joined(parts)

    def _ask(self, request: Request) -> Suggestion:
        r"""Return points of one batch: all that are wanted, or those of a design before them."""
        state, batch = self._current_batch(request)
        check_enough(self.domain, batch, request)
        if batch.exhausted or (batch.complete and request.n is None):
            self._cached_table, self._cached_batch = batch.table, batch
            raise self._completed(batch, request)
        start, added = len(batch.picks), len(batch.added)
        beyond: list[bool] = []
        while not batch.exhausted and request.wants_more(len(beyond), batch.complete):
            beyond.append(batch.complete)
            batch.pick()
        batch.add_waiting()
        state = with_new_rows(state, batch, added)
        picks, threshold = batch.picks[start:], self.parts.threshold
        skips = batch.ends_uninformed and not batch.informative[-1]
        if skips and threshold.on_uninformative == "stop":
            picks = picks[:-1]
            if not picks:
                self._commit(state, batch.table)
                raise self._convergence()
        ends = skips or not request.goes_on
        state, suggestion = suggest(
            self.domain, state, batch, start, picks, beyond, skips=skips, ends_batch=ends
        )
        self._commit(state, batch.table, None if ends else batch)
        return suggestion

    def _completed(self, batch: Batch, request: Request) -> BatchCompleteError | InputDataError:
        r"""Return the error that says why the batch has no further point."""
        if request.n is not None:
            return InputDataError(
                f"The batch has {len(batch.picks)} of {request.n} further points: its size is "
                "fixed. Call ask() for the rest of it, or ask(at_most=n)."
            )
        waiting = len(self._state.in_flight.pending)
        return BatchCompleteError(
            f"The batch is complete: {waiting} points wait for their results. Tell some of them "
            "first (`pending` has them), then ask again. Or ask(n) for n points beyond the rule."
        )

    def _convergence(self) -> BatchCompleteError | ConvergedError:
        r"""Return the error that says that nothing is left to ask: for now, or at all."""
        waiting = len(self._state.in_flight.pending)
        if waiting:
            return BatchCompleteError(
                f"Until some of the {waiting} pending points are told, no further one would teach "
                "enough."
            )
        return ConvergedError(Convergence(self.parts.threshold.epsilon, self.gap(), self.width_now))

    def _current_batch(self, request: Request) -> tuple[State, Batch]:
        r"""Return the batch being asked, or one of its own, and the state that knows of it.

        The caches are emptied: picks may add rows to the table, and after an interrupt no table may
        be left that the state does not know of.
        """
        if not self._state.dictionary.is_current:
            self._commit(*self._updater.update(self._state, self._take_table()))
        state = self._state
        if not request.goes_on:
            state = replace(state, in_flight=state.in_flight.without_batch())
        if state.in_flight.batch is None:
            width = self.parts.width_now(state, self._table())
            generator = self._generator
            generator.set_state(state.random)
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            in_flight = state.in_flight.begun(width, seed, state.num_cells)
            state = replace(state, in_flight=in_flight, random=generator.get_state())
            self._state, self._cached_batch = state, None
        batch, self._cached_batch = self._cached_batch, None
        if batch is None:
            context = self._context(state, request)
            self._cached_table = None
            batch = begin_batch(self.domain, context)
            batch.follow(context.record.picks)
        self._cached_table = None
        return state, batch

    # ------------------------------------------------------------------ tell

    @transaction
    @torch.no_grad()
    def tell(self, points: Suggestion | Tensor | Sequence, Y: Any, Yvar: Any = None) -> None:
        r"""Tell the results of some points, in any order, suggested or not.

        A new dictionary is drawn when nothing is pending any more, or with the next ask.

        Args:
            points: A suggestion or part of one, ``q`` rows of the arms, or ``q x d`` inputs, which
                need not be arms.
            Y: ``q`` or ``q x 1`` rewards.
            Yvar: ``q`` or ``q x 1`` noise variances. They may be known for some results only: None
                or NaN stands for the others, which have the noise variance that is given or fitted.
                If all results of the first tell have one, nothing is fitted: their mean becomes
                ``noise_var``, which later results without one have.

        Raises:
            InputDataError: An argument is wrong. Nothing has changed then.
        """
        state = self._state
        read = self.domain.read(points, state.observations.added, state.in_flight.rows)
        q = len(read.rows)
        rewards = read_rewards("Y", Y, q, self.device)
        variances = read_variances(Yvar, q, self.device)
        if q == 0:
            return
        state = with_known_noise(self.parts.model, state, variances)
        noise_var = state.hyper.units.variance_to_rewards(state.hyper.noise_var)
        check_ratio(variances, noise_var)
        weights = torch.where(variances.isnan(), 1.0, noise_var / variances)
        table = self._take_table()
        if state.hyper is not self._state.hyper:
            table = build_table(self.domain, state)
        observations = state.observations.with_rows(read.added)
        if len(read.added):
            table.extend(state.model.inputs(read.added))
        if isinstance(points, Suggestion):  # a point that was evaluated was not skipped
            observations = observations.with_skipped(-points.ids.count(-1))
        state = replace(state, observations=observations)
        precisions = variances.reciprocal().nan_to_num(0.0)
        results = Results(read.rows, read.ids, rewards, weights, precisions)
        # A threshold compares each result with all before it; otherwise one block is enough.
        size = q if self.parts.threshold.least_score is None else BLOCK
        for block in chunks(q, size):
            state, table = absorb(self._updater, state, table, results.part(block))
        state = with_regions_updated(self.domain, state, table, read.rows, read.ids)
        if len(table.log.changes) > max(MOST_CHANGES, len(table.X) // ROWS_PER_CHANGE):
            state, table = compacted(self.domain, state, table)
        self._commit(with_stage_completed(self.parts, state, table), table)

    @transaction
    @torch.no_grad()
    def give_up(self, suggestion: Suggestion) -> None:
        r"""Give up points whose results will never come: they are no longer pending.

        Later picks see variances as if the last hundred of these points had been observed, so that
        they are not asked again at once. Means stay. A late result may still be told by its inputs.

        Args:
            suggestion: A suggestion or part of one, none of it told.

        Example:
            >>> import torch
            >>> from botorch_bkb import BKB
            >>> optimizer = BKB(torch.eye(9, dtype=torch.float64), seed=0)
            >>> suggestion = optimizer.ask(2)
            >>> optimizer.give_up(suggestion)
            >>> len(optimizer.pending), optimizer.ask(1).ids
            (0, (2,))
        """
        if not isinstance(suggestion, Suggestion):
            raise InputDataError(
                "Only a suggestion or a part of one can be given up, got "
                f"{type(suggestion).__name__}: pass what ask() returned, or `pending`."
            )
        expected = [id_ >= 0 for id_ in suggestion.ids]
        device = suggestion.X.device
        asked = suggestion[torch.tensor(expected, dtype=torch.bool, device=device)]
        if not len(asked):
            return
        state = self._state
        read = self.domain.read(asked, state.observations.added, state.in_flight.rows)
        in_flight = state.in_flight.with_given_up(set(asked.ids), read.rows.tolist())
        state, table = replace(state, in_flight=in_flight), self._take_table()
        if not (in_flight.pending or state.dictionary.is_current):
            state, table = self._updater.update(state, table)
        self._commit(with_stage_completed(self.parts, state, table), table)

    # ------------------------------------------------------------------ the recommendation

    @exclusive
    @torch.no_grad()
    def best(self, by: str = "mean") -> Best:
        r"""Return the recommended arm, with its confidence interval.

        Over a box it is one of the points that were observed.

        Args:
            by: ``"mean"``: the arm of highest posterior mean. ``"lower"``: the arm of highest lower
                confidence bound, whose regret :meth:`gap` bounds. ``"past"``: a uniformly drawn
                past pull. Its expected regret is the average regret of the run, which the papers'
                theorems bound. The draw depends on the seed and the state of the run alone.

        Example:
            >>> import torch
            >>> from botorch_bkb import GPUCB
            >>> optimizer = GPUCB(torch.eye(9, dtype=torch.float64), seed=0)
            >>> optimizer.tell([3, 4], [1.0, 2.0])
            >>> optimizer.best().index, optimizer.best(by="past").index in (3, 4)
            (4, True)
        """
        if not self.num_observations:
            raise InputDataError("There is no best point before the first result: tell one first.")
        state, table, width = self._state, self._table(), self.width_now
        stage = state.in_flight.stage
        if by != "past" and stage is not None and stage.index:
            assert isinstance(self.domain, Arms)
            return best_survivor(by, self.domain, state, table, stage)
        every = torch.arange(len(table.X), device=table.X.device)
        rows = every[self.domain.candidates(state.history.rows)]
        row = int(recommended(by, rows, table, width, state))
        mean, var = (t[row] for t in table.moments())
        half = width * var.sqrt()
        middle, lower, upper = state.hyper.units.to_rewards(
            torch.stack([mean, mean - half, mean + half])
        ).tolist()
        chosen = every[row : row + 1]
        X = state.observations.inputs(self.domain.index.X, chosen).squeeze(0)
        index = self.domain.indices(chosen)
        return Best(None if index is None else int(index), X, middle, lower, upper)

    @exclusive
    @torch.no_grad()
    def gap(self) -> float:
        r"""Return the highest upper bound minus the best lower bound, in units of the rewards.

        If all intervals hold, no point is better by more than ``best(by="lower")``. For a
        width with a guarantee they hold with probability ``1 - delta``. Over a box the highest
        bound is the highest one that BoTorch's optimizer finds. Over a tree it is the highest index
        of the leaves that were not pruned: the maximum is in one of them.

        Raises:
            UnsupportedError: The search is confined to trust regions and does not close the gap.
        """
        check_searches_everywhere(self.domain)
        state, table, width = self._state, self._table(), self.width_now
        stage = state.in_flight.stage
        if stage is not None and stage.index:
            return gap_of_survivors(stage)
        rows = self.domain.candidates(state.history.rows)
        mean, var = (t[rows] for t in table.moments())
        in_flight = state.in_flight.without_outstanding(width, state.num_cells)
        context = self._context(replace(state, in_flight=in_flight))
        highest = highest_bound(self.domain, context)
        lowest = float((mean - width * var.sqrt()).max())
        return state.hyper.units.deviation_to_rewards(max(0.0, highest - lowest))

    # ------------------------------------------------------------------ other arms, saving

    @transaction
    @torch.no_grad()
    def set_arms(self, arms: Tensor) -> None:
        r"""Exchange the arms; history and pending points stay (BKB, Appendix A).

        Arms keep their identity. An index in a suggestion, in :meth:`best` and in :meth:`tell` is
        the row of the arm in the first table, whatever its row now. Arms that were in no table
        before have the indices that follow, in their order. So results can be kept in one list.

        Args:
            arms: ``A' x d``, of the same dtype. Inputs are scaled as for the first arms.

        Example:
            >>> import torch
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bkb import BKB
            >>> arms = torch.arange(5, dtype=torch.float64).unsqueeze(-1)
            >>> optimizer = BKB(arms, covar_module=RBFKernel(), noise_var=0.1, seed=0)
            >>> optimizer.tell([0, 1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0, 4.0])
            >>> new = torch.tensor([[9.0]], dtype=torch.float64)
            >>> optimizer.set_arms(torch.cat([arms[3:], new]))
            >>> sorted(optimizer.ask(3).indices.tolist())
            [3, 4, 5]
        """
        check_arms(arms)
        if self._state.in_flight.stage is not None:
            raise UnsupportedError(
                "Arms cannot be exchanged between batches of an elimination: construct a new "
                "optimizer over the other arms."
            )
        if arms.shape[-1] != self.arms.shape[-1] or arms.dtype != self.arms.dtype:
            raise InputDataError(
                f"arms must be A x {self.arms.shape[-1]} of {self.arms.dtype}, as before, got "
                f"{tuple(arms.shape)} of {arms.dtype}."
            )
        assert isinstance(self.domain, Arms)
        domain = self.domain.exchanged(arms.to(self.device))
        state, table = moved(self.domain, self._state, self._table(), domain)
        self._use(replace(self.parts, domain=domain))
        self._commit(replace(state, in_flight=state.in_flight.without_batch()), table)

    @exclusive
    def state_dict(self) -> dict[str, Any]:
        r"""Return everything a run needs to go on, bit for bit, in numbers, strings and tensors.

        Arms or bounds and the arguments of the optimizer are not included: construct the optimizer
        in the same way, then load. Safe to store with ``torch.save`` and to load with
        ``weights_only=True``.
        """
        saved = save(type(self).__name__, self.parts, self._state)
        return {**saved, "known": getattr(self.domain, "known", None)}

    @transaction
    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        r"""Go on where :meth:`state_dict` was taken.

        Args:
            saved: A state of an optimizer that was constructed in the same way.
        """
        rest = dict(saved)
        known = rest.pop("known", None)
        state = load(type(self).__name__, self.parts, rest)
        if "known" not in saved:
            raise InputDataError("The state is damaged or of another kind: 'known' is missing.")
        self._state = state
        if isinstance(self.domain, Arms):
            known = None if known is None else known.to(self.device)
            self._use(replace(self.parts, domain=replace(self.domain, known=known)))
        self._cached_table, self._cached_batch = None, None
