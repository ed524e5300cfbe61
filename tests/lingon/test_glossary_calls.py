"""Calls of GlossaryService: changes that others make at the same time."""

from __future__ import annotations

import pytest

from lingon.errors import NotStored, RequestError, StoredVersionChanged
from lingon.glossary_calls import change_again

BETWEEN = StoredVersionChanged("glossary g has version 2, not 1; read it again")


@pytest.mark.parametrize(("errors", "calls"), [([], 1), ([BETWEEN] * 7, 8)])
async def test_a_change_is_made_again_while_others_come_between(errors: list[RequestError], calls: int):
    left, made = list(errors), list[int]()

    async def change() -> str:
        made.append(1)
        if left:
            raise left.pop()
        return "stored"

    assert await change_again(change) == "stored"
    assert len(made) == calls


async def test_another_error_ends_a_change():
    made = list[int]()

    async def change() -> None:
        made.append(1)
        raise NotStored("glossary", "g", "there is no glossary g")

    with pytest.raises(NotStored):
        await change_again(change)
    assert len(made) == 1
