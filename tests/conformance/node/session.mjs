// A session of a TypeScript SDK with a memory: `node session.mjs SDK NAMESPACE URL` or `… NAMESPACE COMMAND ARGUMENT…`.
// Prints what it was told, as JSON.

const [sdk, namespace, ...target] = process.argv.slice(2);

async function parts() {
  if (sdk === "sdk") {
    const [{ Client }, http, stdio] = await Promise.all([
      import("@modelcontextprotocol/sdk/client/index.js"),
      import("@modelcontextprotocol/sdk/client/streamableHttp.js"),
      import("@modelcontextprotocol/sdk/client/stdio.js"),
    ]);
    return { Client, Http: http.StreamableHTTPClientTransport, Stdio: stdio.StdioClientTransport, options: {} };
  }
  const [{ Client, StreamableHTTPClientTransport }, stdio] = await Promise.all([
    import("@modelcontextprotocol/client"),
    import("@modelcontextprotocol/client/stdio"),
  ]);
  const options = sdk === "client" ? { versionNegotiation: { mode: "auto" } } : {};
  return { Client, Http: StreamableHTTPClientTransport, Stdio: stdio.StdioClientTransport, options };
}

const { Client, Http, Stdio, options } = await parts();
const transport = target[0].startsWith("http")
  ? new Http(new URL(target[0]))
  : new Stdio({ command: target[0], args: target.slice(1), env: process.env });
const client = new Client({ name: "test", version: "0" }, options);
await client.connect(transport);

async function failure(action) {
  try {
    await action();
    return null;
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

// Once its tools are listed, a client checks every answer by its output schema.
const { tools } = await client.listTools();
const call = async (name, given) => await client.callTool({ name, arguments: { namespace, ...given } });
const remembered = await call("hippo_remember", { content: "A heron stands in the harbour.", tags: ["bird"] });
const id = remembered.structuredContent.memory.id;
const told = {
  tools: tools.map((tool) => tool.name),
  remembered: remembered.structuredContent,
  recalled: (await call("hippo_recall", { query: "which bird?" })).structuredContent,
  explained: (await call("hippo_search", { query: "which bird?", explain: true })).structuredContent,
  updated: (await call("hippo_update", { id, status: "seen" })).structuredContent,
  history: (await call("hippo_history", { id })).structuredContent,
  refused: await call("hippo_recall", { query: " " }),
  unknown: await failure(() => call("hippo_fly", {})),
  resources: (await client.listResources()).resources.map((resource) => resource.uri),
  templates: (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate),
  memory: JSON.parse((await client.readResource({ uri: `memory://${namespace}/${id}` })).contents[0].text),
  nothing: await failure(() => client.readResource({ uri: "memory://nowhere/1" })),
  prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  prompt: (await client.getPrompt({ name: "recall_context", arguments: { topic: "bird", namespace } })).messages,
};
await client.close();
console.log(JSON.stringify(told));
