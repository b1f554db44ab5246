"""The metrics there are, in the order in which tables show them.

Another package adds its own by an entry point in the group ``calsweep.metrics``.

The regions of practical equivalence were set by what a difference means to who uses the
predictions, before any verdict was simulated or shown:

- NLL, 0.01 nats: the true class gets a probability that is 1 % larger or smaller in the
  geometric mean (e^0.01 = 1.01).
- error and accuracy, 0.005: half a percentage point, 5 decisions in 1000.
- ECE, its equal-mass and its smooth form, 0.005: on average a stated confidence is off by half a
  percentage point more or less, which two digits of it do not show; it is also about what
  ECE reads by chance alone on several thousand rows of a perfectly calibrated model.
- Brier, 0.005: the squared error of a probability vector that moves by 0.05 on two classes
  (2 · 0.05² = 0.005). Half a point of error with certain predictions would move it by 0.01.

The others are not compared, and have none.

For rare classes: AUROC, average precision and Brier skill have their place beside the base rate
where a network is looked at closely; the leaderboard stays as narrow as it was.
"""

from __future__ import annotations

import math

from calibration.metrics.metric import Metric, Metrics, Shown

HERE = "calibration.metrics"

METRICS = Metrics("metric", "calsweep.metrics", ordered=True)

_LISTED = (
    Metric(
        name="ece",
        title="ECE",
        description="expected calibration error, equal-width bins",
        compute=f"{HERE}.top_label:ece_of",
        resample=f"{HERE}.bootstrap:resampled_ece",
        binned=True,
        shown=Shown.HEADLINE,
        curve=True,
        region=0.005,
    ),
    Metric(
        name="nll",
        title="NLL",
        description="negative log-likelihood (proper score)",
        compute=f"{HERE}.proper_scores:nll_of",
        resample=f"{HERE}.bootstrap:resampled_nll",
        unit="nats",
        bounds=(0.0, math.inf),
        needs="rows",
        shown=Shown.HEADLINE,
        curve=True,
        region=0.01,
    ),
    Metric(
        name="brier",
        title="Brier",
        description="Brier score summed over classes, 0 to 2 (proper score)",
        compute=f"{HERE}.proper_scores:brier_of",
        resample=f"{HERE}.bootstrap:resampled_brier",
        unit="score",
        bounds=(0.0, 2.0),
        needs="rows",
        shown=Shown.LEADERBOARD,
        curve=True,
        region=0.005,
    ),
    Metric(
        name="error",
        title="error",
        description="share of wrong top labels",
        compute=f"{HERE}.proper_scores:error_of",
        resample=f"{HERE}.bootstrap:resampled_error",
        shown=Shown.HEADLINE,
        curve=True,
        region=0.005,
    ),
    Metric(
        name="ace",
        title="ACE",
        description="adaptive calibration error, equal-mass bins",
        compute=f"{HERE}.top_label:ace_of",
        resample=f"{HERE}.bootstrap:resampled_ace",
        binned=True,
        shown=Shown.DETAIL,
        curve=True,
        region=0.005,
    ),
    Metric(
        name="classwise_ece",
        title="class-wise ECE",
        description="binned error of each class's probability, mean over classes",
        compute=f"{HERE}.classwise:classwise_ece_of",
        resample=f"{HERE}.bootstrap:resampled_classwise_ece",
        binned=True,
        needs="rows",
        shown=Shown.DETAIL,
    ),
    Metric(
        name="auroc",
        title="AUROC",
        description="area under the ROC curve; one-vs-rest mean if K > 2",
        compute=f"{HERE}.one_vs_rest:auroc_of",
        resample=f"{HERE}.bootstrap_influences:resampled_auroc",
        unit="score",
        direction="maximize",
        needs="rows",
        shown=Shown.DETAIL,
    ),
    Metric(
        name="average_precision",
        title="average precision",
        description="of the rarer of two classes; one-vs-rest mean if K > 2",
        compute=f"{HERE}.one_vs_rest:average_precision_of",
        resample=f"{HERE}.bootstrap_influences:resampled_average_precision",
        unit="score",
        direction="maximize",
        needs="rows",
        shown=Shown.DETAIL,
    ),
    Metric(
        name="brier_skill",
        title="Brier skill",
        description="1 minus Brier over that of always saying the base rates",
        compute=f"{HERE}.skill:brier_skill_of",
        resample=f"{HERE}.bootstrap_influences:resampled_brier_skill",
        unit="score",
        direction="maximize",
        bounds=(-math.inf, 1.0),
        needs="rows",
        shown=Shown.DETAIL,
    ),
    Metric(
        name="base_rate",
        title="base rate",
        description="share of the rarest class",
        compute=f"{HERE}.rare:base_rate_of",
        resample=f"{HERE}.bootstrap_influences:resampled_base_rate",
        direction="none",
        needs="rows",
        shown=Shown.DETAIL,
    ),
    Metric(
        name="rare_class_ece",
        title="rare-class ECE",
        description="equal-mass binned error of the rarest class's probability",
        compute=f"{HERE}.rare:rare_class_ece_of",
        resample=f"{HERE}.bootstrap_influences:resampled_rare_class_ece",
        binned=True,
        needs="rows",
        shown=Shown.FURTHER,
    ),
    Metric(
        name="rare_class_bias",
        title="rare-class bias",
        description="mean probability of the rarest class minus its share",
        compute=f"{HERE}.rare:rare_class_bias_of",
        resample=f"{HERE}.bootstrap_influences:resampled_rare_class_bias",
        direction="none",
        bounds=(-1.0, 1.0),
        needs="rows",
    ),
    Metric(
        name="balanced_error",
        title="balanced error",
        description="share of wrong top labels, mean over classes",
        compute=f"{HERE}.skill:balanced_error_of",
        resample=f"{HERE}.bootstrap_influences:resampled_balanced_error",
        needs="rows",
        shown=Shown.FURTHER,
    ),
    Metric(
        name="overconfidence",
        title="over-confidence",
        description="mean confidence minus accuracy: above 0 over-, below under-",
        compute=f"{HERE}.top_label:overconfidence_of",
        resample=f"{HERE}.bootstrap_influences:resampled_overconfidence",
        direction="none",
        bounds=(-1.0, 1.0),
        shown=Shown.FURTHER,
    ),
    # One lonely sample decides mce and weighs as much as a thousand in average_ce, and resamples
    # say nothing about such a sample; mmce is a matter of all pairs, and classwise_ace would cost
    # as much as all the rest together: these have no interval.
    Metric(
        name="mce",
        title="MCE",
        description="largest calibration gap of an equal-width bin",
        compute=f"{HERE}.top_label:mce_value_of",
        resample=None,
        binned=True,
        shown=Shown.FURTHER,
        curve=True,
    ),
    Metric(
        name="mce_count",
        title="MCE's samples",
        description="samples in the bin that decides mce",
        compute=f"{HERE}.top_label:mce_count_of",
        resample=None,
        unit="count",
        direction="none",
        bounds=(0.0, math.inf),
        binned=True,
    ),
    Metric(
        name="average_ce",
        title="average CE",
        description="unweighted mean gap of the non-empty equal-width bins",
        compute=f"{HERE}.top_label:average_ce_of",
        resample=None,
        binned=True,
    ),
    Metric(
        name="classwise_ace",
        title="class-wise ACE",
        description="equal-mass binned error per class, mean over classes",
        compute=f"{HERE}.classwise:classwise_ace_of",
        resample=None,
        binned=True,
        needs="rows",
    ),
    Metric(
        name="ks",
        title="KS",
        description="Kolmogorov-Smirnov error: largest cumulative gap",
        compute=f"{HERE}.top_label:ks_of",
        resample=f"{HERE}.bootstrap:resampled_ks",
    ),
    Metric(
        name="kuiper",
        title="Kuiper",
        description="Kuiper error: spread of the cumulative gap",
        compute=f"{HERE}.top_label:kuiper_of",
        resample=f"{HERE}.bootstrap:resampled_kuiper",
    ),
    Metric(
        name="smooth_ece",
        title="smooth ECE",
        description="kernel-smoothed ECE at its own bandwidth",
        compute=f"{HERE}.smooth:smooth_ece_of",
        resample=f"{HERE}.bootstrap:resampled_smooth_ece",
        shown=Shown.FURTHER,
        region=0.005,
    ),
    Metric(
        name="kde_ece",
        title="KDE-ECE",
        description="ECE by kernel density estimation of confidence (Zhang et al. 2020)",
        compute=f"{HERE}.kde:kde_ece_of",
        resample=f"{HERE}.bootstrap:resampled_kde_ece",
    ),
    Metric(
        name="mmce",
        title="MMCE",
        description="maximum mean calibration error (kernel)",
        compute=f"{HERE}.kernel:mmce_of",
        resample=None,
    ),
    Metric(
        name="l2_debiased",
        title="debiased L2",
        description="squared binned error minus its sampling variance",
        compute=f"{HERE}.top_label:l2_debiased_of",
        resample=f"{HERE}.bootstrap:resampled_l2_debiased",
        unit="score",
        bounds=(-math.inf, 1.0),
        binned=True,
    ),
    Metric(
        name="aurc",
        title="AURC",
        description="area under the risk-coverage curve",
        compute=f"{HERE}.selective:aurc_of",
        resample=f"{HERE}.bootstrap:resampled_aurc",
        shown=Shown.FURTHER,
    ),
    Metric(
        name="accuracy",
        title="accuracy",
        description="share of right top labels",
        compute=f"{HERE}.proper_scores:accuracy_of",
        resample=f"{HERE}.bootstrap:resampled_accuracy",
        direction="maximize",
        curve=True,
        region=0.005,
    ),
    Metric(
        name="refinement",
        title="refinement",
        description="NLL after the best temperature: what no scaling can improve",
        compute=f"{HERE}.refinement:refinement_of",
        resample=None,
        unit="nats",
        bounds=(0.0, math.inf),
        needs="rows",
        curve=True,
        on_demand=True,
    ),
    Metric(
        name="true_ce",
        title="true CE",
        description="calibration error against the known posterior",
        compute=f"{HERE}.synthetic:true_ce_of",
        resample=None,
        needs="posterior",
        shown=Shown.FURTHER,
    ),
    Metric(
        name="posterior_gap",
        title="posterior gap",
        description="mean distance of the confidence to the known posterior's",
        compute=f"{HERE}.synthetic:posterior_gap_of",
        resample=None,
        needs="posterior",
        shown=Shown.FURTHER,
    ),
)
for _metric in _LISTED:
    METRICS.register(_metric.name)(_metric)
