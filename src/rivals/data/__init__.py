"""Official data files: found, fetched, checked, decoded once and mapped into memory."""

from rivals.data.catalogue import CATALOGUE, DataSet, Source, dataset
from rivals.data.find import cache_folder, roots, use

__all__ = ["CATALOGUE", "DataSet", "Source", "cache_folder", "dataset", "roots", "use"]
