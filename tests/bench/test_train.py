"""The benchmark of training counts operations as one would by hand."""

from windward.bench.train import matmul_seconds, update_flops


def test_operations_of_an_update_by_hand() -> None:
    # d_x = 2, d_u = 1, one hidden layer of 3, 5 atoms, 10 rows
    policy = [2 * 10 * 2 * 3, 2 * 10 * 3 * 1]
    critic = [2 * 10 * 3 * 3, 2 * 10 * 3 * 5]
    forward = 2 * sum(policy) + 3 * sum(critic)  # policy and its target; critic twice and target
    weights = sum(policy) + sum(critic)
    inputs = policy[1] + critic[1] + sum(critic)  # dQ/du goes through all of the critic
    assert update_flops(2, 1, (3,), 5, 10) == forward + weights + inputs


def test_the_size_of_the_papers_networks() -> None:
    assert round(update_flops(11, 3, (256, 256, 256), 51, 256) / 1e6) == 726


def test_a_machine_multiplies() -> None:
    assert matmul_seconds(1) > 0
