"""Faults that no experiment reaches in a running script, and why: there a question is right, and a verdict is not.

Everything else is intervenable. The scorer may know its cases; the product does not.
"""

from __future__ import annotations

NOT_INTERVENABLE = {
    "channel_order_differs_at_test": "a transform",
    "test_transform_mismatch": "a transform",
    "hflip_keys_image_only": "a transform",
    "stats_in_other_unit": "numbers in a settings file that a transform takes",
    "export_of_zeros": "the content of the inputs",
    "completion_only_labels": "the content of the labels",
    "labels_read_before_shuffle": "the order of the labels",
    "labels_in_listing_order": "the order of the labels",
    "targets_one_row_late": "the order of the labels",
    "views_label_repeat": "the order of the labels",
    "half_the_shards_flipped": "the content of the labels",
    "manifest_ids_differ": "the content of the labels",
    "val_class_order": "the content of the labels",
    "class_counts_by_frequency": "the content of a table that the loss is weighted with",
    "dpo_config_beta": "the weight of a term",
    "vae_pixel_mean_loss": "the weight of a term",
    "distill_teacher_against_itself": "the arguments of a term",
    "mask_polarity": "a mask inside a function of the user's",
}


def intervenable(case: str) -> bool:
    """Whether an experiment can settle what is wrong with the case, named `slug` or `project/slug`."""
    return case.rpartition("/")[2] not in NOT_INTERVENABLE
