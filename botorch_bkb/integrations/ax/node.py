r"""``BKBNode``, a generation node of Ax that runs the algorithms of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.core.experiment_status import ExperimentStatus
from ax.core.generator_run import GeneratorRun
from ax.core.observation import ObservationFeatures
from ax.core.types import TParameterization
from ax.exceptions.core import DataRequiredError, OptimizationComplete, UnsupportedError
from ax.exceptions.storage import JSONEncodeError
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.transition_criterion import TransitionCriterion

from botorch_bkb.encoding import NotWritable, from_text, to_text
from botorch_bkb.integrations.ax.ledger import Ledger
from botorch_bkb.integrations.ax.run import CHANGED, Run, created, described
from botorch_bkb.integrations.ax.space import AxSpace, read_goal
from botorch_bkb.integrations.spaces import check_algorithm, on_uninformative
from botorch_bkb.optimizers import BatchCompleteError, ConvergedError, Optimizer
from botorch_bkb.validation import check_positive_integer


class BKBNode(ExternalGenerationNode):
    r"""An Ax generation node that generates trials with an algorithm of this package.

    The node has its own initial design and should be the first node of a strategy. It learns from
    the trials of earlier nodes and from attached trials as well. (After another node, ask for one
    trial first: Ax changes nodes without asking how many trials are available.)

    The node reads a trial's result once, when the trial is completed or stopped early. Failed and
    abandoned trials are given up. So is a trial completed without data, but its data are told if
    they arrive later. Points for which Ax created no trial are suggested again. While a batch is
    closed, Ax raises ``DataRequiredError``. ``client.get_next_trials(max_trials=k)`` returns the
    remaining points of the batch, at most ``lookahead``. With ``beyond=True`` it always returns
    ``k`` trials (if that is at most ``lookahead``), some of them beyond the batch rule.

    If all of the first results have a positive standard error, the squared standard errors are the
    noise variances. Later results without one (NaN or 0) get the mean variance of the first
    results. Otherwise the noise is fitted and standard errors are ignored, unless ``noise_var`` is
    given. In that case ``noise_var`` replaces missing standard errors.

    A node that is saved and loaded, by JSON or SQL, continues exactly as the original would. Ax
    stores ten decimals of a result, so the node rounds results to ten decimals first. It does not
    round values below 1e-6. Rescale such results if this matters.

    The guarantees in the docstring of each algorithm hold for the box that encodes the search
    space. The defaults are heuristic. The kernel sees choices as numbers and treats values with
    close numbers as similar, which is arbitrary for unordered choices.

    Args:
        algorithm: Name of an optimizer class: ``"BBKB"``, ``"BKB"``, ``"GPUCB"``, ``"GPBUCB"``,
            ``"AdaBKB"``, ``"AdaBBKB"``, ``"AdaGPUCB"`` (these three without integers, choices and
            constraints), ``"CompressedUCB"``, ``...``
        name: Name of the node; by default the algorithm.
        seed: Seed of all randomness.
        lookahead: Largest number of trials per call, ideally your ``max_trials``. Ax does not say
            how many of several trials it wants, so the node selects this many points. Those left
            over serve the next call, unless results arrive first.
        beyond: Whether trials are generated beyond the batch rule. Bounds with a guarantee lose it
            there.
        transition_criteria: Criteria for moving on to another node.
        suggested_experiment_status: See Ax.
        options: Further arguments of the algorithm's class, in units of the box (logarithms for
            logarithmic ranges). Parts of this package can be saved, such as ``AllPoints()`` or
            ``SumRule(3.0)``. Functions, custom kernels and kernels with priors cannot. Compressed
            algorithms evaluate uninformative points by default; ``on_uninformative="stop"`` raises
            Ax's ``OptimizationComplete`` instead.

    Example:
        >>> from ax.api.client import Client
        >>> from ax.api.configs import RangeParameterConfig
        >>> from botorch_bkb.ax import BKBNode, bkb_generation_strategy
        >>> client = Client()
        >>> x = RangeParameterConfig(name="x", bounds=(0.0, 1.0), parameter_type="float")
        >>> client.configure_experiment(parameters=[x])
        >>> client.configure_optimization(objective="-loss")
        >>> client.set_generation_strategy(bkb_generation_strategy("BBKB", seed=0))
        >>> for _ in range(3):
        ...     for index, parameters in client.get_next_trials(max_trials=4).items():
        ...         loss = (parameters["x"] - 0.3) ** 2
        ...         _ = client.complete_trial(index, raw_data={"loss": loss})
        >>> abs(client.get_best_parameterization()[0]["x"] - 0.3) < 0.1
        True
    """

    def __init__(
        self,
        algorithm: str = "BBKB",
        *,
        name: str | None = None,
        seed: int | None = None,
        lookahead: int = 8,
        beyond: bool = False,
        transition_criteria: Sequence[TransitionCriterion] | None = None,
        suggested_experiment_status: ExperimentStatus | None = None,
        **options: Any,
    ) -> None:
        made = check_algorithm(algorithm, options)
        check_positive_integer("lookahead", lookahead)
        if on_uninformative(made, options) == "skip":
            raise UnsupportedError(
                'Ax evaluates every trial, got on_uninformative="skip": pass "evaluate" or "stop".'
            )
        super().__init__(
            name=name or algorithm,
            should_deduplicate=False,
            transition_criteria=transition_criteria,
            suggested_experiment_status=suggested_experiment_status,
        )
        self.algorithm, self.seed, self.lookahead = algorithm, seed, lookahead
        self.options, self.beyond = options, beyond
        self._run: Run | None = None
        self._saved: dict[str, Any] | None = None

    @property
    def optimizer(self) -> Optimizer | None:
        r"""The optimizer that selects the points, or None before the first trial."""
        return None if self._run is None else self._run.optimizer

    # ------------------------------------------------------------------ what Ax calls

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        r"""Tell the optimizer the new results of an experiment.

        Args:
            experiment: Experiment whose trials and data are read.
            data: Not used. The node reads only the new data, from the experiment itself.
        """
        run = self._run or self._resumed(experiment)
        if run is None or not run.is_of(experiment):
            space = AxSpace(experiment.search_space)
            optimizer = space.box.make_optimizer(self.algorithm, self.seed, self.options)
            run = Run(
                experiment._name,
                created(experiment),
                space,
                read_goal(experiment),
                optimizer,
                beyond=self.beyond,
            )
        self._run = run
        run.catch_up(experiment, self.name)

    def get_next_candidate(self, pending_parameters: list[TParameterization]) -> TParameterization:
        r"""Return the parameters of the next point.

        Args:
            pending_parameters: Not used. The optimizer knows them.
        """
        assert self._run is not None, "update_generator_state comes first"
        try:
            return self._run.next_point()
        except BatchCompleteError as error:
            raise DataRequiredError(
                f"The batch of {self.name} is closed: complete some trials, or mark them as failed "
                "or abandoned, then ask again. (The first call after another node may ask for more "
                f"trials than available: call again, since selected points are kept. {error})"
            ) from error
        except ConvergedError as error:
            raise OptimizationComplete(str(error)) from error

    def new_trial_limit(self, raise_generation_errors: bool = False) -> int:
        r"""Return the number of points left in the batch, at most ``lookahead``."""
        limit = super().new_trial_limit(raise_generation_errors=raise_generation_errors)
        self.update_generator_state(self.experiment, Data())
        assert self._run is not None
        ours = self._run.look_ahead(self.lookahead)
        return ours if limit == -1 else min(limit, ours)

    def _gen(
        self, *args: Any, fixed_features: ObservationFeatures | None = None, **kwargs: Any
    ) -> GeneratorRun:
        wanted = {} if fixed_features is None else fixed_features.parameters
        fixed = {} if self._run is None else self._run.space.fixed
        if not wanted.items() <= fixed.items():
            raise UnsupportedError(
                f"BKBNode cannot fix parameters for single trials, got {wanted}: make them fixed "
                "parameters of the search space, or attach trials of your own."
            )
        # An integer here makes Ax's SQL storage drop the arms when it loads.
        self.fit_time_since_gen = float(self.fit_time_since_gen)
        return super()._gen(*args, **kwargs)

    # ------------------------------------------------------------------ saving

    def to_dict(self) -> dict[str, Any]:
        r"""Return everything needed to restore the node, for Ax's encoder."""
        run, saved = self._run, self._saved
        if run is not None:
            saved = {
                "experiment": run.experiment,
                "created": run.created,
                "described": described(run.space, run.goal),
                "ledger": run.ledger.to_dict(),
                "noise": run.noise,
                "state": to_text(run.state),
            }
        return {
            "__type": type(self).__name__,
            "algorithm": self.algorithm,
            "name": self.name,
            "seed": self.seed,
            "lookahead": self.lookahead,
            "beyond": self.beyond,
            "transition_criteria": list(self.transition_criteria),
            "suggested_experiment_status": self.suggested_experiment_status,
            "previous_node_name": self._previous_node_name,
            "options": self._written_options(),
            "saved": saved,
        }

    def _written_options(self) -> str:
        try:
            return to_text(self.options)
        except NotWritable as error:
            raise JSONEncodeError(
                f"BKBNode cannot be saved with {error} among its options: use numbers, strings, "
                "lists, dictionaries, tensors, parts of this package and gpytorch's own kernels "
                "without priors."
            ) from error

    @classmethod
    def from_dict(
        cls,
        options: str,
        saved: dict[str, Any] | None,
        previous_node_name: str | None = None,
        **arguments: Any,
    ) -> BKBNode:
        r"""Restore a node from the output of :meth:`to_dict`, as read by Ax's decoder."""
        node = cls(**arguments, **from_text(options))
        node._saved, node._previous_node_name = saved, previous_node_name
        return node

    def _resumed(self, experiment: Experiment) -> Run | None:
        r"""Return the saved run, or None if there is none for this experiment."""
        saved = self._saved
        # Ax's SQL storage keeps times in whole seconds.
        if saved is None or abs(saved["created"] - created(experiment)) > 1:
            return None
        space, goal = AxSpace(experiment.search_space), read_goal(experiment)
        if described(space, goal) != saved["described"]:
            raise UnsupportedError(CHANGED)
        optimizer = space.box.make_optimizer(self.algorithm, self.seed, self.options)
        optimizer.load_state_dict(from_text(saved["state"]))
        ledger = Ledger.from_dict(saved["ledger"])
        name, when = saved["experiment"], created(experiment)
        return Run(name, when, space, goal, optimizer, ledger, saved["noise"], beyond=self.beyond)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BKBNode) and self.to_dict() == other.to_dict()


def bkb_generation_strategy(algorithm: str = "BBKB", **arguments: Any) -> GenerationStrategy:
    r"""Return a generation strategy with a single :class:`BKBNode`.

    Args:
        algorithm: See :class:`BKBNode`.
        arguments: See :class:`BKBNode`.

    Example:
        >>> bkb_generation_strategy("GPUCB", seed=0).name
        'GPUCB'
    """
    return GenerationStrategy(name=algorithm, nodes=[BKBNode(algorithm, **arguments)])
