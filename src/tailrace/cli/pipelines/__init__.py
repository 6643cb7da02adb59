"""`tailrace run` and `tailrace replay`: pipelines on Spark.

run     runs the pipelines of a Python file
replay  runs one over history
view    progress lines, for people or as JSON
errors  failures of Spark, Java and pipelines as messages and exit codes
"""
