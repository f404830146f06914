"""A simulated AWS and GPU fleet that answers unmodified boto3 on 127.0.0.1.

Free of Django: settings come from the environment through `config`, state lives in its own SQLite file.
"""
