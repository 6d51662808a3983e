"""Makes the fixed prompts of `swiftspec bench decode`: code, edits and prose, each with its origin.

    python benchmarks/collect_prompts.py --human-eval HumanEval-SingleLineInfilling.jsonl.gz

Sources are this repository (Apache-2.0) and HumanEval's infilling form (MIT, OpenAI). The result
is committed, so that figures of different days are of the same prompts; running this again on
changed sources gives other ones. No prompt ends with a line break: tokenizers take it together with
the indentation that follows, so that behind a bare one models write what isn't indented.
Deterministic. Knows no model.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "swiftspec_daemon" / "bench" / "data" / "prompts.json"
PER_KIND = 48
CONTEXT_CHARACTERS = (600, 3000)


class Prompt(TypedDict):
    """One prompt."""

    id: str
    origin: str
    text: str


def main() -> None:
    """Collect and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--human-eval", type=Path, required=True)
    problems = human_eval(parser.parse_args().human_eval)
    own = own_files("swiftspec_daemon", "kernels", "lsp", pattern="*.py")
    half = PER_KIND // 2
    kinds = {
        "code": [*code_of_files(own, half), *code_of_problems(problems, half)],
        "edit": [*edits(functions_of(own), 0, half), *edits(problems, half, PER_KIND)],
        "prose": list(prose(PER_KIND)),
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(kinds, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for kind, prompts in kinds.items():
        mean = sum(len(prompt["text"]) for prompt in prompts) // len(prompts)
        print(f"{kind}: {len(prompts)} prompts, {mean} characters in the mean")


def human_eval(file: Path) -> list[tuple[str, str]]:
    """Name and whole source of each problem, one a function."""
    problems = {}
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            source = item["prompt"] + item["canonical_solution"] + item["suffix"]
            problems.setdefault(item["entry_point"], source)
    return [(f"HumanEval (MIT), {name}", source.strip("\n")) for name, source in problems.items()]


def own_files(*folders: str, pattern: str) -> list[tuple[str, str]]:
    """Path and text of this repository's files, long enough to cut."""
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob(pattern))
    texts = [(str(file.relative_to(ROOT)), file.read_text("utf-8")) for file in files]
    return [(path, text) for path, text in texts if len(text) > 2 * CONTEXT_CHARACTERS[0]]


def code_of_files(files: list[tuple[str, str]], count: int) -> Iterator[Prompt]:
    """Files cut inside a function, at the end of a word or of a line's text."""
    pick = random.Random("code of files")
    for i, (path, text) in enumerate(pick.sample(files, count)):
        ends = [match.end() for match in re.finditer(r"\w\b|\n", text)]
        low, high = CONTEXT_CHARACTERS
        end = pick.choice([at for at in ends if low <= at <= min(high, len(text) - 200)])
        yield Prompt(id=f"code-{i:02}", origin=path, text=f"# {path}\n{text[:end].rstrip()}")


def code_of_problems(problems: list[tuple[str, str]], count: int) -> Iterator[Prompt]:
    """Two solved problems, then one that is cut in its body."""
    pick = random.Random("code of problems")
    for i in range(count):
        first, second, last = pick.sample([p for p in problems if len(p[1]) > 400], 3)
        lines = last[1].splitlines(keepends=True)
        body = max(n for n, line in enumerate(lines) if '"""' in line or "'''" in line) + 1
        cut = "".join(lines[: min(body + 1, len(lines) - 1)])
        text = f"{first[1]}\n\n\n{second[1]}\n\n\n{cut.rstrip()}"
        yield Prompt(id=f"code-{i + count:02}", origin=last[0], text=text)


def functions_of(files: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Functions of 8 to 25 lines at the top of modules."""
    found = []
    for path, text in files:
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and 7 <= (node.end_lineno or 0) - node.lineno < 25:
                source = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
                found.append((f"{path}, {node.name}", source))
    return found


def edits(functions: list[tuple[str, str]], first: int, end: int) -> Iterator[Prompt]:
    """A function, then the first half of the same function with one name changed."""
    pick = random.Random("edits")
    numbers = iter(range(first, end))
    for origin, source in pick.sample(functions, len(functions)):
        name = renamed_argument(source)
        if name is None:
            continue
        number = next(numbers, None)
        if number is None:
            return
        changed = re.sub(rf"\b{name}\b", f"{name}_value", source)
        lines = changed.splitlines()
        body = changed[: changed.index(":\n", changed.rindex("def ")) + 2].count("\n")
        head = "\n".join(lines[: body + max(1, (len(lines) - body) // 2)])
        text = f"# Before:\n{source}\n\n\n# After, with {name} called {name}_value:\n{head}"
        yield Prompt(id=f"edit-{number:02}", origin=origin, text=text)


def renamed_argument(source: str) -> str | None:
    """The argument of the last function that its text uses most, if at least three times."""
    function = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    names = [argument.arg for argument in function.args.args]
    used = {name: len(re.findall(rf"\b{name}\b", source)) for name in names}
    best = max(used, key=lambda name: used[name], default=None)
    return best if best is not None and used[best] >= 3 else None


def prose(count: int) -> Iterator[Prompt]:
    """The project's documents, cut inside a paragraph."""
    pick = random.Random("prose")
    files = [("README.md", (ROOT / "README.md").read_text("utf-8"))]
    files += own_files("docs", pattern="*.md")
    files = [(path, text) for path, text in files if "reference/" not in path]
    for i in range(count):
        path, text = files[i % len(files)]
        spaces = [match.start() for match in re.finditer(r"(?<=[a-z,]) (?=[a-z])", text)]
        low = min(CONTEXT_CHARACTERS[0], len(text) // 2)
        end = pick.choice([at for at in spaces if low <= at <= len(text) - 100])
        start = max(0, end - pick.randint(*CONTEXT_CHARACTERS))
        yield Prompt(id=f"prose-{i:02}", origin=path, text=text[start:end])


if __name__ == "__main__":
    main()
