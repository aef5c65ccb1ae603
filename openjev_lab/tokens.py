"""Prompt text becomes token ids: one user turn of the tokenizer's chat template. Nothing else in the project tokenizes.

Takes a Hugging Face folder (``tokenizer.json``, ``tokenizer_config.json``, the chat template) and returns the ids that
transformers' ``apply_chat_template(..., add_generation_prompt=True, enable_thinking=False)`` returns, without importing
transformers: a server needs seconds less to start, and a request some hundred microseconds less.

As there, text that spells a special token becomes that token, wherever it stands: a state that holds ``<|im_end|>``
ends its own turn. The arms must agree to the token, so nothing is cut or escaped here; whoever serves strangers'
states filters them before.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab.contract import CANDIDATE_ENDING, NOUL_ENDING
from openjev_lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

HEAD, TAIL = "Context:\n", "Answer Yes or No."
"""How every prompt of the contract begins and ends; for such prompts the template is known to be prefix and suffix."""
assert NOUL_ENDING.endswith(TAIL) and CANDIDATE_ENDING.endswith(TAIL)


class Prompter:
    """The one tokenizer of a checkpoint. ``encode`` may be called from several threads."""

    def __init__(self, tokenizer: Tokenizer, chat: Callable[[str], str]) -> None:
        self._tokenizer = tokenizer
        self._chat = chat
        self.chat_prefix, self.chat_suffix = _around(chat)
        """What the template puts before and after a prompt; a merged export stores them."""
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, base_dir: str | Path) -> Prompter:
        """From a folder in the Hugging Face layout. Raises ``LabError`` that names the file at fault."""
        from tokenizers import Tokenizer

        folder = Path(base_dir)
        path = folder / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exceptions
            what = "is missing" if not path.is_file() else f"is not a tokenizer: {error}"
            raise LabError(f"{path} {what}; a checkpoint's base folder holds its tokenizer") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(tokenizer, _template(folder))

    def encode(self, prompt: str) -> list[int]:
        """The token ids of one prompt as a user turn, with the generation prompt added and thinking off."""
        # the batch call is the one that skips character offsets, a fifth of the time on a long prompt
        return self._tokenizer.encode_batch_fast([self.render(prompt)], add_special_tokens=False)[0].ids

    def render(self, prompt: str) -> str:
        """The text that is tokenized: the chat template around the prompt."""
        if prompt.startswith(HEAD) and prompt.endswith(TAIL):
            return f"{self.chat_prefix}{prompt}{self.chat_suffix}"
        return self._chat(prompt)  # a template may trim or treat other text in its own way


def _around(chat: Callable[[str], str]) -> tuple[str, str]:
    """The template's text before and after a prompt of the contract."""
    probe = f"{HEAD} {{{{ x }}}}\n\n  <y>\n\nQuestion: z\n{NOUL_ENDING}"
    before, found, after = chat(probe).partition(probe)
    if not found or chat(f"{HEAD}{TAIL}") != f"{before}{HEAD}{TAIL}{after}":
        raise LabError("the chat template changes a user's text; one that puts it in place as it is would be right")
    return before, after


def _template(folder: Path) -> Callable[[str], str]:
    """The folder's chat template as a function of the prompt, in the environment that transformers gives it."""
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    config = _config(folder / "tokenizer_config.json")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    source = _template_source(folder, config)
    try:
        template = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise LabError(f"the chat template in {folder} does not compile: {error}") from error
    tokens = {key: value for key, value in config.items() if key.endswith("_token") and value is not None}
    special = {key: value["content"] if isinstance(value, dict) else value for key, value in tokens.items()}

    def chat(prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        try:
            return template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                enable_thinking=False,
                **special,
            )
        except jinja2.TemplateError as error:
            raise LabError(f"the chat template in {folder} refuses a user turn: {error}") from error

    return chat


def _config(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"{path} is missing; it comes with the tokenizer") from None
    except ValueError as error:
        raise LabError(f"{path} is not JSON: {error}") from None


def _template_source(folder: Path, config: dict[str, Any]) -> str:
    """``chat_template.jinja`` if there, else the configuration's template (or its default among several)."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):
        source = next((item["template"] for item in source if item["name"] == "default"), None)
    if not isinstance(source, str):
        raise LabError(f"{folder} has no chat template: neither {file.name} nor one in tokenizer_config.json")
    return source


def _tojson(  # jinja's own escapes HTML
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)
