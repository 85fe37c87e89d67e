// One request to the server and its stream of events.

export class Fault extends Error {
  constructor(status, error) {
    super(error?.message ?? "the server answers with HTTP status " + status);
    this.status = status;
    this.code = error?.code ?? "";
  }
}

async function faultOf(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // no JSON: the status has to do
  }
  return new Fault(response.status, error);
}

const headers = (key) => (key ? { Authorization: "Bearer " + key } : {});

export async function models(key) {
  const response = await fetch("v1/models", { headers: headers(key) });
  if (!response.ok) throw await faultOf(response);
  return (await response.json()).data;
}

// Calls on(chunk) for each object of the stream, in order. Throws Fault for errors, at the start or inside the stream.
export async function answer(body, { signal, key, on }) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, return_progress: true }),
    signal,
  });
  if (!response.ok) throw await faultOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Fault(0, { message: "the answer broke off: the server went away" });
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Fault(0, chunk.error);
      on(chunk);
    }
  }
}
