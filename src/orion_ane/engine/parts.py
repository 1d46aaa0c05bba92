"""Functions that compiled kernels alone call: they are made into the kernels' code, and no further.

numba optimises each function, and makes machine code of it, before another's takes it in and does
both again with all of it.  A third of the time to compile went there.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import IRLegalization


class _Code(JITCodeLibrary):
    """A function's code before it is optimised, for others to take in."""

    # What numba's own does at these steps is left out: there is nothing to run, so no environment.

    @property
    def codegen(self) -> Any:
        return _NoEnvironments(self._codegen)

    def get_pointer_to_function(self, _name: str) -> int:
        self._ensure_finalized()  # type: ignore[no-untyped-call]  # numba has no types
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]  # likewise
        self._finalized = True


class _NoEnvironments:
    """A code generator that is not told of Python objects."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


@register_pass(mutates_CFG=False, analysis_only=True)
class _Prepare(LoweringPass):
    """Have the code written where it stays unfinished."""

    _name = "orion_part"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it is abstract, yet has this

    def run_pass(self, state: Any) -> bool:
        codegen, name = state.targetctx.codegen(), state.func_id.func_qualname
        state.library = _Code(codegen, name)  # type: ignore[no-untyped-call]  # likewise
        return True


class Part(CompilerBase):
    """How such a function is compiled."""

    def define_pipelines(self) -> list[Any]:
        """numba's own steps, and ours."""
        steps = DefaultPassBuilder.define_nopython_pipeline(self.state)
        steps.add_pass_after(_Prepare, IRLegalization)
        steps.finalize()
        return [steps]
