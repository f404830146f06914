"""What every page's frame needs."""


def shell(request):
    return {}
