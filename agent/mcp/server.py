"""The server: one tool a function, all over incidents of one folder. Needs the `mcp` package, and nothing of torch.

No tool takes a command, a path to run, or a fact: what the intended system is, only the operator knows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from weaklink.agent.advisors.asking import Telling
from weaklink.agent.advisors.choosing import telling
from weaklink.agent.cli.said import Said, SaidAdvisor
from weaklink.agent.conversation.limits import DEFAULT_CONTEXT, SMALLEST_CONTEXT
from weaklink.agent.mcp import proposing, reading, verifying
from weaklink.agent.mcp.bounded import as_text
from weaklink.agent.mcp.ending import ending_at_signals
from weaklink.agent.mcp.shelf import Shelf
from weaklink.agent.settings import read_settings
from weaklink.collector.errors import UsageError, WeaklinkError
from weaklink.collector.table.text import printable

LARGEST_CONTEXT = 131_072  # tokens; a longer prompt says no more
INSTRUCTIONS = """weaklink measured a PyTorch run that runs and does not learn, and keeps what it measured as an
incident. Read the chain (`read_chain`), then `read_prompt`: it says what an answer must hold. `propose` holds your
answer to a contract; what it breaks comes back word for word. `verify` reruns the one frozen experiment, and the rerun
decides, not the argument. A healthy run is answered with nothing_to_repair. Do not edit the sources before `verify` is
done: a changed script is another run. Facts on the intended system are the operator's: where you need one,
ask_operator."""
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


def serve(incidents: Path, folder: Path, deadline: float) -> None:
    """Serve until the client goes away. Standard output carries the protocol alone.

    Args:
        incidents: Folder of the incidents.
        folder: Folder in which frozen experiments are rerun.
        deadline: Seconds for each rerun.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM ended it; what was in flight is stopped and recorded as interrupted.
    """
    with ending_at_signals():
        build(Shelf(incidents), folder.resolve(), deadline).run("stdio")


def build(shelf: Shelf, folder: Path, deadline: float) -> MCPServer[Any]:
    """The server with its tools."""
    server: MCPServer[Any] = MCPServer(
        "weaklink", instructions=INSTRUCTIONS, version=version("weaklink"), log_level="ERROR", subscriptions=False
    )
    add = server.tool

    @add(annotations=_READS, structured_output=False)
    def list_incidents() -> str:
        """The newest incidents: subject, first divergence, status, whether a frozen experiment waits for its reruns."""
        return _told(lambda: reading.list_incidents(shelf))

    @add(annotations=_READS, structured_output=False)
    def read_chain(incident: str, whole: bool = False) -> str:
        """One incident's measured chain: every row, the first divergence, where in the code, parameters by module.

        With `whole`, the values of rows that pass too.
        """
        return _told(lambda: reading.read_chain(shelf.read(incident), whole))

    @add(annotations=_READS, structured_output=False)
    def read_prompt(incident: str, context: int = DEFAULT_CONTEXT) -> str:
        """What a model is shown of this incident, within `context` tokens, ending with how to answer."""
        return _guarded(lambda: reading.read_prompt(shelf.read(incident), _telling(folder, context), folder))

    @add(annotations=_READS, structured_output=False)
    def list_experiments(name: str = "") -> str:
        """The closed catalogue: what each experiment changes, its parameters, what it decides; one by name whole."""
        return _told(lambda: reading.list_experiments(name))

    @add(annotations=_READS, structured_output=False)
    def list_measurements() -> str:
        """What predictions can speak about."""
        return _told(reading.list_measurements)

    @add(annotations=_READS, structured_output=False)
    def read_record(incident: str) -> str:
        """One incident's record: its events in short, whether it is intact, its head, the diagnosis so far."""
        return _told(lambda: reading.read_record(shelf.read(incident)))

    @add(annotations=_WRITES, structured_output=False)
    def propose(incident: str, proposal: dict[str, Any] | str, context: Context) -> str:
        """Answer an incident: the proposal object that `read_prompt` describes.

        Broken rules come back word for word. Accepted, its prediction is frozen; nothing is rerun before `verify`.
        """
        agent = _client(context)
        told = _telling(folder, DEFAULT_CONTEXT)
        return _told(lambda: proposing.propose(shelf.read(incident), proposal, folder, told, agent))

    @add(annotations=_WRITES, structured_output=False)
    async def verify(incident: str, context: Context) -> str:
        """Rerun the frozen experiment of an incident (controls, placebo, treatment) and return the verdict."""
        count = 0

        async def tell(line: str) -> None:
            nonlocal count
            count += 1
            await context.report_progress(count, message=printable(line, 300))

        try:
            return as_text(await verifying.verify(shelf, incident, folder, deadline, tell))
        except WeaklinkError as error:
            raise _refusal(error) from None

    return server


def _told(read: Callable[[], dict[str, Any]]) -> str:
    return _guarded(lambda: as_text(read()))


def _guarded(make: Callable[[], str]) -> str:
    try:
        return make()
    except WeaklinkError as error:
        raise _refusal(error) from None


def _refusal(error: WeaklinkError) -> ToolError:
    """The three sentences that every error of weaklink has."""
    lines = [printable(error.message, 2000)]
    lines += [f"about: {printable(error.about, 500)}"] if error.about else []
    lines += [f"next: {printable(error.hint, 500)}"] if error.hint else []
    return ToolError("\n".join(lines))


def _telling(folder: Path, context: int) -> Telling:
    """What the prompt may show, as the project's weaklink.toml has it."""
    if not SMALLEST_CONTEXT <= context <= LARGEST_CONTEXT:
        raise UsageError(f"A context has between {SMALLEST_CONTEXT} and {LARGEST_CONTEXT} tokens.", about=str(context))
    return telling(SaidAdvisor(context=context), read_settings(Said(), folder).model)


def _client(context: Context[Any, Any]) -> str | None:
    """What the client calls itself. Nothing here checks it."""
    parameters = context.request_context.session.client_params
    info = None if parameters is None else parameters.client_info
    return None if info is None else printable(f"{info.name} {info.version}", 200)
