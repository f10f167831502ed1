"""Which names a cell takes from its surroundings, found without running it."""

import builtins
import symtable
from collections.abc import Iterator
from typing import Final

BUILTIN: Final = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}


def borrowed_names(source: str) -> frozenset[str]:
    """Names that the code reads at module level or below and binds nowhere at module level.

    Raises ``SyntaxError`` when the source is not plain Python.
    """
    compile(source, "<cell>", "exec", dont_inherit=True)
    module = symtable.symtable(source, "<cell>", "exec")
    bound = {
        symbol.get_name()
        for symbol in module.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_annotated()
    }
    read: set[str] = set()
    for table in _tables(module):
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
            at_module_level = table is module or symbol.is_global()
            if at_module_level and symbol.is_referenced():
                read.add(symbol.get_name())
    return frozenset(read - bound - BUILTIN)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
