"""The Spark session that pipelines use, and the Java process behind it.

session        a session with the settings that pipelines need
java           finds Java, and its version
launcher       starts Java for Spark
class_archive  Spark's classes as a Java class-data archive, which halves the time of a start
"""
