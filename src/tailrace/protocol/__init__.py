"""The Kafka wire protocol: message classes, and their encoding. Pure: no sockets, no clock.

Read in this order:

    fields          the field types that message classes are declared with
    message         the decorators that turn such a class into a message with versions
    messages/       one module per API; the table of API keys and their versions
    codec           decodes and encodes messages; compiles one function per class and version on first use
    compile_reader  generates the function that decodes one version of a message
    compile_writer  generates the function that encodes one
    codegen         Python source text while it is generated
    primitives      variable-length integers, tagged fields and length checks, called by generated code
    frame           request and response headers, and the length in front of both
    fetch_wire      Fetch: session epochs, and responses around records that are not decoded
    errors          Kafka's error codes, and the exception for malformed bytes
"""
