from django.db import migrations

from healthboard.audit import guard


def install(apps, editor):
    guard.install(editor.connection)


def remove(apps, editor):
    guard.remove(editor.connection)


class Migration(migrations.Migration):

    dependencies = [("audit", "0002_seals")]

    operations = [migrations.RunPython(install, remove)]
