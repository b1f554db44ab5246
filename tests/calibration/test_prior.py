"""Correction for a deployment prior: Bayes' rule where both priors are known."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal

from calibration.prior import Prior, deployment_prior, parsed_prior

NAMES = ("ant", "bee", "cat")


def posterior(x: torch.Tensor, prior: tuple[float, ...]) -> torch.Tensor:
    """Of three Gaussian classes on a line, by Bayes' rule."""
    means = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    likelihood = Normal(means, 1.0).log_prob(x[:, None]).exp()
    weighted = likelihood * torch.tensor(prior, dtype=torch.float64)
    return weighted / weighted.sum(-1, keepdim=True)


def test_the_corrected_posterior_is_that_of_the_other_prior() -> None:
    old, new = (0.2, 0.5, 0.3), (0.7, 0.25, 0.05)
    x = torch.linspace(-4, 5, 60, dtype=torch.float64)
    prior = Prior(calibrated=old, deployed=new)
    assert torch.allclose(prior.corrected(posterior(x, old)), posterior(x, new), atol=1e-12)
    same = Prior(calibrated=old, deployed=old).corrected(posterior(x, old))
    assert torch.allclose(same, posterior(x, old), atol=1e-14)


def test_classes_that_are_not_named_keep_their_proportions() -> None:
    prior = deployment_prior({"ant": 0.6}, NAMES, (0.2, 0.5, 0.3))
    assert prior.deployed == pytest.approx((0.6, 0.25, 0.15))
    assert deployment_prior({"ant": 1.0}, NAMES, (0.2, 0.5, 0.3)).deployed == (1.0, 0.0, 0.0)


def test_certainty_and_classes_that_nothing_calibrated_stay_finite() -> None:
    prior = deployment_prior({"ant": 0.5}, NAMES, (0.4, 0.6, 0.0))
    rows = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.4, 0.6, 0.0]])
    expected = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]).double()
    assert torch.allclose(prior.corrected(rows), expected, atol=1e-7)
    with pytest.raises(ValueError, match="no row of class 'cat'"):
        deployment_prior({"cat": 0.5}, NAMES, (0.4, 0.6, 0.0))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"dog": 0.1}, "no class 'dog'; the classes are ant, bee, cat"),
        ({"ant": float("nan")}, "ant: found nan"),
        ({"ant": 0.7, "bee": 0.6}, "sum to 1.3; they sum to at most 1"),
        ({"ant": 0.2, "bee": 0.2, "cat": 0.2}, "sum to 0.6; those of all classes sum to 1"),
    ],
)
def test_impossible_priors_are_refused(wanted: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        deployment_prior(wanted, NAMES, (0.2, 0.5, 0.3))


def test_shares_are_read_behind_the_last_sign_of_equality() -> None:
    assert parsed_prior("fraud=0.002") == {"fraud": 0.002}
    assert parsed_prior("a = 0.2, b=.3") == {"a": 0.2, "b": 0.3}
    assert parsed_prior("x=1, y=0.5") == {"x": 1.0, "y": 0.5}
    assert parsed_prior("age, >50=0.1") == {"age, >50": 0.1}
    for text in ("", "0.3", "fraud", "=0.3", "fraud=", "fraud=0.2,b", "a=0.1,a=0.2"):
        with pytest.raises(ValueError, match="--prior"):
            parsed_prior(text)
