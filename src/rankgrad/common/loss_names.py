"""Name of every loss -> its class, as "module:Class".

The values are texts, not classes. So a command that only lists the names, such as `rankgrad train --help`, does not
import torch, which takes seconds. `rankgrad.losses.LOSSES` has the classes.
"""

from __future__ import annotations

LOSSES: dict[str, str] = {
    "roadmap": "rankgrad.losses.roadmap:ROADMAPLoss",
    "adaptive_roadmap": "rankgrad.losses.roadmap:AdaptiveROADMAPLoss",
    "adaptive_triplet": "rankgrad.losses.adaptive_triplet:AdaptiveTripletLoss",
    "supap": "rankgrad.losses.average_precision:SupAPLoss",
    "smooth_ap": "rankgrad.losses.average_precision:SmoothAPLoss",
    "info_nce": "rankgrad.losses.info_nce:InfoNCELoss",
    "pnp": "rankgrad.losses.pnp:PNPLoss",
    "rambo_recall": "rankgrad.losses.rambo:RaMBORecallLoss",
    "rambo_ap": "rankgrad.losses.rambo:RaMBOAPLoss",
    "fastap": "rankgrad.losses.histogram:FastAPLoss",
    "softbin_ap": "rankgrad.losses.histogram:SoftBinAPLoss",
    "roc_auc": "rankgrad.losses.roc:ROCAUCLoss",
    "auc": "rankgrad.losses.auc:AUCLoss",
    "recall_at_k": "rankgrad.losses.graded:RecallAtKLoss",
    "suprecall": "rankgrad.losses.sup_rank:SupRecallLoss",
    "ndcg": "rankgrad.losses.graded:NDCGLoss",
    "lambda": "rankgrad.losses.lambda_loss:LambdaLoss",
    "list_net": "rankgrad.losses.list_net:ListNetLoss",
    "sl_at_k": "rankgrad.losses.list_net:SLatKLoss",
    "list_distillation": "rankgrad.losses.distillation:ListDistillationLoss",
    "margin_mse": "rankgrad.losses.distillation:MarginMSELoss",
    "grade_bce": "rankgrad.losses.distillation:GradeBCELoss",
    "supndcg": "rankgrad.losses.sup_rank:SupNDCGLoss",
    "h_ap": "rankgrad.losses.graded:HAPLoss",
    "spearman": "rankgrad.losses.spearman:SpearmanLoss",
    "calibration": "rankgrad.losses.roadmap:CalibrationLoss",
}
