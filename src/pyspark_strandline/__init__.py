"""Makes the format `strandline` known to Spark by name wherever the package is installed.

PySpark imports every top-level package whose name begins with `pyspark_` when a format's name is first looked up, and
registers its `DefaultSource` under the name that it gives itself.
"""

from strandline.spark.source import StrandlineSource as DefaultSource

__all__ = ["DefaultSource"]
