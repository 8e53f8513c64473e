"""Fitted values in files: what took minutes to learn is loaded in no time."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import files
from windward.policies.features import fingerprint, from_file
from windward.policies.predictor import predictor
from windward.policies.values import Fit, Network, Values

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
    return {
        "gamma": values.gamma,
        "features": values.features.name,
        "features_at": fingerprint(values.features, values.observation_space),
        "fit": fit,
    }


def values_from(
    arrays: dict[str, np.ndarray],
    header: dict[str, Any],
    policy: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    features: Any = None,
    path: Any = "the file",
) -> Values:
    """Values from a file's arrays and header, for the policy that they are of."""
    network, shape = network_from(arrays), observation_space.shape or ()
    if len(shape) == 1 and len(network.mean) != shape[0]:
        raise ValueError(
            f"{path!s} is of observations with {len(network.mean)} numbers; here they have "
            f"{shape[0]}"
        )
    phi = from_file(header["features"], header["features_at"], observation_space, features, path)
    assert phi is not None
    fit = Fit(
        header["fit"]["bellman"],
        header["fit"]["costs"],
        np.array(header["fit"]["vector_bellman"]),
        np.array(header["fit"]["vector_costs"]),
    )
    act = predictor(policy, action_space)
    return Values(network, act, observation_space, action_space, phi, header["gamma"], fit, None, 0)


def save_values(values: Values, path: str | Path) -> None:
    """Writes values; the policy itself is not in the file, and no step that was learned from."""
    files.write(path, network_arrays(values.network), {"kind": KIND} | fit_header(values))


def load_values(path: str | Path, env: gym.Env, policy: Any, features: Any = None) -> Values:
    """Values of this policy in this environment, as they were saved.

    `features` is needed again when they were a matrix or a function: files hold no code.
    """
    arrays, header = files.read(path, KIND)
    return values_from(
        arrays, header, policy, env.observation_space, env.action_space, features, path
    )
