"""The room `spine.llm` shows what its modules offer."""

import importlib
import pkgutil

import spine.llm


def test_the_room_offers_every_public_name_of_its_modules() -> None:
    """But for a function that is called as its own module."""
    found = [info.name for info in pkgutil.iter_modules(spine.llm.__path__)]
    modules = [importlib.import_module(f"spine.llm.{name}") for name in found]
    public = {name: getattr(module, name) for module in modules for name in module.__all__ if name not in found}
    assert {name: getattr(spine.llm, name) for name in spine.llm.__all__} == public
    assert set(spine.llm.__all__) <= set(dir(spine.llm))
