"""All of django-oauth-toolkit's own addresses; the token endpoint is /o/token/."""

from django.urls import include, path

urlpatterns = [path("o/", include("oauth2_provider.urls", namespace="oauth2_provider"))]
