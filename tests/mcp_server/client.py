"""Calls every tool twice with the official Python client, which checks each structured result against the tool's output schema."""

import asyncio
import json
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters


async def main(era, calls, exe, workspace):
    server = StdioServerParameters(command=exe, args=["mcp", "--workspace", workspace])
    made = 0
    async with Client(server, mode={"legacy": "legacy", "modern": "2026-07-28"}[era]) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [name for name, _, _ in calls], listed
        for name, good, bad in calls:
            for args, success in ((good, True), (bad, False)):
                if not isinstance(args, dict):
                    continue  # this client sends objects only
                result = await client.call_tool(name, args)
                made += 1
                envelope = result.structured_content
                assert list(envelope) == ["success", "data", "error"], envelope
                assert envelope["success"] is success and result.is_error is not success, (name, args, envelope)
                assert json.loads(result.content[0].text) == envelope
    print(f"{era}: {len(listed)} tools, {made} calls")


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:]))
