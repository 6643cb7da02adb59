"""The Spark session that pipelines use, and the Java process behind it.

session         a session with the settings that pipelines need
shared_session  a session of several pipelines, replaced where it seems to be damaged
java            finds Java, and its version
launcher        starts Java for Spark
java_log        the file that Java logs to
class_archive   Spark's classes as a Java class-data archive, which halves the time of a start
"""
