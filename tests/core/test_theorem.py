"""Step sizes of `thm:34` for T = 10 000, d_u = 4, d_x = 2, so d_min = 2."""

import pytest

import windward as ww


def test_convex_costs():
    # η = √(2/4)·10⁴^(-3/4) = 0.70710678·10⁻³, δ = √8·10⁴^(-1/4) = 2.82842712·10⁻¹
    rates = ww.theorem_rates(10_000, d_u=4, d_x=2)
    assert rates.eta == pytest.approx(7.0710678118654752e-4, rel=1e-12)
    assert rates.delta == pytest.approx(0.28284271247461903, rel=1e-12)
    assert rates.exponent == 0.75


def test_smooth_costs():
    # η = 2^(1/3)/(4^(2/3)·10^(8/3)) = ½·10^(-8/3) and 10^(1/3) = 2.15443469003188372:
    #   10^(-8/3) = 10⁻³·10^(1/3), so η = 1.07721734501594186·10⁻³
    # δ = 8^(1/3)·10⁴^(-1/6) = 2·10^(-2/3) = 2·10⁻¹·10^(1/3) = 0.430886938006376744
    rates = ww.theorem_rates(10_000, d_u=4, d_x=2, smooth=True)
    assert rates.eta == pytest.approx(1.07721734501594186e-3, rel=1e-12)
    assert rates.delta == pytest.approx(0.430886938006376744, rel=1e-12)
    assert rates.exponent == pytest.approx(2 / 3)


@pytest.mark.parametrize("smooth", [False, True])
def test_no_dependence_on_the_state_beyond_d_min(smooth):
    # d_min = d_u from d_x = d_u on.
    assert ww.theorem_rates(500, 3, 3, smooth=smooth) == ww.theorem_rates(
        500, 3, 300, smooth=smooth
    )
    assert ww.theorem_rates(500, 3, 2, smooth=smooth) != ww.theorem_rates(500, 3, 3, smooth=smooth)


@pytest.mark.parametrize(
    ("arguments", "name"), [((0, 1, 1), "T"), ((10, 0, 1), "d_u"), ((10, 1, 1.5), "d_x")]
)
def test_bad_input(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must be an integer"):
        ww.theorem_rates(*arguments)
