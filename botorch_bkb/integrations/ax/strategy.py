r"""Ax's modular generator with a model and an acquisition function that scale."""

from __future__ import annotations

from typing import Any

from ax.adapter.registry import Generators
from ax.core.trial_status import TrialStatus
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bkb.acquisition import select_baseline
from botorch_bkb.dictionaries import DictionaryRule
from botorch_bkb.models import DTCGP
from botorch_bkb.validation import check_positive_integer

#: Default number of baseline points.
MAX_BASELINE = 100


class SmallBaselineAcquisition(Acquisition):
    r"""Ax's acquisition with a small ``X_baseline`` (:func:`~botorch_bkb.select_baseline`).

    Noisy expected improvement computes a joint posterior over ``X_baseline``, by default all
    observed points. With one objective (or a weighted sum of metrics) and no outcome constraints,
    this class uses at most ``max_baseline`` of these points. Otherwise it uses all points, as Ax
    does. The selection is a heuristic.

    Set ``max_baseline`` in the generator's ``acquisition_options``.
    """

    def _construct_botorch_acquisition(
        self,
        botorch_acqf_class: type[AcquisitionFunction],
        botorch_acqf_options: dict[str, Any],
        model: Model,
    ) -> AcquisitionFunction:
        observed = self.X_observed
        self.X_observed = self._baseline(model, observed)
        try:
            return super()._construct_botorch_acquisition(
                botorch_acqf_class, botorch_acqf_options, model
            )
        finally:
            self.X_observed = observed

    def _baseline(self, model: Model, observed: Tensor | None) -> Tensor | None:
        most = self.options.get("max_baseline", MAX_BASELINE)
        weights = self._objective_weights
        is_one = weights.dim() == 1 or len(weights) == 1
        if observed is None or len(observed) <= most or self._outcome_constraints is not None:
            return observed
        if not (is_one and isinstance(model, DTCGP)):
            return observed
        transform = ScalarizedPosteriorTransform(weights.flatten().to(observed))
        return select_baseline(model, most, transform)


def dtcgp_generation_strategy(
    num_initialization_trials: int = 5,
    *,
    dictionary: DictionaryRule | None = None,
    max_baseline: int = MAX_BASELINE,
    seed: int | None = None,
    model_options: dict[str, Any] | None = None,
    generator_gen_kwargs: dict[str, Any] | None = None,
) -> GenerationStrategy:
    r"""Return a strategy of Sobol trials, then Ax's modular generator with ``DTCGP`` as its model.

    All features of Ax's generator work: choices, constraints, several objectives. A fit costs
    ``O(n m^2)`` for a dictionary of ``m`` points. With one objective and no outcome constraints the
    acquisition function uses ``max_baseline`` points instead of ``n``. Ax fits the model in every
    call, which takes most of the time. To save time, ask for several trials at once, or pass
    ``RidgeLeverageSampling(max_size=...)``. No regret bound is claimed.

    Args:
        num_initialization_trials: Number of Sobol trials; attached trials count towards it.
        dictionary: Dictionary rule; by default all points up to 500, beyond that ridge leverage
            sampling.
        max_baseline: See :class:`SmallBaselineAcquisition`.
        seed: Seed of the Sobol design.
        model_options: Further arguments of :class:`~botorch_bkb.DTCGP`.
        generator_gen_kwargs: Arguments passed on to the generator, such as ``{"model_gen_options":
            {"optimizer_kwargs": {"num_restarts": 4}}}``.

    Example:
        >>> from botorch_bkb.ax import dtcgp_generation_strategy
        >>> strategy = dtcgp_generation_strategy(8)  # for client.set_generation_strategy
        >>> list(strategy.nodes_by_name)
        ['Sobol', 'DTCGP']
    """
    check_positive_integer("num_initialization_trials", num_initialization_trials)
    check_positive_integer("max_baseline", max_baseline)
    options = {"dictionary": dictionary} if dictionary is not None else {}
    config = ModelConfig(
        botorch_model_class=DTCGP, model_options={**options, **(model_options or {})}
    )
    arguments = {
        "surrogate_spec": SurrogateSpec(model_configs=[config]),
        "acquisition_class": SmallBaselineAcquisition,
        "acquisition_options": {"max_baseline": max_baseline},
    }
    after = MinTrials(
        threshold=num_initialization_trials,
        transition_to="DTCGP",
        not_in_statuses=[TrialStatus.FAILED, TrialStatus.ABANDONED],
        use_all_trials_in_exp=True,
    )
    observed = MinTrials(
        threshold=max(1, num_initialization_trials // 2),
        transition_to="DTCGP",
        only_in_statuses=[TrialStatus.COMPLETED, TrialStatus.EARLY_STOPPED],
        use_all_trials_in_exp=True,
        count_only_trials_with_data=True,
    )
    sobol = GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": seed})
    botorch = GeneratorSpec(
        Generators.BOTORCH_MODULAR,
        generator_kwargs=arguments,
        generator_gen_kwargs=generator_gen_kwargs or {},
    )
    return GenerationStrategy(
        name="Sobol+DTCGP",
        nodes=[
            GenerationNode("Sobol", [sobol], transition_criteria=[after, observed]),
            GenerationNode("DTCGP", [botorch]),
        ],
    )
