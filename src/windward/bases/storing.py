"""Fitted values in files: what took minutes to learn is loaded in no time."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import files
from windward.bases.features import as_features
from windward.bases.policies import predictor
from windward.bases.values import Fit, Network, Values, input_of

KIND = "windward.Values"


def network_arrays(network: Network) -> dict[str, np.ndarray]:
    """A network of values as named arrays."""
    scales = {name: getattr(network, name) for name in ("mean", "spread", "size")}
    return scales | {f"net/{name}": np.asarray(each) for name, each in network.params.items()}


def network_from(arrays: dict[str, np.ndarray]) -> Network:
    """The network that `network_arrays` took apart."""
    params = {name[4:]: each for name, each in arrays.items() if name.startswith("net/")}
    return Network(params, arrays["mean"], arrays["spread"], arrays["size"])


def fit_header(values: Values) -> dict[str, Any]:
    """What a file says of values beside the arrays."""
    fit = {
        name: each.tolist() if isinstance(each, np.ndarray) else each
        for name, each in values.fit._asdict().items()
    }
    return {"gamma": values.gamma, "features": values.features.name, "fit": fit}


def values_from(
    arrays: dict[str, np.ndarray],
    header: dict[str, Any],
    policy: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    features: Any = None,
) -> Values:
    """Values from a file's arrays and header, for the policy that they are of."""
    phi = as_features(header["features"] if features is None else features, observation_space)
    fit = Fit(
        header["fit"]["bellman"],
        header["fit"]["costs"],
        np.array(header["fit"]["vector_bellman"]),
        np.array(header["fit"]["vector_costs"]),
    )
    network = network_from(arrays)
    see = input_of(observation_space, phi)
    act = predictor(policy, action_space)
    values = Values(network, act, action_space, phi, see, header["gamma"], fit, None, 0)
    sample = np.zeros((1, *(observation_space.shape or ())), observation_space.dtype)
    if see(sample).shape[1:] != network.mean.shape or phi.d_w + 1 != len(network.size):
        raise ValueError(
            f"these values are of observations with {len(network.mean)} numbers and "
            f"{len(network.size) - 1} features; here are {see(sample).shape[1]} and {phi.d_w}"
        )
    return values


def save_values(values: Values, path: str | Path) -> None:
    """Writes values; the policy itself is not in the file, and no step that was learned from."""
    files.write(path, network_arrays(values.network), {"kind": KIND} | fit_header(values))


def load_values(path: str | Path, env: gym.Env, policy: Any, features: Any = None) -> Values:
    """Values of this policy in this environment, as they were saved.

    `features` is needed again when they were a matrix or a function: files hold no code.
    """
    arrays, header = files.read(path, KIND)
    return values_from(arrays, header, policy, env.observation_space, env.action_space, features)
