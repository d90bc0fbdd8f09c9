import pytest

from curtainwall.model import ToolEffect, ToolSpec
from curtainwall.tools import NATIVE_TOOLS

# Names and arguments are part of the contract; a question mark is an argument that may be left out.
CONTRACT = """
filesystem.read_file(path, head?, tail?)
filesystem.read_multiple_files(paths)
filesystem.write_file(path, content)
filesystem.edit_file(path, edits, dryRun?)
filesystem.create_directory(path)
filesystem.list_directory(path)
filesystem.directory_tree(path)
filesystem.move_file(source, destination)
filesystem.delete_file(path)
filesystem.search_files(path, pattern, excludePatterns?)
filesystem.get_file_info(path)
filesystem.list_allowed_directories()
fetch.get(url, method?, headers?, body?, format?, credential?)
git.status(path?)
git.diff(path?, ref?, staged?, files?)
git.log(path?, count?, ref?)
git.show(path?, ref)
git.add(path?, files)
git.commit(path?, message)
git.branch(path?, name?)
git.checkout(path?, ref, create?)
git.init(path)
git.set_working_dir(path)
git.clone(url, path)
git.fetch(path?, remote?)
git.pull(path?, remote?, branch?)
git.push(path?, remote?, branch?)
shell.run(command, cwd?, timeout?)
session.propose_plan(steps)
session.load_skill(name, file?)
session.remember(text)
session.recall(query)
session.request_budget(what, amount, why)
""".split("\n")[1:-1]


def written(tool: ToolSpec) -> str:
    required, properties = tool.schema_["required"], tool.schema_["properties"]
    assert isinstance(required, list)
    assert isinstance(properties, dict)
    return f"{tool.full_name}({', '.join(name if name in required else f'{name}?' for name in properties)})"


def test_names_and_arguments_are_those_of_the_contract() -> None:
    tools = {written(tool) for tool in NATIVE_TOOLS if not tool.for_house}
    assert tools ^ set(CONTRACT) == set(), "a tool more, less or with other arguments is a change of `CONTRACT`"


@pytest.mark.parametrize("tool", NATIVE_TOOLS, ids=lambda tool: tool.full_name)
def test_every_tool_says_in_one_line_what_it_does(tool: ToolSpec) -> None:
    assert tool.description.endswith(".")
    assert "\n" not in tool.description
    assert len(tool.description) < 130
    assert tool.schema_["additionalProperties"] is False


@pytest.mark.parametrize("tool", NATIVE_TOOLS, ids=lambda tool: tool.full_name)
def test_a_tool_that_only_inspects_never_changes_or_sends(tool: ToolSpec) -> None:
    roles = {role for meaning in tool.meanings for roles in (meaning.roles, *(case.roles for case in meaning.cases)) for role in roles}
    changing = {role for role in roles if role.value.startswith(("write", "delete", "send", "run", "use", "message", "raise", "fetch"))}
    assert not changing or tool.effect is not ToolEffect.INSPECT
