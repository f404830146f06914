import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from healthboard import loaded

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "healthboard.settings")
os.environ.setdefault("HEALTHBOARD_PROCESS", "web")  # however it was started, it makes no calls to AWS
application = get_wsgi_application()
import_module(settings.ROOT_URLCONF)  # all pages, before the first is asked for
loaded.keep()
