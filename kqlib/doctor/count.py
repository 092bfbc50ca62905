"""Spark counts to ten: run by `trials.spark` in a process of its own.

In:  a directory for all its files, with log4j2.properties. Out: "counted 10", and its Java gone.
"""

import sys

from pyspark.sql import SparkSession

place = sys.argv[1]
settings = f"file:{place}/log4j2.properties"
java = f'"-Djava.io.tmpdir={place}" "-Dlog4j2.configurationFile={settings}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1'
build = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").config("spark.local.dir", place)
build = build.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
spark = build.config("spark.driver.extraJavaOptions", java).getOrCreate()
gateway, counted = spark.sparkContext._gateway, spark.range(10).count()
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()  # its Java ends when this pipe does, and is waited for: nothing is left to anybody else
gateway.proc.wait(20)
print("counted", counted)
