"""The middle of values that may fall into two groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def middle_mean(values: npt.ArrayLike) -> float:
    """Mean of the middle half of `values` (the interquartile mean); NaN of none.

    Unlike the median it does not jump where half of the values are twice the others, as copies that lose their core are;
    unlike the mean it ignores a single hiccup.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    count = len(ordered)
    if count == 0:
        return float("nan")
    # Values on a quarter's edge count in part.
    places = np.arange(count)
    weights = np.clip(np.minimum(places + 1, 0.75 * count) - np.maximum(places, 0.25 * count), 0.0, 1.0)
    return float(np.average(ordered, weights=weights))
