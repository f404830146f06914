import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "healthboard.settings")
os.environ.setdefault("HEALTHBOARD_PROCESS", "web")  # however it was started, it makes no calls to AWS
application = get_wsgi_application()
