"""The one error type that a user is meant to read.

A ``LabError`` says what is wrong, where, and what would be right. The command line prints it in one line and exits
with status 2; the service turns it into a 4xx answer. Anything else that escapes is a bug of ours.
"""


class LabError(ValueError):
    """Bad input or a state that the user can mend; the message is a whole sentence for them."""
