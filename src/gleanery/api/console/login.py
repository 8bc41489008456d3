"""The handlers of the console's login: sign in, confirm, sign out.

With a confirmation, a person who is signed in proves again to have the token.
"""
