"""The meaning of the numbers of a detector on a page."""

from __future__ import annotations

from rankgrad.evaluation.measures import BETTER

# Pattern of the name -> short explanation.
WORDS = {
    "AP50_95": "COCO's mean over the overlaps 50, 55, ..., 95 %",
    r"AP(\d[\d.]*)_11": "VOC 2007's mean over 11 recalls, overlap of {0} % or more",
    r"AP(\d[\d.]*)": "area under precision and recall, overlap of {0} % or more",
    "found at all": "fraction of the objects that some detection overlaps",
    "best F1": "highest harmonic mean of precision and recall",
    "at score": "score of the best F1, from which detections are drawn",
    "loss_classifier": "loss of the classes of the detections",
    "loss_box_reg": "loss of the boxes of the detections",
    "loss_objectness": "loss of the proposals: object or not",
    "loss_rpn_box_reg": "loss of the boxes of the proposals",
    "ranking/loss": "1 \N{MINUS SIGN} AP over the proposals",
    "ranking/cross_entropy": "cross-entropy, for comparison",
    "ranking/share": "fraction of cross-entropy in the loss",
}
DEFINITIONS = {
    "AP50_95": "COCO's AP: mean over the overlaps 50, 55, ..., 95 %, and over the recalls 0, 0.01, ..., 1, of the best "
    "precision at this recall or a higher one. Each detection takes the free object with the largest overlap. Mean "
    f"over the classes. {BETTER}",
    r"AP(\d[\d.]*)_11": "Mean over the recalls 0, 0.1, ..., 1 of the best precision at this recall or a higher one. An "
    f"object is found if a detection overlaps it by {{0}} % or more. {BETTER}",
    r"AP(\d[\d.]*)": "Area under the curve of precision over recall, made monotone as in VOC 2010. An object is found "
    "if a detection of its class overlaps it by {0} % or more, and only once. Mean over the classes. " + BETTER,
}
