"""docs/reference/settings.md is what the settings' types say."""

from pathlib import Path

from swiftspec_daemon import settings_docs
from swiftspec_daemon.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


def test_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == settings_docs.markdown(), "run `make docs`"


def test_page_has_values_defaults_and_sentences():
    page = settings_docs.markdown()
    assert "| `server.port` | integer, 0 to 65535 | `17817` | `SWIFTSPEC_SERVER__PORT` |" in page
    assert '`auto`, `native`, `transformers` | `"auto"`' in page
    assert "- `server.port`: 0 lets the system choose" in page
    for section in Settings.__struct_fields__:
        assert f"## `[{section}]`" in page
