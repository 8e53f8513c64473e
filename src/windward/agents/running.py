"""A call of `learn`: environments, threads and files are taken up, and given back at its end."""

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import gymnasium as gym
from threadpoolctl import threadpool_limits

from windward.adapt.sources import Source
from windward.agents.actors import Actors
from windward.agents.crew import Crew
from windward.agents.pipeline import Pipeline
from windward.agents.progress import Progress
from windward.agents.training import Plan, Training, seed_of
from windward.policies.features import Features


def run(
    training: Training,
    plan: Plan,
    make: Callable[..., gym.Env],
    features: Features | None,
    sizes: tuple[int, int, int],
    progress_bar: bool,
    source: Callable[[list[gym.Env], list[int]], Source],
) -> None:
    """Learns until the plan is fulfilled, or its callback says stop.

    `sizes` are those of an observation, an action and φ; `source` gives what a module hears of
    environments, with a seed for each.
    """
    chosen, module = training.settings, training.adaptation
    with ExitStack() as stack:
        crew = stack.enter_context(closing(Crew()))
        pipeline = Pipeline(
            chosen.rule,
            training.learner,
            crew,
            values=chosen.robust.update in ("both", "values"),
            base=chosen.robust.update in ("both", "base"),
        )
        actors = Actors(
            make, chosen.num_envs, chosen.sigma, training.recent, features, adaptation=module
        )
        stack.enter_context(closing(actors))
        training.log.open(plan.folder)
        stack.callback(training.log.close)
        # The policy is small: BLAS threads would only get in the way of the updates' threads.
        stack.enter_context(threadpool_limits(1, "blas"))
        progress = stack.enter_context(Progress(plan.total, training.timesteps, progress_bar))
        try:
            going = True
            while going and training.timesteps < plan.total:
                if module is not None:
                    # Simulators begin anew at every checkpoint: a resumed run is the same run.
                    first = int(chosen.robust.simulator.get("seed", training.seed))
                    at = training.timesteps
                    seeds = [seed_of(first, 7, at, i) for i in range(chosen.num_envs)]
                    module.source = source(actors.envs, seeds)
                going = training.segment(plan, actors, pipeline, progress)
        except BaseException:
            # Stopped in the middle: what was learned until then is this agent's all the same.
            with suppress(Exception):
                training.adopt(pipeline)
            raise
