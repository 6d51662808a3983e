"""Special tokens for fill-in-the-middle and repositories: `inspect` and `doctor` say the same."""

import pytest

from swiftspec_daemon.cli.findings_daemon import describe_template
from swiftspec_daemon.models import catalog, fill_in, inspection


@pytest.mark.parametrize("family", fill_in.FILL_IN)
def test_a_whole_set_is_found_and_a_part_is_none(family: str) -> None:
    tokens = {token: number for number, token in enumerate(fill_in.FILL_IN[family])}
    assert fill_in.fill_in_family(tokens) == family
    assert fill_in.fill_in_tokens(tokens) == tokens
    assert f"the vocabulary has {family} fill-in-the-middle tokens" in describe_template(tokens)
    del tokens[fill_in.FILL_IN[family][-1]]
    assert fill_in.fill_in_family(tokens) is None
    assert fill_in.fill_in_tokens(tokens) == {}
    assert "the vocabulary has no fill-in-the-middle tokens" in describe_template(tokens)


def test_repository_tokens_are_no_fill_in_tokens() -> None:
    tokens = {"<repo_name>": 3, "<file_sep>": 5, "<|endoftext|>": 0}
    assert fill_in.repository_tokens(tokens) == {"<repo_name>": 3, "<file_sep>": 5}
    assert fill_in.fill_in_tokens(tokens) == {}


@pytest.mark.model
def test_the_default_model_has_repository_tokens_only(default_model: catalog.ResolvedModel) -> None:
    facts = inspection.inspect(default_model)
    assert facts.fill_in == {}
    assert facts.repository == {"<repo_name>": 3, "<reponame>": 4, "<file_sep>": 5}
    tokens = catalog.open_tokenizer(default_model).special_tokens
    assert "has no fill-in-the-middle" in describe_template(tokens)
